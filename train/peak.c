#include "train/peak.h"

#include <time.h>

double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double gemm_peak_measure(const Device *device, const Target *target, DType type, Error *e)
{
    enum { N = 1024, I = 768, O = 3072, RUNS = 10 };
    size_t scratch = linear_workspace(N, I, O, (GemmTypes){type, type, DTYPE_F32}, target);
    size_t sizes[] = {dtype_size(type) * N * O, dtype_size(type) * N * I, dtype_size(type) * I * O, scratch + 1};
    void *memory[4] = {NULL};
    bool ok = true;
    for (int i = 0; i < 4 && ok; i++)
        ok = (memory[i] = device->memory_take(sizes[i], "measuring the GEMM rate", e)) != NULL;
    double best = 0;
    if (ok) {
        StepState state = {0};
        Ctx c = {.device = device,
                 .target = *target,
                 .workspace = memory[3],
                 .workspace_bytes = scratch,
                 .state = &state,
                 .error = e,
                 .layer = -1};
        Tensor y = tensor_2d(memory[0], type, N, O), x = tensor_2d(memory[1], type, N, I), w = tensor_2d(memory[2], type, I, O);
        zero(&c, x);
        zero(&c, w);
        for (int run = 0; run < RUNS; run++) {
            double start = clock_seconds();
            linear_forward(&c, y, x, w, TENSOR_NONE);
            device->synchronize(&c);
            double rate = 2.0 * N * I * O / (clock_seconds() - start);
            best = rate > best ? rate : best;
        }
    }
    for (int i = 0; i < 4; i++)
        if (memory[i])
            device->memory_give(memory[i], sizes[i]);
    return e->set ? 0 : best;
}
