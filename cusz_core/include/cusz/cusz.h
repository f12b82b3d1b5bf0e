/* cusz.h: the C interface of cusz_core, the only header other code includes.
 *
 * Error-bounded lossy compression of floating-point fields with the cuSZ algorithm (PACT 2020). An archive describes
 * itself (docs/reference/format.md); the same field and parameters give the same archive with any number of threads.
 *
 * Conventions
 *   - A field is a C-contiguous array (last dimension fastest) of 1 to 4 dimensions, float or double.
 *   - Sizes are in elements unless the name ends in _bytes.
 *   - Every function that can fail returns a cusz_status; cusz_last_error() says why the last such call with a context
 *     failed. A failed call leaves the context usable. No function aborts, prints or throws.
 *   - A context holds scratch memory and the last error. One context serves one thread at a time; any number of
 *     contexts may be used at once.
 *   - Structures with struct_bytes may gain members at the end without programs having to be recompiled. struct_bytes
 *     is the size that the program was compiled with, at least that of version 0.1.0.
 *   - Fields and archives may be in host memory or on a CUDA device, in any combination: every call asks CUDA where its
 *     pointers point. (A process that has not loaded the CUDA driver is never made to load it.) Device work runs on the
 *     context's stream (cusz_set_stream), and calls return once their results are complete. A build without CUDA
 *     (cusz_has_backend) takes all memory for the host's, so a device pointer crashes the program.
 *   - Fields must be aligned to their type, and archives on a device to 4 bytes; archives in host memory need not be.
 *   - What a call reads must not change until it returns: values are read more than once, and the bound does not hold
 *     for values that another thread writes meanwhile.
 */
#ifndef CUSZ_H
#define CUSZ_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CUSZ_API __attribute__((visibility("default")))
#else
#define CUSZ_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Constants and types */

#define CUSZ_MAX_NDIM 4
/* The archive format version that this library writes, and the newest that it reads. */
#define CUSZ_FORMAT_VERSION 2
/* An archive is never larger than the raw field plus this many bytes. */
#define CUSZ_RAW_OVERHEAD_BYTES 48
/* A packed block is never larger than its values plus this many bytes. */
#define CUSZ_PACKED_OVERHEAD_BYTES 8
/* The number of leading bytes of an archive that say which levels it has (cusz_inspect_level). */
#define CUSZ_MIN_PREFIX_BYTES 128

/* Kinds of failure; the numbers are part of the interface and never change. 7 is never returned: it is reserved for
 * software built on this library. */
typedef enum cusz_status {
    CUSZ_OK = 0,
    CUSZ_ERROR_PARAMETER = 1,   /* a parameter out of range, or a buffer too small */
    CUSZ_ERROR_UNSUPPORTED = 2, /* a type, layout or feature that this library or build does not have */
    CUSZ_ERROR_CORRUPT = 3,     /* not an archive, or a damaged, truncated or inconsistent one */
    CUSZ_ERROR_TOO_NEW = 4,     /* an archive of a newer format version */
    CUSZ_ERROR_DEVICE = 5,      /* a device is missing or failed */
    CUSZ_ERROR_MEMORY = 6,      /* out of memory */
    CUSZ_ERROR_INTERNAL = 8     /* a bug in this library */
} cusz_status;

typedef enum cusz_dtype { CUSZ_F32 = 1, CUSZ_F64 = 2 } cusz_dtype;

/* CUSZ_ABS: |d - d'| <= eb. CUSZ_REL: |d - d'| <= cusz_absolute_bound(eb, min, max), with the range of the field's
 * finite values other than fill; if there are none, or the range is 0, the archive is lossless. CUSZ_PW_REL:
 * |d - d'| <= eb * |d|. Every value keeps its sign, and zeros stay zeros of the same sign. Archives are assembled on
 * the host. The writer packs signs with zstd if it has it, and the reader then needs zstd, too. If the arithmetic
 * cannot keep the bound (below about 2e-7 for float, 4e-15 for double), the archive is lossless.
 *
 * CUSZ_PSNR, CUSZ_RATIO: eb is a PSNR in dB, above 0, or a ratio above 1. The call seeks an absolute bound that gives
 * it, and the archive states and keeps that bound. (For a PSNR, it also chooses `coarse`, unless that is given: smooth
 * fields take fewer bytes.) The PSNR (20 log10((max - min) / RMSE), over finite values other
 * than fill) or the ratio of raw to archive bytes is never below eb. If no bound up to max - min gives the ratio, the
 * call fails with CUSZ_ERROR_PARAMETER (an empty field has no ratio, and is stored). The search runs on the CPU,
 * wherever field and archive reside. It uses a sample if the field has more than 2^21 values, and costs a few
 * compressions; for a PSNR, each of them is decoded and compared. */
