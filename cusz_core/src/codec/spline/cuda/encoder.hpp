// Encodes a field on a device to an archive.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "archive/checksum.hpp"
#include "codec/backend.hpp"
#include "codec/cuda/sample_boxes.hpp"
#include "codec/spline/codec.hpp"
#include "codec/spline/cpu/field_coder.hpp"
#include "kept_memory.hpp"
#include "kernels.hpp"

namespace cusz::cuda {

// What the kernels have counted. rate: how many tiles of lattice 0 each counted one stands for.
inline v2::Counts counts_of(const RecordCounts& found, std::uint64_t rate) {
    v2::Counts counts;
    for (std::size_t c = 0; c < v2::n_contexts; ++c) {
        const std::uint64_t weight = c < 3 * v2::n_places ? rate : 1;
        counts.n[c] = weight * found.n[c];
        counts.size[c] = weight * found.size[c];
        for (std::size_t j = 0; j < 2; ++j) counts.missing[c][j] = weight * found.missing[c][j];
    }
    for (std::size_t c = 0; c < v2::n_group_contexts; ++c)
        for (std::size_t j = 0; j < 2; ++j) counts.groups[c][j] = found.groups[0][c][j] + rate * found.groups[1][c][j];
    return counts;
}

template <class T>
class Encoder {
    using FieldCoder = cpu::FieldCoder<T>;

public:
    Encoder(KeptMemory& memory, FieldCoder& coder, const Layout& layout, const Coding& coding, const T* field)
        : memory_(memory), coder_(coder), how_(coding.interpolation), front_(front_of(layout, coding)), field_(field),
          coded_(front_, how_, nullptr), first_(coded_.units[0].lattice), n_units_(coded_.units.size() - 1) {}

    // Returns false if the device cannot do it. Sets `bytes` to the archive's length, if that is within the capacity.
    bool encode(const Target& target, std::uint64_t capacity, std::optional<std::size_t>& bytes) {
        if (first_ == 0 || !has_shared_memory<T>(coded_.pyramid, first_, coded_.coder.curve)) return false;
        std::byte* arrays = nullptr;
        if (!memory_.reserve([&] {
                arrays = memory_.arrays.reserve<std::byte>(memory_.queue.source, Workspace(nullptr, coded_).bytes);
                intervals_ = memory_.intervals();
            }))
            return false;
        const Workspace work(arrays, coded_);
        code_first(work);
        lay_out(work);
        const RecordCounts counts = record(work);
        const Sample sample = sample_of(0);
        const typename FieldCoder::WrittenFirst unit0 = coder_.write_first(coded_, counts_of(counts, sample.rate()));
        front_.n_special = unit0.n_special + counts.n_special;
        front_.n_verbatim = unit0.n_verbatim + counts.n_verbatim;
        const bool is_still =
            !unit0.live && std::ranges::none_of(tiles_, [](const TileRecord& tile) { return tile.live != 0; });
        if (is_still || front_.n_special + front_.n_verbatim == front_.layout.values - 1)
            return false; // may be constant
        return write_payloads(work, unit0) && assemble(work, unit0, target, capacity, bytes);
    }

private:
    // Device memory for encoding.
    struct Workspace {
        Parts parts;
        LatticePairs<T> lattices;
        T* first_points;
        BoxToCopy* box;
        std::uint16_t* sizes;
        std::uint8_t *table_of, *reach, *flag_table;
        std::uint64_t *ends, *to;
        UnitPlace* units;
        std::uint64_t* checksums;
        RecordCounts* counts;
        TileRecord* tiles;
        std::uint32_t* points;
        std::size_t bytes;

        // memory: null to compute `bytes`, else of that size.
        Workspace(void* memory, const typename FieldCoder::Field& coded)
            : parts(memory), lattices(parts, coded.sizes, coded.units[0].lattice) {
            const auto& of = coded.pyramid.lattices;
            const std::size_t first = coded.units[0].lattice, n_units = coded.units.size() - 1;
            std::uint64_t n_points = 0, n_tiles = 0;
            for (std::size_t i = 0; i < first; ++i) {
                n_points += of[i].values();
                n_tiles += of[i].n_tiles;
            }
            first_points = parts.take<T>(static_cast<std::size_t>(of[first].values()));
            box = parts.take<BoxToCopy>(1);
            sizes = parts.take<std::uint16_t>(v2::n_symbols);
            table_of = parts.take<std::uint8_t>(v2::n_rows * 128);
            reach = parts.take<std::uint8_t>(v2::n_rows * 128);
            flag_table = parts.take<std::uint8_t>(v2::n_group_contexts);
            ends = parts.take<std::uint64_t>(n_units);
            to = parts.take<std::uint64_t>(n_units);
            units = parts.take<UnitPlace>(n_units);
            checksums = parts.take<std::uint64_t>(first);
            counts = parts.take<RecordCounts>(1);
            tiles = parts.take<TileRecord>(static_cast<std::size_t>(n_tiles));
            points = parts.take<std::uint32_t>(static_cast<std::size_t>(n_points));
            bytes = parts.used();
        }
    };

