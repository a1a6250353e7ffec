/* From a command line to a model in memory that is about to take its first step. */
#include "train/peak.h"
#include "train/trainer.h"

#include "base/clock.h"
#include "base/json.h"
#include "model/ledger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Settings and plan --------------------------------------------------------------------------------------------- */

static bool tokenizer_open(Trainer *t, Error *e)
{
    if (!t->options.data[0])
        return true;
    if (!path_join(t->meta, t->options.data, "meta.json", e))
        return false;
    if (!file_exists(t->meta))
        return true;
    t->tokenizer = data_meta_read(t->meta, &t->facts, &t->meta_text, e);
    return t->tokenizer != NULL;
}

/* A resumed run has the checkpoint's model: flags may not change its shape. */
static bool same_model(const ModelConfig *have, const ModelConfig *asked, Error *e)
{
    struct {
        const char *name;
        int64_t have, asked;
    } fields[] = {{"n_layer", have->n_layer, asked->n_layer},
                  {"n_head", have->n_head, asked->n_head},
                  {"n_embd", have->n_embd, asked->n_embd},
                  {"vocab_size", have->vocab_size, asked->vocab_size},
                  {"vocab_multiple", have->vocab_multiple, asked->vocab_multiple},
                  {"bias", have->bias, asked->bias}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].have != fields[i].asked)
            return error_usage(e, "%s: the checkpoint's model has %lld, asked for is %lld; a resumed run keeps its model",
                               fields[i].name, (long long)fields[i].have, (long long)fields[i].asked);
    return true;
}

static bool config_choose(Trainer *t, ModelConfig *config, Error *e)
{
    TrainOptions *o = &t->options;
    const char *from = t->checkpoint[0] ? t->checkpoint : o->init_from;
    const char *before = json_string_value(json_object_get(json_object_get(t->resumed, "settings"), "model"));
    if (before && strcmp(before, o->model) != 0)
        return error_usage(e, "model: is %s, and was %s in %s; a resumed run keeps its model", o->model, before, t->checkpoint);
    bool ok = from[0] ? model_config_load(from, config, e) : model_config_preset(o->model, config, e);
    if (!ok)
        return false;
    ModelConfig base = *config;
    if (!from[0]) { /* a new model takes its context from the batch, and its vocabulary from the data */
        config->block_size = o->block_size ? o->block_size : config->block_size;
        config->vocab_size = t->tokenizer ? tokenizer_vocab_size(t->tokenizer) : config->vocab_size;
    }
    train_options_model(o, config);
    if (from[0] && !same_model(&base, config, e))
        return false;
    if (t->tokenizer && config->vocab_size < tokenizer_vocab_size(t->tokenizer))
        return error_usage(e, "vocab_size: the model has %lld, the data's tokenizer %lld", (long long)config->vocab_size,
                           (long long)tokenizer_vocab_size(t->tokenizer));
    o->block_size = o->block_size ? o->block_size : config->block_size;
    return true;
}

bool trainer_settings(Trainer *t, int *lock, int argc, char **argv, Error *e)
{
    if (!train_options_parse(&t->options, argc, argv, lock, t->checkpoint, &t->resumed, e))
        return false;
    t->settings = train_options_to_json(&t->options); /* as asked for: what is derived is derived again on resuming */
    return true;
}

/* The options, and what is stored of them, become what --fit chooses. */
static bool fit_take(Trainer *t, Error *e)
{
    TrainOptions *o = &t->options;
    Setting *s = &t->fitted;
    if (!fit_choose(s, &t->model, o->gradient_accumulation_steps, &t->room, e))
        return false;
    o->batch_size = s->batch_size;
    o->gradient_accumulation_steps = s->accumulation;
    o->recompute_every = s->recompute_every;
    strcpy(o->recompute, recompute_name(s->recompute));
    json_object_set_new(t->settings, "batch_size", json_integer(o->batch_size));
    json_object_set_new(t->settings, "gradient_accumulation_steps", json_integer(o->gradient_accumulation_steps));
    json_object_set_new(t->settings, "recompute_every", json_integer(o->recompute_every));
    json_object_set_new(t->settings, "recompute", json_string(o->recompute));
    return true;
}

