/* `tally bench amp`: what mixed precision buys. One model, one seed, the same data, in each precision that the device has: time
 * of a step and where it goes, memory, the loss; and beside the measured speed-up the one that Amdahl's law predicts. When a
 * class of ops takes the share f of an FP32 step and is s times as fast in another precision, the step as a whole is
 *
 *   1 / sum over the classes of f / s                                      (Amdahl, 1967)
 *
 * times as fast. Were only the GEMMs faster (s = 1 elsewhere), or even took no time at all, that says how far one would get.
 *
 * The runs take their steps in turns, a step of each in each round, so that a change of the machine's mood meets all. Of
 * max_iters rounds the first warms up; the others are timed as a whole and op by op by turns, since timing every op may cost time
 * itself.
 *
 * --json: {"model", "settings": {...}, "precisions": [{"precision", "types", "gemm_type", "ms_median", "ms_min", "ms_max",
 * "tokens_per_s", "classes": {"gemm", "attention", "memory", "optimizer"}: medians in ms, "memory": {category: bytes},
 * "total_bytes", "loss", "skipped"}], "amdahl": [{"precision", "predicted", "measured", "gemm_alone", "gemm_free", "classes":
 * {class: times as fast}}]} */
#include "tools/bench.h"
#include "tools/commands.h"
#include "tools/plan.h"

#include "base/json.h"
#include "model/ledger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Precisions by name, the one that the others are compared with first; those that the device refuses are left out. */
static const char *const names[] = {"fp32", "tf32", "bf16", "fp16"};
enum { PRECISIONS = sizeof names / sizeof *names };

typedef enum Class { CLASS_GEMM, CLASS_ATTENTION, CLASS_MEMORY, CLASS_OPTIMIZER, CLASS_COUNT } Class;
static const char *const class_names[CLASS_COUNT] = {"gemm", "attention", "memory", "optimizer"};

/* The head counts as GEMM, with its softmax; zeroing the gradients belongs to the optimizer. */
static Class class_of(OpId op)
{
    switch (op) {
    case OP_linear_forward:
    case OP_linear_backward:
    case OP_linear_gelu_backward:
    case OP_head_loss_forward:
    case OP_head_loss_backward:
    case OP_head_logits:
        return CLASS_GEMM;
    case OP_attention_forward:
    case OP_attention_backward:
    case OP_attention_cached:
        return CLASS_ATTENTION;
    case OP_zero:
    case OP_grad_norm:
    case OP_adamw:
        return CLASS_OPTIMIZER;
    default:
        return CLASS_MEMORY;
    }
}

typedef struct Run {
    Bench bench;
    const char *name;
    double *whole, *part[CLASS_COUNT]; /* seconds of the steps timed as a whole, and of a class's ops in the others; one block */
    double median, class_median[CLASS_COUNT];
    double loss; /* of the last step */
} Run;

typedef struct Amp {
    Run *run; /* [PRECISIONS], of which the first `count` are there */
    int count;
    int64_t steps, n_whole, n_part;
} Amp;

/* ---- Measuring ------------------------------------------------------------------------------------------------------ */

/* Can the device of the first run do that? Nothing is known of it before. */
static bool precision_possible(const Amp *amp, const char *name)
{
    Error refused = {0};
    Precision p;
    return amp->count == 0 ||
           (precision_parse(name, &p, &refused) && precision_check(&p, &amp->run[0].bench.trainer.model.ctx.target, &refused));
}

static bool run_plan(Amp *amp, const char *name, int argc, char **argv, Error *e)
{
    Run *r = &amp->run[amp->count];
    TrainOptions *o = &r->bench.trainer.options;
    if (!bench_settings(&r->bench, argc, argv, e))
        return false;
    if (strcmp(o->precision, train_options_default().precision) != 0 || o->param_dtype[0] || o->master_dtype[0] ||
        o->grad_dtype[0] || o->act_dtype[0] || o->resid_dtype[0] || o->m_dtype[0] || o->v_dtype[0])
        return error_usage(e, "precision: bench amp runs them all; tally bench times one, and roles set alone");
    strcpy(o->precision, name);
    r->name = name;
    amp->steps = o->max_iters;
    amp->count++;
    return bench_plan(&r->bench, amp->steps, e);
}

