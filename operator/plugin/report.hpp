// Messages to the person who runs the simulation.
#pragma once

namespace cusz_operator {

// Prints one line to stderr, "cusz_operator[rank R]: ...", unless the same `reason` was reported by this process
// before. `reason` is the text that tells messages apart (a format and what makes it a different case), `format` as for
// printf. Allocates nothing and never throws: it is called where memory has run out.
void report_once(const char* reason, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

} // namespace cusz_operator