typedef enum cusz_mode {
    CUSZ_ABS = 0,
    CUSZ_REL = 1,
    CUSZ_PW_REL = 2,
    CUSZ_PSNR = 3, /* only in parameters, like CUSZ_RATIO */
    CUSZ_RATIO = 4
} cusz_mode;

/* CUSZ_BACKEND_AUTO: the device that holds the field or archive, if any, else the CPU. CUSZ_BACKEND_CUDA: that device,
 * else the current one; host memory is copied to it. CUSZ_BACKEND_CPU accepts host memory only. */
typedef enum cusz_backend { CUSZ_BACKEND_AUTO = 0, CUSZ_BACKEND_CPU = 1, CUSZ_BACKEND_CUDA = 2 } cusz_backend;

/* Optional lossless stage applied to the coded payload (paper, section 2, step 5). */
typedef enum cusz_lossless { CUSZ_LOSSLESS_NONE = 0, CUSZ_LOSSLESS_ZSTD = 1 } cusz_lossless;

/* How an archive stores its field. */
typedef enum cusz_kind { CUSZ_KIND_RAW = 0, CUSZ_KIND_TILED = 1 } cusz_kind;

/* How a tiled archive is coded. CUSZ_NO_STAGE: for raw archives. With CUSZ_PREDICTOR_SPLINE, archives on a device are
 * copied to the host, which decodes their heads and smallest lattices. So are fields on a device that its kernels do
 * not take (docs/guides/python.md). Fields on the host are compressed on the CPU, whatever the backend. */
#define CUSZ_NO_STAGE (-1)
typedef enum cusz_predictor {
    CUSZ_PREDICTOR_LORENZO = 0,
    CUSZ_PREDICTOR_SPLINE = 1,
    CUSZ_PREDICTOR_AUTO = 2 /* only in parameters: one of the others */
} cusz_predictor;
typedef enum cusz_coder { CUSZ_CODER_HUFFMAN = 0, CUSZ_CODER_RANS = 1 } cusz_coder;

/* How exact CUSZ_PREDICTOR_SPLINE keeps the coarser lattices, from which it interpolates the finer ones: as eb says, or
 * with smaller bounds, down to a half (CUSZ_COARSE_FINE) or a fourth of it. Smooth fields take fewer bytes with smaller
 * ones at the same PSNR, and seldom at the same bound. CUSZ_COARSE_AUTO: what takes the fewest bytes, at the same PSNR
 * with CUSZ_PSNR, else at the same bound. */
typedef enum cusz_coarse {
    CUSZ_COARSE_AUTO = 0, /* only in parameters */
    CUSZ_COARSE_SAME = 1,
    CUSZ_COARSE_FINE = 2,
    CUSZ_COARSE_FINER = 3,
    CUSZ_COARSE_FINEST = 4
} cusz_coarse;

/* Compression parameters. Fill with cusz_params_init(), then change what is needed. If the program knows fewer members
 * than the library, the others are 0, which means the behaviour without them: programs compiled with the header of
 * version 0.1.0 keep CUSZ_PREDICTOR_LORENZO. If it knows more, it must leave those at 0, or the call fails. */
