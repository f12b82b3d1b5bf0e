// A tile of a lattice on its way between values and symbols (section 2). Each class has its values in rows of its own,
// with room for what lies around them. Its bytes (symbols, magnitudes, contexts) lie in arrays with the same layout for
// all classes: positions beyond the tile lie between neighbouring rows, so a neighbour is a fixed distance away, and a
// class can be processed in one sweep.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "archive/pyramid.hpp"
#include "archive/quantiser.hpp"
#include "archive/tiling.hpp"
#include "archive/v2/frame.hpp"
#include "buffer.hpp"
#include "simd/lane_room.hpp"

namespace cusz::cpu {

inline constexpr std::uint64_t prefetched_ahead = 1; // tiles
using v2::least_with_flags;
using v2::max_group_points;
using v2::n_classes;
inline constexpr std::size_t byte_room = 64;       // before and behind arrays of bytes, for vectors
inline constexpr std::uint8_t special_mark = 255;  // in place of the magnitude of a special value
inline constexpr std::uint8_t verbatim_mark = 254; // and of a verbatim value
constexpr bool is_missing(std::uint8_t magnitude) { return magnitude > 127; }

// The layout of a class's values, by half coordinates: `before` and `behind` positions lie around those of the tile.
struct ClassRows {
    std::array<std::uint32_t, 4> n{}, before{}, behind{};
    std::array<std::size_t, 4> stride{}; // of rows: a multiple of lane_room, with room for what is around them
    std::size_t first = 0;               // the class's first point: a multiple of lane_room
    std::size_t begin = 0, end = 0;      // of the class's memory
    std::uint32_t points() const { return n[0] * n[1] * n[2] * n[3]; }
    std::size_t at(std::int64_t y, std::int64_t z, std::int64_t w) const { // the row's point at x = 0
        return first + static_cast<std::size_t>(y) * stride[1] + static_cast<std::size_t>(z) * stride[2] +
               static_cast<std::size_t>(w) * stride[3];
    }
};

// What tiles with the same edges have in common.
struct TileForm {
    TileForm(std::uint32_t active_axes, const std::array<std::uint32_t, 4>& tile_edge, bool is_wide);

    std::uint32_t n_active;
    std::array<std::uint32_t, 4> edge;
    bool wide; // room for curves of six points
    bool is_full_3d;
    std::array<ClassRows, n_classes> rows;
    std::size_t n_values = 0; // of all classes

    // Bytes of a class: that of the point at half coordinates h is at first_byte + h * byte_step.
    std::array<std::size_t, 4> byte_step{};
    std::size_t first_byte = 0, end_byte = 0; // end: behind the last point
    std::size_t n_bytes = 0;                  // of a class
    std::size_t byte_at(std::uint32_t y, std::uint32_t z, std::uint32_t w) const {
        return first_byte + y * byte_step[1] + z * byte_step[2] + w * byte_step[3];
    }

    // Coding order, by phase - 1: the rows of all groups, one after another.
    struct Run {
        std::uint32_t byte;  // of its first point, in the arrays of all classes
        std::uint32_t value; // of its first point
        std::uint32_t n;
    };
    struct Group {
        std::uint32_t first, n; // points, numbered through the phase
        std::uint32_t first_run;
        bool has_flag;
    };
    std::array<std::vector<Run>, 3> runs;
    std::array<std::vector<Group>, 3> groups;
    std::array<std::uint32_t, 3> n_points{}, n_flags{};
};

// Keeps a few forms.
class TileForms {
public:
    // The reference is valid until the next call.
    const std::shared_ptr<const TileForm>& of(std::uint32_t n_active, const std::array<std::uint32_t, 4>& edge,
                                              bool wide);
    std::size_t bytes() const;

private:
    std::vector<std::shared_ptr<const TileForm>> forms_;
    std::size_t next_ = 0; // to be replaced
};

template <class T>
struct SplineTile {
    using Bits = typename Traits<T>::Bits;

    const TileForm* form = nullptr;
    LatticeTile place{};
    // How much further on, in the field and in the coarser lattice, the tile lies that is prefetched.
    std::ptrdiff_t later = 0, later_coarse = 0;

    T* value = nullptr;   // to predict from
    T* without = nullptr; // predictions without codes; only for the curve of six points and codes
    // Bytes, by class. direct: limited code + zero_symbol, which is the symbol of a code from -32 to 31; or the symbol
    // of a missing value.
    std::uint8_t* direct = nullptr;
    std::uint8_t* magnitude = nullptr; // or a mark
    std::uint8_t* context = nullptr;   // place in its row
    // Bytes in the layout of a class.
    std::uint8_t* coarse = nullptr; // magnitudes of class 0, from the coarser lattice, and around it
    std::uint8_t* around = nullptr; // sums of them, over three points along each active axis
    std::uint8_t *coarse_missing = nullptr, *around_missing = nullptr; // all ones: missing; some are
    std::uint8_t* gone = nullptr;                                      // all ones: missing, or beyond the lattice
    std::array<std::uint8_t*, 3> roughness{};
    // By byte: codes that are not symbols themselves; for verbatim values, their number. When decoding: all codes of a
    // phase that has such values.
    std::int32_t* code = nullptr;

    bool has_coarse_magnitudes = false, has_missing_around = false; // in the coarser lattice, here and around
    bool has_missing = false;                                       // among codes
    std::vector<Bits> verbatim;
    std::array<bool, 3> has_codes{}; // by phase - 1: when decoding, whether codes are in `code`, not in `direct`
    // Values that are not decoded from `direct` or `code`, in coding order; by phase - 1.
    struct Other {
        std::uint32_t value, byte; // where
        std::int32_t code;         // 0: the value is verbatim
        Bits bits;                 // of a verbatim value
    };
    std::array<std::vector<Other>, 3> others;
    std::vector<T> results; // of the others of a phase

    // Bytes of a phase in coding order.
    std::uint8_t context_in_order[max_tile_values + byte_room], direct_in_order[max_tile_values + byte_room];
    std::uint8_t table_in_order[max_tile_values + byte_room], symbol_in_order[max_tile_values + byte_room];
    std::uint8_t flag_context[max_tile_values], flag[max_tile_values];
    std::int32_t code_in_order[max_tile_values + byte_room];

    std::uint8_t* of_class(std::uint8_t* bytes, std::uint32_t c) const { return bytes + c * form->n_bytes; }
    std::uint32_t classes() const { return 1u << form->n_active; }

    // Begins a tile of a lattice. clear: sets codes and magnitudes to 0. two_predictions: makes room for `without`.
    void begin(TileForms& forms, const Lattice& lattice, std::uint64_t number, bool wide, bool clear,
               bool two_predictions);
    std::size_t bytes() const {
        std::size_t n = verbatim.capacity() * sizeof(Bits);
        for (const auto& of_phase : others) n += of_phase.capacity() * sizeof(Other);
        for (const Memory& of : memory_) n += of.values.bytes() + of.bytes.bytes() + of.codes.bytes();
        return n;
    }

private:
    // Memory in the layout of a form, with zeros where nothing is written.
    struct Memory {
        std::shared_ptr<const TileForm> form; // kept alive: TileForms may have replaced it
        bool two_predictions = false;
        Buffer values, bytes, codes;
    };
    // By the bit width of a tile's number of points; the last is for all larger ones. Each lattice of a small field has
    // one tile, and clearing memory for every one would take as long as other steps.
    std::array<Memory, 12> memory_;
};

extern template struct SplineTile<float>;
extern template struct SplineTile<double>;

} // namespace cusz::cpu
