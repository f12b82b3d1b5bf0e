/* cusz_operator.h: the functions of libcusz_operator.so beyond ADIOS2's plugin interface.
 *
 * Reading: ADIOS2 has no call that returns the compressed bytes of a block. While capture is on, the plugin hands over
 * the next block's archive instead of decoding it, so that a reader can inspect or decode it itself.
 *
 * Writing: ADIOS2 has no call that accepts bytes which are already compressed. An archive posted here gets a key, and a
 * Put with that key as the block's address makes the plugin store the archive.
 *
 * Watching: a collective call of ADIOS2 that fails on one rank may never return on any. A thread of this library
 * notices, even while the call holds the interpreter's lock of a Python program.
 *
 * The functions act on the copy of the library that they are called in: it must be the one that ADIOS2 loaded.
 *
 * All functions may be called from any thread. None throws, and only a watch (cusz_operator_watch_begin) may end the
 * process.
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

/* ---- The plugin */

/* Changes whenever a function below changes its meaning. */
#define CUSZ_OPERATOR_INTERFACE 5
CUSZ_OPERATOR_API int32_t cusz_operator_interface(void);

/* "major.minor.patch" of the library. */
CUSZ_OPERATOR_API const char* cusz_operator_version(void);

/* ---- Reading archives as they are */

/* Switches capture on for the process. The first block that ADIOS2 then asks the plugin to decode is copied to
 * `archive` as it is, and the values that ADIOS2 returns for it are meaningless. Blocks after it are decoded as usual.
 * Meanwhile no other thread may read: its block could be the first one.
 *   variable  capture a block of this variable only; NULL or "" for any. If an engine does not name the variable (BP4),
 *             any block is taken.
 *   archive   `capacity` bytes, valid until cusz_operator_capture_end(). The block's raw bytes +
 *             CUSZ_RAW_OVERHEAD_BYTES always suffice for an archive of this library.
 * Returns a cusz_status: CUSZ_ERROR_PARAMETER if capture is on already, `archive` is NULL or the name is longer than
 * 1023 bytes. */
CUSZ_OPERATOR_API int32_t cusz_operator_capture_begin(const char* variable, void* archive, size_t capacity);

/* Switches capture off; no byte is written to the buffer afterwards.
 *   archive_bytes  length of the archive that was captured; 0 if no block came to this copy of the plugin
 * Returns a cusz_status: CUSZ_ERROR_PARAMETER if capture is not on, `archive_bytes` is NULL, or the archive did not fit
 * (`archive_bytes` then says how much it needs, and nothing was copied). */
CUSZ_OPERATOR_API int32_t cusz_operator_capture_end(size_t* archive_bytes);

/* ---- Storing finished archives */

/* The maximum number of extents of a block, and of archives posted at once in a process. */
#define CUSZ_OPERATOR_MAX_NDIM 32
#define CUSZ_OPERATOR_MAX_OFFERS 256

/* The type of a block: a cusz_dtype or, for integers of n bytes, CUSZ_OPERATOR_INTEGERS + n. */
#define CUSZ_OPERATOR_INTEGERS 256

/* What became of a posted archive. */
enum {
    CUSZ_OPERATOR_WAITING = 0, /* this copy of the plugin got no block with this address */
    CUSZ_OPERATOR_USED = 1,    /* the archive was stored */
    CUSZ_OPERATOR_REFUSED = 2, /* the block is stored as lost: its variable, type or count differs, its extents were
                                  not set, or there was no room */
    CUSZ_OPERATOR_UNKNOWN = 3  /* no such key, or it was already withdrawn */
};

/* Posts an archive for the block of a later Put.
 *   archive      `archive_bytes` bytes, unchanged until cusz_operator_withdraw(): an archive or, for integers, a packed
 *                block (cusz_pack); no more than the block's raw bytes + CUSZ_RAW_OVERHEAD_BYTES
 *   type         of the block
 *   ndim, count  extents of the block, as the Put has them; copied
 *   variable     name of the variable, at most 1023 bytes; copied. Not checked in BP4, which does not pass names
 * Returns a key, valid for one Put of the variable in mode Sync with StatsLevel 0. In any other mode ADIOS2 reads from
 * the address and crashes, because a key is the address of unreadable memory. A block whose key is not waiting, or no
 * longer, is stored as lost.
 * Returns 0 if an argument makes no sense, the archive is too large, or too many archives are posted. */
CUSZ_OPERATOR_API uintptr_t cusz_operator_offer(const void* archive, size_t archive_bytes, int32_t type, int32_t ndim,
                                                const uint64_t* count, const char* variable);

/* What `set_extents` below returns on success. */
#define CUSZ_OPERATOR_EXTENTS_SET 1

/* As cusz_operator_offer, for StatsLevel 1, where ADIOS2 computes a block's minimum and maximum before it calls the
 * operator, and records the block's extents afterwards, from the variable's selection. BP5 and SST do so in ADIOS2 2.10
 * to 2.12, but this is not guaranteed: test it before relying on it.
 *   archive to variable  as above; `count` are the extents of the block
 *   range                minimum and maximum of its values, two values of its type; copied
 *   put_count            the Put's initial extents, with one or two elements in all: ADIOS2 reads no more than these at
 *                        the key, where it finds `range`
 *   set_extents          called during the Put, by its thread: selects the block on the variable and returns
 *                        CUSZ_OPERATOR_EXTENTS_SET. If it returns anything else, the block is stored as lost
 * With an engine that does not ask how much room an archive needs (BP4), the block is stored as lost.
 */
CUSZ_OPERATOR_API uintptr_t cusz_operator_offer_with_range(const void* archive, size_t archive_bytes, int32_t type,
                                                           int32_t ndim, const uint64_t* count, const char* variable,
                                                           const void* range, const uint64_t* put_count,
                                                           int32_t (*set_extents)(void));

/* Withdraws a posted archive, used or not, and returns what became of it. The archive is not accessed afterwards. */
CUSZ_OPERATOR_API int32_t cusz_operator_withdraw(uintptr_t key);

/* ---- Watching over calls */

/* Ends the process with exit status 1, after writing `message` to stderr, when no file in a folder has appeared, grown
 * or been changed for a while. A folder that cannot be read, perhaps because it does not exist yet, does not change.
 *   folder    looked into every `patience` / 16 seconds, or every 10 if that is less; its subfolders are not. Copied
 *   patience  seconds without a change, > 0; time for which the process was stopped does not count
 *   message   including the newline at its end; copied
 * Returns the argument for cusz_operator_watch_end(). Returns 0, and does not watch, if an argument makes no sense
 * (such as an infinite `patience`), or no thread can be started. */
CUSZ_OPERATOR_API uintptr_t cusz_operator_watch_begin(const char* folder, double patience, const char* message);

/* Ends a watch; nothing happens if `watch` is 0. */
CUSZ_OPERATOR_API void cusz_operator_watch_end(uintptr_t watch);

/* ---- Memory */

/* Frees the scratch memory that the plugin keeps for reuse between blocks, except the memory of calls in progress. */
CUSZ_OPERATOR_API void cusz_operator_release_scratch(void);

#ifdef __cplusplus
}
#endif

#endif
