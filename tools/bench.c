/* `tally bench`: the time of a training step on random tokens, whole and op by op, beside the bounds that the plan knows. It
 * takes the settings of `tally train`; max_iters is the number of timed steps. */
#include "tools/commands.h"

#include "model/fit.h"
#include "model/ledger.h"
#include "train/options.h"
#include "train/peak.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Bench {
    TrainOptions options;
    Model model;
    double peak;     /* FLOP/s                                     */
    double *seconds; /* [max_iters] of the timed steps, ascending  */
    int32_t *ids;    /* [B, T] random tokens, inputs and targets   */
    OpTimes times;   /* of one more step, op by op                 */
} Bench;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool tokens_make(Bench *b, Error *e)
{
    const Model *m = &b->model;
    int64_t N = m->run.batch_size * m->run.block_size;
    b->ids = memory_get(e, (size_t)N, sizeof *b->ids, "random tokens");
    RandomKey key = random_key(1, RANDOM_EVALUATION, 0, 0, 0);
    for (int64_t i = 0; b->ids && i < N; i++)
        b->ids[i] = (int32_t)(random_bits(key, (uint64_t)i) % (uint64_t)m->config.vocab_size);
    return b->ids != NULL;
}

static double step_time(Bench *b, int64_t step)
{
    Model *m = &b->model;
    double start = clock_seconds();
    StepState state = {.seed = 1,
                       .step = step,
                       .learning_rate = 1e-4f,
                       .loss_scale = 1,
                       .adam_t = step,
                       .inverse_count =
                           1.0f / (float)(m->run.batch_size * m->run.block_size * b->options.gradient_accumulation_steps)};
    copy_in(&m->ctx, m->state, &state);
    model_gradients_zero(m);
    for (int64_t micro = 0; micro < b->options.gradient_accumulation_steps; micro++) {
        copy_in(&m->ctx, m->tokens, b->ids); /* each time: once read, their memory is used for something else */
        copy_in(&m->ctx, m->targets, b->ids);
        model_forward_backward(m);
    }
    model_update(m);
    m->ctx.device->synchronize(&m->ctx);
    return clock_seconds() - start;
}

static bool bench_run(Bench *b, Error *e)
{
    TrainOptions *o = &b->options;
    ModelConfig config;
    Target target;
    const Device *device = device_open(o->device, (int)o->threads, &target, e);
    if (!device || !model_config_preset(o->model, &config, e))
        return false;
    config.block_size = o->block_size ? o->block_size : config.block_size;
    train_options_model(o, &config);
    ModelRun run;
    Room room = room_here(&target, o->mem_cap);
    o->block_size = config.block_size;
    room.loader = false;
    if (!train_options_run(o, &run, e) || !model_plan(&b->model, &config, &run, &target, e) ||
        !fit_check(&b->model, o->gradient_accumulation_steps, &room, e))
        return false;
    b->peak = gemm_peak_measure(device, &target, precision_gemm(&run.precision, &target), e);
    b->seconds = memory_get(e, (size_t)o->max_iters + 1, sizeof *b->seconds, "step times");
    if (!b->peak || !b->seconds || !model_allocate(&b->model, device, e) || !model_initialize(&b->model, 1, e) ||
        !tokens_make(b, e))
        return false;
    step_time(b, 0); /* primitives are made, pages touched */
    for (int64_t i = 0; i < o->max_iters; i++)
        b->seconds[i] = step_time(b, i + 1);
    qsort(b->seconds, (size_t)o->max_iters, sizeof *b->seconds, ascending);
    b->model.ctx.times = &b->times;
    step_time(b, o->max_iters + 1);
    return !e->set;
}

/* ---- Results ------------------------------------------------------------------------------------------------------- */

/* GEMM FLOPs and bytes of an op in one micro-batch (or in the update), from the plan. */
static PlanCost op_cost(const Model *m, OpId op)
{
    PlanCost sum = {0};
    for (int64_t i = 0; i < m->plan.log.count; i++) {
        const DryOp *r = &m->plan.log.op[i];
        if (r->op != op || r->phase == PHASE_EVALUATION || r->phase == PHASE_SAMPLING)
            continue;
        sum.gemm_flops += r->gemm_flops;
        sum.bytes_read += r->bytes_read;
        sum.bytes_written += r->bytes_written;
    }
    return sum;
}

