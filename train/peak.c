#include "train/peak.h"

#include "base/clock.h"

#include <math.h>

enum { N = 1024, I = 768, O = 3072 }; /* y [N, O] = x [N, I] w [I, O] */

/* The best rate so far ends the search when this many runs in a row were not better by 1 %; the first two runs always count: one
 * makes the product's code. */
enum { PATIENCE = 5 };
static const double seconds_most = 0.5;

static double best_rate(Ctx *c, Tensor y, Tensor x, Tensor w)
{
    double best = 0, begin = clock_seconds();
    for (int run = 0, stale = 0; run < 2 || (stale < PATIENCE && clock_seconds() - begin < seconds_most); run++) {
        double start = clock_seconds();
        linear_forward(c, y, x, w, TENSOR_NONE);
        c->device->synchronize(c);
        double rate = 2.0 * N * I * O / (clock_seconds() - start);
        stale = rate > 1.01 * best ? 0 : stale + 1;
        best = fmax(best, rate);
    }
    return best;
}

double gemm_peak_measure(const Device *device, const Target *target, DType type, Error *e)
{
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
        best = best_rate(&c, y, x, w);
    }
    for (int i = 0; i < 4; i++)
        if (memory[i])
            device->memory_give(memory[i], sizes[i]);
    return e->set ? 0 : best;
}

double gemm_peak_correct(double peak, double rate, const Device *device, const Target *target, DType type)
{
    Error ignored = {0}; /* without memory to measure in, the step itself is the measurement */
    return rate > peak ? fmax(rate, gemm_peak_measure(device, target, type, &ignored)) : peak;
}
