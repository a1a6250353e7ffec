/* For tests of the model: random configurations, a model with random weights and a random batch. It is on the CPU, or on the GPU
 * that TALLY_TEST_DEVICE names, seen through the mirror (mirror.h): its tensors are in host memory in any case. Include after
 * cmocka. */
#ifndef TALLY_TESTS_MODEL_RIG_H
#define TALLY_TESTS_MODEL_RIG_H

#include "model/model.h"
#include "tests/mirror.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Random numbers ------------------------------------------------------------------------------------------------ */

static uint64_t rig_draws; /* a test sets it to begin a sequence of its own */

static inline uint32_t rig_bits(void)
{
    return random_bits(random_key(20, RANDOM_INIT, 0, 0, 0), rig_draws++);
}

/* From low to high, both included. */
static inline int64_t rig_between(int64_t low, int64_t high)
{
    return low + rig_bits() % (uint32_t)(high - low + 1);
}

/* Roughly normal: the sum of twelve uniform numbers less 6 has deviation 1. */
static inline double rig_normal(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (double)random_unit(rig_bits());
    return sum;
}

/* ---- Configurations ------------------------------------------------------------------------------------------------ */

typedef struct RigShape {
    ModelConfig config;
    ModelRun run;
    int threads;
} RigShape;

/* A small model that nothing is a multiple of anything in; n_embd at least `least`. */
static inline RigShape rig_random_shape(int64_t least)
{
    static const double dropouts[] = {0, 0, 0.1, 0.5};
    int64_t kv, heads, size;
    do {
        kv = rig_between(1, 4);
        heads = kv * rig_between(1, kv == 1 ? 4 : kv == 2 ? 2 : 1);
        size = rig_between(1, 16);
    } while (heads * size < least);
    RigShape s = {.config = {.n_layer = rig_between(1, 4),
                             .n_head = heads,
                             .n_kv_head = kv,
                             .n_embd = heads * size,
                             .n_inner = rig_between(0, 1) ? 4 * heads * size : rig_between(1, 70),
                             .block_size = rig_between(1, 23),
                             .vocab_size = rig_between(2, 70),
                             .vocab_multiple = rig_between(1, 9),
                             .bias = rig_between(0, 1),
                             .dropout = dropouts[rig_between(0, 3)]},
                  .run = model_run_default(),
                  .threads = (int)rig_between(1, 3)};
    s.run.batch_size = rig_between(1, 4);
    s.run.block_size = rig_between(1, s.config.block_size);
    s.run.head_rows = rig_between(1, s.run.batch_size * s.run.block_size + 3);
    s.run.sample_size = rig_between(0, 3);
    return s;
}

/* A model with dropout 0 that is small and has a head size, a width and a vocabulary that are no round numbers. */
static inline RigShape rig_small_shape(void)
{
    RigShape s = {.config = {.n_layer = 2,
                             .n_head = 3,
                             .n_kv_head = 3,
                             .n_embd = 21,
                             .n_inner = 84,
                             .block_size = 19,
                             .vocab_size = 37,
                             .vocab_multiple = 8,
                             .bias = true},
                  .run = model_run_default(),
                  .threads = 2};
    s.run.batch_size = 2;
    s.run.block_size = 13;
    s.run.head_rows = 10;
    return s;
}

/* Bytes of the plan's step arena that are alive during op i of its log, counted tensor by tensor. */
static inline size_t rig_live_bytes(const Plan *p, int64_t i)
{
    size_t bytes = 0;
    for (int k = 0; k < p->count; k++)
        for (int pass = 0; pass < PASS_COUNT && !category_is_persistent(p->tensor[k].category); pass++) {
            Life life = p->tensor[k].life[pass]; /* op numbers run on through the passes: at most one life holds i */
            bytes += life.first >= 0 && life.first <= i && i <= life.last ? p->tensor[k].bytes : 0;
        }
    return bytes;
}

/* ---- A model that runs --------------------------------------------------------------------------------------------- */

typedef struct Rig {
    Model m;
    Error e;
    StepState state;
    int32_t *tokens, *targets; /* [B, T], [B*T]; about a fifth of the targets is ignored */
    int64_t counted;
} Rig;

/* The device of the tests; its target in *target. */
static inline const Device *rig_device(Target *target, int threads)
{
    Error e = {0};
    const Device *device = mirror_wanted() ? mirror_device(target, &e) : cpu_device(target, threads, &e);
    if (!device)
        fail_msg("%s", e.text);
    return device;
}

static inline Target rig_target(int threads)
{
    Target target;
    rig_device(&target, threads);
    return target;
}

/* Matrices normal with deviation 1/sqrt(inputs), embeddings 0.5, gains about 1, biases about 0: nothing is small beside the rest,
 * as it would be at the usual start. Padded rows stay 0. */
