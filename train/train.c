/* The training loop: one optimizer step after the other, and between them what is due. */
#include "train/train.h"
#include "train/diagnose.h"
#include "train/trainer.h"

#include "base/clock.h"
#include "model/ledger.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Set by SIGINT and SIGTERM: the step in progress is finished, the run saved. A second signal ends the process at once. */
static volatile sig_atomic_t stop_asked;

static void stop_ask(int signal_number)
{
    stop_asked = 1;
    signal(signal_number, SIG_DFL);
}

static void micro_batch_send(Trainer *t, int64_t micro)
{
    Model *m = &t->model;
    int64_t offset = micro * m->run.batch_size * m->run.block_size;
    copy_in(&m->ctx, m->tokens, t->batch.tokens + offset);
    copy_in(&m->ctx, m->targets, t->batch.targets + offset);
}

/* The next step's data; --overfit stays at the first. */
static bool batch_take(Trainer *t, Error *e)
{
    bool stay = t->options.overfit && t->batch.tokens;
    return stay || loader_next(t->loader, &t->batch, e);
}

static bool due(int64_t interval, int64_t step, int64_t last)
{
    return interval > 0 && (step % interval == 0 || step == last);
}

static void step_compute(Trainer *t)
{
    Model *m = &t->model;
    bool watched = due(t->options.grad_stats, t->state.iter + 1, t->options.max_iters);
    t->step.step = t->state.iter;
    t->step.micro = 0;
    t->step.learning_rate = (float)schedule_rate(&t->schedule, t->state.iter);
    t->step.inverse_count = t->batch.counted ? (float)(1.0 / (double)t->batch.counted) : 0;
    t->step.loss_sum = 0;
    t->step.loss_scale = (float)t->scaler.scale;
    step_state_send(t);
    model_gradients_zero(m);
    if (watched)
        grad_stats_begin(&t->grad_stats);
    for (int64_t micro = 0; micro < t->batch.micro_batches; micro++) {
        micro_batch_send(t, micro);
        model_forward_backward(m);
    }
    model_update(m);
    step_state_fetch(t);
    if (watched)
        grad_stats_end(&t->grad_stats);
}

/* Which tensor of this step was the first to be non-finite: each micro-batch once more. */
static bool diagnose(Trainer *t, Error *e)
{
    char text[400] = "";
    bool found = false;
    for (int64_t micro = 0; micro < t->batch.micro_batches && !found; micro++) {
        t->step.micro = (int32_t)micro;
        step_state_send(t);
        micro_batch_send(t, micro);
        found = nonfinite_find(&t->model, text, sizeof text);
    }
    return error_set(e, "step %lld: the gradient has not been finite for %lld steps in a row; %s", (long long)t->state.iter,
                     (long long)t->state.skips_in_a_row, text);
}

/* Moves the counters on after a step. */
static void step_account(Trainer *t)
{
    TrainState *s = &t->state;
    bool skipped = t->step.nonfinite != 0;
    s->iter++;
    s->adam_t = t->step.adam_t;
    s->loader_position = t->options.overfit ? 0 : loader_position(t->loader);
    s->tokens += t->batch.counted;
    s->skips += skipped;
    s->skips_in_a_row =
        skipped && !scaler_can_shrink(&t->scaler) ? s->skips_in_a_row + 1 : 0; /* else it is how the scale feels its way */
    scaler_update(&t->scaler, skipped);
    s->loss_scale = t->scaler.scale;
    s->scaler_good = t->scaler.good;
}

bool trainer_step(Trainer *t, Error *e)
{
    if (!batch_take(t, e))
        return false;
    step_compute(t);
    if (!e->set)
        step_account(t);
    return !e->set;
}

static bool save(Trainer *t, Error *e)
{
    t->saved_iter = t->state.iter;
    return checkpoint_save(t->options.out_dir, &t->model, &t->state, t->settings, t->meta, t->options.keep, e);
}

