// Module cusz_core._native: the C API of cusz.h for Python, as thin as possible, and the search for bounds.
//
// Arrays come in through the buffer protocol, or as DeviceMemory, without copies. Checks that need a good message
// (types, layouts, legal values) are made in Python; the checks here are those that memory safety needs. The GIL is
// released while the library works. Failures raise the classes of cusz_core.errors, with the library's message.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../src/api/search.hpp"
#include "../src/simd/float_mode.hpp"
#include "cusz/cusz.h"
#include "device_memory.hpp"
#include "dlpack.hpp"
#include "errors.hpp"

namespace {

// ---------------------------------------------------------------------------------------------------- errors

[[noreturn]] void raise_out_of_memory(const char* what) {
    PyErr_Clear();
    raise(CUSZ_ERROR_MEMORY, (std::string("out of memory: cannot allocate ") + what).c_str());
}

// --------------------------------------------------------------------------------------------------- contexts

// Releases the GIL for a scope. Before 3.14, a Python that is shutting down ends a thread that asks for the GIL again, a
// daemon thread, by unwinding its stack (pthread_exit). That must not leave a destructor, such as this one or that of
// nb::gil_scoped_release: it would end the process. So the thread waits here for the end of the process, as in 3.14.
class WithoutGil {
public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;
    ~WithoutGil() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            for (;;) pause();
        }
    }

private:
    PyThreadState* state_;
};

// Runs a call of the library without the GIL.
template <class Call>
cusz_status run(const Call& call) {
    const WithoutGil unlocked;
    return call();
}

struct FreeMemory {
    void operator()(void* p) const { std::free(p); }
};

// The resources of one call: a library context, and a staging buffer for an archive whose size is not known yet.
struct Worker {
    cusz_context* context = cusz_create();
    Place place; // of the context's scratch memory on a device
    std::unique_ptr<void, FreeMemory> staging;
    size_t staging_capacity = 0;

    Worker() = default;
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker() {
        const WithoutGil unlocked; // it may wait for a device, or for a lock held by another thread
        cusz_destroy(context);
    }

    // Memory for an archive of `bytes`. Pages that are never touched cost nothing.
    void* stage(size_t bytes) {
        if (staging_capacity < bytes) {
            staging.reset();
            staging_capacity = 0;
            staging.reset(std::malloc(bytes));
            if (!staging) raise_out_of_memory("a buffer for the archive");
            staging_capacity = bytes;
        }
        return staging.get();
    }

    // Frees what the context holds on a device, and makes later calls use `next`.
    void move_to(Place next) {
        nb::object previous = std::exchange(place, std::move(next)).allocator;
        const cusz_allocator allocator = {&allocate_in_python, &release_in_python, place.allocator.ptr()};
        const bool has_allocator = place.allocator.is_valid(), had_allocator = previous.is_valid();
        const cusz_status status = run([&] {
            const cusz_status set = has_allocator || had_allocator
                                        ? cusz_set_allocator(context, has_allocator ? &allocator : nullptr)
                                        : CUSZ_OK;
            return set == CUSZ_OK ? cusz_set_stream(context, place.stream) : set;
        });
        if (status == CUSZ_OK) return;
        previous.release(); // never freed: the context may still refer to it
        raise(status, cusz_last_error(context));
    }
};

// Guards what all threads share. With a GIL, the GIL does that, so there is no mutex that a fork could leave locked.
// Without a GIL there is a mutex: a fork waits for it, and both processes unlock it. Its holder must not call Python.
#ifdef Py_GIL_DISABLED
class SharedLock {
public:
    SharedLock() : lock_(mutex()) {}

    static void prepare_for_forks() {
        pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, [] { mutex().unlock(); });
    }

private:
    static std::mutex& mutex() {
        static std::mutex* const instance = new std::mutex;
        return *instance;
    }

    std::lock_guard<std::mutex> lock_;
};
#else
class SharedLock {
public:
    // Not trivial: otherwise compilers would warn that a lock is unused.
    SharedLock() {} // NOLINT(modernize-use-equals-default)

    static void prepare_for_forks() {}
};
#endif

// Idle workers are moved to another place only if there are at least this many, so that a program that alternates
// between a few streams keeps the scratch memory of each.
constexpr size_t kPlaces = 8;

// Idle workers, most recently used last. Guarded by SharedLock, and never freed at exit.
using Workers = std::vector<std::unique_ptr<Worker>>;
Workers& pool() {
    static Workers* const idle = new Workers;
    return *idle;
}