/* Is this a GPU that nobody asked for and that the plan does not fit? Then it is the CPU's, and its note says why. */
static bool cpu_take(Trainer *t, Target *target, Error *e)
{
    const TrainOptions *o = &t->options;
    BytesText needed, there;
    Error unfit = {0};
    if (target->kind != DEVICE_CUDA || strcmp(o->device, "auto") != 0 || o->fit || trainer_fits(t, &unfit))
        return false;
    char gpu[sizeof target->name];
    double bytes = t->room.bytes;
    strcpy(gpu, target->name);
    t->device = device_open("cpu", (int)o->threads, target, e);
    t->room = room_here(target, o->mem_cap);
    snprintf(target->note, sizeof target->note, "the plan needs %s of the GPU (%s), which has %s free",
             bytes_text(needed, (double)plan_total_bytes(&t->model.plan)), gpu, bytes_text(there, bytes));
    return true;
}

bool trainer_plan(Trainer *t, Error *e)
{
    TrainOptions *o = &t->options;
    ModelConfig config;
    ModelRun run;
    Target target;
    bool here = t->card.kind != DEVICE_CUDA && t->room.bytes <= 0; /* nobody plans for other memory */
    if (t->card.kind == DEVICE_CUDA)
        target = t->card;
    else
        t->device = device_open(o->device, (int)o->threads, &target, e);
    if (e->set || !tokenizer_open(t, e) || !config_choose(t, &config, e) || !train_options_run(o, &run, e))
        return false;
    if (t->room.bytes <= 0)
        t->room = room_here(&target, o->mem_cap);
    if (!model_plan(&t->model, &config, &run, &target, e))
        return false;
    if (here && cpu_take(t, &target, e)) {
        model_free(&t->model);
        return !e->set && model_plan(&t->model, &config, &run, &target, e);
    }
    if (!o->fit)
        return true;
    if (!fit_take(t, e) || !train_options_run(o, &run, e))
        return false;
    model_free(&t->model);
    return model_plan(&t->model, &config, &run, &target, e);
}

bool trainer_fits(const Trainer *t, Error *e)
{
    return fit_check(&t->model, t->options.gradient_accumulation_steps, &t->room, e);
}

void trainer_print_plan(FILE *out, const Trainer *t)
{
    SettingText flags;
    BytesText a, b;
    if (t->fitted.batch_size)
        fprintf(out, "Fit: %s: %s of the %s %s\n", setting_text(flags, &t->fitted), bytes_text(a, t->fitted.bytes),
                bytes_text(b, t->room.bytes), t->room.what);
    ledger_print(out, &t->model, t->options.gradient_accumulation_steps, t->options.verbose);
}

/* ---- Data ---------------------------------------------------------------------------------------------------------- */

/* What is known of a split beside its tokens: whether they are all there, where its documents are, and its floor. */
static bool split_open(Trainer *t, int split, TokenStream *s, Error *e)
{
    const TrainOptions *o = &t->options;
    int64_t said = t->facts.tokens[split];
    s->ignore_after = o->ignore_after_token;
    if (said && said != s->count)
        return error_set(e, "%s: has %lld tokens with what belongs to it, but %s says %lld; prepare the data again",
                         token_stream_name(s), (long long)s->count, t->meta, (long long)said);
    t->floor[split] = t->facts.nats[split] > 0 && s->ignore_after < 0 ? t->facts.nats[split] / (double)(s->count - 1) : NAN;
    if (!o->whole_documents)
        return true;
    if (t->facts.separator < 0)
        return error_usage(
            e, "whole_documents: %s has no meta.json that names a separator; `tally data prepare --separator` writes one",
            o->data);
    return document_windows_find(&t->documents[split], s, t->facts.separator, o->block_size, t->model.config.vocab_size, e);
}

/* Are the files that have been opened of one data set? `tally data prepare` takes meta.json away before it changes another
 * file, and writes the new one after the last. */
