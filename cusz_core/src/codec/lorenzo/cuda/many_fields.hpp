// Encodes many fields on a device together: each kernel is launched once for all of them, and two waits do for all.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "archive/checksum.hpp"
#include "buffer.hpp"
#include "codec/codec.hpp"
#include "codec/cuda/sample_boxes.hpp"
#include "codec/lorenzo/codebook.hpp"
#include "device/queue.hpp"
#include "kernels.hpp"

namespace cusz::cuda {

// What an encoded field's archive says, from what the kernels have found.
template <class T>
Encoded encoded_of(Coding coding, const CompressResult& found, const FieldState<T>& state, const std::uint8_t* lengths,
                   std::uint64_t index_bytes) {
    const Alphabet alphabet(coding.r);
    coding.eb_abs = state.eb_abs;
    coding.step = static_cast<double>(state.quantiser.step);
    coding.body_bytes = coding.stored_bytes = index_bytes + found.words * 4;
    coding.n_special = found.n_special;
    coding.n_out_of_range = found.n_out_of_range;
    coding.n_unpredictable = found.n_unpredictable;
    Encoded encoded{coding, std::vector<std::byte>(codebook_bytes(coding.r)), fold(found.checksum)};
    write_lengths(encoded.model.data(), {lengths, lengths + alphabet.size()}, alphabet);
    return encoded;
}

// The memory that is kept between calls.
struct ManyFieldsMemory {
    DeviceBuffer work, bodies, gathered;
    Buffer arguments, results, copy; // on the host

    std::size_t host_bytes() const { return arguments.bytes() + results.bytes() + copy.bytes(); }
    void release_host() {
        for (Buffer* buffer : {&arguments, &results, &copy}) buffer->release();
    }
};

template <class T>
class ManyFields {
    using Range = typename RangeArguments<T>::Result;

public:
    // The fields, none of which is empty, have tiles of one shape. Coding: of all.
    ManyFields(Queue& queue, ManyFieldsMemory& memory, const Coding& coding, bool with_ranges,
               std::span<FieldToEncode* const> fields)
        : queue_(queue), memory_(memory), coding_(coding), with_ranges_(with_ranges), fields_(fields) {
        for (const FieldToEncode* field : fields) places_.push_back(place_of(*field));
        if (with_ranges || coding.mode == CUSZ_REL)
            n_ranges_ = std::clamp<std::uint64_t>(max_blocks() / fields.size(), 1, 1 + max_values_ / 1024);
    }

    void encode() {
        const Workspace size(nullptr, *this);
        auto* const memory = memory_.work.template reserve<std::byte>(queue_.source, size.bytes);
        const Workspace work(memory, *this);
        std::byte* const bodies = memory_.bodies.reserve<std::byte>(queue_.source, bodies_bytes_);
        CUSZ_CUDA(cudaMemsetAsync(memory, 0, work.cleared_bytes, queue_.stream()));
        put_arguments(work, bodies);
        launch(work);

        auto* const results = memory_.results.reserve<std::byte>(work.results_bytes);
        queue_.staging.copy(results, work.results, work.results_bytes, queue_.stream());
        const Results found(results, *this);
        const std::span<const float> gathered = gather(work, found, bodies);
        auto* const copy = memory_.copy.reserve<std::byte>(gathered.size_bytes());
        queue_.staging.copy(copy, gathered.data(), gathered.size_bytes(), queue_.stream());
        take(found, copy);
    }

private:
    struct Place {
        Tiling tiling;
        Sample sample;
        std::uint64_t index_words, capacity, body, first_tile; // words; body: where it begins
        bool has_room;                                         // for an index at all
    };

    Place place_of(const FieldToEncode& field) {
        const Tiling tiling(field.layout.ndim, field.layout.shape.data());
        const std::uint64_t index_words = (tiling.n_tiles() + 1) / 2, model_words = codebook_bytes(coding_.r) / 4,
                            words = field.capacity / 4;
        const bool has_room = words >= model_words + index_words + tiling.n_tiles();
        const std::uint64_t capacity = std::min(has_room ? words - model_words - index_words : 0,
                                                tiling.n_tiles() + field.layout.values * words_of<T>);
        const Place place{
            tiling,  Sample(tiling.n_tiles(), coding_.r), index_words, capacity, bodies_bytes_ / 4, total_tiles_,
            has_room};
        bodies_bytes_ += (index_words + capacity) * 4;
        total_tiles_ += tiling.n_tiles();
        max_tiles_ = std::max(max_tiles_, tiling.n_tiles());
        max_values_ = std::max(max_values_, field.layout.values);
        return place;
    }