// A worker for the duration of one call. Created and destroyed by a thread that is attached to Python.
class Lease {
public:
    explicit Lease(const nb::tuple& described) {
        Place place(described);
        worker_ = take_idle(place);
        if (!worker_) {
            worker_ = std::make_unique<Worker>();
            if (!worker_->context) raise_out_of_memory("a compression context");
        }
        if (!worker_->place.same_as(place)) worker_->move_to(std::move(place));
    }
    ~Lease() {
        try {
            if (!worker_->place.lasting) worker_->move_to(Place());
            const SharedLock locked;
            pool().push_back(std::move(worker_));
        } catch (...) { // out of memory, or a device failure: this worker is discarded
        }
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    cusz_context* context() const { return worker_->context; }
    Worker& worker() const { return *worker_; }
    void check(cusz_status status) const {
        if (status == CUSZ_OK) return;
        const char* const message = cusz_last_error(worker_->context);
        if (status == CUSZ_ERROR_MEMORY && worker_->place.allocator.is_valid())
            raise_failure_of(worker_->place.allocator, message);
        raise(status, message);
    }

private:
    // An idle worker at a place, or one that may be moved there; null if there is none.
    static std::unique_ptr<Worker> take_idle(const Place& place) {
        const SharedLock locked;
        Workers& idle = pool();
        auto found = find(place);
        if (found == idle.end() && !place.lasting) found = find(Place()); // where it goes after the call
        if (found == idle.end() && idle.size() >= kPlaces) found = idle.begin();
        if (found == idle.end()) return nullptr;
        std::unique_ptr<Worker> taken = std::move(*found);
        idle.erase(found);
        return taken;
    }

    // The most recently used idle worker at a place; end() if there is none.
    static Workers::iterator find(const Place& place) {
        Workers& idle = pool();
        for (auto i = idle.end(); i != idle.begin();) {
            if ((*--i)->place.same_as(place)) return i;
        }
        return idle.end();
    }

    std::unique_ptr<Worker> worker_;
};

size_t scratch_bytes() {
    const SharedLock locked;
    size_t sum = 0;
    for (const auto& worker : pool()) sum += cusz_scratch_bytes(worker->context) + worker->staging_capacity;
    return sum;
}

// Takes the workers out first: the GIL and the lock are free while they are destroyed.
void release_scratch() {
    Workers released;
    const SharedLock locked;
    released.swap(pool());
}

// ---------------------------------------------------------------------------------------------------- buffers

// A C-contiguous view of a Python object's memory, which cannot be resized while the view lives; or of DeviceMemory,
// which the caller keeps alive.
class View {
public:
    View(nb::handle object, bool writable) {
        if (nb::isinstance<DeviceMemory>(object)) {
            auto& memory = *nb::inst_ptr<DeviceMemory>(object);
            if (writable && !memory.writable) raise(CUSZ_ERROR_PARAMETER, "the array is read-only");
            static char nothing; // an empty array may have a null address, which the library rejects
            view_.buf = memory.bytes == 0 && memory.data == nullptr ? &nothing : memory.data;
            view_.len = memory.bytes;
            view_.itemsize = memory.item_bytes;
            view_.ndim = memory.ndim;
            view_.shape = memory.shape.data();
            view_.format = const_cast<char*>(memory.format());
            on_device_ = true;
            return;
        }
        const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
    }
    ~View() { PyBuffer_Release(&view_); }
    View(const View&) = delete;
    View& operator=(const View&) = delete;

    void* data() const { return view_.buf; }
    size_t bytes() const { return static_cast<size_t>(view_.len); }
    size_t item_bytes() const { return static_cast<size_t>(view_.itemsize); }
    int ndim() const { return view_.ndim; }
    const Py_ssize_t* shape() const { return view_.shape; }
    const char* format() const { return view_.format ? view_.format : "B"; }
    bool on_device() const { return on_device_; }

    bool overlaps(const View& other) const {
        const auto a = reinterpret_cast<uintptr_t>(data()), b = reinterpret_cast<uintptr_t>(other.data());
        return a < b + other.bytes() && b < a + bytes();
    }

private:
    Py_buffer view_{};
    bool on_device_ = false;
};

// Whether values of this format and size are floats or doubles in native byte order.
bool is_float(const char* format, Py_ssize_t value_bytes) {
    // numpy states the byte order of a type that was made with one, even if it is the machine's.
    constexpr char native_order = std::endian::native == std::endian::little ? '<' : '>';
    if (format == nullptr) return false;
    if (*format == '@' || *format == '=' || *format == native_order) ++format;
    return (std::strcmp(format, "f") == 0 && value_bytes == 4) || (std::strcmp(format, "d") == 0 && value_bytes == 8);
}

// A view of an array of floats or doubles in native byte order.
struct Field {
    View view;
    cusz_dtype dtype = CUSZ_F32;
    int32_t ndim = 0;
    std::array<uint64_t, CUSZ_MAX_NDIM> shape{};

    Field(nb::handle object, bool writable) : view(object, writable) {
        if (!is_float(view.format(), static_cast<Py_ssize_t>(view.item_bytes())))
            raise(CUSZ_ERROR_UNSUPPORTED, "a field must be of native float32 or float64");
        dtype = view.item_bytes() == 4 ? CUSZ_F32 : CUSZ_F64;
        if (view.ndim() < 1 || view.ndim() > CUSZ_MAX_NDIM) {
            raise(CUSZ_ERROR_UNSUPPORTED, "a field must have 1 to 4 dimensions");
        }
        if (reinterpret_cast<uintptr_t>(view.data()) % view.item_bytes() != 0) {
            raise(CUSZ_ERROR_UNSUPPORTED, "a field must be aligned to its element type");
        }
        ndim = view.ndim();
        for (int i = 0; i < ndim; ++i) shape[static_cast<size_t>(i)] = static_cast<uint64_t>(view.shape()[i]);
    }