static json_t *result_json(const Bench *b)
{
    const Model *m = &b->model;
    int64_t n = b->options.max_iters;
    double median = b->seconds[n / 2];
    double tokens = (double)(m->run.batch_size * m->run.block_size * b->options.gradient_accumulation_steps);
    json_t *ops = json_object();
    for (int i = 0; i < OP_COUNT; i++)
        if (b->times.calls[i])
            json_object_set_new(ops, op_name((OpId)i),
                                json_pack("{s:I, s:f}", "calls", (json_int_t)b->times.calls[i], "ms", 1e3 * b->times.seconds[i]));
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:o}", "model", b->options.model, "batch_size",
                     (json_int_t)m->run.batch_size, "block_size", (json_int_t)m->run.block_size, "steps", (json_int_t)n,
                     "ms_median", 1e3 * median, "ms_min", 1e3 * b->seconds[0], "ms_max", 1e3 * b->seconds[n - 1], "tokens_per_s",
                     tokens / median, "gemm_peak_gflops", b->peak / 1e9, "mfu",
                     tokens / median * model_flops_per_token(m) / b->peak, "planned_bytes",
                     (json_int_t)plan_total_bytes(&m->plan), "ops", ops);
}

static void result_print(const Bench *b)
{
    const Model *m = &b->model;
    int64_t n = b->options.max_iters;
    double median = b->seconds[n / 2], total = 0;
    double tokens = (double)(m->run.batch_size * m->run.block_size * b->options.gradient_accumulation_steps);
    for (int i = 0; i < OP_COUNT; i++)
        total += b->times.seconds[i];
    PrecisionText types;
    printf("%s, B %lld x T %lld, %s, %s\n", b->options.model, (long long)m->run.batch_size, (long long)m->run.block_size,
           precision_text(types, &m->run.precision), m->ctx.target.name);
    printf("step: median %.1f ms of %lld (%.1f to %.1f), %.0f tokens/s, %.0f %% of the measured GEMM peak (%.1f GFLOP/s)\n\n",
           1e3 * median, (long long)n, 1e3 * b->seconds[0], 1e3 * b->seconds[n - 1], tokens / median,
           100 * tokens / median * model_flops_per_token(m) / b->peak, b->peak / 1e9);
    printf("  %-24s %6s %10s %7s %10s %10s\n", "op", "calls", "ms", "share", "GFLOP/s", "GB/s");
    for (int i = 0; i < OP_COUNT; i++) {
        PlanCost cost = op_cost(m, (OpId)i);
        double s = b->times.seconds[i],
               repeat = i == OP_adamw || i == OP_grad_norm || i == OP_zero ? 1 : (double)b->options.gradient_accumulation_steps;
        if (b->times.calls[i])
            printf("  %-24s %6lld %10.2f %6.1f %% %10.1f %10.1f\n", op_name((OpId)i), (long long)b->times.calls[i], 1e3 * s,
                   100 * s / total, repeat * (double)cost.gemm_flops / s / 1e9,
                   repeat * (double)(cost.bytes_read + cost.bytes_written) / s / 1e9);
    }
}

int bench_main(int argc, char **argv)
{
    Error e = {0};
    Bench b;
    memset(&b, 0, sizeof b);
    char checkpoint[PATH_SIZE];
    json_t *trainer = NULL;
    b.options = train_options_default();
    strcpy(b.options.model, "gpt2");
    b.options.batch_size = 4;
    b.options.max_iters = 5;
    bool ok = train_options_parse(&b.options, argc, argv, checkpoint, &trainer, &e);
    if (ok && b.options.max_iters < 1)
        ok = error_usage(&e, "max_iters: needs to be 1 or more steps to time");
    ok = ok && bench_run(&b, &e);
    if (ok && b.options.json) {
        json_t *object = result_json(&b);
        ok = object && json_dumpf(object, stdout, JSON_INDENT(1)) == 0;
        printf("\n");
        json_decref(object);
    } else if (ok) {
        result_print(&b);
    }
    model_free(&b.model);
    free(b.seconds);
    free(b.ids);
    json_decref(trainer);
    if (!ok)
        fprintf(stderr, "tally bench: %s\n", e.text);
    return ok ? 0 : e.usage ? 2 : 1;
}