typedef struct cusz_params {
    uint32_t struct_bytes; /* sizeof(cusz_params), set by cusz_params_init */
    int32_t mode;          /* cusz_mode; default CUSZ_ABS */
    double eb;             /* error bound, finite, >= 0; 0 (the default) is lossless to the bit; or see cusz_mode */
    int32_t bins;          /* quantisation bins coded directly: a power of two, 64 (default) to 8192 */
    int32_t backend;       /* cusz_backend; default CUSZ_BACKEND_AUTO */
    int32_t threads;  /* CPU threads, at most 1024; 0 (default): OMP_NUM_THREADS, else 1 where a launcher runs several
                         ranks on this node, else the cores this process may use */
    int32_t lossless; /* cusz_lossless; default CUSZ_LOSSLESS_NONE */
    int32_t has_fill; /* nonzero: `fill` means "no data" */
    double fill;      /* cast to the field's type and compared by its bits; comes back exactly. The value range excludes
                         it, and NaN and infinity */
    /* Not in version 0.1.0: */
    int32_t predictor; /* cusz_predictor; cusz_params_init sets CUSZ_PREDICTOR_AUTO, the default */
    /* Not in version 0.3.0, where it had to be 0: */
    int32_t coarse; /* cusz_coarse; default CUSZ_COARSE_AUTO */
} cusz_params;

/* The description of an archive. If the program knows fewer members than the library, it gets those; if it knows more,
 * the others are set to 0, and struct_bytes to the size that this library filled in. */
typedef struct cusz_info {
    uint32_t struct_bytes;         /* sizeof(cusz_info), set by the caller before cusz_inspect */
    int32_t version;               /* format version */
    int32_t kind;                  /* cusz_kind */
    int32_t dtype;                 /* cusz_dtype */
    int32_t ndim;                  /* 1 to 4 */
    int32_t mode;                  /* cusz_mode; CUSZ_ABS for raw archives */
    int32_t lossless;              /* cusz_lossless */
    int32_t bins;                  /* bins coded directly; 0 for raw archives */
    int32_t has_fill;              /* nonzero: `fill` was given */
    uint32_t checksum;             /* of the payload, as stored; of its head with CUSZ_PREDICTOR_SPLINE */
    uint64_t shape[CUSZ_MAX_NDIM]; /* ndim extents, then zeros */
    double eb;     /* the bound as requested (absolute, or relative to the value range); 0 for raw archives */
    double eb_abs; /* the absolute bound in force (for CUSZ_REL with CUSZ_PREDICTOR_SPLINE, rounded down to dtype); 0:
                      every value is exact; NaN for CUSZ_PW_REL */
    double step;   /* distance between adjacent quantised values; 0 for raw archives; NaN for CUSZ_PW_REL */
    double fill;
    uint64_t raw_bytes, archive_bytes;
    uint64_t header_bytes, codebook_bytes, index_bytes, payload_bytes; /* sections (no codebook with
                                                                          CUSZ_PREDICTOR_SPLINE); index and payload
                                                                          before the lossless stage */
    uint64_t tile_shape[CUSZ_MAX_NDIM]; /* full tile, in the field's dimensions; zeros for raw archives */
    uint64_t n_tiles;        /* of all resolutions, if the predictor is CUSZ_PREDICTOR_SPLINE; tile_shape: the finest */
    uint64_t n_special;      /* values equal to fill, or NaN, stored only as a symbol */
    uint64_t n_out_of_range; /* quantisation codes beyond the alphabet */
    uint64_t n_unpredictable; /* values stored verbatim, including those of raw tiles */
    int32_t predictor;        /* cusz_predictor, or CUSZ_NO_STAGE */
    int32_t coder;            /* cusz_coder, or CUSZ_NO_STAGE */
    /* Not in version 0.3.0: */
    int32_t coarse;   /* cusz_coarse, or CUSZ_NO_STAGE without lattices */
    int32_t reserved; /* 0 */
} cusz_info;

/* A level of a field is a coarser version of it: every step-th value along each dimension, from the first one. Level 0
 * is the field. Each level keeps every second value of the one before, along the last three dimensions that have more
 * than one value left; the last level is a single value. If the program knows fewer members than the library, it gets
 * those; if it knows more, the others are set to 0, and struct_bytes to the size that this library filled in. */
typedef struct cusz_level {
    uint32_t struct_bytes; /* sizeof(cusz_level), set by the caller */
    int32_t n_levels;      /* of the field, at least 1 */
    int32_t exact_cost;    /* nonzero: only values of this level and of coarser ones are read and decoded (and all
                              lattices of up to 4096 points); 0: values of finer levels too, up to the whole field */
    int32_t dtype;         /* cusz_dtype of the archive */
    int32_t ndim;          /* 1 to 4 */
    uint32_t checksum;     /* of the archive, as in cusz_info; not verified */
    uint64_t shape[CUSZ_MAX_NDIM]; /* ndim extents of the level, then zeros */
    uint64_t step[CUSZ_MAX_NDIM];  /* ndim distances in the field from one value of the level to the next, then zeros */
    uint64_t needed_bytes;         /* number of leading bytes of the archive that are needed: cusz_inspect_level */
} cusz_level;