    uint64_t count() const { return view.bytes() / view.item_bytes(); }
};

// A view of an archive's bytes.
struct Archive {
    View view;

    explicit Archive(nb::handle object) : view(object, false) {
        if (view.item_bytes() != 1) raise(CUSZ_ERROR_UNSUPPORTED, "an archive must be a buffer of single bytes");
    }
};

// -------------------------------------------------------------------------------------------------- functions

// Sets parameters by key. Those that are None keep their defaults.
void make_params(cusz_params* params, const nb::dict& values) {
    const cusz::FloatMode mode; // Python writes a subnormal number as 0.0 where the host flushes them
    cusz_params_init(new (params) cusz_params);
    for (auto [key, value] : values) {
        if (value.is_none()) continue;
        std::array<char, 512> message{};
        const cusz_status status =
            cusz_params_set(params, nb::cast<const char*>(key), nb::str(value).c_str(), message.data(), message.size());
        if (status != CUSZ_OK) raise(status, message.data());
    }
}

nb::object choices_of(const cusz_parameter& parameter) {
    if (parameter.choices == nullptr) return nb::none();
    nb::list names;
    for (const char* const* name = parameter.choices; *name != nullptr; ++name) names.append(*name);
    return nb::tuple(names);
}

// The library's parameters, each with the attributes of cusz_core.parameters.Parameter.
nb::tuple parameters() {
    nb::list all;
    for (int32_t number = 0; const cusz_parameter* p = cusz_parameter_at(number); ++number)
        all.append(
            nb::make_tuple(p->key, p->description, p->legal, p->default_value, choices_of(*p), p->type, p->decides));
    return nb::tuple(all);
}

// The names of a choice, by number.
nb::object names_of(const char* key) {
    int32_t number = 0;
    while (std::strcmp(cusz_parameter_at(number)->key, key) != 0) ++number;
    return choices_of(*cusz_parameter_at(number));
}

size_t max_archive_bytes_of(cusz_dtype dtype, int32_t ndim, const std::array<uint64_t, CUSZ_MAX_NDIM>& shape) {
    size_t max_bytes = 0;
    const cusz_status status = cusz_max_archive_bytes(dtype, ndim, shape.data(), &max_bytes);
    if (status != CUSZ_OK) raise(status, "the field's size does not fit in 63 bits");
    return max_bytes;
}
size_t max_archive_bytes_of(const Field& field) { return max_archive_bytes_of(field.dtype, field.ndim, field.shape); }

size_t compress_to(const Lease& lease, const cusz_params& params, const Field& field, void* archive, size_t capacity) {
    size_t archive_bytes = 0;
    lease.check(run([&] {
        return cusz_compress(lease.context(), &params, field.dtype, field.ndim, field.shape.data(), field.view.data(),
                             archive, capacity, &archive_bytes);
    }));
    return archive_bytes;
}

// Copies an archive from the staging buffer, releasing the GIL if it takes long enough to matter.
void copy(void* target, const void* staging, size_t bytes) {
    if (bytes < (1u << 16)) {
        std::memcpy(target, staging, bytes);
    } else {
        const WithoutGil unlocked;
        std::memcpy(target, staging, bytes);
    }
}

nb::bytes compress(nb::handle object, const cusz_params& params, const nb::tuple& place) {
    const Field field(object, false);
    const size_t capacity = max_archive_bytes_of(field);
    const Lease lease(place);
    void* const staging = lease.worker().stage(capacity);
    const size_t archive_bytes = compress_to(lease, params, field, staging, capacity);

    PyObject* const archive = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(archive_bytes));
    if (!archive) raise_out_of_memory("the archive");
    nb::bytes result = nb::steal<nb::bytes>(archive);
    copy(PyBytes_AsString(archive), staging, archive_bytes);
    return result;
}

size_t compress_into(nb::handle object, const cusz_params& params, nb::handle out, const nb::tuple& place) {
    const Field field(object, false);
    const View target(out, true);
    if (target.overlaps(field.view)) raise(CUSZ_ERROR_PARAMETER, "out overlaps the field: pass separate memory");
    const size_t max_bytes = max_archive_bytes_of(field);
    const Lease lease(place);
    if (target.bytes() >= max_bytes) return compress_to(lease, params, field, target.data(), target.bytes());

    if (target.on_device()) {
        const std::string message = "out holds " + std::to_string(target.bytes()) + " bytes; on a device it needs " +
                                    std::to_string(max_bytes) + " (max_archive_bytes)";
        raise(CUSZ_ERROR_PARAMETER, message.c_str());
    }
    void* const staging = lease.worker().stage(max_bytes);
    const size_t archive_bytes = compress_to(lease, params, field, staging, max_bytes);
    if (archive_bytes > target.bytes()) {
        const std::string message = "out holds " + std::to_string(target.bytes()) + " bytes, the archive has " +
                                    std::to_string(archive_bytes) + ": " + std::to_string(max_bytes) +
                                    " bytes always suffice (max_archive_bytes)";
        raise(CUSZ_ERROR_PARAMETER, message.c_str());
    }
    copy(target.data(), staging, archive_bytes);
    return archive_bytes;
}