    static v2::Front front_of(const Layout& layout, const Coding& coding) {
        v2::Front front = spline::front_of(layout, coding, v2::Kind::spline);
        front.e = coding.step / 2;
        front.has_axes = coding.interpolation.axes != AxisMasks{15, 15, 15};
        return front;
    }
    // The tiles of a lattice that are counted.
    Sample sample_of(std::size_t lattice) const {
        return {lattice == 0 ? coded_.pyramid.lattices[0].n_tiles : 1, default_r};
    }

    // Encodes the lattices of unit 0 on the host, to which their points are copied in the field's order of axes.
    void code_first(const Workspace& work) {
        const Lattice& lattice = coded_.pyramid.lattices[first_];
        BoxToCopy box{};
        for (std::size_t j = 0; j < 4; ++j) {
            box.from.edge[lattice.axis[j]] = static_cast<std::uint32_t>(lattice.extent[j]);
            box.from.stride[lattice.axis[j]] = lattice.field_stride[j];
        }
        points_.resize(static_cast<std::size_t>(lattice.values()));
        memory_.copy(work.box, &box, 1);
        copy_boxes(CopyBoxesArguments<T>{field_, work.first_points, work.box, 1}, memory_.stream());
        memory_.done("copy_boxes");
        memory_.copy(points_.data(), work.first_points, points_.size());
        work.lattices.load(memory_, coder_.code_first(coded_, points_.data()), coded_.sizes, first_);
        memory_.copy(work.sizes, v2::tables().size.data(), v2::n_symbols);
        memory_.clear(work.counts, 1);
        memory_.done("copy_first");
    }

    void lay_out(const Workspace& work) {
        lattices_.resize(first_);
        tiles_before_.assign(first_ + 1, 0);
        std::uint64_t points_before = 0;
        for (std::size_t i = first_; i-- > 0;) {
            lattices_[i] = work.lattices.lattice(coded_, i);
            lattices_[i].original = field_;
            lattices_[i].points = work.points + points_before;
            points_before += lattices_[i].lattice.values();
            tiles_before_[i] = tiles_before_[i + 1] + static_cast<std::size_t>(lattices_[i].lattice.n_tiles);
        }
    }

    // Finds the codes of the other lattices, and records their tiles.
    RecordCounts record(const Workspace& work) {
        for (std::size_t i = first_; i-- > 0;) {
            find_fixed_contexts(lattices_[i], memory_.stream());
            memory_.done("find_fixed_contexts");
            TileRecord* const tiles = work.tiles + tiles_before_[i + 1];
            find_codes(lattices_[i], tiles, work.counts, memory_.stream());
            memory_.done("find_codes");
            record_tiles({lattices_[i], static_cast<std::uint32_t>(i), 8 * sizeof(T), sample_of(i), work.sizes, tiles,
                          work.counts},
                         memory_.stream());
            memory_.done("record_tiles");
        }
        RecordCounts counts;
        tiles_.resize(tiles_before_[0]);
        memory_.copy(tiles_.data(), work.tiles, tiles_.size());
        memory_.copy(&counts, work.counts, 1);
        return counts;
    }

    // Finds the end of each unit's buffer (units are written backwards from there). Returns the total size.
    std::uint64_t find_ends() {
        ends_.resize(n_units_);
        std::uint64_t room = 0;
        for (std::size_t u = 0, tile = 0; u < n_units_; ++u) {
            for (std::uint32_t j = 0; j < coded_.units[u + 1].n_tiles; ++j, ++tile)
                if (tiles_[tile].live != 0)
                    room +=
                        std::uint64_t{tiles_[tile].n_values} + tiles_[tile].n_flags + tiles_[tile].extra_bits / 16 + 1;
            room += 1 + 2 * v2::max_lanes + 1;
            ends_[u] = room += room % 2; // no two units share a 32-bit word
        }
        return room;
    }

    // Calls use(lattice, its first unit - 1, number of its units) for all lattices but those of unit 0.
    template <class Use>
    void for_lattices(const Use& use) const {
        for (std::size_t u = 0, end = 0; u < n_units_; u = end) {
            while (end < n_units_ && coded_.units[end + 1].lattice == coded_.units[u + 1].lattice) ++end;
            use(coded_.units[u + 1].lattice, u, static_cast<std::uint32_t>(end - u));
        }
    }