static bool amp_plan(Amp *amp, int argc, char **argv, Error *e)
{
    amp->run = memory_get(e, PRECISIONS, sizeof *amp->run, "the runs");
    for (int i = 0; amp->run && i < PRECISIONS; i++)
        if (precision_possible(amp, names[i]) && !run_plan(amp, names[i], argc, argv, e))
            return false;
    return amp->run != NULL;
}

/* All runs are in memory at once. */
static bool amp_fits(const Amp *amp, Error *e)
{
    double bytes = 0;
    const Room *room = &amp->run[0].bench.trainer.room;
    BytesText a, b;
    for (int i = 0; i < amp->count; i++) {
        const Trainer *t = &amp->run[i].bench.trainer;
        bytes += setting_of(&t->model, t->options.gradient_accumulation_steps, room).bytes;
    }
    return bytes <= room->bytes ||
           error_usage(e, "%d runs at once need %s, more than the %s %s; take a smaller model or batch_size", amp->count,
                       bytes_text(a, bytes), bytes_text(b, room->bytes), room->what);
}

static bool run_begin(const Amp *amp, Run *r, Error *e)
{
    if (!trainer_begin(&r->bench.trainer, e) ||
        !(r->whole = memory_get(e, (size_t)amp->steps, (1 + CLASS_COUNT) * sizeof *r->whole, "step times")))
        return false;
    for (int i = 0; i < CLASS_COUNT; i++)
        r->part[i] = r->whole + (1 + i) * amp->steps;
    return true;
}

/* The step of round i, counted from 0. */
static bool run_step(Amp *amp, Run *r, int64_t i, Error *e)
{
    OpTimes times = {0};
    double seconds;
    bool by_op = i > 0 && i % 2 == 0;
    if (!bench_step(&r->bench, by_op ? &times : NULL, &seconds, e))
        return false;
    if (by_op)
        for (int op = 0; op < OP_COUNT; op++)
            r->part[class_of((OpId)op)][i / 2 - 1] += times.seconds[op];
    else if (i > 0)
        r->whole[i / 2] = seconds;
    const Trainer *t = &r->bench.trainer;
    r->loss = t->step.loss_sum / (double)t->batch.counted;
    amp->n_whole = (i + 1) / 2;
    amp->n_part = i / 2;
    return true;
}

static bool amp_measure(Amp *amp, Error *e)
{
    for (int r = 0; r < amp->count; r++)
        if (!run_begin(amp, &amp->run[r], e))
            return false;
    for (int64_t i = 0; i < amp->steps; i++)
        for (int r = 0; r < amp->count; r++)
            if (!run_step(amp, &amp->run[r], i, e))
                return false;
    for (int r = 0; r < amp->count; r++) {
        Run *run = &amp->run[r];
        run->median = bench_median(run->whole, amp->n_whole);
        for (int i = 0; i < CLASS_COUNT; i++)
            run->class_median[i] = bench_median(run->part[i], amp->n_part);
    }
    return true;
}

/* ---- Amdahl's law --------------------------------------------------------------------------------------------------- */

typedef struct Speedup {
    double part[CLASS_COUNT], predicted, measured, gemm_alone, gemm_free;
} Speedup;

static Speedup speedup_of(const Run *base, const Run *r)
{
    Speedup s = {.measured = base->median / r->median};
    double before = 0, after = 0, gemm = base->class_median[CLASS_GEMM];
    for (int i = 0; i < CLASS_COUNT; i++)
        before += base->class_median[i];
    for (int i = 0; i < CLASS_COUNT; i++) {
        s.part[i] = base->class_median[i] / r->class_median[i];
        after += base->class_median[i] / before / s.part[i];
    }
    s.predicted = 1 / after;
    s.gemm_alone = before / (before - gemm + gemm / s.part[CLASS_GEMM]);
    s.gemm_free = before / (before - gemm);
    return s;
}

