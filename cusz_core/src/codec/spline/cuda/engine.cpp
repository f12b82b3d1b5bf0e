// The spline codec on a device, for fields that lie there. The small lattices of unit 0 are the CPU's, as are fields that
// have no others.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "archive/checksum.hpp"
#include "codec/backend.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/cuda/sample_boxes.hpp"
#include "codec/lorenzo/sample.hpp"
#include "codec/spline/codec.hpp"
#include "codec/spline/cpu/field_coder.hpp"
#include "codec/spline/unit_tables.hpp"
#include "codec/through_host.hpp"
#include "device/queue.hpp"
#include "errors.hpp"
#include "kernels.hpp"

namespace cusz::cuda {

namespace {

const char* text_of(UnitError error) {
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

class SplineEngine final : public Engine {
    static auto buffers(auto& own) {
        return std::array{&own.slots_, &own.intervals_, &own.memory_, &own.payloads_, &own.gathered_};
    }

public:
    SplineEngine(Queue& queue, HostBackend& cpu)
        : queue_(queue),
          host_(cpu.engine(compact_codec()), [this](void* target, const void* source, std::size_t bytes) {
              queue_.run([&] {
                  queue_.staging.copy(target, source, bytes, stream());
                  queue_.wait();
              });
          }) {}

    std::optional<Encoded> encode(const Layout& layout, const Coding& coding, const Source& field, int threads,
                                  const Target& target, std::uint64_t capacity,
                                  std::optional<ValueRange>* range) override {
        std::optional<std::size_t> bytes;
        if (!field.on_device() || !encode_there(layout, coding, field, target, capacity, bytes))
            return host_.encode(layout, coding, field, threads, target, capacity, range);
        if (!bytes) return std::nullopt;
        Encoded encoded{coding, {}, 0};
        encoded.coding.body_bytes = encoded.coding.stored_bytes = *bytes;
        return encoded;
    }

    void decode(const Frame& frame, const Source& body, int threads, const Target& field) override {
        if (body.on_device() || !field.on_device() || !decode_there(frame, body, field))
            host_.decode(frame, body, threads, field);
    }

    std::size_t scratch_bytes() const override {
        std::size_t bytes = host_.scratch_bytes() + f32_.scratch_bytes() + f64_.scratch_bytes();
        for (const DeviceBuffer* buffer : buffers(*this)) bytes += buffer->bytes();
        return bytes;
    }
    void release_scratch() override {
        host_.release_scratch();
        f32_.release_scratch();
        f64_.release_scratch();
        release_memory();
    }

private:
    cudaStream_t stream() const { return queue_.stream(); }
    void done(const char* stage) const { queue_.done(stage); }

    // Returns whether the device could do it, and in `bytes` the archive's length, if that is within the capacity.
    bool encode_there(const Layout& layout, const Coding& coding, const Source& field, const Target& target,
                      std::uint64_t capacity, std::optional<std::size_t>& bytes) {
        require_aligned(field, layout.value_bytes());
        require_aligned(target, 4);
        if (coding.step == 0) return false;
        return queue_.run([&] {
            return layout.dtype == CUSZ_F32
                       ? encode_as(f32_, layout, coding, field.as<float>(), target, capacity, bytes)
                       : encode_as(f64_, layout, coding, field.as<double>(), target, capacity, bytes);
        });
    }

    // The same of decoding.
    bool decode_there(const Frame& frame, const Source& body, const Target& field) {
        require_aligned(field, frame.layout.value_bytes());
        const std::span archive(body.bytes(), static_cast<std::size_t>(frame.coding.body_bytes));
        std::size_t front_bytes = 0;
        const v2::Front front = v2::read_front(archive, front_bytes);
        if (front.kind != v2::Kind::spline) return false;
        return queue_.run([&] {
            return frame.layout.dtype == CUSZ_F32 ? decode_as(f32_, archive, front, front_bytes, field.as<float>())
                                                  : decode_as(f64_, archive, front, front_bytes, field.as<double>());
        });
    }

    // Lattices, their payloads and what belongs to them, on the device.
    template <class T>
    struct Workspace {
        std::byte* payloads;
        UnitPlace* units;
        std::uint8_t* table_of;
        std::uint16_t* flag_frequency;
        typename PutArguments<T>::Value* values;
        ReadResult* result;
        std::array<T*, 2> value;
        std::array<std::uint8_t*, 2> magnitude;
        std::uint16_t* codes;
        std::size_t bytes;

        // memory: of the size so computed; or null, to compute it.
        Workspace(void* memory, const typename cpu::FieldCoder<T>::Opened& opened, std::size_t n_values) {
            const auto& sizes = opened.coded.sizes;
            const std::size_t first = opened.first_lattice();
            Parts parts(memory);
            payloads = parts.take<std::byte>(opened.first.back() - opened.first[1]);
            units = parts.take<UnitPlace>(opened.coded.units.size() - 1);
            table_of = parts.take<std::uint8_t>(v2::n_rows * 128);
            flag_frequency = parts.take<std::uint16_t>(v2::n_group_contexts);
            values = parts.take<typename PutArguments<T>::Value>(n_values);
            result = parts.take<ReadResult>(1);
            for (std::size_t j = 0; j < 2; ++j) { // of every second lattice
                const std::size_t n = 1 + j <= first ? sizes[1 + j] : 0;
                value[j] = parts.take<T>(n);
                magnitude[j] = parts.take<std::uint8_t>(n);
            }
            codes = parts.take<std::uint16_t>(static_cast<std::size_t>(opened.coded.pyramid.lattices[0].values()));
            bytes = parts.used();
        }
    };

    // What lattices are coded with, on the device.
    template <class T>
    struct CodingWorkspace {
        std::array<T*, 2> value;
        std::array<std::uint8_t*, 2> magnitude;
        T* first_points;
        BoxToCopy* box;
        std::uint16_t* sizes;
        std::uint8_t *table_of, *flag_table;
        std::uint64_t *ends, *to;
        UnitPlace* units;
        std::uint64_t* checksums;
        TileRecord* tiles;
        RecordCounts* counts;
        std::uint32_t* points;
        std::size_t bytes;

        CodingWorkspace(void* memory, const typename cpu::FieldCoder<T>::Field& coded) {
            const auto& lattices = coded.pyramid.lattices;
            const std::size_t first = coded.units[0].lattice, n_units = coded.units.size() - 1;
            std::uint64_t n_points = 0, n_tiles = 0;
            for (std::size_t i = 0; i < first; ++i) {
                n_points += lattices[i].values();
                n_tiles += lattices[i].n_tiles;
            }
            Parts parts(memory);
            for (std::size_t j = 0; j < 2; ++j) { // of every second lattice
                const std::size_t n = 1 + j <= first ? coded.sizes[1 + j] : 0;
                value[j] = parts.take<T>(n);
                magnitude[j] = parts.take<std::uint8_t>(n);
            }
            first_points = parts.take<T>(static_cast<std::size_t>(lattices[first].values()));
            box = parts.take<BoxToCopy>(1);
            sizes = parts.take<std::uint16_t>(v2::n_symbols);
            table_of = parts.take<std::uint8_t>(v2::n_rows * 128);
            flag_table = parts.take<std::uint8_t>(v2::n_group_contexts);
            ends = parts.take<std::uint64_t>(n_units);
            to = parts.take<std::uint64_t>(n_units);
            units = parts.take<UnitPlace>(n_units);
            checksums = parts.take<std::uint64_t>(first);
            tiles = parts.take<TileRecord>(static_cast<std::size_t>(n_tiles));
            counts = parts.take<RecordCounts>(1);
            points = parts.take<std::uint32_t>(static_cast<std::size_t>(n_points));
            bytes = parts.used();
        }
    };

    // Of the field, the points of a lattice, by the field's axes.
    template <class T>
    std::vector<T> points_of(const Lattice& lattice, const T* field, const CodingWorkspace<T>& work) {
        BoxToCopy box{};
        for (std::size_t j = 0; j < 4; ++j) {
            box.from.edge[lattice.axis[j]] = static_cast<std::uint32_t>(lattice.extent[j]);
            box.from.stride[lattice.axis[j]] = lattice.field_stride[j];
        }
        std::vector<T> points(static_cast<std::size_t>(lattice.values()));
        queue_.staging.copy(work.box, &box, sizeof box, stream());
        copy_boxes(CopyBoxesArguments<T>{field, work.first_points, work.box, 1}, stream());
        done("copy_boxes");
        queue_.staging.copy(points.data(), work.first_points, points.size() * sizeof(T), stream());
        return points;
    }

    // What the kernels have counted, where so many tiles of lattice 0 stand for all.
    static v2::Counts counts_of(const RecordCounts& found, std::uint64_t rate) {
        v2::Counts counts;
        for (std::size_t c = 0; c < v2::n_contexts; ++c) {
            const std::uint64_t weight = c < 3 * v2::n_places ? rate : 1;
            counts.n[c] = weight * found.n[c];
            counts.size[c] = weight * found.size[c];
            for (std::size_t j = 0; j < 2; ++j) counts.missing[c][j] = weight * found.missing[c][j];
        }
        for (std::size_t c = 0; c < v2::n_group_contexts; ++c)
            for (std::size_t j = 0; j < 2; ++j)
                counts.groups[c][j] = found.groups[0][c][j] + rate * found.groups[1][c][j];
        return counts;
    }

    template <class T>
    bool encode_as(cpu::FieldCoder<T>& coder, const Layout& layout, const Coding& coding, const T* field,
                   const Target& target, std::uint64_t capacity, std::optional<std::size_t>& bytes) {
        const Interpolation& how = coding.interpolation;
        v2::Front front = spline::front_of(layout, coding, v2::Kind::spline);
        front.e = coding.step / 2;
        front.has_axes = how.axes != AxisMasks{15, 15, 15};
        typename cpu::FieldCoder<T>::Field coded(front, how, nullptr);
        const auto& lattices = coded.pyramid.lattices;
        const auto& units = coded.units;
        const std::size_t first = units[0].lattice, n_units = units.size() - 1;
        if (first == 0 || !has_shared_memory<T>(coded.pyramid, first, coded.coder.curve)) return false;
        std::byte* memory = nullptr;
        if (!reserve([&] {
                memory = memory_.reserve<std::byte>(queue_.source, CodingWorkspace<T>(nullptr, coded).bytes);
                load_intervals();
            }))
            return false;
        const CodingWorkspace<T> work(memory, coded);
        const auto copy = [&](auto* to, const auto* from, std::size_t n) {
            queue_.staging.copy(to, from, n * sizeof *from, stream());
        };

        // Small lattices on the host, then the others.
        std::vector<DeviceLattice<T>> device_lattices(first);
        std::vector<std::size_t> tiles_before(first + 1);
        std::uint64_t points_before = 0;
        for (std::size_t i = first; i-- > 0;) {
            device_lattices[i] = {.lattice = lattices[i],
                                  .quantiser = coded.coder.quantiser[i],
                                  .curve = coded.coder.curve,
                                  .coarse = work.value[i % 2],
                                  .coarse_magnitude = work.magnitude[i % 2],
                                  .fine = i > 0 ? work.value[(i - 1) % 2] : nullptr,
                                  .fine_magnitude = i > 0 ? work.magnitude[(i - 1) % 2] : nullptr,
                                  .field = nullptr,
                                  .original = field,
                                  .codes = nullptr,
                                  .points = work.points + points_before,
                                  .units = nullptr,
                                  .payloads = nullptr};
            points_before += lattices[i].values();
            tiles_before[i] = tiles_before[i + 1] + static_cast<std::size_t>(lattices[i].n_tiles);
        }
        const std::vector<T> points = points_of(lattices[first], field, work);
        const cpu::LatticeArrays<T> arrays = coder.code_first(coded, points.data());
        copy(work.value[(first - 1) % 2], arrays.value, coded.sizes[first]);
        copy(work.magnitude[(first - 1) % 2], arrays.magnitude, coded.sizes[first]);
        copy(work.sizes, v2::tables().size.data(), v2::n_symbols);
        CUSZ_CUDA(cudaMemsetAsync(work.counts, 0, sizeof *work.counts, stream()));
        done("copy_first");
        const Sample all(1, default_r), sample(lattices[0].n_tiles, default_r);
        for (std::size_t i = first; i-- > 0;) {
            find_fixed_contexts(device_lattices[i], stream());
            done("find_fixed_contexts");
            find_codes(device_lattices[i], work.counts, stream());
            done("find_codes");
            record_tiles(RecordArguments<T>{device_lattices[i], static_cast<std::uint32_t>(i), i == 0 ? sample : all,
                                            work.sizes, work.tiles + tiles_before[i + 1], work.counts},
                         stream());
            done("record_tiles");
        }
        std::vector<TileRecord> tiles(tiles_before[0]);
        RecordCounts counts;
        copy(tiles.data(), work.tiles, tiles.size());
        copy(&counts, work.counts, 1);
        const auto of_first = coder.write_first(coded, counts_of(counts, sample.rate()));
        front.n_special = of_first.n_special + counts.n_special;
        front.n_verbatim = of_first.n_verbatim + counts.n_verbatim;
        const bool is_still =
            !of_first.live && std::ranges::none_of(tiles, [](const TileRecord& tile) { return tile.live != 0; });
        if (is_still || front.n_special + front.n_verbatim == layout.values - 1) return false; // it may be constant

        // Room for payloads, which are written towards their beginnings.
        std::vector<std::uint64_t> ends(n_units);
        std::uint64_t room = 0;
        for (std::size_t u = 0, tile = 0; u < n_units; ++u) {
            for (std::uint32_t j = 0; j < units[u + 1].n_tiles; ++j, ++tile)
                if (tiles[tile].live != 0)
                    room += std::uint64_t{tiles[tile].n_values} + tiles[tile].n_flags + tiles[tile].extra_bits / 16 + 1;
            room += 1 + 2 * v2::max_lanes + 1;
            ends[u] = room += room % 2; // units have no word in common
        }
        std::uint16_t* payloads = nullptr;
        if (!reserve([&] { payloads = payloads_.reserve<std::uint16_t>(queue_.source, room + 1); })) return false;
        CUSZ_CUDA(cudaMemsetAsync(payloads, 0, static_cast<std::size_t>(room + 1) * 2, stream()));
        copy(work.ends, ends.data(), n_units);
        copy(work.table_of, of_first.tables.table_of[0].data(), sizeof of_first.tables.table_of);
        copy(work.flag_table, of_first.tables.flag_table.data(), of_first.tables.flag_table.size());
        done("copy_model");
        const auto for_lattices = [&](const auto& use) { // use(lattice, its first unit, less 1, number of units)
            for (std::size_t u = 0, end = 0; u < n_units; u = end) {
                while (end < n_units && units[end + 1].lattice == units[u + 1].lattice) ++end;
                use(units[u + 1].lattice, u, static_cast<std::uint32_t>(end - u));
            }
        };
        for_lattices([&](std::size_t i, std::size_t u, std::uint32_t n) {
            write_units(WriteArguments<T>{.of = device_lattices[i],
                                          .n_units = n,
                                          .tiles = work.tiles + tiles_before[i + 1],
                                          .intervals = intervals_.template reserve<std::uint32_t>(queue_.source, 1),
                                          .table_of = work.table_of + v2::row_of(i, 1) * 128,
                                          .flag_table = work.flag_table,
                                          .end = work.ends + u,
                                          .payloads = payloads,
                                          .units = work.units + u},
                        stream());
            done("write_units");
        });
        std::vector<UnitPlace> places(n_units);
        copy(places.data(), work.units, n_units);

        // The archive.
        v2::Head head{.how = how,
                      .preset = of_first.model.preset,
                      .has_map = of_first.model.has_map,
                      .top = bits_of(points[0]),
                      .units = {{2 * std::uint64_t{of_first.payload.n}, of_first.payload.log2_lanes}},
                      .checksums = std::vector<std::uint32_t>(first)};
        std::vector<std::uint64_t> to(n_units);
        std::uint64_t units_of_length = 0;
        for (std::size_t u = 0; u < n_units; ++u) {
            to[u] = units_of_length;
            units_of_length += places[u].n;
            head.units.push_back({2 * std::uint64_t{places[u].n}, places[u].log2_lanes});
        }
        std::vector<std::byte> begin(v2::max_front_bytes);
        const std::size_t n_front = v2::write_front(front, begin.data());
        const std::size_t n_head = n_front + 4 + v2::write_head(front, n_front, head).size(),
                          n_first = n_head + 2 * std::size_t{of_first.payload.n};
        if (n_first + 2 * units_of_length > capacity) return true;
        copy(work.to, to.data(), n_units);
        CUSZ_CUDA(cudaMemsetAsync(work.checksums, 0, first * sizeof *work.checksums, stream()));
        std::uint16_t* gathered = nullptr;
        if (target.on_device())
            gathered = target.at(n_first).template as<std::uint16_t>();
        else if (!reserve([&] { gathered = gathered_.reserve<std::uint16_t>(queue_.source, units_of_length + 1); }))
            return false;
        for_lattices([&](std::size_t i, std::size_t u, std::uint32_t n) {
            gather_units({payloads, work.units + u, n, work.to + u, gathered, work.checksums + i}, stream());
            done("gather_units");
        });
        std::vector<std::uint64_t> checksums(first);
        copy(checksums.data(), work.checksums, first);
        if (!target.on_device()) copy(target.at(n_first).template as<std::uint16_t>(), gathered, units_of_length);
        for (std::size_t i = 0; i < first; ++i) head.checksums[first - 1 - i] = fold(checksums[i]);
        const std::vector<std::byte> rest = v2::write_head(front, n_front, head);
        begin.resize(n_first);
        std::ranges::copy(rest, begin.begin() + static_cast<std::ptrdiff_t>(n_front) + 4);
        std::memcpy(begin.data() + n_head, of_first.payload.begin, 2 * std::size_t{of_first.payload.n});
        const std::uint32_t checksum = v2::checksum_of_head(begin, n_front);
        std::memcpy(begin.data() + n_front, &checksum, sizeof checksum);
        copy(target.bytes(), begin.data(), n_first);
        queue_.wait();
        bytes = n_first + 2 * units_of_length;
        return true;
    }

    // Whether a multiprocessor has enough for tiles of these lattices.
    template <class T>
    static bool has_shared_memory(const Pyramid& pyramid, std::size_t n_lattices, v2::Curve curve) {
        const std::size_t most = max_shared_bytes();
        for (std::size_t i = 0; i < n_lattices; ++i)
            if (value_memory_bytes<T>(pyramid.lattices[i], curve) > most) return false;
        return true;
    }
    // Returns whether there was memory for what make() reserves.
    template <class Make>
    bool reserve(const Make& make) {
        try {
            make();
        } catch (const Error& error) {
            if (error.status() != CUSZ_ERROR_MEMORY) throw;
            release_memory();
            return false;
        }
        return true;
    }

    template <class T>
    bool decode_as(cpu::FieldCoder<T>& coder, std::span<const std::byte> archive, const v2::Front& front,
                   std::size_t front_bytes, T* field) {
        using Put = PutArguments<T>;
        const typename cpu::FieldCoder<T>::Opened opened(archive, front, front_bytes);
        const Pyramid& pyramid = opened.coded.pyramid;
        const auto& units = opened.coded.units;
        const std::size_t first = opened.first_lattice();
        if (first == 0) return false;
        const v2::Curve curve = opened.coded.coder.curve;
        if (!has_shared_memory<T>(pyramid, first, curve)) return false;
        const auto of_first = coder.decompress_first(opened);

        std::vector<typename Put::Value> values;
        const T top = std::bit_cast<T>(static_cast<typename Traits<T>::Bits>(opened.head.top));
        if (!(std::abs(top) <= std::numeric_limits<T>::max())) values.push_back({0, bits_of(top)});
        const Selection all = whole(front.layout, nullptr);
        const Extents stride = cpu::by_axis(front.layout, all.stride, 0);
        for (const cpu::Patch& patch : of_first.patches) {
            std::uint64_t at = 0;
            for (std::size_t a = 0; a < 4; ++a) at += patch.at[a] * stride[a];
            values.push_back({at, static_cast<typename Traits<T>::Bits>(patch.bits)});
        }
        std::byte* memory = nullptr;
        if (!reserve([&] {
                memory = memory_.reserve<std::byte>(queue_.source, Workspace<T>(nullptr, opened, values.size()).bytes);
                load_slots();
            }))
            return false;
        const Workspace<T> work(memory, opened, values.size());

        const auto copy = [&](void* to, const void* from, std::size_t bytes) {
            queue_.staging.copy(to, from, bytes, stream());
        };
        std::vector<UnitPlace> places;
        for (std::size_t u = 1; u < units.size(); ++u)
            places.push_back({(opened.first[u] - opened.first[1]) / 2,
                              static_cast<std::uint32_t>(opened.head.units[u].bytes / 2),
                              opened.head.units[u].log2_lanes});
        std::array<std::uint16_t, v2::n_group_contexts> flag_frequency;
        for (std::size_t c = 0; c < flag_frequency.size(); ++c)
            flag_frequency[c] = v2::tables().group_frequency[of_first.model.flag_table[c]];
        copy(work.payloads, archive.data() + opened.first[1], opened.first.back() - opened.first[1]);
        copy(work.units, places.data(), places.size() * sizeof places[0]);
        copy(work.table_of, of_first.model.table_of.data(), sizeof of_first.model.table_of);
        copy(work.flag_frequency, flag_frequency.data(), sizeof flag_frequency);
        copy(work.values, values.data(), values.size() * sizeof(typename Put::Value));
        copy(work.value[(first - 1) % 2], of_first.lattice.value, opened.coded.sizes[first] * sizeof(T));
        copy(work.magnitude[(first - 1) % 2], of_first.lattice.magnitude, opened.coded.sizes[first]);
        CUSZ_CUDA(cudaMemsetAsync(work.result, 0, sizeof *work.result, stream()));
        done("copy_archive");

        std::size_t u = 1;
        for (std::size_t i = first; i-- > 0;) {
            ReadArguments<T> a{};
            a.of = {.lattice = pyramid.lattices[i],
                    .quantiser = opened.coded.coder.quantiser[i],
                    .curve = curve,
                    .coarse = work.value[i % 2],
                    .coarse_magnitude = work.magnitude[i % 2],
                    .fine = i > 0 ? work.value[(i - 1) % 2] : nullptr,
                    .fine_magnitude = i > 0 ? work.magnitude[(i - 1) % 2] : nullptr,
                    .field = field,
                    .original = nullptr,
                    .codes = work.codes,
                    .points = nullptr,
                    .units = work.units + (u - 1),
                    .payloads = reinterpret_cast<const std::uint16_t*>(work.payloads)};
            a.lattice = static_cast<std::uint32_t>(i);
            a.first_unit = u;
            while (u < units.size() && units[u].lattice == i) {
                ++u;
                ++a.n_units;
            }
            a.slots = static_cast<const std::uint32_t*>(slots_.template reserve<std::uint32_t>(queue_.source, 1));
            a.table_of = work.table_of + v2::row_of(i, 1) * 128;
            a.flag_frequency = work.flag_frequency;
            a.decode = true;
            a.result = work.result;
            find_fixed_contexts(a.of, stream());
            done("find_fixed_contexts");
            read_units(a, stream());
            done("read_units");
            find_values(a.of, stream());
            done("find_values");
        }
        if (!values.empty()) put_values(Put{work.values, static_cast<std::uint32_t>(values.size()), field}, stream());
        done("put_values");
        const ReadResult outcome = queue_.fetched(work.result);
        for (std::size_t i = first; i-- > 0;)
            if (fold(outcome.checksum[i]) != opened.head.checksums[first - 1 - i])
                fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
        if (outcome.error != 0)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", text_of(static_cast<UnitError>(~outcome.error & 255)));
        return true;
    }

    // What all archives are decoded with.
    void load_slots() {
        if (has_slots_) return;
        const auto& slots = unit_tables().slot;
        auto* const to = slots_.reserve<std::uint32_t>(queue_.source, slots.size());
        queue_.staging.copy(to, slots.data(), sizeof slots, stream());
        has_slots_ = true;
    }
    // What all are coded with.
    void load_intervals() {
        if (has_intervals_) return;
        const auto& intervals = unit_tables().interval;
        auto* const to = intervals_.reserve<std::uint32_t>(queue_.source, intervals.size());
        queue_.staging.copy(to, intervals.data(), sizeof intervals, stream());
        has_intervals_ = true;
    }
    void release_memory() {
        has_slots_ = has_intervals_ = false;
        queue_.release(buffers(*this));
    }

    Queue& queue_;
    ThroughHost host_;
    cpu::FieldCoder<float> f32_{cpu::kernels().spline_f32, cpu::kernels().weigh}; // for unit 0
    cpu::FieldCoder<double> f64_{cpu::kernels().spline_f64, cpu::kernels().weigh};
    DeviceBuffer slots_, intervals_, memory_, payloads_, gathered_;
    bool has_slots_ = false, has_intervals_ = false;
};

} // namespace

} // namespace cusz::cuda

std::unique_ptr<cusz::Engine> cusz::spline::on_device(cuda::Queue& queue, HostBackend& cpu) {
    return std::make_unique<cuda::SplineEngine>(queue, cpu);
}