cusz_info inspect_archive(const Lease& lease, const Archive& archive) {
    cusz_info info{};
    info.struct_bytes = sizeof(info);
    const auto call = [&] { return cusz_inspect(lease.context(), archive.view.data(), archive.view.bytes(), &info); };
    lease.check(archive.view.on_device() ? run(call) : call()); // reading a header in host memory is immediate
    return info;
}

// described: a cusz_info or a cusz_level; values: one of its arrays.
template <class Described>
nb::tuple extents_of(const Described& described, const uint64_t (&values)[CUSZ_MAX_NDIM]) {
    nb::list list;
    for (int i = 0; i < described.ndim; ++i) list.append(values[i]);
    return nb::tuple(list);
}

// (dtype, shape) of an archive: what a reader has to allocate.
std::tuple<int32_t, nb::tuple> layout(nb::handle object, const nb::tuple& place) {
    const Archive archive(object);
    const Lease lease(place);
    const cusz_info info = inspect_archive(lease, archive);
    return {info.dtype, extents_of(info, info.shape)};
}

// (dtype, shape, checksum) of each archive, all in host memory; None for one that is damaged.
nb::list identities(const nb::list& objects) {
    const Lease lease{nb::make_tuple()};
    nb::list found;
    for (nb::handle object : objects) {
        const Archive archive(object);
        cusz_info info{};
        info.struct_bytes = sizeof(info);
        if (cusz_inspect(lease.context(), archive.view.data(), archive.view.bytes(), &info) == CUSZ_OK)
            found.append(nb::make_tuple(info.dtype, extents_of(info, info.shape), info.checksum));
        else
            found.append(nb::none());
    }
    return found;
}

// The name of a stage; None if there is none, as in raw archives.
nb::object name_of(const char* (*name)(int32_t), int32_t stage) {
    return stage == CUSZ_NO_STAGE ? nb::object(nb::none()) : nb::object(nb::str(name(stage)));
}

// Compresses into `out`, which must have room for any archive, or, if it is None, into new bytes. Returns the size, or
// the new bytes; checksum, outliers, eb_abs and predictor, as `inspect`; and, with `ranges`, minimum, maximum and
// number of the values, as `value_range`, else (nan, nan, 0).
nb::tuple compress_described(nb::handle object, const cusz_params& params, nb::handle out, bool ranges,
                             const nb::tuple& place) {
    const Field field(object, false);
    const size_t max_bytes = max_archive_bytes_of(field);
    std::optional<View> target;
    if (!out.is_none()) {
        target.emplace(out, true);
        if (target->overlaps(field.view)) raise(CUSZ_ERROR_PARAMETER, "out overlaps the field: pass separate memory");
        if (target->bytes() < max_bytes) raise(CUSZ_ERROR_PARAMETER, "out is smaller than max_archive_bytes");
    }
    const Lease lease(place);
    void* const archive = target ? target->data() : lease.worker().stage(max_bytes);
    cusz_info info{};
    info.struct_bytes = sizeof info;
    double min = std::numeric_limits<double>::quiet_NaN(), max = min;
    uint64_t n_valid = 0;
    lease.check(run([&] {
        return cusz_compress_and_describe(lease.context(), &params, field.dtype, field.ndim, field.shape.data(),
                                          field.view.data(), archive, target ? target->bytes() : max_bytes, &info,
                                          ranges ? &min : nullptr, ranges ? &max : nullptr, &n_valid);
    }));
    nb::object made = target ? nb::object(nb::int_(info.archive_bytes))
                             : nb::object(nb::bytes(static_cast<const char*>(archive), info.archive_bytes));
    return nb::make_tuple(made, info.checksum, info.n_out_of_range + info.n_unpredictable, info.eb_abs,
                          name_of(cusz_predictor_name, info.predictor), min, max, n_valid);
}

// What compress_many reports about a block; cusz_core.codec has the same as a numpy dtype.
struct BlockRow {
    uint64_t archive_bytes;
    uint32_t checksum;
    int32_t predictor;
    uint64_t outliers;
    double eb_abs, min, max;
    uint64_t n_valid;
};