typedef struct cusz_context cusz_context;

/* ---- What this library is, and what this build has */

/* "major.minor.patch" of the library. */
CUSZ_API const char* cusz_version(void);
/* The name of a status, such as "corrupt archive"; never NULL. */
CUSZ_API const char* cusz_status_name(cusz_status status);
/* The name, such as "lorenzo"; "none" for CUSZ_NO_STAGE, NULL for a number unknown to this library. */
CUSZ_API const char* cusz_predictor_name(int32_t predictor);
CUSZ_API const char* cusz_coder_name(int32_t coder);
/* The number of threads that threads = 0 currently stands for in this process. */
CUSZ_API int32_t cusz_default_threads(void);
/* The widest instruction set that the CPU backend uses in this process: "baseline", "avx2" or "avx512". The environment
 * variable CUSZ_SIMD requests one of them; archives and values are the same with all of them. */
CUSZ_API const char* cusz_instruction_set(void);
/* Nonzero if this build has the backend (CUSZ_BACKEND_CPU: always). */
CUSZ_API int32_t cusz_has_backend(cusz_backend backend);
/* Nonzero if this build has the lossless stage. */
CUSZ_API int32_t cusz_has_lossless(cusz_lossless stage);

/* ---- Contexts */

/* Creates a context. NULL when out of memory. */
CUSZ_API cusz_context* cusz_create(void);
/* Frees a context and its scratch memory; NULL is allowed. */
CUSZ_API void cusz_destroy(cusz_context* context);
/* Why the context's last call that returned a status failed; "" if it succeeded. Valid until the next call with this
 * context. */
CUSZ_API const char* cusz_last_error(const cusz_context* context);
/* Bytes of scratch memory the context holds for reuse. */
CUSZ_API size_t cusz_scratch_bytes(const cusz_context* context);
/* Frees the scratch memory; the next call allocates it again. */
CUSZ_API void cusz_release_scratch(cusz_context* context);

/* ---- Devices */

/* Sets the stream (cudaStream_t) for device work; NULL, the default, is the legacy default stream. It must belong to
 * the device whose memory is passed to later calls. Errors: PARAMETER. */
CUSZ_API cusz_status cusz_set_stream(cusz_context* context, void* stream);

/* Allocates and frees scratch memory on a device, in stream order. */
typedef struct cusz_allocator {
    void* (*allocate)(void* user, size_t bytes, void* stream); /* aligned to 256 bytes; NULL when out of memory */
    void (*release)(void* user, void* memory, size_t bytes, void* stream);
    void* user;
} cusz_allocator;

/* Replaces cudaMallocAsync and cudaFreeAsync. The context first frees what it holds. allocator: copied; NULL for the
 * default. cusz_release_scratch and cusz_destroy call it too. Errors: PARAMETER. */
CUSZ_API cusz_status cusz_set_allocator(cusz_context* context, const cusz_allocator* allocator);

/* Number of CUDA devices that this process can use; 0 if there is no driver or the build has no CUDA. reason (may be
 * NULL) then says why; otherwise it is "". */
CUSZ_API int32_t cusz_device_count(const char** reason);
/* Writes the name of a device, truncated to fit. Errors: PARAMETER, DEVICE. */
CUSZ_API cusz_status cusz_device_name(int32_t device, char* name, size_t name_bytes);
/* Number of the CUDA device that this memory belongs to; -1 for host memory; -2 if CUDA cannot tell, as after a device
 * failure. Calls with such a pointer fail with DEVICE, except those with the cpu backend. A build without CUDA always
 * says -1. */
CUSZ_API int32_t cusz_device_of(const void* pointer);

/* ---- Parameters */

/* Sets every parameter in the first struct_bytes bytes to its default, and struct_bytes itself. */
CUSZ_API void cusz_params_init_sized(cusz_params* params, size_t struct_bytes);
/* The macro initialises the structure as defined in this header. The function behind it, reached from other languages
 * or with its name in parentheses, initialises the structure of version 0.1.0: programs of that version call it. */