    // What the kernels find of the fields, as it lies in device memory and in its copy on the host.
    struct Results {
        CompressResult* coded;
        FieldState<T>* states;
        std::uint8_t* lengths;
        Range* ranges;
        std::size_t bytes;
        Results(void* memory, const ManyFields& of) {
            const std::size_t n = of.fields_.size();
            Parts parts(memory);
            coded = parts.take<CompressResult>(n);
            states = parts.take<FieldState<T>>(n);
            lengths = parts.take<std::uint8_t>(n * of.alphabet().size());
            ranges = parts.take<Range>(n * of.n_ranges_);
            bytes = parts.used();
        }
    };
    // Arguments of the kernels, likewise.
    struct Arguments {
        RangeArguments<T>* range;
        BoundArguments<T>* bound;
        CountArguments<T>* count;
        BookArguments* book;
        CompressArguments<T>* compress;
        std::size_t bytes;
        Arguments(void* memory, std::size_t n) {
            Parts parts(memory);
            range = parts.take<RangeArguments<T>>(n);
            bound = parts.take<BoundArguments<T>>(n);
            count = parts.take<CountArguments<T>>(n);
            book = parts.take<BookArguments>(n);
            compress = parts.take<CompressArguments<T>>(n);
            bytes = parts.used();
        }
    };
    struct Workspace {
        std::uint64_t *counts, *tickets, *look_back;
        std::byte *results, *arguments;
        std::uint32_t *small, *of_symbol;
        BoxToCopy* boxes;
        std::size_t cleared_bytes, results_bytes, arguments_bytes, bytes;
        Workspace(void* memory, const ManyFields& of) {
            const std::size_t n = of.fields_.size(), symbols = of.alphabet().size();
            results_bytes = Results(nullptr, of).bytes;
            arguments_bytes = Arguments(nullptr, n).bytes;
            Parts parts(memory);
            counts = parts.take<std::uint64_t>(n * symbols);
            tickets = parts.take<std::uint64_t>(n);
            look_back = parts.take<std::uint64_t>(static_cast<std::size_t>(of.total_tiles_));
            results = parts.take<std::byte>(results_bytes);
            cleared_bytes = parts.used();
            arguments = parts.take<std::byte>(arguments_bytes);
            small = parts.take<std::uint32_t>(n * 2 * EncodeTables::small_span);
            of_symbol = parts.take<std::uint32_t>(n * symbols);
            boxes = parts.take<BoxToCopy>(n);
            bytes = parts.used();
        }
    };

    void put_arguments(const Workspace& work, std::byte* bodies) {
        auto* const memory = memory_.arguments.reserve<std::byte>(work.arguments_bytes);
        const std::size_t n = fields_.size(), symbols = alphabet().size();
        const Arguments on_host(memory, n);
        const Results results(work.results, *this);
        const auto special = static_cast<typename Traits<T>::Bits>(coding_.special);
        for (std::size_t i = 0; i < n; ++i) {
            const Place& place = places_[i];
            const T* const values = fields_[i]->field.template as<T>();
            const TileBatch tiles{place.tiling, 0, place.tiling.n_tiles(), 0};
            Range* const ranges = results.ranges + i * n_ranges_;
            FieldState<T>* const state = results.states + i;
            std::uint64_t* const counts = work.counts + i * symbols;
            const EncodeTables tables{coding_.r, work.small + i * 2 * EncodeTables::small_span,
                                      work.of_symbol + i * symbols};
            auto* const index = reinterpret_cast<std::uint32_t*>(bodies) + place.body;
            on_host.range[i] = {values, fields_[i]->layout.values, special, ranges};
            on_host.bound[i] = {coding_.eb, special, coding_.mode == CUSZ_REL ? ranges : nullptr,
                                static_cast<std::uint32_t>(n_ranges_), state};
            on_host.count[i] = {tiles, values, coding_.r, place.sample, state, counts};
            on_host.book[i] = {counts,
                               coding_.r,
                               place.sample,
                               results.lengths + i * symbols,
                               work.small + i * 2 * EncodeTables::small_span,
                               work.of_symbol + i * symbols,
                               &state->reach,
                               nullptr};
            on_host.compress[i] = {tiles,
                                   values,
                                   tables,
                                   state,
                                   reinterpret_cast<std::uint16_t*>(index),
                                   index + place.index_words,
                                   place.capacity,
                                   work.tickets + i,
                                   work.look_back + place.first_tile,
                                   results.coded + i};
        }
        queue_.staging.copy(work.arguments, memory, work.arguments_bytes, queue_.stream());
    }