static bool meta_check(const Trainer *t, Error *e)
{
    char *now = NULL;
    size_t n;
    bool same = t->meta_text ? file_read_all(t->meta, JSON_FILE_LIMIT, &now, &n, &(Error){0}) && strcmp(now, t->meta_text) == 0
                             : !file_exists(t->meta);
    free(now);
    return same ||
           error_set(e, "%s: has changed while the data was opened; start again when `tally data prepare` has ended", t->meta);
}

static bool data_open(Trainer *t, Error *e)
{
    TrainOptions *o = &t->options;
    if (!t->meta_text)
        t->facts.separator = -1;
    if (!token_stream_open(&t->tokens, o->data, "train", e) || !split_open(t, SPLIT_TRAIN, &t->tokens, e))
        return false;
    t->validates = o->eval_interval > 0 && token_stream_present(o->data, "val");
    if (!t->validates)
        return meta_check(t, e);
    if (!token_stream_open(&t->validation, o->data, "val", e))
        return false;
    /* --data FILE names no splits: what one trains on does not validate */
    t->validates = strcmp(token_stream_name(&t->tokens), token_stream_name(&t->validation)) != 0;
    return (!t->validates || split_open(t, SPLIT_VAL, &t->validation, e)) && meta_check(t, e);
}

/* What samples begin with; refused now rather than at the first sample. */
static bool prompt_encode(Trainer *t, Error *e)
{
    const TrainOptions *o = &t->options;
    if (!o->sample_interval)
        return true;
    if (!t->tokenizer)
        return error_usage(e, "sample_interval: %s has no meta.json, so tokens cannot be shown as text", o->data);
    return tokenizer_encode_prompt(t->tokenizer, o->prompt, &t->prompt, &t->prompt_length, e);
}

static bool loader_open(Trainer *t, Error *e)
{
    TrainOptions *o = &t->options;
    LoaderConfig config = {.vocab_size = t->model.config.vocab_size,
                           .batch_size = o->batch_size,
                           .block_size = o->block_size,
                           .accumulate = o->gradient_accumulation_steps,
                           .world = 1,
                           .epochs = o->epochs,
                           .seed = (uint64_t)o->seed,
                           .documents = o->whole_documents ? &t->documents[SPLIT_TRAIN] : NULL,
                           .delay = 1e-3 * (double)o->loader_delay,
                           .kept = t->device->mark != NULL, /* the step before may still be copying */
                           .memory_take = t->device->host_take,
                           .memory_give = t->device->host_give};
    t->loader = loader_create(&t->tokens, &config, e);
    if (!t->loader || !loader_seek(t->loader, t->state.loader_position, e))
        return false;
    if (o->epochs)
        o->max_iters = t->state.iter + loader_steps_left(t->loader);
    t->evaluation = (EvaluationData){.stream = &t->validation,
                                     .vocab_size = config.vocab_size,
                                     .batch_size = o->batch_size,
                                     .block_size = o->block_size,
                                     .iters = o->eval_iters,
                                     .seed = (uint64_t)o->seed,
                                     .documents = o->whole_documents ? &t->documents[SPLIT_VAL] : NULL};
    t->evaluation_batch = memory_get(e, (size_t)(2 * o->batch_size * o->block_size), sizeof(int32_t), "an evaluation batch");
    return t->evaluation_batch && (!t->validates || evaluation_check(&t->evaluation, e));
}

/* ---- State and weights --------------------------------------------------------------------------------------------- */

/* An id means the same text to the checkpoint `dir` and to the data, where both say what it means. */
static bool same_tokenizer(const Trainer *t, const char *dir, Error *e)
{
    char path[PATH_SIZE];
    DataFacts unused;
    if (!path_join(path, dir, "meta.json", e))
        return false;
    if (!t->tokenizer || !file_exists(path))
        return true;
    Tokenizer *before = data_meta_read(path, &unused, NULL, e);
    json_t *a = before ? tokenizer_to_json(before, e) : NULL, *b = a ? tokenizer_to_json(t->tokenizer, e) : NULL;
    if (b && !json_equal(a, b))
        error_usage(e, "data: the tokens of %s mean something else than those of %s; prepare the text with the same tokenizer",
                    t->meta, path);
    json_decref(a);
    json_decref(b);
    tokenizer_destroy(before);
    return !e->set;
}