// Compresses fields of one type and number of dimensions into `out`, which must have room for all their archives, or,
// if it is None, into new bytes. Returns the size, or the new bytes. rows: a buffer with one BlockRow per field; min,
// max and n_valid are (nan, nan, 0) without `ranges`.
nb::object compress_many(const nb::list& objects, const cusz_params& params, nb::handle out, nb::handle rows,
                         bool ranges, const nb::tuple& place) {
    std::deque<Field> fields;
    size_t max_bytes = 0;
    for (nb::handle object : objects) {
        const Field& field = fields.emplace_back(object, false);
        if (field.dtype != fields[0].dtype || field.ndim != fields[0].ndim)
            raise(CUSZ_ERROR_PARAMETER, "fields must have one dtype and one number of dimensions");
        max_bytes += max_archive_bytes_of(field);
    }
    const View told(rows, true);
    if (told.bytes() != fields.size() * sizeof(BlockRow)) raise(CUSZ_ERROR_PARAMETER, "rows has another size");
    std::optional<View> target;
    if (!out.is_none()) {
        target.emplace(out, true);
        for (const Field& field : fields)
            if (target->overlaps(field.view)) raise(CUSZ_ERROR_PARAMETER, "out overlaps a field: pass separate memory");
        if (target->bytes() < max_bytes)
            raise(CUSZ_ERROR_PARAMETER, "out is smaller than the sum of max_archive_bytes");
    }
    std::vector<cusz_info> infos(fields.size());
    std::vector<cusz_block> blocks(fields.size());
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    for (size_t i = 0; i < fields.size(); ++i) {
        infos[i].struct_bytes = sizeof infos[i];
        blocks[i] = {sizeof blocks[i], 0, fields[i].shape.data(), fields[i].view.data(), &infos[i], nullptr, 0, unknown,
                     unknown,          0};
    }
    const Lease lease(place);
    void* const archives = target ? target->data() : lease.worker().stage(max_bytes);
    lease.check(run([&] {
        return cusz_compress_many(lease.context(), &params, fields.empty() ? CUSZ_F32 : fields[0].dtype,
                                  fields.empty() ? 1 : fields[0].ndim, blocks.size(), blocks.data(), ranges ? 1 : 0,
                                  archives, target ? target->bytes() : max_bytes);
    }));
    size_t bytes = 0;
    auto* const row = static_cast<BlockRow*>(told.data());
    for (size_t i = 0; i < blocks.size(); ++i) {
        const cusz_info& info = infos[i];
        row[i] = {blocks[i].archive_bytes,
                  info.checksum,
                  info.predictor,
                  info.n_out_of_range + info.n_unpredictable,
                  info.eb_abs,
                  blocks[i].min,
                  blocks[i].max,
                  blocks[i].n_valid};
        bytes += blocks[i].archive_bytes;
    }
    if (target) return nb::int_(bytes);
    return nb::bytes(static_cast<const char*>(archives), bytes);
}

nb::dict inspect(nb::handle object, const nb::tuple& place) {
    const Archive archive(object);
    const Lease lease(place);
    const cusz_info info = inspect_archive(lease, archive);
    nb::dict d;
    d["version"] = info.version;
    d["kind"] = info.kind;
    d["dtype"] = info.dtype;
    d["predictor"] = name_of(cusz_predictor_name, info.predictor);
    d["coder"] = name_of(cusz_coder_name, info.coder);
    d["coarse"] = info.coarse;
    d["mode"] = info.mode;
    d["lossless"] = info.lossless;
    d["bins"] = info.bins;
    d["has_fill"] = info.has_fill != 0;
    d["checksum"] = info.checksum;
    d["shape"] = extents_of(info, info.shape);
    d["eb"] = info.eb;
    d["eb_abs"] = info.eb_abs;
    d["step"] = info.step;
    d["fill"] = info.fill;
    d["raw_bytes"] = info.raw_bytes;
    d["archive_bytes"] = info.archive_bytes;
    d["header_bytes"] = info.header_bytes;
    d["codebook_bytes"] = info.codebook_bytes;
    d["index_bytes"] = info.index_bytes;
    d["payload_bytes"] = info.payload_bytes;
    d["tile_shape"] = extents_of(info, info.tile_shape);
    d["n_tiles"] = info.n_tiles;
    d["n_special"] = info.n_special;
    d["n_out_of_range"] = info.n_out_of_range;
    d["n_unpredictable"] = info.n_unpredictable;
    return d;
}

void check(nb::handle object, int32_t threads, const nb::tuple& place) {
    const Archive archive(object);
    const Lease lease(place);
    lease.check(run([&] { return cusz_check(lease.context(), archive.view.data(), archive.view.bytes(), threads); }));
}

void decompress_into(nb::handle object, nb::handle out, int32_t backend, int32_t threads, const nb::tuple& place) {
    const Archive archive(object);
    const Field field(out, true);
    if (field.view.overlaps(archive.view))
        raise(CUSZ_ERROR_PARAMETER, "out overlaps the archive: pass separate memory");
    const Lease lease(place);
    lease.check(run([&] {
        return cusz_decompress(lease.context(), archive.view.data(), archive.view.bytes(),
                               static_cast<cusz_backend>(backend), threads, field.view.data(), field.view.bytes());
    }));
}

// A strided array with the extents of a box that begins at `start`. The caller has checked that it has as many
// dimensions as the archive, and that the strides are positive.
struct BoxInMemory {
    Py_buffer view{};
    std::vector<uint64_t> start, count, stride;