    void launch(const Workspace& work) const {
        const auto n = static_cast<std::uint32_t>(fields_.size());
        const Arguments arguments(work.arguments, n);
        const ManyTiles tiles{places_.front().tiling.shape(), coding_.r, max_tiles_};
        const cudaStream_t stream = queue_.stream();
        if (n_ranges_ > 0) compute_range(Each{arguments.range, n}, static_cast<std::uint32_t>(n_ranges_), stream);
        resolve_bound(Each{arguments.bound, n}, stream);
        count_symbols(Each{arguments.count, n}, tiles, stream);
        make_books(Each{arguments.book, n}, coding_.r, stream);
        compress_tiles(Each{arguments.compress, n}, tiles, stream);
    }

    bool is_coded(const Results& found, std::size_t i) const {
        return places_[i].has_room && found.states[i].raw == 0 && found.coded[i].too_large == 0;
    }
    std::uint64_t words_of_body(const Results& found, std::size_t i) const {
        return places_[i].index_words + found.coded[i].words;
    }

    // Puts the bodies one after the other. Their words are copied as float: a copy keeps any bits.
    std::span<const float> gather(const Workspace& work, const Results& found, const std::byte* bodies) {
        std::vector<BoxToCopy> boxes;
        std::uint64_t words = 0;
        for (std::size_t i = 0; i < fields_.size(); ++i) {
            if (!is_coded(found, i)) continue;
            const auto own = static_cast<std::uint32_t>(words_of_body(found, i));
            boxes.push_back({{places_[i].body, {own, 1, 1, 1}, {1, 0, 0, 0}}, words});
            words += own;
        }
        if (boxes.empty()) return {};
        auto* const gathered = memory_.gathered.reserve<float>(queue_.source, words);
        queue_.staging.copy(work.boxes, boxes.data(), boxes.size() * sizeof(BoxToCopy), queue_.stream());
        copy_boxes(CopyBoxesArguments<float>{reinterpret_cast<const float*>(bodies), gathered, work.boxes,
                                             static_cast<std::uint32_t>(boxes.size())},
                   queue_.stream());
        return {gathered, static_cast<std::size_t>(words)};
    }

    // Hands the results out to the fields.
    void take(const Results& found, const std::byte* bodies) const {
        const std::size_t model_bytes = codebook_bytes(coding_.r), symbols = alphabet().size();
        for (std::size_t i = 0; i < fields_.size(); ++i) {
            FieldToEncode& field = *fields_[i];
            if (with_ranges_)
                field.range = range_of_blocks(std::span<const Range>(found.ranges + i * n_ranges_, n_ranges_));
            if (!is_coded(found, i)) continue;
            const Place& place = places_[i];
            const auto bytes = static_cast<std::size_t>(words_of_body(found, i)) * 4;
            std::byte* const body = field.target + model_bytes;
            std::memcpy(body, bodies, bytes);
            const auto used = static_cast<std::size_t>(place.tiling.n_tiles()) * 2;
            std::memset(body + used, 0, static_cast<std::size_t>(place.index_words) * 4 - used); // padding of the index
            bodies += bytes;
            field.encoded = encoded_of(coding_, found.coded[i], found.states[i], found.lengths + i * symbols,
                                       place.index_words * 4);
        }
    }

    Alphabet alphabet() const { return Alphabet(coding_.r); }

    Queue& queue_;
    ManyFieldsMemory& memory_;
    Coding coding_;
    bool with_ranges_;
    std::span<FieldToEncode* const> fields_;
    std::vector<Place> places_;
    std::uint64_t bodies_bytes_ = 0, total_tiles_ = 0, max_tiles_ = 0, max_values_ = 0;
    std::size_t n_ranges_ = 0; // parts of a field's range, one for each block that computes it
};

} // namespace cusz::cuda