/* The place in the data means the same windows only with the same data, context and seed. */
static bool same_data(const Trainer *t, Error *e)
{
    const TrainOptions *o = &t->options;
    json_t *settings = json_object_get(t->resumed, "settings");
    struct {
        const char *name;
        int64_t saved, now;
    } fields[] = {{"seed", json_integer_value(json_object_get(settings, "seed")), o->seed},
                  {"block_size", t->state.block_size, o->block_size},
                  {"whole_documents", json_is_true(json_object_get(settings, "whole_documents")), o->whole_documents},
                  {"data: the number of tokens", t->state.data_tokens, t->tokens.count}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].saved != fields[i].now)
            return error_usage(e,
                               "%s: is %lld, and was %lld in %s; a resumed run goes on in the same order of the same data. For "
                               "another, start a new run with --init-from",
                               fields[i].name, (long long)fields[i].now, (long long)fields[i].saved, t->checkpoint);
    return true;
}

/* The scaler of a run with these options. */
static bool scaler_open(Scaler *s, const TrainOptions *o, Error *e)
{
    Precision p;
    if (!train_options_precision(o, &p, e))
        return false;
    *s = scaler_create(o->loss_scale, p.act == DTYPE_F16 || p.resid == DTYPE_F16);
    return true;
}

/* The scaler goes on from where it was, if there was one: the checkpoint may be of a run in another precision. */
static bool scaler_resume(Trainer *t, Error *e)
{
    TrainOptions *earlier = memory_get(e, 1, sizeof *earlier, "the checkpoint's settings");
    Scaler before = {0};
    if (!earlier)
        return false;
    *earlier = train_options_default();
    bool ok = train_options_from_json(earlier, json_object_get(t->resumed, "settings"), t->checkpoint, e) &&
              scaler_open(&before, earlier, e);
    if (ok && before.dynamic && t->step.scaler.dynamic) {
        t->step.scaler.scale = (float)t->state.loss_scale;
        t->step.scaler.good = (int32_t)t->state.scaler_good; /* below SCALER_INTERVAL: checkpoint.c */
    }
    free(earlier);
    return ok;
}

/* Where training stands before the first step. */
static bool state_open(Trainer *t, Error *e)
{
    const TrainOptions *o = &t->options;
    t->state = (TrainState){.data_tokens = t->tokens.count, .block_size = o->block_size, .best_loss = INFINITY, .best_iter = -1};
    t->saved_iter = -1;
    if (!scaler_open(&t->step.scaler, o, e))
        return false;
    t->state.loss_scale = (double)t->step.scaler.scale;
    if (!t->checkpoint[0])
        return !o->init_from[0] || same_tokenizer(t, o->init_from, e);
    if (!checkpoint_read_state(t->checkpoint, t->resumed, &t->state, e))
        return false;
    t->saved_iter = t->state.iter;
    return scaler_resume(t, e) && same_data(t, e) && same_tokenizer(t, t->checkpoint, e);
}

static bool weights_open(Trainer *t, Error *e)
{
    TrainOptions *o = &t->options;
    if (t->checkpoint[0])
        return checkpoint_load_weights(&t->model, t->checkpoint, e) && checkpoint_load_moments(&t->model, t->checkpoint, e);
    return o->init_from[0] ? checkpoint_load_weights(&t->model, o->init_from, e)
                           : model_initialize(&t->model, (uint64_t)o->seed, e);
}

bool trainer_data(Trainer *t, Error *e)
{
    bool given = t->options.data[0];
    return (!given || data_open(t, e)) && state_open(t, e) && (!given || loader_open(t, e)) &&
           train_options_resolve(&t->options, e);
}

/* ---- Tuning -------------------------------------------------------------------------------------------------------- */

