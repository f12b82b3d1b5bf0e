/* Compresses a small 3-D field in memory, inspects the archive, decompresses it and checks the error bound. */
#include <cusz/cusz.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NZ = 40, NY = 50, NX = 60 };
static const size_t COUNT = (size_t)NZ * NY * NX; /* an int would overflow beyond 1290^3 */

/* Waves of three lengths. */
static void fill(float* field) {
    for (int z = 0; z < NZ; z++)
        for (int y = 0; y < NY; y++)
            for (int x = 0; x < NX; x++) {
                const double value =
                    sin(0.2 * x) * cos(0.15 * y) + 0.3 * sin(0.5 * y + 0.1 * z) + 0.05 * cos(1.7 * x - z);
                field[((size_t)z * NY + (size_t)y) * NX + (size_t)x] = (float)value;
            }
}

/* Every step can fail; the context says why. */
static int failed(const cusz_context* context, const char* step, cusz_status status) {
    if (status == CUSZ_OK) return 0;
    fprintf(stderr, "%s failed with status %d: %s\n", step, status, cusz_last_error(context));
    return 1;
}

static int run(cusz_context* context, float* field, float* back, unsigned char* archive, size_t capacity) {
    const uint64_t shape[] = {NZ, NY, NX};

    fill(field);

    cusz_params params;
    cusz_params_init(&params);
    params.mode = CUSZ_REL; /* relative to the field's value range */
    params.eb = 1e-3;
    size_t archive_bytes = 0;
    if (failed(context, "compress",
               cusz_compress(context, &params, CUSZ_F32, 3, shape, field, archive, capacity, &archive_bytes)))
        return 1;

    cusz_info info = {.struct_bytes = sizeof info};
    if (failed(context, "inspect", cusz_inspect(context, archive, archive_bytes, &info))) return 1;
    if (failed(context, "decompress",
               cusz_decompress(context, archive, archive_bytes, CUSZ_BACKEND_AUTO, params.threads, back,
                               COUNT * sizeof *back)))
        return 1;

    /* The difference of two floats of similar magnitude is exact in double, so this needs no tolerance. */
    double worst = 0;
    for (size_t i = 0; i < COUNT; i++) worst = fmax(worst, fabs((double)field[i] - (double)back[i]));
    printf("cusz %s: %llu -> %llu bytes, ratio %.2f, bound %.6g, largest error %.6g\n", cusz_version(),
           (unsigned long long)info.raw_bytes, (unsigned long long)info.archive_bytes,
           (double)info.raw_bytes / (double)info.archive_bytes, info.eb_abs, worst);
    if (!(worst <= info.eb_abs)) {
        fprintf(stderr, "the error bound is broken\n");
        return 1;
    }

    /* A damaged archive is refused, never decoded to wrong data. */
    archive[archive_bytes / 2] ^= 1;
    const cusz_status status =
        cusz_decompress(context, archive, archive_bytes, CUSZ_BACKEND_AUTO, 0, back, COUNT * sizeof *back);
    printf("one bit flipped: %s\n", cusz_last_error(context));
    if (status != CUSZ_ERROR_CORRUPT) {
        fprintf(stderr, "a damaged archive was accepted\n");
        return 1;
    }
    return 0;
}

int main(void) {
    const uint64_t shape[] = {NZ, NY, NX};
    size_t capacity = 0;
    if (cusz_max_archive_bytes(CUSZ_F32, 3, shape, &capacity) != CUSZ_OK) return EXIT_FAILURE;

    cusz_context* context = cusz_create();
    float* field = malloc(COUNT * sizeof *field);
    float* back = malloc(COUNT * sizeof *back);
    unsigned char* archive = malloc(capacity);
    int result = EXIT_FAILURE;
    if (!context || !field || !back || !archive)
        fprintf(stderr, "out of memory\n");
    else if (run(context, field, back, archive, capacity) == 0)
        result = EXIT_SUCCESS;

    free(archive);
    free(back);
    free(field);
    cusz_destroy(context);
    return result;
}
