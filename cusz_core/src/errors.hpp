// The one exception type of the core; the C interface turns it into a status and a message.
#pragma once

#include <cusz/cusz.h>

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>

namespace cusz {

class Error : public std::runtime_error {
public:
    Error(cusz_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
    cusz_status status() const { return status_; }

private:
    cusz_status status_;
};

// Joins the parts into the message: fail(CUSZ_ERROR_PARAMETER, "ndim is ", n, "; legal: 1 to 4").
template <class... Parts>
[[noreturn]] void fail(cusz_status status, const Parts&... parts) {
    std::ostringstream text;
    text.imbue(std::locale::classic()); // the application's locale may write 1.000.000 or 0,5
    text.precision(17);
    (text << ... << parts);
    throw Error(status, text.str());
}

// At a thread's first throw, the C++ runtime allocates memory for the thread, and ends the process if there is none.
// This makes it allocate beforehand, and returns whether there was enough.
inline bool prepare_to_throw() noexcept {
    constexpr std::size_t enough = 1 << 14; // more than the runtime takes
    void* volatile memory = std::malloc(enough);
    if (memory == nullptr) return false;
    std::free(memory);
    [[maybe_unused]] volatile int unused = std::uncaught_exceptions(); // volatile: not optimised away
    return true;
}

} // namespace cusz
