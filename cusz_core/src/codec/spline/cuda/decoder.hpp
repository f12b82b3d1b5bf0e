// Decodes an archive on the host to a field on a device.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "archive/checksum.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/spline/cpu/field_coder.hpp"
#include "kept_memory.hpp"
#include "kernels.hpp"

namespace cusz::cuda {

inline const char* text_of(UnitError error) {
    switch (error) {
    case UnitError::live_tiles: return "illegal bits of live tiles";
    case UnitError::states: return "a unit without states";
    case UnitError::early_end: return "codewords that end early";
    case UnitError::extra_bits: return "extra bits that end too early";
    case UnitError::special_value: return "a special value that is stored verbatim";
    case UnitError::beyond_limit: return "a code beyond the limit";
    case UnitError::late_end: return "codewords that do not end where the unit does";
    case UnitError::none: break;
    }
    return "bad";
}

template <class T>
class Decoder {
    using FieldCoder = cpu::FieldCoder<T>;
    using Put = PutArguments<T>;

public:
    Decoder(KeptMemory& memory, FieldCoder& coder, std::span<const std::byte> archive, const v2::Front& front,
            std::size_t front_bytes)
        : memory_(memory), coder_(coder), opened_(archive, archive.size(), front, front_bytes),
          first_(opened_.first_lattice()) {}

    // Returns false if the device cannot do it. Throws CORRUPT.
    bool decode(T* field) {
        if (first_ == 0 || !has_shared_memory<T>(opened_.coded.pyramid, first_, opened_.coded.coder.curve))
            return false;
        const typename FieldCoder::FirstUnit unit0 = coder_.decompress_first(opened_);
        const std::vector<typename Put::Value> values = values_of(unit0);
        std::byte* arrays = nullptr;
        const std::uint32_t* slots = nullptr;
        if (!memory_.reserve([&] {
                arrays = memory_.arrays.reserve<std::byte>(memory_.queue.source,
                                                           Workspace(nullptr, opened_, values.size()).bytes);
                slots = memory_.slots();
            }))
            return false;
        const Workspace work(arrays, opened_, values.size());
        load(work, unit0, values);
        std::size_t u = 1;
        for (std::size_t i = first_; i-- > 0;) u = decode_lattice(work, i, u, slots, field);
        if (!values.empty())
            put_values(Put{work.values, static_cast<std::uint32_t>(values.size()), field}, memory_.stream());
        memory_.done("put_values");
        verify(memory_.queue.fetched(work.result));
        return true;
    }

private:
    // Device memory for decoding.
    struct Workspace {
        Parts parts;
        LatticePairs<T> lattices;
        std::byte* payloads;
        UnitPlace* units;
        std::uint8_t* table_of;
        std::uint16_t* flag_frequency;
        typename Put::Value* values;
        ReadResult* result;
        std::uint16_t* codes;
        std::size_t bytes;

        // memory: null to compute `bytes`, else of that size.
        Workspace(void* memory, const typename FieldCoder::Opened& opened, std::size_t n_values)
            : parts(memory), lattices(parts, opened.coded.sizes, opened.first_lattice()),
              payloads(parts.take<std::byte>(opened.first.back() - opened.first[1])),
              units(parts.take<UnitPlace>(opened.coded.units.size() - 1)),
              table_of(parts.take<std::uint8_t>(v2::n_rows * 128)),
              flag_frequency(parts.take<std::uint16_t>(v2::n_group_contexts)),
              values(parts.take<typename Put::Value>(n_values)), result(parts.take<ReadResult>(1)),
              codes(parts.take<std::uint16_t>(static_cast<std::size_t>(opened.coded.pyramid.lattices[0].values()))),
              bytes(parts.used()) {}
    };

    // Values of unit 0 that are not finite: no tile of the device gives them.
    std::vector<typename Put::Value> values_of(const typename FieldCoder::FirstUnit& unit0) const {
        using Bits = typename Traits<T>::Bits;
        std::vector<typename Put::Value> values;
        const T top = std::bit_cast<T>(static_cast<Bits>(opened_.head.top));
        if (!(std::abs(top) <= std::numeric_limits<T>::max())) values.push_back({0, bits_of(top)});
        const Selection all = whole(opened_.front.layout, nullptr);
        const Extents stride = by_axis(opened_.front.layout, all.stride, 0);
        for (const cpu::Patch& patch : unit0.patches) {
            std::uint64_t at = 0;
            for (std::size_t a = 0; a < 4; ++a) at += patch.at[a] * stride[a];
            values.push_back({at, static_cast<Bits>(patch.bits)});
        }
        return values;
    }

    void load(const Workspace& work, const typename FieldCoder::FirstUnit& unit0,
              const std::vector<typename Put::Value>& values) {
        std::vector<UnitPlace> places;
        for (std::size_t u = 1; u < opened_.coded.units.size(); ++u)
            places.push_back({(opened_.first[u] - opened_.first[1]) / 2,
                              static_cast<std::uint32_t>(opened_.head.units[u].bytes / 2),
                              opened_.head.units[u].log2_lanes});
        std::array<std::uint16_t, v2::n_group_contexts> flag_frequency;
        for (std::size_t c = 0; c < flag_frequency.size(); ++c)
            flag_frequency[c] = v2::tables().group_frequency[unit0.model.flag_table[c]];
        memory_.copy(work.payloads, opened_.archive.data() + opened_.first[1], opened_.first.back() - opened_.first[1]);
        memory_.copy(work.units, places.data(), places.size());
        memory_.copy(work.table_of, unit0.model.table_of[0].data(), sizeof unit0.model.table_of);
        memory_.copy(work.flag_frequency, flag_frequency.data(), flag_frequency.size());
        memory_.copy(work.values, values.data(), values.size());
        work.lattices.load(memory_, unit0.lattice, opened_.coded.sizes, first_);
        memory_.clear(work.result, 1);
        memory_.done("copy_archive");
    }

    // Returns the number of the first unit behind the lattice.
    std::size_t decode_lattice(const Workspace& work, std::size_t i, std::size_t u, const std::uint32_t* slots,
                               T* field) {
        const auto& units = opened_.coded.units;
        DeviceLattice<T> of = work.lattices.lattice(opened_.coded, i);
        of.field = field;
        of.codes = work.codes;
        of.units = work.units + (u - 1);
        of.payloads = reinterpret_cast<const std::uint16_t*>(work.payloads);
        ReadArguments a{};
        a.of = of;
        a.values = unit_values(of);
        a.lattice = static_cast<std::uint32_t>(i);
        a.first_unit = u;
        for (; u < units.size() && units[u].lattice == i; ++u) ++a.n_units;
        a.slots = slots;
        a.table_of = work.table_of + v2::row_of(i, 1) * 128;
        a.flag_frequency = work.flag_frequency;
        a.result = work.result;
        find_fixed_contexts(of, memory_.stream());
        memory_.done("find_fixed_contexts");
        read_units(a, memory_.stream());
        memory_.done("read_units");
        find_values(of, memory_.stream());
        memory_.done("find_values");
        return u;
    }

    void verify(const ReadResult& result) const {
        for (std::size_t i = first_; i-- > 0;)
            if (fold(result.checksum[i]) != opened_.head.checksums[first_ - 1 - i])
                fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
        if (result.error != 0)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", text_of(static_cast<UnitError>(~result.error & 255)));
    }

    KeptMemory& memory_;
    FieldCoder& coder_;
    typename FieldCoder::Opened opened_;
    std::size_t first_; // the finest lattice of unit 0, from which the device begins
};

} // namespace cusz::cuda
