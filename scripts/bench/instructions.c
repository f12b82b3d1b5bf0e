/* One compression and one decompression of a raw file on one thread, counted by scripts/bench/instructions.py.
 *
 *     instructions f32|f64 REL FILE EXTENT...
 */
#include <cusz/cusz.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const cusz_context* context, const char* step, cusz_status status) {
    if (status == CUSZ_OK) return 0;
    fprintf(stderr, "%s failed with status %d: %s\n", step, (int)status, cusz_last_error(context));
    return 1;
}

static int read_field(const char* path, void* field, size_t bytes) {
    FILE* file = fopen(path, "rb");
    const size_t got = file ? fread(field, 1, bytes, file) : 0;
    if (file) fclose(file);
    if (got == bytes) return 0;
    fprintf(stderr, "%s does not hold the %zu bytes of its shape\n", path, bytes);
    return 1;
}

int main(int argc, char** argv) {
    if (argc < 5 || argc > 4 + CUSZ_MAX_NDIM) {
        fprintf(stderr, "usage: %s f32|f64 REL FILE EXTENT...\n", argv[0]);
        return 2;
    }
    const cusz_dtype dtype = strcmp(argv[1], "f64") == 0 ? CUSZ_F64 : CUSZ_F32;
    const int32_t ndim = argc - 4;
    uint64_t shape[CUSZ_MAX_NDIM] = {0};
    size_t bytes = dtype == CUSZ_F64 ? sizeof(double) : sizeof(float);
    for (int32_t i = 0; i < ndim; i++) {
        shape[i] = strtoull(argv[4 + i], NULL, 10);
        bytes *= shape[i];
    }
    cusz_params params;
    cusz_params_init(&params);
    params.mode = CUSZ_REL;
    params.eb = strtod(argv[2], NULL);
    params.backend = CUSZ_BACKEND_CPU;
    params.threads = 1;
    params.predictor = CUSZ_PREDICTOR_LORENZO;

    size_t capacity = 0, archive_bytes = 0;
    cusz_context* context = cusz_create();
    if (!context || failed(context, "the archive's bound", cusz_max_archive_bytes(dtype, ndim, shape, &capacity)))
        return 1;
    void *field = malloc(bytes), *archive = malloc(capacity);
    const int bad =
        !field || !archive || read_field(argv[3], field, bytes) ||
        failed(context, "compress",
               cusz_compress(context, &params, dtype, ndim, shape, field, archive, capacity, &archive_bytes)) ||
        failed(context, "decompress",
               cusz_decompress(context, archive, archive_bytes, CUSZ_BACKEND_CPU, params.threads, field, bytes));
    free(archive);
    free(field);
    cusz_destroy(context);
    return bad;
}
