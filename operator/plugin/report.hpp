// Messages to the user who runs the simulation.
#pragma once

namespace cusz_operator {

// Prints one line to stderr, "cusz_operator[rank R]: ...", unless this process has already reported the same `reason`.
// `reason` identifies the message and what distinguishes this case; `format` is as for printf. Allocates nothing and
// never throws, because it is called when memory has run out.
void report_once(const char* reason, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

} // namespace cusz_operator