CUSZ_API void cusz_params_init(cusz_params* params);
#define cusz_params_init(params) cusz_params_init_sized((params), sizeof(cusz_params))

/* ---- Parameters by name, for command lines, configuration files and other languages */

typedef enum cusz_type { CUSZ_TYPE_REAL = 0, CUSZ_TYPE_INTEGER = 1, CUSZ_TYPE_CHOICE = 2 } cusz_type;

/* What a parameter affects. WORK: where and how fast the work is done; the archive is the same. ARCHIVE: its size; the
 * bound still holds. VALUES: which values come back. */
typedef enum cusz_decides { CUSZ_DECIDES_WORK = 0, CUSZ_DECIDES_ARCHIVE = 1, CUSZ_DECIDES_VALUES = 2 } cusz_decides;

typedef struct cusz_parameter {
    const char* key;
    const char* description;    /* one line */
    const char* legal;          /* its legal values, such as "a power of two from 64 to 8192" */
    const char* default_value;  /* NULL: no default */
    const char* const* choices; /* names of the values 0, 1, ..., then NULL; NULL for a number */
    int32_t type;               /* cusz_type */
    int32_t decides;            /* cusz_decides */
} cusz_parameter;

/* The library's parameters, numbered from 0; NULL after the last. */
CUSZ_API const cusz_parameter* cusz_parameter_at(int32_t number);

/* Sets a parameter.
 *   params         from cusz_params_init
 *   key, value     "bins" and "128", for example; spaces around a value and upper or lower case do not matter
 *   message        what is wrong, truncated to fit, or ""; may be NULL
 *   message_bytes  its size
 * Errors: PARAMETER (unknown key, illegal value); nothing is set then. */
CUSZ_API cusz_status cusz_params_set(cusz_params* params, const char* key, const char* value, char* message,
                                     size_t message_bytes);

/* ---- Fields and archives */

/* Upper bound on an archive's size: raw bytes + CUSZ_RAW_OVERHEAD_BYTES.
 *   shape      ndim extents; an extent of 0 is an empty field
 *   max_bytes  the bound
 * Errors: PARAMETER (ndim, NULL), UNSUPPORTED (dtype, or a field of more than 2^60 - 48 values). */
CUSZ_API cusz_status cusz_max_archive_bytes(cusz_dtype dtype, int32_t ndim, const uint64_t* shape, size_t* max_bytes);

/* Smallest and largest of the finite values other than fill.
 *   count            elements of `field`, which may be on a device
 *   has_fill, fill   as in cusz_params
 *   threads          as in cusz_params
 *   min, max         written as doubles (+0 for a zero of either sign); both 0 if there is no such value
 *   n_valid          number of such values; may be NULL
 * Errors: PARAMETER, UNSUPPORTED, DEVICE, MEMORY. */
CUSZ_API cusz_status cusz_value_range(cusz_context* context, cusz_dtype dtype, uint64_t count, const void* field,
                                      int32_t has_fill, double fill, int32_t threads, double* min, double* max,
                                      uint64_t* n_valid);

/* The absolute bound in force for a relative one over a value range: rel * (max - min) in double precision, each
 * operation rounded to nearest, with halved operands and a doubled result if the difference overflows. It is 0, meaning
 * lossless, for a range of 0. Unless it or rel is subnormal, it exceeds the exact product by at most two parts in 2^53,
 * and not at all if called with rel * (1 - 2^-51). */
CUSZ_API double cusz_absolute_bound(double rel, double min, double max);

/* Compresses a field.
 *   field             need not be aligned beyond its type; not read if the field is empty
 *   archive           must not overlap the field; any alignment in host memory; on a device, aligned to 4 bytes, and
 *                     on the same device as the field if that is on one
 *   archive_capacity  at least cusz_max_archive_bytes()
 *   archive_bytes     bytes written
 * The lossless stage (zstd) runs on the CPU and needs an archive in host memory.
 * Errors: PARAMETER, UNSUPPORTED, DEVICE, MEMORY; the contents of `archive` are undefined then. */
