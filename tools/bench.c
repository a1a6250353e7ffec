/* `tally bench`: the time of a training step, whole and op by op, beside the bounds that the plan knows. It takes the settings of
 * `tally train`; max_iters is the number of timed steps. Without --data it trains on random tokens. */
#include "tools/bench.h"
#include "tools/commands.h"
#include "tools/plan.h"

#include "base/clock.h"
#include "base/json.h"
#include "model/ledger.h"
#include "train/peak.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- A run ---------------------------------------------------------------------------------------------------------- */

bool bench_settings(Bench *b, int argc, char **argv, Error *e)
{
    TrainOptions *o = &b->trainer.options;
    *o = train_options_default();
    strcpy(o->model, "gpt2");
    o->batch_size = 4;
    o->max_iters = 5;
    return trainer_settings(&b->trainer, NULL, argc, argv, e);
}

static bool tokens_make(Bench *b, Error *e)
{
    Trainer *t = &b->trainer;
    int64_t n = (int64_t)step_tokens(t);
    b->ids = memory_get(e, (size_t)n + 1, sizeof *b->ids, "random tokens");
    RandomKey key = random_key((uint64_t)t->options.seed, RANDOM_EVALUATION, 0, 0, 0);
    for (int64_t i = 0; b->ids && i <= n; i++)
        b->ids[i] = (int32_t)(random_bits(key, (uint64_t)i) % (uint64_t)t->model.config.vocab_size);
    t->batch = (StepBatch){b->ids, b->ids + 1, t->options.gradient_accumulation_steps, n};
    return b->ids != NULL;
}

bool bench_plan(Bench *b, int64_t steps, Error *e)
{
    Trainer *t = &b->trainer;
    bool given = t->options.data[0];
    t->options.max_iters = steps;
    t->options.epochs = 0;
    t->options.eval_interval = t->options.sample_interval = t->options.grad_stats = 0;
    t->options.overfit |= !given;
    if (!trainer_plan(t, e))
        return false;
    t->room.loader = given;
    return trainer_data(t, e) && (given || tokens_make(b, e));
}

bool bench_step(Bench *b, OpTimes *times, double *seconds, Error *e)
{
    b->trainer.model.ctx.times = times;
    double start = clock_seconds();
    bool ok = trainer_step(&b->trainer, e);
    *seconds = clock_seconds() - start;
    return ok;
}

const char *bench_model(const Bench *b)
{
    const TrainOptions *o = &b->trainer.options;
    return o->init_from[0] ? o->init_from : o->model;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *numbers, int64_t n)
{
    qsort(numbers, (size_t)n, sizeof *numbers, ascending);
    return numbers[n / 2];
}

void bench_close(Bench *b)
{
    trainer_close(&b->trainer);
    free(b->ids);
}

/* ---- Results ------------------------------------------------------------------------------------------------------- */

typedef struct Result {
    int64_t steps;
    double *seconds; /* [steps], ascending */
    double median, tokens_per_s, mfu;
    OpTimes times; /* of one more step */
    double copy;   /* bytes/s read and written by a large copy */
    double launch; /* seconds that an op takes which does next to nothing: part of each op's time */
} Result;

/* What an op does in a step, and the least time for it: that of its matrix products at the GEMM peak, or of its bytes at the rate
 * of a copy, whichever is longer. Data that stays in caches can be faster. */
typedef struct OpBound {
    double flops, bytes, seconds;
} OpBound;

static bool result_measure(Result *r, Bench *b, Error *e)
{
    double seconds;
    if (!bench_step(b, NULL, &seconds, e)) /* primitives are made, pages touched */
        return false;
    for (int64_t i = 0; i < r->steps; i++)
        if (!bench_step(b, NULL, &r->seconds[i], e))
            return false;
    r->median = bench_median(r->seconds, r->steps);
    r->tokens_per_s = step_tokens(&b->trainer) / r->median;
    r->mfu = trainer_mfu(&b->trainer, r->tokens_per_s);
    if (!bench_step(b, &r->times, &seconds, e))
        return false;
    Model *m = &b->trainer.model;
    OpTimes nothing = {0};
    m->ctx.times = &nothing;
    for (int i = 0; i < 20; i++)
        zero(&m->ctx, tensor_1d(m->grads.data, m->grads.dtype, 1));
    m->ctx.times = NULL;
    r->launch = nothing.seconds[OP_zero] / 20;
    return !e->set;
}

/* Of an op in the phases of one micro-batch, and in the update. */
static PlanCost op_cost(const Plan *p, OpId op)
{
    PlanCost sum = {0};
    for (int phase = PHASE_FORWARD; phase <= PHASE_OPTIMIZER; phase++) {
        PlanCost c = plan_op_cost(p, (Phase)phase, op);
        sum.gemm_flops += c.gemm_flops;
        sum.bytes_read += c.bytes_read;
        sum.bytes_written += c.bytes_written;
    }
    return sum;
}

