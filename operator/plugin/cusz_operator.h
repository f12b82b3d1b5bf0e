/* cusz_operator.h: what libcusz_operator.so offers beyond ADIOS2's plugin interface.
 *
 * ADIOS2 has no call that returns the compressed bytes of a block. While capture is on, the plugin hands the next
 * block's archive over instead of decoding it, so that a reader can inspect it, or decode it itself. The functions act
 * on the copy of the library that they are called in: it must be the one that ADIOS2 loaded.
 *
 * All functions may be called from any thread; none throws or aborts.
 */
#ifndef CUSZ_OPERATOR_H
#define CUSZ_OPERATOR_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CUSZ_OPERATOR_API __attribute__((visibility("default")))
#else
#define CUSZ_OPERATOR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever a function below changes its meaning. */
#define CUSZ_OPERATOR_INTERFACE 1
CUSZ_OPERATOR_API int32_t cusz_operator_interface(void);

/* "major.minor.patch" of the library. */
CUSZ_OPERATOR_API const char* cusz_operator_version(void);

/* Switches capture on for the process. The first block that ADIOS2 then asks the plugin to decode is copied to
 * `archive` as it is, and the values that ADIOS2 returns for it mean nothing. Blocks after it are decoded as usual.
 *   variable  capture a block of this variable only; NULL or "" for any. Where an engine does not name the variable
 *             (BP4), any block is taken.
 *   archive   `capacity` bytes, valid until cusz_operator_capture_end(). raw bytes of the block +
 *             CUSZ_RAW_OVERHEAD_BYTES always suffice for an archive of this library.
 * Returns a cusz_status: CUSZ_ERROR_PARAMETER if capture is on already, `archive` is NULL or the name is longer than
 * 1023 bytes. */
CUSZ_OPERATOR_API int32_t cusz_operator_capture_begin(const char* variable, void* archive, size_t capacity);

/* Switches capture off; no byte is written to the buffer afterwards.
 *   archive_bytes  length of the archive that was captured; 0 if no block came to this copy of the plugin
 * Returns a cusz_status: CUSZ_ERROR_PARAMETER if capture is not on, `archive_bytes` is NULL, or the archive did not fit
 * (`archive_bytes` then says how much it needs, and nothing was copied). */
CUSZ_OPERATOR_API int32_t cusz_operator_capture_end(size_t* archive_bytes);

/* Gives back the scratch memory that the plugin keeps for reuse between blocks (that of calls in progress is kept). */
CUSZ_OPERATOR_API void cusz_operator_release_scratch(void);

#ifdef __cplusplus
}
#endif

#endif