    BoxInMemory(nb::handle array, const nb::tuple& first) {
        for (nb::handle index : first) start.push_back(nb::cast<uint64_t>(index));
        if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_STRIDES | PyBUF_FORMAT) != 0) throw nb::python_error();
        for (int i = 0; i < view.ndim; ++i) {
            count.push_back(static_cast<uint64_t>(view.shape[i]));
            stride.push_back(static_cast<uint64_t>(view.strides[i] / view.itemsize));
        }
    }
    ~BoxInMemory() { PyBuffer_Release(&view); }
    BoxInMemory(const BoxInMemory&) = delete;
    BoxInMemory& operator=(const BoxInMemory&) = delete;

    cusz_dtype dtype() const { return view.itemsize == 4 ? CUSZ_F32 : CUSZ_F64; }

    // Why no box of the archive's field can be decompressed into it, in a status and words; CUSZ_OK if one can.
    std::pair<cusz_status, const char*> misfit(const Archive& archive) const {
        if (!is_float(view.format, view.itemsize))
            return {CUSZ_ERROR_UNSUPPORTED, "out must be of native float32 or float64"};
        if (static_cast<size_t>(view.ndim) != start.size())
            return {CUSZ_ERROR_PARAMETER, "out has another number of dimensions than start"};
        if (view.readonly != 0) return {CUSZ_ERROR_PARAMETER, "out is read-only"};
        auto begin = reinterpret_cast<uintptr_t>(view.buf), end = begin + static_cast<size_t>(view.itemsize);
        bool is_regular = begin % static_cast<size_t>(view.itemsize) == 0;
        for (int i = 0; i < view.ndim && view.len > 0; ++i) {
            if (view.shape[i] == 1) continue;
            is_regular = is_regular && view.strides[i] > 0 && view.strides[i] % view.itemsize == 0;
            end += static_cast<size_t>((view.shape[i] - 1) * view.strides[i]);
        }
        if (!is_regular)
            return {CUSZ_ERROR_PARAMETER,
                    "out must be aligned, and its strides positive multiples of the size of its values"};
        const auto other = reinterpret_cast<uintptr_t>(archive.view.data());
        if (view.len > 0 && begin < other + archive.view.bytes() && other < end)
            return {CUSZ_ERROR_PARAMETER, "out overlaps the archive: pass separate memory"};
        return {CUSZ_OK, ""};
    }
};

void decompress_box(nb::handle object, nb::handle out, const nb::tuple& start, int32_t threads,
                    const nb::tuple& place) {
    const Archive archive(object);
    const BoxInMemory box(out, start);
    const Lease lease(place);
    lease.check(run([&] {
        return cusz_decompress_box(lease.context(), archive.view.data(), archive.view.bytes(), threads,
                                   box.start.data(), box.count.data(), box.stride.data(), box.view.buf);
    }));
}

// Decompresses boxes that begin at `starts` into arrays, each from the archive of its number, which is in host memory.
void decompress_many(const nb::list& objects, const nb::list& arrays, const nb::list& starts, int32_t threads) {
    std::deque<Archive> archives;
    std::deque<BoxInMemory> outs;
    std::vector<cusz_box> boxes;
    const size_t n = arrays.size();
    for (size_t i = 0; i < n; ++i) {
        const Archive& archive = archives.emplace_back(objects[i]);
        const BoxInMemory& out = outs.emplace_back(arrays[i], nb::cast<nb::tuple>(starts[i]));
        if (const auto [status, message] = out.misfit(archive); status != CUSZ_OK)
            raise(status, ("archive " + std::to_string(i) + " of " + std::to_string(n) + ": " + message).c_str());
        if (out.dtype() != outs[0].dtype() || out.view.ndim != outs[0].view.ndim)
            raise(CUSZ_ERROR_PARAMETER, "archives must be of fields of one dtype and one number of dimensions");
        boxes.push_back({sizeof(cusz_box), 0, archive.view.data(), archive.view.bytes(), out.start.data(),
                         out.count.data(), out.stride.data(), out.view.buf});
    }
    if (n == 0) return;
    const Lease lease{nb::make_tuple()};
    lease.check(run([&] {
        return cusz_decompress_many(lease.context(), outs[0].dtype(), outs[0].view.ndim, threads, n, boxes.data());
    }));
}

// Describes a level of an archive: (n_levels, exact_cost, dtype, shape, step, needed_bytes, checksum).
// prefix: the archive's first bytes.
nb::tuple inspect_level(nb::handle prefix, size_t archive_bytes, int32_t number, const nb::tuple& place) {
    const Archive archive(prefix);
    const Lease lease(place);
    cusz_level level{};
    level.struct_bytes = sizeof level;
    const auto call = [&] {
        return cusz_inspect_level(lease.context(), archive.view.data(), archive.view.bytes(), archive_bytes, number,
                                  &level);
    };
    lease.check(archive.view.on_device() ? run(call) : call());
    return nb::make_tuple(level.n_levels, level.exact_cost != 0, level.dtype, extents_of(level, level.shape),
                          extents_of(level, level.step), level.needed_bytes, level.checksum);
}