/* A step on token 0 and an evaluation, for the times of their products; what they accumulate is zeroed before the first step. */
static bool tune(Trainer *t, Error *e)
{
    Model *m = &t->model;
    double begin = clock_seconds();
    int32_t *zeros = memory_get(e, (size_t)tensor_count(m->tokens), sizeof *zeros, "tuning");
    if (!zeros)
        return false;
    t->device->tune(true);
    step_state_send(t, &t->step);
    for (int pass = 0; pass < 2; pass++) {
        copy_in(&m->ctx, m->tokens, zeros);
        copy_in(&m->ctx, m->targets, zeros);
        pass == 0 ? model_forward_backward(m) : model_evaluate(m);
    }
    t->device->synchronize(&m->ctx);
    t->device->tune(false);
    free(zeros);
    printf("Tuned the matrix products in %.1f s.\n", clock_seconds() - begin);
    return !e->set;
}

/* The choices of the run that is resumed, and with --tune those that are still open. */
static bool tuning_open(Trainer *t, Error *e)
{
    char path[PATH_SIZE], note[TUNING_NOTE] = "";
    if (!t->device->tune)
        return !t->options.tune || error_usage(e, "tune: this device, %s, has one way to multiply matrices", t->device->name);
    if (t->checkpoint[0] && path_join(path, t->checkpoint, "gemm-tune.json", e) && file_exists(path)) {
        json_t *file = json_read(path, e);
        bool ok = file && (t->device->tuning_read(file, &t->model.ctx.target, note, e) || error_prefix(e, "%s", path));
        json_decref(file);
        if (!ok)
            return false;
        if (note[0])
            printf("%s %s.\n", path, note);
    }
    return !e->set && (!t->options.tune || tune(t, e));
}

bool trainer_begin(Trainer *t, Error *e)
{
    const TrainOptions *o = &t->options;
    if (!model_allocate(&t->model, t->device, e) || !weights_open(t, e))
        return false;
    t->schedule = (Schedule){.warmup = o->warmup_iters,
                             .end = o->lr_decay_iters,
                             .lr = o->learning_rate,
                             .min_lr = o->min_lr,
                             .decay = o->decay_fraction};
    t->step = (StepState){.seed = (uint64_t)o->seed, .adam_t = t->state.adam_t, .scaler = t->step.scaler};
    copy_in(&t->model.ctx, t->model.state, &t->step);
    t->given = t->state.iter;
    t->copier = t->model.ctx;
    if (t->device->queue)
        t->copier.stream = t->device->queue(QUEUE_COPY);
    for (int i = 0; i < 2; i++)
        if (!(t->flight[i].state = t->device->host_take(sizeof(StepState), "the numbers of a step", e)))
            return false;
    return schedule_kind_parse(o->schedule, &t->schedule.kind) && tuning_open(t, e);
}

/* ---- Peak ---------------------------------------------------------------------------------------------------------- */

static DType gemm_type(const Trainer *t)
{
    return precision_gemm(&t->model.run.precision, &t->model.ctx.target);
}

bool trainer_measure_peak(Trainer *t, Error *e)
{
    size_t (*free_bytes)(void) = t->device->memory_free;
    double before = free_bytes ? (double)free_bytes() : 0;
    t->gemm_peak = gemm_peak_measure(t->device, &t->model.ctx.target, gemm_type(t), e);
    t->gpu.libraries = free_bytes ? before - (double)free_bytes() : 0; /* the first product loads them */
    return !e->set;
}

double trainer_mfu(Trainer *t, double tokens_per_s)
{
    double rate = tokens_per_s * model_flops_per_token(&t->model);
    t->gemm_peak = gemm_peak_correct(t->gemm_peak, rate, t->device, &t->model.ctx.target, gemm_type(t));
    return rate / t->gemm_peak;
}

/* ---- Header and log ------------------------------------------------------------------------------------------------ */

/* The policy, how its matrices are multiplied, and how fast that can be at most. */
static void precision_print(const Trainer *t)
{
    const Precision *p = &t->model.run.precision;
    DType gemm = gemm_type(t);
    bool widened = gemm == DTYPE_F32 && (p->act != DTYPE_F32 || p->param != DTYPE_F32);
    PrecisionText text;
    printf("Precision: %s; GEMMs multiply %s%s, at %.1f GFLOP/s at most, measured", precision_text(text, p), dtype_name(gemm),
           widened ? " to which 16-bit operands are widened" : "", t->gemm_peak / 1e9);
    if (t->step.scaler.scale != 1.0f)
        printf("; loss scale %g%s", (double)t->step.scaler.scale, t->step.scaler.dynamic ? ", dynamic" : "");
    printf("\n");
}