/* After step state->iter: evaluation, log, sample, checkpoint. */
static bool between_steps(Trainer *t, LogStep *line, Error *e)
{
    const TrainOptions *o = &t->options;
    TrainState *s = &t->state;
    bool best = false;
    if (t->validates && due(o->eval_interval, s->iter, o->max_iters)) {
        if (!trainer_evaluate(t, &line->val_loss, e))
            return false;
        line->evaluated = true;
        best = line->val_loss < s->best_loss;
        if (best) {
            s->best_loss = line->val_loss;
            s->best_iter = s->iter;
        }
    }
    if (!log_step(&t->log, line, e))
        return false;
    if (s->skips_in_a_row > o->max_skips)
        return diagnose(t, e);
    if (due(o->sample_interval, s->iter, o->max_iters) && !trainer_sample(t, e))
        return false;
    bool wanted = due(o->checkpoint_interval, s->iter, o->max_iters) || (best && o->checkpoint_interval > 0);
    return !wanted || save(t, e);
}

static LogStep step_describe(Trainer *t, double seconds, double waited)
{
    double tokens = (double)t->batch.counted;
    LogStep line = {.step = t->state.iter,
                    .steps = t->options.max_iters,
                    .loss = tokens > 0 ? t->step.loss_sum / tokens : 0,
                    .floor = t->floor[SPLIT_TRAIN],
                    .val_floor = t->floor[SPLIT_VAL],
                    .learning_rate = (double)t->step.learning_rate,
                    .grad_norm = t->step.grad_norm,
                    .seconds = seconds,
                    .wait_seconds = waited,
                    .tokens_per_s = tokens / seconds,
                    .loss_scale = t->scaler.dynamic ? (double)t->step.loss_scale : 0,
                    .grad_stats = due(t->options.grad_stats, t->state.iter, t->options.max_iters) ? &t->grad_stats : NULL,
                    .skipped = t->step.nonfinite != 0};
    double peak = t->gemm_peak;
    line.mfu = trainer_mfu(t, line.tokens_per_s);
    if (t->gemm_peak != peak)
        printf("The GEMM peak is %.1f GFLOP/s, not the %.1f that were measured while the machine was busy.\n", t->gemm_peak / 1e9,
               peak / 1e9);
    return line;
}

/* What the memory really holds, beside what was planned. */
static void memory_print(const Model *m)
{
    Resident resident;
    if (m->ctx.device->memory_free)
        device_memory_print(stdout, m);
    else if (resident_read(&resident, m))
        resident_print(stdout, &resident, m);
    fflush(stdout);
}

static bool train(Trainer *t, Error *e)
{
    const TrainOptions *o = &t->options;
    bool first = true;
    while (t->state.iter < o->max_iters && !stop_asked) {
        double start = clock_seconds(), waited = loader_wait_seconds(t->loader);
        if (!trainer_step(t, e))
            return false;
        double now = clock_seconds();
        LogStep line = step_describe(t, now - start, loader_wait_seconds(t->loader) - waited);
        if (first)
            memory_print(&t->model);
        first = false;
        if (!between_steps(t, &line, e))
            return false;
    }
    if (t->saved_iter != t->state.iter && !save(t, e))
        return false;
    if (stop_asked)
        printf("Stopped after step %lld; saved. Go on with: tally train --out-dir %s --resume\n", (long long)t->state.iter,
               o->out_dir);
    else
        printf("Done after step %lld; skipped because the gradient was not finite: %lld.\n", (long long)t->state.iter,
               (long long)t->state.skips);
    return true;
}

int train_main(int argc, char **argv)
{
    Error e = {0};
    Trainer t;
    memset(&t, 0, sizeof t);
    signal(SIGINT, stop_ask);
    signal(SIGTERM, stop_ask);
    bool ok = trainer_open(&t, argc, argv, &e) && train(&t, &e);
    trainer_close(&t);
    if (!ok)
        fprintf(stderr, "tally train: %s\n", e.text);
    return ok ? 0 : e.usage ? 2 : 1;
}
