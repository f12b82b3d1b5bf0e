// Writes and reads the numbers that archives of version 2 begin with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "errors.hpp"

namespace cusz::v2 {

[[noreturn]] inline void corrupt(const char* what) { fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", what); }

class Writer {
public:
    explicit Writer(std::byte* to) : begin_(to), at_(to) {}
    void number(std::uint64_t value, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i) *at_++ = static_cast<std::byte>(value >> 8 * i);
    }
    void varint(std::uint64_t value) {
        for (; value > 127; value >>= 7) number((value & 127) | 128, 1);
        number(value, 1);
    }
    std::size_t bytes() const { return static_cast<std::size_t>(at_ - begin_); }

private:
    std::byte *begin_, *at_;
};

class Reader {
public:
    Reader(std::span<const std::byte> from, std::size_t at) : from_(from), at_(at) {}
    std::uint64_t number(std::size_t bytes) {
        if (bytes > from_.size() - at_) corrupt("it ends too early");
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < bytes; ++i)
            value |= std::uint64_t{static_cast<std::uint8_t>(from_[at_++])} << 8 * i;
        return value;
    }
    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (std::uint32_t shift = 0;; shift += 7) {
            const std::uint64_t byte = number(1), bits = byte & 127;
            if (shift > 63 || bits << shift >> shift != bits) corrupt("a number is too long");
            value |= bits << shift;
            if (byte > 127) continue;
            if (byte == 0 && shift > 0) corrupt("a number could be shorter");
            return value;
        }
    }
    std::size_t at() const { return at_; }

private:
    std::span<const std::byte> from_;
    std::size_t at_;
};

} // namespace cusz::v2