CUSZ_API cusz_status cusz_compress(cusz_context* context, const cusz_params* params, cusz_dtype dtype, int32_t ndim,
                                   const uint64_t* shape, const void* field, void* archive, size_t archive_capacity,
                                   size_t* archive_bytes);

/* As cusz_compress, but also describes the archive and the field's value range, mostly in the same pass over the field.
 *   info               of the archive, as from cusz_inspect; struct_bytes set by the caller
 *   min, max, n_valid  of the field, as from cusz_value_range; min and max NULL: the range is not computed
 * Errors: as cusz_compress. */
CUSZ_API cusz_status cusz_compress_and_describe(cusz_context* context, const cusz_params* params, cusz_dtype dtype,
                                                int32_t ndim, const uint64_t* shape, const void* field, void* archive,
                                                size_t archive_capacity, cusz_info* info, double* min, double* max,
                                                uint64_t* n_valid);

/* A block for cusz_compress_many. */
typedef struct cusz_block {
    uint32_t struct_bytes; /* sizeof(cusz_block), set by the caller */
    int32_t reserved;      /* 0 */
    const uint64_t* shape; /* ndim extents; may differ from block to block */
    const void* field;     /* as in cusz_compress */
    cusz_info* info;       /* of the archive, as from cusz_compress_and_describe; NULL: not wanted */
    /* Written by the call: */
    void* archive; /* where it begins; archives follow one another without gaps, in the order of their blocks */
    size_t archive_bytes;
    double min, max;  /* of the field, as from cusz_value_range, if ranges are asked for; else not touched */
    uint64_t n_valid; /* as min and max */
} cusz_block;

/* Compresses many blocks, to the same archives as cusz_compress. It is meant for codes with hundreds of small blocks:
 * one thread per block is faster than all threads on one block after the other.
 *   params             of all blocks. Blocks in host memory are distributed over the threads. For blocks on one device,
 *                      with CUSZ_PREDICTOR_LORENZO and CUSZ_ABS or CUSZ_REL, each kernel is launched once for 64 MiB of
 *                      blocks. Otherwise, or if there are fewer than 2^17 values in all, blocks on a device of which
 *                      each has fewer than 2^17 are copied to the host with CUSZ_BACKEND_AUTO, because launching
 *                      kernels for them would take longer, and others on a device are done one by one
 *   dtype, ndim        of all blocks
 *   count, blocks      all with the same struct_bytes
 *   with_ranges        nonzero: min, max and n_valid are computed
 *   archives           host memory for all archives, which must not overlap the fields
 *   archives_capacity  at least the sum of cusz_max_archive_bytes() of the blocks. The call touches only the pages that
 *                      archives need, finally or until they are moved behind the archive before them
 * Errors: as cusz_compress, with the number of the first block that failed; UNSUPPORTED also for archives on a device.
 * The blocks' results and the contents of `archives` are undefined then. */
CUSZ_API cusz_status cusz_compress_many(cusz_context* context, const cusz_params* params, cusz_dtype dtype,
                                        int32_t ndim, uint64_t count, cusz_block* blocks, int32_t with_ranges,
                                        void* archives, size_t archives_capacity);

/* Reads and validates an archive's header; touches nothing beyond it (with CUSZ_PREDICTOR_SPLINE: beyond its head).
 *   context        may be NULL if the archive is in host memory
 *   archive        host memory, any alignment; or device memory. From a device, archives with CUSZ_PREDICTOR_SPLINE or
 *                  CUSZ_PW_REL are copied to the host as a whole
 *   archive_bytes  exactly the archive's length
 *   info           struct_bytes set by the caller
 * Errors: PARAMETER, CORRUPT, TOO_NEW, UNSUPPORTED, DEVICE, MEMORY. */
CUSZ_API cusz_status cusz_inspect(cusz_context* context, const void* archive, size_t archive_bytes, cusz_info* info);

/* Verifies header and payload checksums without reconstructing the field. Errors: as cusz_decompress. */
CUSZ_API cusz_status cusz_check(cusz_context* context, const void* archive, size_t archive_bytes, int32_t threads);