/* How low a loss can be, and what keeps this run from it beside the model. */
static void floor_print(const Trainer *t)
{
    const DocumentWindows *d = &t->documents[SPLIT_TRAIN];
    if (isnan(t->floor[SPLIT_TRAIN]))
        return;
    printf("Floor: %.6f nats per token of the data to train on", t->floor[SPLIT_TRAIN]);
    if (t->validates)
        printf(", %.6f to validate", t->floor[SPLIT_VAL]);
    if (!t->options.whole_documents)
        printf("; out of reach, since windows begin inside documents: --whole-documents");
    else if (d->inside)
        printf("; out of reach, since %lld windows begin inside documents longer than %lld", (long long)d->inside,
               (long long)t->options.block_size);
    printf("\n");
}

static void header_print(const Trainer *t)
{
    const TrainOptions *o = &t->options;
    const ModelConfig *f = &t->model.config;
    BytesText total;
    printf("It fits: %s taken.\n", bytes_text(total, (double)plan_total_bytes(&t->model.plan)));
    if (t->model.ctx.target.note[0])
        printf("On the CPU: %s\n", t->model.ctx.target.note);
    else if (t->model.ctx.target.kind == DEVICE_CUDA)
        printf("On the GPU: %s%s\n", t->model.ctx.target.name, t->options.no_graph ? "" : ", steps as CUDA graphs");
    precision_print(t);
    printf("Model: %lld layers, %lld heads, %lld channels, context %lld, vocabulary %lld, dropout %g%s\n", (long long)f->n_layer,
           (long long)f->n_head, (long long)f->n_embd, (long long)f->block_size, (long long)f->vocab_size, f->dropout,
           f->bias ? "" : ", no biases");
    printf("Data: %s, %lld tokens to train on, %lld to validate; %lld windows an epoch\n", o->data, (long long)t->tokens.count,
           (long long)(t->validates ? t->validation.count : 0), (long long)loader_epoch_windows(t->loader));
    floor_print(t);
    printf("Run: steps %lld to %lld of %lld tokens (B %lld x T %lld x %lld), %s schedule %g to %g, warm-up %lld, seed %lld\n",
           (long long)t->state.iter, (long long)o->max_iters,
           (long long)(o->batch_size * o->block_size * o->gradient_accumulation_steps), (long long)o->batch_size,
           (long long)o->block_size, (long long)o->gradient_accumulation_steps, o->schedule, o->learning_rate, o->min_lr,
           (long long)o->warmup_iters, (long long)o->seed);
    if (t->checkpoint[0])
        printf("Resumed from %s\n", t->checkpoint);
    fflush(stdout);
}

/* What the plan depends on of a target, its kind and isa being the numbers that kernels/device.h gives them. */
static json_t *machine_json(const Target *t)
{
    return json_pack("{s:i, s:i, s:i, s:b, s:b, s:i, s:i}", "kind", t->kind, "threads", t->threads, "isa", t->isa, "bf16_gemm",
                     t->bf16_gemm, "tf32", t->tf32, "capability", t->capability, "sm_count", t->sm_count);
}

/* The first object of log.jsonl: enough to do the run again, or to plan it (tools/report.c). */
static json_t *configuration_json(const Trainer *t)
{
    const ModelConfig *f = &t->model.config;
    json_t *model =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:f}", "n_layer", (json_int_t)f->n_layer, "n_head",
                  (json_int_t)f->n_head, "n_kv_head", (json_int_t)f->n_kv_head, "n_embd", (json_int_t)f->n_embd, "n_inner",
                  (json_int_t)f->n_inner, "block_size", (json_int_t)f->block_size, "vocab_size", (json_int_t)f->vocab_size,
                  "vocab_multiple", (json_int_t)f->vocab_multiple, "bias", f->bias, "dropout", f->dropout);
    PrecisionText precision;
    return json_pack("{s:O, s:o, s:I, s:s, s:o, s:s, s:s, s:f, s:I, s:I}", "settings", t->settings, "model", model, "parameters",
                     (json_int_t)model_parameters(&t->model), "target", t->model.ctx.target.name, "machine",
                     machine_json(&t->model.ctx.target), "precision", precision_text(precision, &t->model.run.precision),
                     "gemm_type", dtype_name(gemm_type(t)), "gemm_peak", t->gemm_peak, "persistent_bytes",
                     (json_int_t)t->model.plan.persistent_bytes, "step_bytes", (json_int_t)t->model.plan.step_bytes);
}

