/* Loaded before the library with LD_PRELOAD, this pretends that contexts keep scratch memory on a device: cusz_compress
 * takes some from the context's allocator, if it has one, and keeps it until the stream or the allocator changes.
 * pretend_log() lists the calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cusz/cusz.h"

#define SCRATCH_BYTES 4096

typedef struct device_context {
    const cusz_context* context; /* NULL: free */
    cusz_allocator allocator;
    void *stream, *scratch;
} device_context;

static device_context contexts[256];
static char text[1 << 16];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Python loads the library where RTLD_NEXT does not find it. */
#define NEXT(name) ((__typeof__(&name))dlsym(dlopen("libcusz_core.so.0", RTLD_LAZY | RTLD_NOLOAD), #name))

CUSZ_API const char* pretend_log(void) { return text; }
CUSZ_API void pretend_clear(void) { text[0] = 0; }

static void note(const char* what, size_t number) {
    pthread_mutex_lock(&lock);
    const size_t length = strlen(text);
    (void)snprintf(text + length, sizeof(text) - length, "%s %zu\n", what, number);
    pthread_mutex_unlock(&lock);
}

/* What is kept for a context; made if there is none yet. A context serves one thread at a time. */
static device_context* of(const cusz_context* context) {
    device_context *found = NULL, *unused = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof(contexts) / sizeof(contexts[0]); ++i) {
        if (contexts[i].context == context) found = &contexts[i];
        if (contexts[i].context == NULL) unused = &contexts[i];
    }
    if (found == NULL) {
        found = unused;
        memset(found, 0, sizeof(*found));
        found->context = context;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static device_context* give_back(const cusz_context* context) {
    device_context* c = of(context);
    if (c->scratch != NULL) c->allocator.release(c->allocator.user, c->scratch, SCRATCH_BYTES, c->stream);
    c->scratch = NULL;
    return c;
}

cusz_status cusz_set_allocator(cusz_context* context, const cusz_allocator* allocator) {
    device_context* c = give_back(context);
    memset(&c->allocator, 0, sizeof(c->allocator));
    if (allocator != NULL) c->allocator = *allocator;
    note("allocator", allocator != NULL);
    return NEXT(cusz_set_allocator)(context, allocator);
}

cusz_status cusz_set_stream(cusz_context* context, void* stream) {
    give_back(context)->stream = stream;
    note("stream", (size_t)stream);
    return NEXT(cusz_set_stream)(context, stream);
}

void cusz_release_scratch(cusz_context* context) {
    give_back(context);
    NEXT(cusz_release_scratch)(context);
}

void cusz_destroy(cusz_context* context) {
    give_back(context)->context = NULL;
    note("destroy", 1);
    NEXT(cusz_destroy)(context);
}

cusz_status cusz_compress(cusz_context* context, const cusz_params* params, cusz_dtype dtype, int32_t ndim,
                          const uint64_t* shape, const void* field, void* archive, size_t archive_capacity,
                          size_t* archive_bytes) {
    device_context* c = of(context);
    if (c->allocator.allocate != NULL && c->scratch == NULL) {
        c->scratch = c->allocator.allocate(c->allocator.user, SCRATCH_BYTES, c->stream);
        if (c->scratch == NULL) return CUSZ_ERROR_MEMORY;
        memset(c->scratch, 7, SCRATCH_BYTES);
    }
    return NEXT(cusz_compress)(context, params, dtype, ndim, shape, field, archive, archive_capacity, archive_bytes);
}
