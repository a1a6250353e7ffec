#include "train/peak.h"

#include "base/clock.h"

#include <math.h>

/* The best time so far ends the search when this many runs in a row were not better by 1 %; the first two runs always count: one
 * makes the product's code. */
enum { PATIENCE = 5 };
static const double seconds_most = 0.5;

/* What is run: on three tensors, the first of which is written. */
typedef void Run(Ctx *c, const Tensor t[3]);

static double best_seconds(Ctx *c, Run *run, const Tensor t[3])
{
    double best = INFINITY, begin = clock_seconds();
    for (int n = 0, stale = 0; n < 2 || (stale < PATIENCE && clock_seconds() - begin < seconds_most); n++) {
        double start = clock_seconds();
        run(c, t);
        c->device->synchronize(c);
        double seconds = clock_seconds() - start;
        stale = seconds < best / 1.01 ? 0 : stale + 1;
        best = fmin(best, seconds);
    }
    return best;
}

/* Gives the three tensors memory, all zeros, and `scratch` bytes of workspace, for the time of the measurement. Returns the best
 * time, or 0 after recording an error. */
static double measure(const Device *device, const Target *target, Run *run, Tensor t[3], size_t scratch, Error *e)
{
    size_t sizes[] = {tensor_bytes(t[0]), tensor_bytes(t[1]), tensor_bytes(t[2]), scratch + 1};
    void *memory[4] = {NULL};
    bool ok = true;
    for (int i = 0; i < 4 && ok; i++)
        ok = (memory[i] = device->memory_take(sizes[i], "measuring what the device reaches", e)) != NULL;
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
        for (int i = 0; i < 3; i++)
            t[i].data = memory[i];
        best = best_seconds(&c, run, t);
    }
    for (int i = 0; i < 4; i++)
        if (memory[i])
            device->memory_give(memory[i], sizes[i]);
    return e->set ? 0 : best;
}

static void multiply(Ctx *c, const Tensor t[3])
{
    linear_forward(c, t[0], t[1], t[2], TENSOR_NONE);
}

/* y [N, O] = x [N, I] w [I, O] of 4.8 GFLOP; doubled in each dimension while that takes no 0.3 ms, in which the launch would
 * show, and as long as there is memory. */
double gemm_peak_measure(const Device *device, const Target *target, DType type, Error *e)
{
    Error no_room = {0};
    double seconds = 0, rate = 0;
    for (int64_t scale = 1; scale <= 16 && (scale == 1 || (seconds < 0.3e-3 && !no_room.set)); scale *= 2) {
        const int64_t N = 1024 * scale, I = 768 * scale, O = 3072 * scale;
        Tensor t[] = {tensor_2d(NULL, type, N, O), tensor_2d(NULL, type, N, I), tensor_2d(NULL, type, I, O)};
        size_t scratch = linear_workspace(N, I, O, (GemmTypes){type, type, DTYPE_F32}, target);
        seconds = measure(device, target, multiply, t, scratch, scale == 1 ? e : &no_room);
        if (seconds > 0)
            rate = fmax(rate, 2.0 * (double)(N * I * O) / seconds);
    }
    return rate;
}

double gemm_peak_correct(double peak, double rate, const Device *device, const Target *target, DType type)
{
    Error ignored = {0}; /* without memory to measure in, the step itself is the measurement */
    return rate > peak ? fmax(rate, gemm_peak_measure(device, target, type, &ignored)) : peak;
}

static void copy(Ctx *c, const Tensor t[3])
{
    cast(c, t[0], t[1]);
}

double copy_peak_measure(const Device *device, const Target *target, Error *e)
{
    Tensor all = tensor_1d(NULL, DTYPE_F32, 32 << 20), t[] = {all, all, tensor_1d(NULL, DTYPE_F32, 1)};
    double seconds = measure(device, target, copy, t, 0, e);
    return seconds > 0 ? 2 * (double)tensor_bytes(all) / seconds : 0;
}