static OpBound op_bound(const Result *r, const Bench *b, OpId op)
{
    const Trainer *t = &b->trainer;
    PlanCost cost = op_cost(&t->model.plan, op);
    double repeat = op == OP_adamw || op == OP_grad_norm || op == OP_zero ? 1 : (double)t->options.gradient_accumulation_steps;
    OpBound o = {.flops = repeat * (double)cost.gemm_flops, .bytes = repeat * (double)(cost.bytes_read + cost.bytes_written)};
    o.seconds = fmax(o.flops / t->gemm_peak, o.bytes / r->copy);
    return o;
}

static bool result_print_json(const Result *r, const Bench *b, Error *e)
{
    const Model *m = &b->trainer.model;
    PrecisionText types;
    json_t *ops = json_object();
    for (int i = 0; i < OP_COUNT; i++)
        if (r->times.calls[i]) {
            OpBound o = op_bound(r, b, (OpId)i);
            double s = r->times.seconds[i];
            json_object_set_new(ops, op_name((OpId)i),
                                json_pack("{s:I, s:f, s:f, s:f, s:f}", "calls", (json_int_t)r->times.calls[i], "ms", 1e3 * s,
                                          "bound_ms", 1e3 * o.seconds, "gflops", o.flops / s / 1e9, "gb_per_s",
                                          o.bytes / s / 1e9));
        }
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:o}", "model",
                  bench_model(b), "device", m->ctx.target.name, "precision", precision_text(types, &m->run.precision),
                  "recompute", recompute_name(m->run.recompute), "batch_size", (json_int_t)m->run.batch_size, "block_size",
                  (json_int_t)m->run.block_size, "steps", (json_int_t)r->steps, "ms_median", 1e3 * r->median, "ms_min",
                  1e3 * r->seconds[0], "ms_max", 1e3 * r->seconds[r->steps - 1], "tokens_per_s", r->tokens_per_s,
                  "gemm_peak_gflops", b->trainer.gemm_peak / 1e9, "copy_gb_per_s", r->copy / 1e9, "launch_us", 1e6 * r->launch,
                  "mfu", r->mfu, "planned_bytes", (json_int_t)plan_total_bytes(&m->plan), "ops", ops);
    return json_print(object, e);
}

static void result_print(const Result *r, const Bench *b)
{
    const Model *m = &b->trainer.model;
    double total = 0;
    for (int i = 0; i < OP_COUNT; i++)
        total += r->times.seconds[i];
    PrecisionText types;
    printf("%s, B %lld x T %lld x %lld, on %s\n", bench_model(b), (long long)m->run.batch_size, (long long)m->run.block_size,
           (long long)b->trainer.options.gradient_accumulation_steps, m->ctx.target.name);
    printf("precision: %s; GEMMs multiply %s\n", precision_text(types, &m->run.precision),
           dtype_name(precision_gemm(&m->run.precision, &m->ctx.target)));
    printf("step: median %.1f ms of %lld (%.1f to %.1f), %.0f tokens/s, %.0f %% of the measured GEMM peak (%.1f GFLOP/s)\n",
           1e3 * r->median, (long long)r->steps, 1e3 * r->seconds[0], 1e3 * r->seconds[r->steps - 1], r->tokens_per_s,
           100 * r->mfu, b->trainer.gemm_peak / 1e9);
    printf("a copy moves %.1f GB/s; an op that does nothing takes %.0f us, and each of these ops as much of its time\n\n",
           r->copy / 1e9, 1e6 * r->launch);
    printf("  %-24s %6s %10s %7s %10s %10s %8s\n", "op", "calls", "ms", "share", "GFLOP/s", "GB/s", "of bound");
    for (int i = 0; i < OP_COUNT; i++) {
        OpBound o = op_bound(r, b, (OpId)i);
        double s = r->times.seconds[i];
        if (r->times.calls[i])
            printf("  %-24s %6lld %10.2f %6.1f %% %10.1f %10.1f %6.0f %%\n", op_name((OpId)i), (long long)r->times.calls[i],
                   1e3 * s, 100 * s / total, o.flops / s / 1e9, o.bytes / s / 1e9, 100 * o.seconds / s);
    }
}

static bool bench_run(Bench *b, Error *e)
{
    Trainer *t = &b->trainer;
    Result r = {.steps = t->options.max_iters};
    if (r.steps < 1)
        return error_usage(e, "max_iters: needs to be 1 or more steps to time");
    if (!bench_plan(b, r.steps + 2, e) || !trainer_fits(t, e) || !trainer_measure_peak(t, e) ||
        (r.copy = copy_peak_measure(t->device, &t->model.ctx.target, e)) == 0 || !trainer_begin(t, e))
        return false;
    r.seconds = memory_get(e, (size_t)r.steps, sizeof *r.seconds, "step times");
    bool ok = r.seconds && result_measure(&r, b, e);
    if (ok && t->options.json)
        ok = result_print_json(&r, b, e);
    else if (ok)
        result_print(&r, b);
    free(r.seconds);
    return ok;
}

bool bench_command(int argc, char **argv, Error *e)
{
    Bench b = {0};
    bool ok = bench_settings(&b, argc, argv, e) && bench_run(&b, e);
    bench_close(&b);
    return ok;
}
