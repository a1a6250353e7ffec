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

/* Set by SIGINT, SIGTERM and SIGHUP: the step in progress is finished, the run saved. A second SIGINT or SIGTERM ends the process
 * at once; of a terminal that goes away several SIGHUPs may come. */
static volatile sig_atomic_t stop_asked;

static void stop_ask(int signal_number)
{
    stop_asked = 1;
    if (signal_number != SIGHUP)
        signal(signal_number, SIG_DFL);
}

/* A run outlives who reads its lines (a pipe) and, when asked to (nohup), its terminal. */
static void signals_catch(void)
{
    signal(SIGINT, stop_ask);
    signal(SIGTERM, stop_ask);
    if (signal(SIGHUP, stop_ask) == SIG_IGN)
        signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

/* ---- A step, given to the device ------------------------------------------------------------------------------------ */

/* The micro-batch to the model. A device with a queue for copies gets it into the place that is not in use, while it computes on
 * the one before. */
static void micro_batch_send(Trainer *t, int64_t micro)
{
    Model *m = &t->model;
    bool two = tensor_present(m->next_tokens);
    Ctx *c = two ? &t->copier : &m->ctx;
    int64_t offset = micro * m->run.batch_size * m->run.block_size;
    copy_in(c, two ? m->next_tokens : m->tokens, t->batch.tokens + offset);
    copy_in(c, two ? m->next_targets : m->targets, t->batch.targets + offset);
    if (!two)
        return;
    t->device->follow(&m->ctx, c); /* the ops to come wait for these copies, */
    t->device->follow(c, &m->ctx); /* and the copies to come for the ops so far: they go where those read */
    model_batch_turn(m);
    t->place = !t->place;
}

static void pass_record(Trainer *t, int which, void (*pass)(Model *))
{
    t->device->record_begin(&t->model.ctx);
    pass(&t->model);
    t->recording[which] = t->device->record_end(&t->model.ctx);
}

/* Records the passes of a step, once a step has run without: all that changes from step to step lies in memory. */
static void passes_record(Trainer *t)
{
    for (int i = 0; i < 2; i++) {
        pass_record(t, RECORDED_MICRO + t->place, model_forward_backward);
        model_batch_turn(&t->model);
        t->place = !t->place;
    }
    pass_record(t, RECORDED_UPDATE, model_update);
}

/* Replays what is recorded of a pass, unless somebody looks at its ops. */
static void pass_run(Trainer *t, int which, void (*pass)(Model *))
{
    Model *m = &t->model;
    if (t->recording[which] && !m->watch && !m->ctx.times)
        t->device->replay(&m->ctx, t->recording[which]);
    else
        pass(m);
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

static bool step_give(Trainer *t, Error *e)
{
    Model *m = &t->model;
    StepFlight *f = &t->flight[t->given % 2];
    const Device *d = t->device;
    bool watched = due(t->options.grad_stats, t->given + 1, t->options.max_iters);
    f->begun = clock_seconds();
    if (!batch_take(t, e))
        return false;
    f->waited = clock_seconds() - f->begun;
    f->batch = t->batch;
    f->loader_position = t->options.overfit ? 0 : loader_position(t->loader);
    *f->state = (StepState){.seed = (uint64_t)t->options.seed,
                            .step = t->given,
                            .learning_rate = (float)schedule_rate(&t->schedule, t->given),
                            .inverse_count = t->batch.counted ? (float)(1.0 / (double)t->batch.counted) : 0};
    if (d->record_begin && !t->options.no_graph && t->warm && !m->ctx.times && !t->recording[RECORDED_UPDATE])
        passes_record(t);
    step_state_send(t, f->state);
    model_gradients_zero(m);
    if (watched)
        grad_stats_begin(&t->grad_stats);
    for (int64_t micro = 0; micro < t->batch.micro_batches; micro++) {
        micro_batch_send(t, micro);
        pass_run(t, RECORDED_MICRO + t->place, model_forward_backward);
    }
    pass_run(t, RECORDED_UPDATE, model_update);
    copy_out(&m->ctx, f->state, m->state);
    if (d->mark)
        d->mark(&m->ctx, (int)(t->given % 2));
    if (watched)
        grad_stats_end(&t->grad_stats);
    t->warm = true;
    t->given++;
    return true;
}

/* May the device have the next step before the results of the one it is at have been read? Not when they decide about the next
 * one, or something between the two wants the model as it is then. */
static bool runs_ahead(const Trainer *t)
{
    const TrainOptions *o = &t->options;
    int64_t step = t->given;
    bool between = (t->validates && due(o->eval_interval, step, o->max_iters)) || due(o->sample_interval, step, o->max_iters) ||
                   due(o->checkpoint_interval, step, o->max_iters) || due(o->grad_stats, step, o->max_iters);
    return t->device->mark && step < o->max_iters && !between && !stop_asked && t->state.skips_in_a_row < o->max_skips;
}

/* ---- Its results ---------------------------------------------------------------------------------------------------- */

/* Which tensor of this step was the first to be non-finite: each micro-batch once more. */
static bool diagnose(Trainer *t, Error *e)
{
    char text[400] = "";
    bool found = false;
    for (int64_t micro = 0; micro < t->batch.micro_batches && !found; micro++) {
        t->step.micro = (int32_t)micro;
        step_state_send(t, &t->step);
        micro_batch_send(t, micro);
        found = nonfinite_find(&t->model, text, sizeof text);
    }
    return error_set(e, "step %lld: the gradient has not been finite for %lld steps in a row; %s", (long long)t->state.iter,
                     (long long)t->state.skips_in_a_row, text);
}

/* Waits for the results of the step that was given first, and moves the counters on. */
static bool step_read(Trainer *t, Error *e)
{
    TrainState *s = &t->state;
    const StepFlight *f = &t->flight[s->iter % 2];
    if (t->device->wait)
        t->device->wait(&t->model.ctx, (int)(s->iter % 2));
    if (e->set)
        return false;
    Scaler before = t->step.scaler;
    t->step = *f->state;
    t->batch = f->batch;
    bool skipped = t->step.nonfinite != 0;
    s->iter++;
    s->adam_t = t->step.adam_t;
    s->loader_position = f->loader_position;
    s->tokens += t->batch.counted;
    s->skips += skipped;
    s->skips_in_a_row =
        skipped && !scaler_can_shrink(&before) ? s->skips_in_a_row + 1 : 0; /* else it is how the scale feels its way */
    t->step_scale = before.scale;
    s->loss_scale = (double)t->step.scaler.scale;
    s->scaler_good = t->step.scaler.good;
    return true;
}

bool trainer_step(Trainer *t, Error *e)
{
    return step_give(t, e) && step_read(t, e);
}

static bool save(Trainer *t, Error *e)
{
    t->saved_iter = t->state.iter;
    return checkpoint_save(t->options.out_dir, &t->model, &t->state, t->settings, t->meta_text, t->options.keep, e);
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

/* The step that has just been read. Where the next one follows without a pause, it took the time from result to result. */
static LogStep step_describe(Trainer *t)
{
    const StepFlight *f = &t->flight[(t->state.iter - 1) % 2];
    double tokens = (double)t->batch.counted, now = clock_seconds(), seconds = now - fmax(f->begun, t->read_at);
    t->read_at = now;
    LogStep line = {.step = t->state.iter,
                    .steps = t->options.max_iters,
                    .loss = tokens > 0 ? t->step.loss_sum / tokens : 0,
                    .floor = t->floor[SPLIT_TRAIN],
                    .val_floor = t->floor[SPLIT_VAL],
                    .learning_rate = (double)t->step.learning_rate,
                    .grad_norm = t->step.grad_norm,
                    .seconds = seconds,
                    .wait_seconds = f->waited,
                    .tokens_per_s = tokens / seconds,
                    .loss_scale = t->step.scaler.dynamic ? (double)t->step_scale : 0,
                    .grad_stats = due(t->options.grad_stats, t->state.iter, t->options.max_iters) ? &t->grad_stats : NULL,
                    .skipped = t->step.nonfinite != 0};
    double peak = t->gemm_peak;
    line.mfu = trainer_mfu(t, line.tokens_per_s);
    if (t->gemm_peak != peak)
        printf("The GEMM peak is %.1f GFLOP/s, not the %.1f that were measured while the machine was busy.\n", t->gemm_peak / 1e9,
               peak / 1e9);
    return line;
}

/* Has all been loaded and built that a run needs? From then on nothing is allocated. */
static bool is_warm(const Trainer *t)
{
    bool records = t->device->record_begin && !t->options.no_graph;
    return !records || t->recording[RECORDED_UPDATE] || t->state.iter == t->options.max_iters;
}

/* Looks at the memory, the first time beside what was planned, and at a GPU as often as asked. */
static void machine_look(Trainer *t, LogStep *line)
{
    const TrainOptions *o = &t->options;
    Resident resident;
    bool gpu = t->device->memory_free != NULL, first = !t->looked && is_warm(t);
    if (gpu && (first || due(o->nvml_interval ? o->nvml_interval : o->log_interval, t->state.iter, o->max_iters)) && is_warm(t)) {
        gpu_watch_look(&t->gpu, &t->model, (double)t->state.tokens);
        line->gpu = &t->gpu;
    }
    if (first && gpu)
        gpu_ledger_print(stdout, &t->gpu.ledger);
    else if (first && resident_read(&resident, &t->model))
        resident_print(stdout, &resident, &t->model);
    fflush(stdout);
    t->looked |= first;
}

static bool train(Trainer *t, Error *e)
{
    const TrainOptions *o = &t->options;
    while ((t->state.iter < o->max_iters && !stop_asked) || t->given > t->state.iter) {
        Error later = {0}; /* what keeps the next step from running ahead is told when its turn comes */
        if (t->given == t->state.iter && !step_give(t, e))
            return false;
        if (runs_ahead(t))
            step_give(t, &later);
        if (!step_read(t, e))
            return false;
        LogStep line = step_describe(t);
        machine_look(t, &line);
        if (!between_steps(t, &line, e))
            return false;
    }
    if (t->saved_iter != t->state.iter && !save(t, e))
        return false;
    if (t->looked && t->device->memory_free) {
        BytesText remainder;
        gpu_watch_look(&t->gpu, &t->model, (double)t->state.tokens);
        printf("Memory of the GPU at the end: remainder %s\n", bytes_text(remainder, t->gpu.ledger.remainder));
    }
    if (stop_asked)
        printf("Stopped after step %lld; saved. Go on with: tally train --out-dir %s --resume\n", (long long)t->state.iter,
               o->out_dir);
    else
        printf("Done after step %lld; skipped because the gradient was not finite: %lld.\n", (long long)t->state.iter,
               (long long)t->state.skips);
    return true;
}

bool train_command(int argc, char **argv, Error *e)
{
    Trainer t;
    memset(&t, 0, sizeof t);
    signals_catch();
    bool ok = trainer_open(&t, argc, argv, e) && train(&t, e);
    trainer_close(&t);
    return ok;
}