/* Reconstructs a field.
 *   backend      as in cusz_params
 *   threads      as in cusz_params
 *   field        memory for the field of the archive's dtype and shape (cusz_inspect)
 *   field_bytes  exactly its size
 * Errors: PARAMETER, CORRUPT, TOO_NEW, UNSUPPORTED, DEVICE, MEMORY. After CORRUPT the contents of `field` are
 * undefined. */
CUSZ_API cusz_status cusz_decompress(cusz_context* context, const void* archive, size_t archive_bytes,
                                     cusz_backend backend, int32_t threads, void* field, size_t field_bytes);

/* Reconstructs a box of a field, on the CPU and in host memory. Only tiles that intersect the box are decoded (with
 * CUSZ_PREDICTOR_SPLINE, units of 16 tiles, and those that they are predicted from), but the checksums of the whole
 * archive are verified.
 *   threads       as in cusz_params
 *   start, count  one number per dimension of the field: where the box begins, and its extents
 *   stride        one number per dimension: the distance in values from one value to the next. A box within a larger
 *                 array has that array's strides; no two values may share a location. Rows with stride 1 are fastest
 *   field         memory for the box's first value; not touched if the box is empty
 * Errors: PARAMETER, CORRUPT, TOO_NEW, UNSUPPORTED, DEVICE, MEMORY. After CORRUPT the contents of the box are
 * undefined. */
CUSZ_API cusz_status cusz_decompress_box(cusz_context* context, const void* archive, size_t archive_bytes,
                                         int32_t threads, const uint64_t* start, const uint64_t* count,
                                         const uint64_t* stride, void* field);

/* A box for cusz_decompress_many. */
typedef struct cusz_box {
    uint32_t struct_bytes; /* sizeof(cusz_box), set by the caller */
    int32_t reserved;      /* 0 */
    const void* archive;   /* this member and all below: as for cusz_decompress_box */
    size_t archive_bytes;
    const uint64_t* start;
    const uint64_t* count;
    const uint64_t* stride;
    void* field;
} cusz_box;

/* Reconstructs boxes of many archives, as cusz_decompress_box does of one. It is meant for hundreds of small blocks:
 * one thread per box is faster than all threads on one box after the other.
 *   dtype, ndim   of all archives
 *   threads       as in cusz_params
 *   count, boxes  all with the same struct_bytes. No two boxes may share memory, and none may share it with an archive
 * Errors: as cusz_decompress_box, with the number of the first archive that failed; PARAMETER also for one of another
 * dtype or ndim. The contents of all boxes are undefined then. */
CUSZ_API cusz_status cusz_decompress_many(cusz_context* context, cusz_dtype dtype, int32_t ndim, int32_t threads,
                                          uint64_t count, const cusz_box* boxes);

/* ---- Levels: previews of a field, from the first bytes of its archive
 *
 * Archives of CUSZ_PREDICTOR_SPLINE hold the coarsest level first, so their first bytes are enough for a level (with
 * CUSZ_PW_REL these include the signs of all values). All other archives (CUSZ_PREDICTOR_LORENZO, raw ones, and those
 * with a lossless stage) are needed whole; the field is then decoded and the level picked from it. Either way, its
 * values are those of cusz_decompress at the same places, bit for bit.
 *
 * The writer of a spline archive may not halve every dimension at first, because it then predicts better. Its levels
 * still follow from the field's shape: the coarsest lattice that has all values of the level is decoded, and exact_cost
 * is 0. */

/* Describes a level of a field from its shape alone: dtype, checksum and needed_bytes are 0.
 *   shape  ndim extents
 *   level  0 to n_levels - 1
 *   info   struct_bytes set by the caller
 * Errors: PARAMETER, also if there is no such level; UNSUPPORTED (a field of more than 2^60 - 48 values). */
CUSZ_API cusz_status cusz_level_of_shape(int32_t ndim, const uint64_t* shape, int32_t level, cusz_level* info);

/* Describes a level of an archive, and how many of its bytes it needs.
 *   prefix         the first bytes of the archive, or all of it, in host memory, any alignment; or device memory
 *   prefix_bytes   their number: from CUSZ_MIN_PREFIX_BYTES, or the archive's length if that is less, to archive_bytes
 *   archive_bytes  exactly the archive's length
 *   info           struct_bytes set by the caller. If the prefix ends before the archive's index does, needed_bytes is
 *                  what the index needs, which is more than prefix_bytes: call again with that many bytes
 * The index is verified, by the checksum of the head (the index and what is decoded first), once the prefix holds all
 * of the head. A raw archive, one of CUSZ_PREDICTOR_LORENZO or one with a lossless stage has its header verified once
 * the prefix is the whole archive. Until then, the result is what the bytes say. The payload is not read.
 * Errors: as cusz_inspect, and PARAMETER if there is no such level. */