static bool log_begin(Trainer *t, Error *e)
{
    const TrainOptions *o = &t->options;
    json_t *configuration = configuration_json(t);
    if (o->init_from[0])
        json_object_set_new(configuration, "init_from", json_string(o->init_from));
    if (t->validates && !isnan(t->floor[SPLIT_VAL]))
        json_object_set_new(configuration, "val_floor", json_real(t->floor[SPLIT_VAL]));
    bool ok = log_open(&t->log, o->out_dir, configuration, t->state.iter, o->log_interval, o->quiet, e);
    json_decref(configuration);
    return ok;
}

/* A new run does not go into the folder of another. */
static bool out_dir_check(const Trainer *t, Error *e)
{
    return t->checkpoint[0] || !checkpoint_present(t->options.out_dir) ||
           error_usage(e, "out_dir: %s has checkpoints of an earlier run; go on with it by --resume, or choose another --out-dir",
                       t->options.out_dir);
}

/* Once the folder is locked, nobody else begins a run there; one may have just ended. */
static bool out_dir_take(Trainer *t, Error *e)
{
    const char *dir = t->options.out_dir;
    return t->lock || (dir_make(dir, e) && dir_lock(dir, &t->lock, e) && out_dir_check(t, e));
}

bool trainer_open(Trainer *t, int argc, char **argv, Error *e)
{
    TrainOptions *o = &t->options;
    *o = train_options_default();
    if (!trainer_settings(t, &t->lock, argc, argv, e))
        return false;
    if (o->card[0] || o->vram > 0 || o->what_if)
        return error_usage(e, "card, vram and what_if are for tally plan: this run would be on this machine");
    if (o->json)
        return error_usage(e, "json: is for tally plan and tally bench; tally train writes log.jsonl into its out_dir");
    if (!trainer_plan(t, e))
        return false;
    if (!o->data[0])
        return error_usage(e, "--data DIR is missing; `tally data prepare FILE --out DIR` makes one from text");
    if (!out_dir_check(t, e) || !trainer_fits(t, e) || !trainer_data(t, e) || !prompt_encode(t, e))
        return false;
    trainer_print_plan(stdout, t);
    fflush(stdout);
    if (!trainer_measure_peak(t, e) || !trainer_begin(t, e) || !out_dir_take(t, e) ||
        (o->grad_stats && !grad_stats_open(&t->grad_stats, &t->model, e)))
        return false;
    header_print(t);
    if (t->device->memory_free)
        gpu_watch_open(&t->gpu);
    return log_begin(t, e);
}

void trainer_close(Trainer *t)
{
    if (t->model.persistent)
        t->device->synchronize(&t->model.ctx); /* a step that failed may leave copies under way */
    for (int i = 0; i < RECORDINGS; i++)
        if (t->recording[i])
            t->device->record_free(t->recording[i]);
    for (int i = 0; i < 2; i++)
        if (t->flight[i].state)
            t->device->host_give(t->flight[i].state);
    gpu_watch_close(&t->gpu);
    log_close(&t->log);
    grad_stats_close(&t->grad_stats);
    loader_destroy(t->loader);
    model_free(&t->model);
    token_stream_close(&t->tokens);
    token_stream_close(&t->validation);
    for (int split = 0; split < SPLITS; split++)
        document_windows_free(&t->documents[split]);
    tokenizer_destroy(t->tokenizer);
    free(t->meta_text);
    free(t->prompt);
    free(t->evaluation_batch);
    json_decref(t->settings);
    json_decref(t->resumed);
    if (t->lock)
        close(t->lock);
}
