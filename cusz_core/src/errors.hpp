// The one exception type of the core; the C interface turns it into a status and a message.
#pragma once

#include <cusz/cusz.h>

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
    text.imbue(std::locale::classic()); // an application's own may write 1.000.000 or 0,5
    text.precision(17);
    (text << ... << parts);
    throw Error(status, text.str());
}

} // namespace cusz