/* ---- Results -------------------------------------------------------------------------------------------------------- */

static void amp_print(const Amp *amp)
{
    const Trainer *t = &amp->run[0].bench.trainer;
    const TrainOptions *o = &t->options;
    printf("%s, %.2fM parameters, B %lld x T %lld x %lld, seed %lld, on %s\n", bench_model(&amp->run[0].bench),
           (double)model_parameters(&t->model) / 1e6, (long long)o->batch_size, (long long)o->block_size,
           (long long)o->gradient_accumulation_steps, (long long)o->seed, t->model.ctx.target.name);
    printf("%lld steps in each precision, in turns: 1 to warm up, %lld timed whole, %lld op by op; loss of the last, on %s\n\n",
           (long long)amp->steps, (long long)amp->n_whole, (long long)amp->n_part, o->data[0] ? o->data : "random tokens");
    printf("  %-10s %9s %9s %9s %10s %7s | ms: %7s %10s %9s %10s\n", "", "ms median", "least", "most", "tokens/s", "loss", "gemm",
           "attention", "memory", "optimizer");
    for (int i = 0; i < amp->count; i++) {
        const Run *r = &amp->run[i];
        printf("  %-10s %9.2f %9.2f %9.2f %10.0f %7.4f |     %7.2f %10.2f %9.2f %10.2f\n", r->name, 1e3 * r->median,
               1e3 * r->whole[0], 1e3 * r->whole[amp->n_whole - 1], step_tokens(&r->bench.trainer) / r->median, r->loss,
               1e3 * r->class_median[CLASS_GEMM], 1e3 * r->class_median[CLASS_ATTENTION], 1e3 * r->class_median[CLASS_MEMORY],
               1e3 * r->class_median[CLASS_OPTIMIZER]);
    }
    for (int i = 0; i < amp->count; i++)
        if (amp->run[i].bench.trainer.state.skips)
            printf("  (%s: %lld steps skipped, for a gradient that was not finite)\n", amp->run[i].name,
                   (long long)amp->run[i].bench.trainer.state.skips);
}

static void memory_print(const Amp *amp)
{
    printf("\n  %-22s", "MiB");
    for (int i = 0; i < amp->count; i++)
        printf(" %10s", amp->run[i].name);
    for (int category = 0; category <= CATEGORY_COUNT; category++) { /* the last row: the arenas, gaps and all */
        size_t most = 0, bytes[PRECISIONS];
        for (int i = 0; i < amp->count; i++) {
            const Plan *p = &amp->run[i].bench.trainer.model.plan;
            bytes[i] = category < CATEGORY_COUNT ? p->category_bytes[category] : plan_total_bytes(p);
            most = bytes[i] > most ? bytes[i] : most;
        }
        if (most)
            printf("\n  %-22s", category < CATEGORY_COUNT ? category_name((Category)category) : "total");
        for (int i = 0; most && i < amp->count; i++)
            printf(" %10.2f", (double)bytes[i] / 0x1p20);
    }
    printf("\n");
}

static void amdahl_print(const Amp *amp)
{
    printf("\n  %-10s %7s %10s %9s %10s | step: %9s %9s %11s %10s\n", "x as fast", "gemm", "attention", "memory", "optimizer",
           "predicted", "measured", "gemm alone", "gemm free");
    for (int i = 1; i < amp->count; i++) {
        Speedup s = speedup_of(&amp->run[0], &amp->run[i]);
        printf("  %-10s %7.2f %10.2f %9.2f %10.2f |       %9.2f %9.2f %11.2f %10.2f\n", amp->run[i].name, s.part[CLASS_GEMM],
               s.part[CLASS_ATTENTION], s.part[CLASS_MEMORY], s.part[CLASS_OPTIMIZER], s.predicted, s.measured, s.gemm_alone,
               s.gemm_free);
    }
    printf("  (predicted: by Amdahl's law from the classes; gemm alone: were only the GEMMs faster; gemm free: took they no "
           "time)\n");
}

