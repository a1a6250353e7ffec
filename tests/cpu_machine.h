/* For tests of ops: the CPU device in each build that this processor runs, or the GPU that TALLY_TEST_DEVICE names (mirror.h),
 * with a context, tensors with known contents, and comparison with references in double. All memory of a machine is given back at
 * once. */
#ifndef TALLY_TESTS_CPU_MACHINE_H
#define TALLY_TESTS_CPU_MACHINE_H

#include "tests/mirror.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MACHINE_MAX = 4096 };

typedef struct Machine {
    Ctx ctx;
    StepState state;
    Error error;
    void *memory[MACHINE_MAX];
    int n_memory;
} Machine;

static inline void *machine_memory(Machine *m, size_t bytes)
{
    assert_true(m->n_memory < MACHINE_MAX);
    if (mirror_wanted()) {
        void *shared = mirror_memory(bytes);
        assert_non_null(shared);
        return shared;
    }
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    memset(p, 0, (bytes + 127) / 64 * 64);
    return m->memory[m->n_memory++] = p;
}

/* Opens the build named `isa`, or the GPU; false when this processor cannot run it. The workspace is 8 MiB, a GPU's 128 MiB. */
static inline bool machine_open(Machine *m, const char *isa, int threads)
{
    memset(m, 0, sizeof *m);
    setenv("TALLY_ISA", isa, 1);
    Error refused = {0};
    m->ctx.device = mirror_wanted() ? mirror_open(&m->ctx.target, &refused) : cpu_device(&m->ctx.target, threads, &refused);
    unsetenv("TALLY_ISA");
    if (!m->ctx.device && mirror_wanted())
        fail_msg("%s", refused.text);
    if (!m->ctx.device)
        return false;
    m->ctx.error = &m->error;
    m->ctx.state = &m->state;
    m->ctx.layer = -1;
    m->ctx.workspace_bytes = mirror_wanted() ? MIRROR_WORKSPACE : (size_t)8 << 20;
    m->ctx.workspace = mirror_wanted() ? NULL : machine_memory(m, m->ctx.workspace_bytes);
    m->state =
        (StepState){.seed = 1337, .step = 5, .micro = 2, .inverse_count = 1, .scaler.scale = 1, .clip_coef = 1, .grad_factor = 1};
    return true;
}

static inline void machine_close(Machine *m)
{
    if (m->error.set)
        print_error("%s\n", m->error.text);
    assert_false(m->error.set);
    while (m->n_memory)
        free(m->memory[--m->n_memory]);
}

/* Runs `body` in every build on 1, 2 and 3 threads, or once on the GPU. The plain build must be there. */
static inline void machine_each(void (*body)(Machine *))
{
    static const char *const isas[] = {"plain", "v3", "v4"};
    static Machine m;
    int builds = mirror_wanted() ? 1 : 3;
    for (int i = 0; i < builds; i++)
        for (int threads = 1; threads <= builds; threads++) {
            if (!machine_open(&m, isas[i], threads)) {
                assert_true(i > 0);
                continue;
            }
            body(&m);
            machine_close(&m);
        }
}

/* Tensors of zeros. */
static inline Tensor zeros_1d(Machine *m, int64_t n)
{
    return tensor_1d(machine_memory(m, (size_t)n * 4), DTYPE_F32, n);
}

static inline Tensor zeros_2d(Machine *m, int64_t rows, int64_t width)
{
    return tensor_2d(machine_memory(m, (size_t)(rows * width) * 4), DTYPE_F32, rows, width);
}

/* Fills t with numbers in [-1, 1) that depend on `stream` and the index. */
static inline Tensor fill_random(Tensor t, uint32_t stream)
{
    RandomKey k = random_key(99, RANDOM_INIT, stream, 0, 0);
    for (int64_t i = 0; i < tensor_count(t); i++)
        ((float *)t.data)[i] = 2 * random_unit(random_bits(k, (uint64_t)i)) - 1;
    return t;
}

static inline Tensor random_1d(Machine *m, int64_t n, uint32_t stream)
{
    return fill_random(zeros_1d(m, n), stream);
}

static inline Tensor random_2d(Machine *m, int64_t rows, int64_t width, uint32_t stream)
{
    return fill_random(zeros_2d(m, rows, width), stream);
}

/* Ids in [0, limit). */
static inline Tensor random_ids(Machine *m, int64_t rows, int64_t width, int64_t limit, uint32_t stream)
{
    Tensor t = zeros_2d(m, rows, width);
    RandomKey k = random_key(98, RANDOM_INIT, stream, 0, 0);
    t.dtype = DTYPE_I32;
    for (int64_t i = 0; i < rows * width; i++)
        ((int32_t *)t.data)[i] = (int32_t)(random_bits(k, (uint64_t)i) % (uint64_t)limit);
    return t;
}

static inline Tensor copy_of(Machine *m, Tensor t)
{
    Tensor u = t;
    u.data = machine_memory(m, tensor_bytes(t));
    memcpy(u.data, t.data, tensor_bytes(t));
    return u;
}

static inline float *floats(Tensor t)
{
    return t.data;
}

static inline double *doubles(Machine *m, int64_t n)
{
    return machine_memory(m, (size_t)n * 8);
}

/* What dropout makes of element `index`, by the scalar generator. */
static inline double dropped(const Machine *m, Dropout d, int64_t index, double x)
{
    if (d.p == 0)
        return x;
    RandomKey k = random_key(m->state.seed, d.purpose, (uint32_t)d.layer, (uint64_t)m->state.step, (uint32_t)m->state.micro);
    return random_bits(k, (uint64_t)index) >= dropout_threshold(d) ? x * (double)(1.0f / (1.0f - d.p)) : 0;
}

/* |got - want| / |want| over the tensor; when want is 0 everywhere, |got|. */
static inline double relative_error(Tensor got, const double *want)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < tensor_count(got); i++) {
        double d = (double)floats(got)[i] - want[i];
        difference += d * d;
        norm += want[i] * want[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

/* FP32 sums of a few hundred terms in any order stay below 1e-6; a wrong formula or element does not. NaN fails. */
#define REFERENCE_ERROR 1e-6
#define assert_close(got, want)                                                                                                  \
    do {                                                                                                                         \
        double relative_error_ = relative_error(got, want);                                                                      \
        if (!(relative_error_ < REFERENCE_ERROR))                                                                                \
            fail_msg("%s: relative error %g", #got, relative_error_);                                                            \
    } while (0)

#define assert_same_bits(a, b) assert_memory_equal((a).data, (b).data, tensor_bytes(a))

#endif