// Describes a level of a field: (n_levels, shape, step). The caller has checked shape and number.
nb::tuple level_of_shape(const nb::tuple& shape, int32_t number) {
    std::array<uint64_t, CUSZ_MAX_NDIM> of_field{};
    size_t i = 0;
    for (nb::handle extent : shape) of_field.at(i++) = nb::cast<uint64_t>(extent);
    cusz_level level{};
    level.struct_bytes = sizeof level;
    const cusz_status status = cusz_level_of_shape(static_cast<int32_t>(i), of_field.data(), number, &level);
    if (status != CUSZ_OK) raise(status, "there is no such field, or it has no such level");
    return nb::make_tuple(level.n_levels, extents_of(level, level.shape), extents_of(level, level.step));
}

// Decodes a box of a level into a strided array in host memory, checked as for decompress_box; or a whole level into
// DeviceMemory of its shape.
void decompress_level(nb::handle prefix, size_t archive_bytes, int32_t level, nb::handle out, const nb::tuple& start,
                      int32_t threads, const nb::tuple& place) {
    const Archive archive(prefix);
    const Lease lease(place);
    const auto decode = [&](const auto& first, const auto& count, const auto& stride, void* field) {
        lease.check(run([&] {
            return cusz_decompress_level(lease.context(), archive.view.data(), archive.view.bytes(), archive_bytes,
                                         level, threads, first.data(), count.data(), stride.data(), field);
        }));
    };
    if (!nb::isinstance<DeviceMemory>(out)) {
        const BoxInMemory box(out, start);
        return decode(box.start, box.count, box.stride, box.view.buf);
    }
    const Field field(out, true);
    std::array<uint64_t, CUSZ_MAX_NDIM> first{}, stride{};
    uint64_t values = 1;
    for (auto d = static_cast<size_t>(field.ndim); d-- > 0; values *= field.shape[d]) stride[d] = values;
    decode(first, field.shape, stride, field.view.data());
}

std::tuple<double, double, uint64_t> value_range(nb::handle object, bool has_fill, double fill, int32_t threads,
                                                 const nb::tuple& place) {
    const Field field(object, false);
    const Lease lease(place);
    double min = 0, max = 0;
    uint64_t n_valid = 0;
    lease.check(run([&] {
        return cusz_value_range(lease.context(), field.dtype, field.count(), field.view.data(), has_fill ? 1 : 0, fill,
                                threads, &min, &max, &n_valid);
    }));
    return {min, max, n_valid};
}

// values: a buffer of whole values of `value_bytes` bytes.
nb::bytes pack(nb::handle values, int32_t value_bytes, int32_t lossless) {
    const View from(values, false);
    const Lease lease{nb::tuple()};
    const size_t capacity = from.bytes() + CUSZ_PACKED_OVERHEAD_BYTES;
    void* const block = lease.worker().stage(capacity);
    size_t block_bytes = 0;
    lease.check(run([&] {
        return cusz_pack(lease.context(), static_cast<cusz_lossless>(lossless), value_bytes,
                         from.bytes() / static_cast<size_t>(value_bytes), from.data(), block, capacity, &block_bytes);
    }));
    return nb::bytes(static_cast<const char*>(block), block_bytes);
}

nb::bytes unpack(nb::handle block) {
    const View from(block, false);
    const Lease lease{nb::tuple()};
    size_t values_bytes = 0;
    lease.check(run([&] { return cusz_unpacked_bytes(lease.context(), from.data(), from.bytes(), &values_bytes); }));
    PyObject* const values = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(values_bytes));
    if (values == nullptr) raise_out_of_memory("the values of a packed block");
    nb::bytes result = nb::steal<nb::bytes>(values);
    lease.check(run([&] {
        return cusz_unpack(lease.context(), from.data(), from.bytes(), PyBytes_AS_STRING(values), values_bytes);
    }));
    return result;
}

size_t max_archive_bytes(int32_t dtype, const nb::tuple& shape) {
    if (nb::len(shape) < 1 || nb::len(shape) > CUSZ_MAX_NDIM) {
        raise(CUSZ_ERROR_PARAMETER, "a field must have 1 to 4 dimensions");
    }
    std::array<uint64_t, CUSZ_MAX_NDIM> extents{};
    size_t i = 0;
    for (nb::handle extent : shape) extents[i++] = nb::cast<uint64_t>(extent);
    return max_archive_bytes_of(static_cast<cusz_dtype>(dtype), static_cast<int32_t>(i), extents);
}

// What a Python function tells that a bound gives: (PSNR, ratio).
cusz::Tried tried(const nb::object& outcome) {
    const auto [psnr, ratio] = nb::cast<std::tuple<double, double>>(outcome);
    return {psnr, ratio};
}

cusz::Trial trial_in_python(nb::callable call) {
    return [call = std::move(call)](double eb) { return tried(call(eb)); };
}

// (number of CUDA devices, why there are none).
std::tuple<int32_t, const char*> device_count() {
    const char* reason = "";
    const int32_t count = cusz_device_count(&reason);
    return {count, reason};
}

nb::str device_name(int32_t device) {
    std::array<char, 256> name{};
    const cusz_status status = cusz_device_name(device, name.data(), name.size());
    if (status != CUSZ_OK) raise(status, ("cannot query the name of CUDA device " + std::to_string(device)).c_str());
    return nb::str(name.data());
}

} // namespace

