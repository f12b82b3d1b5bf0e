#include "readable.hpp"

#include <cusz/cusz.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace cusz_operator {
namespace {

// Writing to a pipe makes the kernel read the memory on the CPU's behalf and return EFAULT instead of raising a signal.
// (process_vm_readv needs no pipe, but refuses memory mapped by a driver, such as pinned memory.)
class Pipe {
public:
    Pipe() noexcept {
        if (::pipe2(m_ends, O_CLOEXEC | O_NONBLOCK) != 0) m_ends[0] = m_ends[1] = -1;
    }
    ~Pipe() {
        if (!is_open()) return;
        ::close(m_ends[0]);
        ::close(m_ends[1]);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;

    // Writes as many of these bytes as the pipe has room for. Returns 0 if the first byte cannot be read, or if pipes
    // do not work here.
    std::size_t put_some(const char* source, std::size_t bytes) noexcept {
        if (!is_open()) return 0;
        const std::size_t written = transfer([&] { return ::write(m_ends[1], source, bytes); });
        m_met_fault = written == 0 && errno == EFAULT;
        return written;
    }
    bool met_fault() const noexcept { return m_met_fault; }

    // Copies some of these bytes through the pipe, which is empty before and after.
    std::size_t copy_some(char* target, const char* source, std::size_t bytes) noexcept {
        const std::size_t written = put_some(source, bytes);
        for (std::size_t done = 0; done < written;) {
            const std::size_t n = transfer([&] { return ::read(m_ends[0], target + done, written - done); });
            if (n == 0) return 0;
            done += n;
        }
        return written;
    }

private:
    bool is_open() const noexcept { return m_ends[0] >= 0; }

    template <class Call>
    static std::size_t transfer(const Call& call) noexcept {
        ssize_t n = -1;
        do n = call();
        while (n < 0 && errno == EINTR);
        return n > 0 ? static_cast<std::size_t>(n) : 0;
    }

    int m_ends[2];
    bool m_met_fault = false;
};

constexpr std::size_t max_at_once = 1 << 16; // a pipe holds no more

// The only test left if pipes do not work (for example, because file descriptors have run out).
bool is_on_host(const void* memory) noexcept { return cusz_device_of(memory) < 0; }

} // namespace

bool cpu_can_read(const void* memory, std::size_t bytes) noexcept {
    if (memory == nullptr) return false;
    Pipe pipe;
    const auto* first = static_cast<const char*>(memory);
    for (const char* byte : {first, first + (bytes - 1)}) {
        if (pipe.put_some(byte, 1) == 0) return !pipe.met_fault() && is_on_host(memory);
    }
    return true;
}

bool copy_readable(void* target, const void* source, std::size_t bytes) noexcept {
    Pipe pipe;
    auto* to = static_cast<char*>(target);
    const auto* from = static_cast<const char*>(source);
    while (bytes > 0) {
        const std::size_t n = pipe.copy_some(to, from, std::min(bytes, max_at_once));
        if (n == 0) {
            if (pipe.met_fault() || !is_on_host(source)) return false;
            std::memcpy(to, from, bytes);
            return true;
        }
        to += n;
        from += n;
        bytes -= n;
    }
    return true;
}

} // namespace cusz_operator