CUSZ_API cusz_status cusz_inspect_level(cusz_context* context, const void* prefix, size_t prefix_bytes,
                                        size_t archive_bytes, int32_t level, cusz_level* info);

/* Reconstructs a box of a level, on the CPU.
 *   prefix, prefix_bytes, archive_bytes
 *                  as for cusz_inspect_level; at least needed_bytes of the archive. Bytes beyond are not read: they may
 *                  be missing or damaged
 *   threads        as in cusz_params
 *   start, count   one number per dimension: where the box begins in the level, and its extents. Only tiles that
 *                  intersect it are decoded, as by cusz_decompress_box
 *   stride         as for cusz_decompress_box
 *   field          memory for the box's first value; not touched if the box is empty. On a device, the box must be
 *                  contiguous
 * A prefix on a device is copied to the host, and a field on a device from there.
 * The call verifies the checksum of the head (with CUSZ_PW_REL, of both heads and of the signs), and those of all
 * needed lattices, each as a whole, even for a box. So all needed_bytes are verified if they are more than
 * CUSZ_MIN_PREFIX_BYTES; lattices beyond are not. If the whole archive is needed, all of it is verified.
 * Errors: PARAMETER (also a prefix that is too short, with what is needed), CORRUPT, TOO_NEW, UNSUPPORTED, DEVICE,
 * MEMORY. After CORRUPT the contents of the box are undefined. */
CUSZ_API cusz_status cusz_decompress_level(cusz_context* context, const void* prefix, size_t prefix_bytes,
                                           size_t archive_bytes, int32_t level, int32_t threads, const uint64_t* start,
                                           const uint64_t* count, const uint64_t* stride, void* field);

/* ---- Packed blocks: values of any type, stored exactly (docs/reference/format.md, section 11) */

/* Stores values exactly: as they are or, if that is shorter, as a zstd frame of their bytes. These are sorted by
 * significance, which suits integers. The block is at most CUSZ_PACKED_OVERHEAD_BYTES larger than the values.
 *   lossless     CUSZ_LOSSLESS_NONE: as they are. CUSZ_LOSSLESS_ZSTD: also as they are if this build has no zstd
 *   value_bytes  1, 2, 4 or 8
 *   count        number of values
 *   values       in host memory or on a device, of any alignment; if CUDA cannot tell, in host memory
 *   block        host memory, which must not overlap the values
 *   capacity     of the block, at least count * value_bytes + CUSZ_PACKED_OVERHEAD_BYTES
 *   block_bytes  bytes written
 * Errors: PARAMETER, DEVICE, MEMORY; the contents of `block` are undefined then. */
CUSZ_API cusz_status cusz_pack(cusz_context* context, cusz_lossless lossless, int32_t value_bytes, uint64_t count,
                               const void* values, void* block, size_t capacity, size_t* block_bytes);

/* Nonzero if a block in host memory begins like a packed one, as no archive does. */
CUSZ_API int32_t cusz_is_packed(const void* block, size_t block_bytes);

/* Verifies a packed block's checksum, and writes the size of its values. Errors: PARAMETER, CORRUPT, UNSUPPORTED (no
 * zstd). */
CUSZ_API cusz_status cusz_unpacked_bytes(cusz_context* context, const void* block, size_t block_bytes,
                                         size_t* values_bytes);

/* Verifies a packed block's checksum, and writes its values.
 *   values        in host memory or on a device; if CUDA cannot tell, in host memory
 *   values_bytes  exactly their size
 * Errors: PARAMETER, CORRUPT, UNSUPPORTED (no zstd), DEVICE, MEMORY. After CORRUPT the values are undefined. */
CUSZ_API cusz_status cusz_unpack(cusz_context* context, const void* block, size_t block_bytes, void* values,
                                 size_t values_bytes);

#ifdef __cplusplus
}
#endif

#endif