NB_MODULE(_native, m) {
    m.doc() = "The C API of cusz_core (cusz.h).";
    // A Parameters object that lives as long as the interpreter, such as one in a user's module, is not a leak to
    // report at exit.
    nb::set_leak_warnings(false);
    load_error_classes();
    SharedLock::prepare_for_forks();

    m.attr("F32") = static_cast<int>(CUSZ_F32);
    m.attr("F64") = static_cast<int>(CUSZ_F64);
    m.attr("PARAMETERS") = parameters();
    m.attr("MODES") = names_of("mode");               // index: cusz_mode
    m.attr("BACKENDS") = names_of("backend");         // index: cusz_backend
    m.attr("LOSSLESS_STAGES") = names_of("lossless"); // index: cusz_lossless
    m.attr("COARSE") = names_of("coarse");            // index: cusz_coarse
    m.attr("KINDS") = nb::make_tuple("raw", "tiled"); // index: cusz_kind
    m.attr("MAX_NDIM") = CUSZ_MAX_NDIM;
    m.attr("FORMAT_VERSION") = CUSZ_FORMAT_VERSION;
    m.attr("RAW_OVERHEAD_BYTES") = CUSZ_RAW_OVERHEAD_BYTES;
    m.attr("MIN_PREFIX_BYTES") = CUSZ_MIN_PREFIX_BYTES;

    m.def("version", [] { return cusz_version(); });
    m.def("default_threads", [] { return cusz_default_threads(); });
    m.def("instruction_set", [] { return cusz_instruction_set(); });
    m.def("has_backend", [](int32_t backend) { return cusz_has_backend(static_cast<cusz_backend>(backend)) != 0; });
    m.def("has_lossless", [](int32_t stage) { return cusz_has_lossless(static_cast<cusz_lossless>(stage)) != 0; });
    m.def("max_archive_bytes", &max_archive_bytes);
    m.def("absolute_bound", [](double rel, double min, double max) { return cusz_absolute_bound(rel, min, max); });

    m.def("device_count", &device_count, nb::call_guard<WithoutGil>()); // may load the driver
    m.def("device_name", &device_name);
    m.def("device_of", [](uintptr_t address) { return cusz_device_of(reinterpret_cast<const void*>(address)); });
    m.def("describe_dlpack", &dlpack::describe, nb::arg("capsule").none());

    nb::class_<DeviceMemory>(m, "DeviceMemory").def(nb::init<uintptr_t, int32_t, nb::tuple, bool>());

    nb::class_<cusz_params>(m, "Params").def("__init__", &make_params);

    // The last argument of these, `place`: see Place.
    m.def("compress", &compress);
    m.def("compress_into", &compress_into);
    m.def("compress_described", &compress_described, nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg());
    m.def("compress_many", &compress_many, nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg());
    m.def("predictor_name", [](int32_t number) { return name_of(cusz_predictor_name, number); });
    m.def("layout", &layout);
    m.def("identities", &identities);
    m.def("inspect", &inspect);
    m.def("check", &check);
    m.def("decompress_into", &decompress_into);
    m.def("decompress_box", &decompress_box);
    m.def("decompress_many", &decompress_many);
    m.def("inspect_level", &inspect_level);
    m.def("level_of_shape", &level_of_shape);
    m.def("decompress_level", &decompress_level);
    m.def("value_range", &value_range);

    m.def("pack", &pack);
    m.def("unpack", &unpack);

    nb::class_<cusz::Search>(m, "Search")
        .def(
            "__init__",
            [](cusz::Search* self, double target, bool is_psnr, double largest, nb::callable on_sample,
               double smallest) {
                new (self) cusz::Search({.target = target, .is_psnr = is_psnr}, largest, smallest,
                                        trial_in_python(std::move(on_sample)));
            },
            nb::arg("target"), nb::arg("is_psnr"), nb::arg("largest"), nb::arg("on_sample"), nb::arg("smallest") = 0.0)
        .def("surplus", &cusz::Search::surplus, nb::lock_self())
        .def("estimate", &cusz::Search::estimate, nb::arg("near") = nb::none(), nb::lock_self())
        .def("estimate_or", &cusz::Search::estimate_or, nb::arg().none(), nb::arg(), nb::lock_self())
        .def(
            "most_compact",
            [](cusz::Search& self, nb::callable on_sample, std::size_t variants, double eb) {
                const std::size_t variant =
                    self.most_compact([on_sample = std::move(on_sample)](
                                          std::size_t number, double bound) { return tried(on_sample(number, bound)); },
                                      variants, eb);
                return std::tuple(variant, eb);
            },
            nb::lock_self())
        .def(
            "find",
            [](cusz::Search& self, nb::callable on_whole, double first, bool lossless, std::size_t max_whole_trials) {
                return self.find(trial_in_python(std::move(on_whole)), first, lossless, max_whole_trials);
            },
            nb::lock_self());
    m.def("exact_bound", &cusz::exact_bound);
    m.def("rounded_bound", &cusz::rounded_bound);

    m.def("scratch_bytes", &scratch_bytes);
    m.def("release_scratch", &release_scratch);
}
