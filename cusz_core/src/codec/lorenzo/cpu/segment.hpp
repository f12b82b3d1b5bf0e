// Payloads on their way to their place in a body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "buffer.hpp"
#include "tile.hpp"

namespace cusz::cpu {

// The payloads that one thread has finished, back to back: in their final place if it is known (only by the thread that
// starts with the first tile), else in the segment's own buffer.
class Segment {
public:
    std::size_t words = 0;
    std::uint64_t checksum = 0;
    Counts counts;

    // begin, capacity: where the payloads belong and how many words fit there; begin is null if the place is unknown.
    void start(std::uint32_t* begin, std::size_t capacity) {
        in_place_ = begin != nullptr;
        begin_ = in_place_ ? begin : buffer_.reserve<std::uint32_t>(0);
        capacity_ = in_place_ ? capacity : buffer_.bytes() / sizeof(std::uint32_t);
        words = 0;
        checksum = 0;
        counts = {};
    }
    // Memory for the next payload, of at most `longest` words.
    std::uint32_t* room(std::size_t longest) {
        if (words + longest <= capacity_) return begin_ + words;
        if (in_place_) return last_.reserve<std::uint32_t>(longest);
        Buffer larger;
        larger.reserve((words + longest) * sizeof(std::uint32_t) * 3 / 2);
        if (words > 0) std::memcpy(larger.reserve(0), begin_, words * sizeof(std::uint32_t));
        std::swap(buffer_, larger);
        begin_ = buffer_.reserve<std::uint32_t>(0);
        capacity_ = buffer_.bytes() / sizeof(std::uint32_t);
        return begin_ + words;
    }
    // Appends the payload that was written to room(). Returns false if it does not fit in place.
    bool take(const std::uint32_t* payload, std::size_t n) {
        if (words + n > capacity_) return false;
        if (payload != begin_ + words) std::memcpy(begin_ + words, payload, n * sizeof(std::uint32_t));
        words += n;
        return true;
    }
    // Copies n words, from word `from` on, to their place, unless they are there already.
    void copy_to(std::byte* target, std::size_t from, std::size_t n) const {
        if (!in_place_ && n > 0) std::memcpy(target, begin_ + from, n * sizeof(std::uint32_t));
    }
    std::size_t bytes() const { return buffer_.bytes() + last_.bytes(); }

private:
    Buffer buffer_, last_; // last_: for a payload that may not fit in place
    bool in_place_ = false;
    std::uint32_t* begin_ = nullptr;
    std::size_t capacity_ = 0;
};

} // namespace cusz::cpu