    bool write_payloads(const Workspace& work, const typename FieldCoder::WrittenFirst& unit0) {
        const auto room = static_cast<std::size_t>(find_ends());
        if (!memory_.reserve(
                [&] { payloads_ = memory_.payloads.reserve<std::uint16_t>(memory_.queue.source, room + 1); }))
            return false;
        memory_.clear(payloads_, room + 1);
        memory_.copy(work.ends, ends_.data(), n_units_);
        memory_.copy(work.table_of, unit0.tables.table_of[0].data(), sizeof unit0.tables.table_of);
        memory_.copy(work.reach, unit0.tables.reach[0].data(), sizeof unit0.tables.reach);
        memory_.copy(work.flag_table, unit0.tables.flag_table.data(), unit0.tables.flag_table.size());
        memory_.done("copy_model");
        for_lattices([&](std::size_t i, std::size_t u, std::uint32_t n) {
            write_units(WriteArguments{.of = lattices_[i],
                                       .values = unit_values(lattices_[i]),
                                       .n_units = n,
                                       .tiles = work.tiles + tiles_before_[i + 1],
                                       .intervals = intervals_,
                                       .table_of = work.table_of + v2::row_of(i, 1) * 128,
                                       .reach = work.reach + v2::row_of(i, 1) * 128,
                                       .flag_table = work.flag_table,
                                       .end = work.ends + u,
                                       .payloads = payloads_,
                                       .units = work.units + u},
                        memory_.stream());
            memory_.done("write_units");
        });
        places_.resize(n_units_);
        memory_.copy(places_.data(), work.units, n_units_);
        return true;
    }

    bool assemble(const Workspace& work, const typename FieldCoder::WrittenFirst& unit0, const Target& target,
                  std::uint64_t capacity, std::optional<std::size_t>& bytes) {
        v2::Head head{.how = how_,
                      .preset = unit0.model.preset,
                      .has_map = unit0.model.has_map,
                      .top = bits_of(points_[0]),
                      .units = {{2 * std::uint64_t{unit0.payload.n}, unit0.payload.log2_lanes}},
                      .checksums = std::vector<std::uint32_t>(first_)};
        std::vector<std::uint64_t> to(n_units_);
        std::size_t n_words = 0; // of 16 bits
        for (std::size_t u = 0; u < n_units_; ++u) {
            to[u] = n_words;
            n_words += places_[u].n;
            head.units.push_back({2 * std::uint64_t{places_[u].n}, places_[u].log2_lanes});
        }
        std::vector<std::byte> begin(v2::max_front_bytes);
        const std::size_t n_front = v2::write_front(front_, begin.data()),
                          n_head = n_front + 4 + v2::write_head(front_, n_front, head).size(),
                          n_first = n_head + 2 * std::size_t{unit0.payload.n};
        if (n_first + 2 * n_words > capacity) return true;
        std::uint16_t* gathered = nullptr;
        if (target.on_device())
            gathered = target.at(n_first).template as<std::uint16_t>();
        else if (!memory_.reserve(
                     [&] { gathered = memory_.gathered.reserve<std::uint16_t>(memory_.queue.source, n_words + 1); }))
            return false;
        memory_.copy(work.to, to.data(), n_units_);
        memory_.clear(work.checksums, first_);
        for_lattices([&](std::size_t i, std::size_t u, std::uint32_t n) {
            gather_units({payloads_, work.units + u, n, work.to + u, gathered, work.checksums + i}, memory_.stream());
            memory_.done("gather_units");
        });
        std::vector<std::uint64_t> checksums(first_);
        memory_.copy(checksums.data(), work.checksums, first_);
        if (!target.on_device()) memory_.copy(target.at(n_first).template as<std::uint16_t>(), gathered, n_words);
        for (std::size_t i = 0; i < first_; ++i) head.checksums[first_ - 1 - i] = fold(checksums[i]);
        const std::vector<std::byte> rest = v2::write_head(front_, n_front, head);
        begin.resize(n_first);
        std::ranges::copy(rest, begin.begin() + static_cast<std::ptrdiff_t>(n_front) + 4);
        std::memcpy(begin.data() + n_head, unit0.payload.begin, 2 * std::size_t{unit0.payload.n});
        v2::seal(begin, n_front);
        memory_.copy(target.bytes(), begin.data(), n_first);
        memory_.queue.wait();
        bytes = n_first + 2 * n_words;
        return true;
    }

    KeptMemory& memory_;
    FieldCoder& coder_;
    const Interpolation how_;
    v2::Front front_;
    const T* field_;
    typename FieldCoder::Field coded_;
    std::size_t first_; // the finest lattice of unit 0
    std::size_t n_units_;
    std::vector<T> points_; // of that lattice
    std::vector<DeviceLattice<T>> lattices_;
    std::vector<std::size_t> tiles_before_; // the tiles of lattice i are from [i + 1] to [i]
    std::vector<TileRecord> tiles_;
    std::vector<std::uint64_t> ends_;
    std::vector<UnitPlace> places_;
    const std::uint32_t* intervals_ = nullptr;
    std::uint16_t* payloads_ = nullptr;
};

} // namespace cusz::cuda