static inline void rig_weights(Rig *r)
{
    for (int i = 0; i < r->m.n_weights; i++) {
        Weight *w = r->m.weight[i];
        float *values = calloc((size_t)tensor_count(w->value), sizeof *values);
        bool embedding = w == &r->m.wte || w == &r->m.wpe, gain = w->value.ndim == 1 && strstr(w->name, ".weight");
        double deviation = embedding ? 0.5 : w->value.ndim == 1 ? 0.2 : 1 / sqrt((double)w->value.shape[0]);
        int64_t n = tensor_count(w->value);
        if (w == &r->m.wte)
            n = r->m.config.vocab_size * r->m.config.n_embd;
        for (int64_t k = 0; k < n; k++)
            values[k] = (float)((gain ? 1 : 0) + deviation * rig_normal());
        weight_store(&r->m, w, 0, tensor_count(w->value), values);
        free(values);
    }
}

static inline void rig_batch(Rig *r)
{
    int64_t N = r->m.run.batch_size * r->m.run.block_size;
    r->counted = 0;
    for (int64_t i = 0; i < N; i++) {
        r->tokens[i] = (int32_t)rig_between(0, r->m.config.vocab_size - 1);
        r->targets[i] = i > 0 && rig_between(0, 4) == 0 ? -1 : (int32_t)rig_between(0, r->m.config.vocab_size - 1);
        r->counted += r->targets[i] >= 0;
    }
}

static inline void rig_plan(Rig *r, const RigShape *s)
{
    Target target = rig_target(s->threads);
    *r = (Rig){.state = {.seed = 7, .step = 3, .learning_rate = 1e-2f, .scaler.scale = 1}};
    if (!model_plan(&r->m, &s->config, &s->run, &target, &r->e))
        fail_msg("%s", r->e.text);
}

/* Allocates a planned model; random weights and batch, the same ones for the same `seed`. */
static inline void rig_start(Rig *r, uint64_t seed)
{
    int64_t N = r->m.run.batch_size * r->m.run.block_size;
    Target target;
    r->tokens = malloc((size_t)N * sizeof *r->tokens);
    r->targets = malloc((size_t)N * sizeof *r->targets);
    if (!model_allocate(&r->m, rig_device(&target, r->m.ctx.target.threads), &r->e))
        fail_msg("%s", r->e.text);
    rig_draws = seed << 32;
    rig_weights(r);
    rig_batch(r);
}

static inline void rig_make(Rig *r, const RigShape *s, uint64_t seed)
{
    rig_plan(r, s);
    rig_start(r, seed);
}

static inline void rig_free(Rig *r)
{
    if (r->e.set)
        fail_msg("%s", r->e.text);
    model_free(&r->m);
    free(r->tokens);
    free(r->targets);
}

/* Adds the gradient of one micro-batch: of (sum of losses over its counted targets) / count. */
static inline void rig_micro(Rig *r, const int32_t *tokens, const int32_t *targets, int64_t count)
{
    r->state.inverse_count = count ? (float)(1 / (double)count) : 0;
    copy_in(&r->m.ctx, r->m.state, &r->state);
    copy_in(&r->m.ctx, r->m.tokens, tokens);
    copy_in(&r->m.ctx, r->m.targets, targets);
    model_forward_backward(&r->m);
    copy_out(&r->m.ctx, &r->state, r->m.state);
    if (r->e.set)
        fail_msg("%s", r->e.text);
}

/* The gradient of the rig's own batch, in m.grads; state.loss_sum is its loss, summed. The step's keys stay as they are. */
static inline void rig_gradients(Rig *r)
{
    int32_t micro = r->state.micro;
    r->state.loss_sum = 0;
    model_gradients_zero(&r->m);
    rig_micro(r, r->tokens, r->targets, r->counted);
    assert_int_equal(r->state.micro, micro + 1);
    r->state.micro = micro;
}

static inline void rig_update(Rig *r)
{
    model_update(&r->m);
    copy_out(&r->m.ctx, &r->state, r->m.state);
    r->state.step++;
}

/* The rig's batch in an evaluation: state.loss_sum. (What a step leaves of tokens and targets is not theirs any more.) */
static inline void rig_evaluate(Rig *r)
{
    r->state.loss_sum = 0;
    copy_in(&r->m.ctx, r->m.state, &r->state);
    copy_in(&r->m.ctx, r->m.tokens, r->tokens);
    copy_in(&r->m.ctx, r->m.targets, r->targets);
    model_evaluate(&r->m);
    copy_out(&r->m.ctx, &r->state, r->m.state);
    if (r->e.set)
        fail_msg("%s", r->e.text);
}

/* All numbers of a range (m.grads, m.values, ...) as FP32; free them. */
static inline float *rig_numbers(Rig *r, Tensor range)
{
    float *values = malloc((size_t)tensor_count(range) * sizeof *values);
    tensor_fetch(&r->m, range, 0, tensor_count(range), values);
    return values;
}

/* |a - b| / |b| over n numbers. */
static inline double rig_difference(const float *a, const float *b, int64_t n)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(error) / (size > 0 ? sqrt(size) : 1);
}

#endif
