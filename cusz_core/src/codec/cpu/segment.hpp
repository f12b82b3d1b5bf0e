// Payloads on their way to their place in a body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "buffer.hpp"
#include "codec/lorenzo/cpu/tile.hpp"

namespace cusz::cpu {

template <class Unit>
bool is_aligned(const std::byte* units) {
    return reinterpret_cast<std::uintptr_t>(units) % sizeof(Unit) == 0;
}

// Payloads that one thread has finished, one after another: in their final place if that is known, as it is for the
// thread that starts with the first tile, else in the segment's own buffer.
template <class Unit>
class Segment {
public:
    std::size_t words = 0; // of type Unit
    std::uint64_t checksum = 0;
    Counts counts;

    // begin, capacity: where the payloads belong and how many words may be written there; or null.
    void start(Unit* begin, std::size_t capacity) {
        in_place_ = begin != nullptr;
        begin_ = in_place_ ? begin : buffer_.template reserve<Unit>(0);
        capacity_ = in_place_ ? capacity : buffer_.bytes() / sizeof(Unit);
        words = 0;
        checksum = 0;
        counts = {};
    }
    // Memory for the next payload, of at most `longest` words.
    Unit* room(std::size_t longest) {
        if (words + longest <= capacity_) return begin_ + words;
        if (in_place_) return last_.template reserve<Unit>(longest);
        Buffer larger;
        larger.reserve((words + longest) * sizeof(Unit) * 3 / 2);
        if (words > 0) std::memcpy(larger.reserve(0), begin_, words * sizeof(Unit));
        std::swap(buffer_, larger);
        begin_ = buffer_.template reserve<Unit>(0);
        capacity_ = buffer_.bytes() / sizeof(Unit);
        return begin_ + words;
    }
    // Appends the payload that was written to room(). Returns false if it does not fit in place.
    bool take(const Unit* payload, std::size_t n) {
        if (words + n > capacity_) return false;
        if (payload != begin_ + words) std::memcpy(begin_ + words, payload, n * sizeof(Unit));
        words += n;
        return true;
    }
    // Appends a payload from elsewhere. Returns false if it does not fit in place.
    bool append(const Unit* payload, std::size_t n) {
        if (n > 0) std::memcpy(room(n), payload, n * sizeof(Unit));
        return take(room(n), n);
    }
    // Copies n words from word `from` on to where they belong, unless they are there already.
    void copy_to(std::byte* target, std::size_t from, std::size_t n) const {
        if (!in_place_ && n > 0) std::memcpy(target, begin_ + from, n * sizeof(Unit));
    }
    std::size_t bytes() const { return buffer_.bytes() + last_.bytes(); }

private:
    Buffer buffer_, last_; // last_: for a payload that may not fit in place
    bool in_place_ = false;
    Unit* begin_ = nullptr;
    std::size_t capacity_ = 0;
};

} // namespace cusz::cpu