static json_t *classes_json(const double value[CLASS_COUNT], double unit)
{
    json_t *object = json_object();
    for (int i = 0; i < CLASS_COUNT; i++)
        json_object_set_new(object, class_names[i], json_real(unit * value[i]));
    return object;
}

static json_t *run_json(const Amp *amp, const Run *r)
{
    const Model *m = &r->bench.trainer.model;
    const Precision *p = &m->run.precision;
    PrecisionText types;
    json_t *memory = json_object();
    for (int i = 0; i < CATEGORY_COUNT; i++)
        json_object_set_new(memory, category_name((Category)i), json_integer((json_int_t)m->plan.category_bytes[i]));
    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:o, s:o, s:I, s:o, s:I}", "precision", r->name, "types",
                     precision_text(types, p), "gemm_type", dtype_name(precision_gemm(p, &m->ctx.target)), "ms_median",
                     1e3 * r->median, "ms_min", 1e3 * r->whole[0], "ms_max", 1e3 * r->whole[amp->n_whole - 1], "tokens_per_s",
                     step_tokens(&r->bench.trainer) / r->median, "classes", classes_json(r->class_median, 1e3), "memory", memory,
                     "total_bytes", (json_int_t)plan_total_bytes(&m->plan), "loss", json_number(r->loss), "skipped",
                     (json_int_t)r->bench.trainer.state.skips);
}

static bool amp_print_json(const Amp *amp, Error *e)
{
    const Bench *first = &amp->run[0].bench;
    const TrainOptions *o = &first->trainer.options;
    json_t *runs = json_array(), *amdahl = json_array();
    for (int i = 0; i < amp->count; i++)
        json_array_append_new(runs, run_json(amp, &amp->run[i]));
    for (int i = 1; i < amp->count; i++) {
        Speedup s = speedup_of(&amp->run[0], &amp->run[i]);
        json_array_append_new(amdahl, json_pack("{s:s, s:f, s:f, s:f, s:f, s:o}", "precision", amp->run[i].name, "predicted",
                                                s.predicted, "measured", s.measured, "gemm_alone", s.gemm_alone, "gemm_free",
                                                s.gemm_free, "classes", classes_json(s.part, 1)));
    }
    json_t *settings =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:s}", "batch_size", (json_int_t)o->batch_size, "block_size",
                  (json_int_t)o->block_size, "gradient_accumulation_steps", (json_int_t)o->gradient_accumulation_steps, "steps",
                  (json_int_t)amp->steps, "seed", (json_int_t)o->seed, "data", o->data[0] ? json_string(o->data) : json_null(),
                  "threads", (json_int_t)first->trainer.model.ctx.target.threads, "target", first->trainer.model.ctx.target.name);
    json_t *object = json_pack("{s:s, s:o, s:o, s:o}", "model", bench_model(first), "settings", settings, "precisions", runs,
                               "amdahl", amdahl);
    return json_print(object, e);
}

static bool amp_run(Amp *amp, int argc, char **argv, Error *e)
{
    if (!amp_plan(amp, argc, argv, e))
        return false;
    if (amp->steps < 3)
        return error_usage(e, "max_iters: is %lld; needs to be 3 or more: a step to warm up, one timed whole, one op by op",
                           (long long)amp->steps);
    if (!amp_fits(amp, e) || !amp_measure(amp, e))
        return false;
    if (amp->run[0].bench.trainer.options.json)
        return amp_print_json(amp, e);
    amp_print(amp);
    memory_print(amp);
    amdahl_print(amp);
    return true;
}

bool bench_amp_command(int argc, char **argv, Error *e)
{
    Amp amp = {0};
    bool ok = amp_run(&amp, argc, argv, e);
    for (int i = 0; amp.run && i < PRECISIONS; i++) {
        bench_close(&amp.run[i].bench);
        free(amp.run[i].whole);
    }
    free(amp.run);
    return ok;
}
