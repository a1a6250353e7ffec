/* See options.h. */
#include "train/options.h"

#include "base/json.h"
#include "train/checkpoint.h"
#include "train/schedule.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define AT(field) offsetof(TrainOptions, field)
#define HEADING(text) {.type = OPTION_HEADING, .help = text}
#define TEXT(field, arg, help) {#field, OPTION_TEXT, AT(field), 0, 0, arg, help, false, 0}
#define PLACE(field, arg, help) {#field, OPTION_TEXT, AT(field), 0, 0, arg, help, true, 0}
#define FLAG(field, help) {#field, OPTION_FLAG, AT(field), 0, 1, NULL, help, false, 0}
#define HINT(field, help) {#field, OPTION_FLAG, AT(field), 0, 1, NULL, help, true, 0}
#define INT(field, low, high, help) {#field, OPTION_INT, AT(field), low, high, "N", help, false, 0}
#define NUMBER(field, low, high, help) {#field, OPTION_NUMBER, AT(field), low, high, "X", help, false, 0}

static const OptionRow table[] = {
    HEADING("Where things are:"),
    TEXT(data, "DIR", "tokens: DIR/train.bin and DIR/val.bin (several shards by *train*.bin), DIR/meta.json for the tokenizer"),
    PLACE(out_dir, "DIR", "checkpoints (DIR/step-N), log.jsonl"),
    PLACE(config, "FILE", "settings from a JSON object, names as here; flags override it"),
    PLACE(init_from, "DIR", "start from the weights of a checkpoint, ours or Hugging Face's"),
    HINT(resume, "go on from the latest whole checkpoint in --out-dir, bit for bit"),
    HEADING("Model:"),
    TEXT(model, "NAME", "preset: gpt2, gpt2-medium, gpt2-large, gpt2-xl, shakespeare-char, shakespeare-cpu, nano"),
    INT(n_layer, 0, MODEL_MAX_LAYERS, "layers"),
    INT(n_head, 0, 65536, "heads"),
    INT(n_embd, 0, 1 << 24, "channels"),
    INT(vocab_size, 0, INT32_MAX, "vocabulary; default: the tokenizer's, else the preset's"),
    INT(vocab_multiple, 0, 1 << 20, "pad the vocabulary to a multiple of this; padded ids are never sampled nor exported"),
    NUMBER(dropout, -1, 0.999, "dropout probability; -1: the preset's"),
    FLAG(no_bias, "no biases in linear layers and norms"),
    HEADING("Batch:"),
    INT(batch_size, 1, 1 << 30, "sequences of a micro-batch"),
    INT(block_size, 0, 1 << 30, "positions of a sequence; default: all that the model has"),
    INT(gradient_accumulation_steps, 1, 1 << 24, "micro-batches of an optimizer step"),
    INT(head_rows, 0, 1 << 30, "rows of logits that exist at once; 0: the default"),
    FLAG(whole_documents, "windows begin where documents do and hold whole ones, as many as fit (data with a separator)"),
    INT(ignore_after_token, -1, INT32_MAX, "targets that follow this id do not count, such as a document's first token; -1: all do"),
    HEADING("Precision and memory:"),
    TEXT(precision, "NAME", "fp32; tf32: fp32 as a GPU multiplies it; bf16, fp16: 16-bit but for FP32 masters, gradients and moments"),
    TEXT(param_dtype, "TYPE", "of the weights that GEMMs read: f32, bf16 or f16; this and the next override --precision for one role"),
    TEXT(master_dtype, "TYPE", "f32 or none: without masters 16-bit weights are rounded stochastically"),
    TEXT(grad_dtype, "TYPE", "of the weights' gradients"),
    TEXT(act_dtype, "TYPE", "of activations and their gradients"),
    TEXT(resid_dtype, "TYPE", "of the residual stream"),
    TEXT(m_dtype, "TYPE", "of Adam's first moment"),
    TEXT(v_dtype, "TYPE", "of Adam's second moment"),
    NUMBER(loss_scale, 0, 1e9, "fixed loss scale; 0: dynamic for fp16 (from 65536), 1 for the others"),
    TEXT(recompute, "LEVEL", "what the backward makes again instead of keeping it: none, norm, attention or block"),
    INT(recompute_every, 0, 65536, "with recompute block: keep the input of every N-th block only"),
    HINT(fit, "choose --batch-size, --gradient-accumulation-steps and --recompute: the fewest FLOPs that fit, with as many tokens per step"),
    HEADING("Schedule and optimizer (AdamW; decay on matrices only):"),
    INT(max_iters, 0, 0x1p63, "optimizer steps"),
    INT(epochs, 0, 1 << 30, "end after this many passes over the data instead"),
    TEXT(schedule, "KIND", "cosine, linear, wsd (warm-up, stable, decay) or constant"),
    NUMBER(learning_rate, 0, 1e6, "peak learning rate"),
    NUMBER(min_lr, -1, 1e6, "final learning rate; -1: a tenth of the peak"),
    INT(warmup_iters, -1, 0x1p63, "W steps of lr (s+1)/W, as llm.c has it (nanoGPT divides by W+1); -1: 100 or a tenth of the run"),
    INT(lr_decay_iters, -1, 0x1p63, "step at which min_lr is reached; -1: max_iters"),
    NUMBER(decay_fraction, 0, 1, "wsd: the share of the run that decays"),
    NUMBER(weight_decay, 0, 1e6, "decoupled, scaled by the learning rate"),
    NUMBER(beta1, 0, 1, "decay of the first moment"),
    NUMBER(beta2, 0, 1, "decay of the second moment"),
    NUMBER(eps, 0, 1, "added to the root of the second moment"),
    NUMBER(grad_clip, 0, 1e30, "largest global gradient norm; 0: no clipping"),
    INT(max_skips, 0, 1 << 30, "steps in a row that may be skipped for a non-finite gradient before the run stops"),
    HEADING("What happens when:"),
    INT(log_interval, 1, 1 << 30, "a line every N steps (log.jsonl has every step)"),
    INT(grad_stats, 0, 1 << 30, "every N steps, by layer, the share of gradients that are 0, subnormal, not finite; 0: never"),
    INT(nvml_interval, 0, 1 << 30, "on a GPU, its clocks, power, temperature and memory every N steps; 0: as log_interval"),
    INT(eval_interval, 0, 1 << 30, "validation loss every N steps and at the end; 0: never"),
    INT(eval_iters, 0, 1 << 30, "batches of an evaluation, drawn at random; 0: the whole split"),
    INT(sample_interval, 0, 1 << 30, "text every N steps; 0: never"),
    INT(sample_tokens, 1, 1 << 24, "its length"),
    TEXT(prompt, "TEXT", "what it begins with; default: a newline, or the first token where the vocabulary has none"),
    INT(checkpoint_interval, 0, 1 << 30, "checkpoint every N steps; 0: at the end and on SIGINT or SIGTERM only"),
    INT(keep, 1, 1 << 20, "checkpoints to keep, beside the best"),
    FLAG(overfit, "train on the first micro-batches again and again: the loss must go to 0"),
    HEADING("Machine:"),
    TEXT(device, "NAME", "cuda (the first GPU), cuda:N, cpu; auto: cuda, or cpu where there is no GPU"),
    HINT(no_graph, "on a GPU, launch every kernel anew instead of replaying a recorded step (a CUDA graph): the same numbers"),
    INT(threads, 0, 4096, "threads; 0: one per core"),
    FLAG(tune, "on a GPU: time several algorithms for each matrix product, and keep the choice with the run"),
    INT(seed, 0, 0x1p63, "of weights, data order, dropout and samples"),
    INT(loader_delay, 0, 60000, "milliseconds by which reading a step's data takes longer: a slow disk, to try out"),
    {"mem_cap", OPTION_BYTES, AT(mem_cap), 0, 1e18, "SIZE", "refuse to start when the plan needs more, e.g. 4GiB", false, 0},
    HINT(quiet, "no lines per step"),
    HINT(verbose, "the memory plan per layer, its FLOPs and bytes per op"),
    HINT(json, "tally plan and tally bench: the result as a JSON object"),
    HEADING("Of tally plan alone:"),
    PLACE(card, "NAME", "plan for this GPU's memory instead of this machine's, e.g. \"RTX 4060\"; an unknown name lists them"),
    {"vram", OPTION_BYTES, AT(vram), 0, 1e18, "SIZE", "plan for so much memory, e.g. 8GiB", true, 0},
    HINT(what_if, "the same run in each precision, recompute level and several micro-batches: bytes, FLOPs, fits or not"),
};
/* clang-format on */

enum { ROWS = sizeof table / sizeof *table };

static const OptionTable options = {
    table, ROWS, NULL,
    "`tally train` trains a GPT on token files, after it has printed what memory that takes. `tally plan` prints that, "
    "and what a step costs, without training. `tally bench` times a step, `tally bench amp` steps of each precision. "
    "All take the settings of a run.\v"
    "A first run:  tally data prepare book.txt --tokenizer char --out book && tally train --data book --out-dir run"};

TrainOptions train_options_default(void)
{
    TrainOptions o = {
        .device = "auto",
        .precision = "fp32",
        .recompute = "none",
        .schedule = "cosine",
        .model = "shakespeare-cpu",
        .out_dir = "out",
        .prompt = "\n",
        .seed = 1337,
        .dropout = -1,
        .batch_size = 12,
        .gradient_accumulation_steps = 1,
        .max_iters = 2000,
        .warmup_iters = -1,
        .lr_decay_iters = -1,
        .learning_rate = 1e-3,
        .min_lr = -1,
        .decay_fraction = 0.2,
        .weight_decay = 0.1,
        .beta1 = 0.9,
        .beta2 = 0.99,
        .eps = 1e-8,
        .grad_clip = 1,
        .max_skips = 10,
        .log_interval = 10,
        .eval_interval = 250,
        .eval_iters = 20,
        .sample_tokens = 200,
        .checkpoint_interval = 1000,
        .keep = 3,
        .ignore_after_token = -1,
    };
    return o;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

static const OptionRow *row_find(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (table[i].name && !strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

static bool json_value_set(TrainOptions *o, const OptionRow *r, const json_t *object, Error *e)
{
    void *at = (char *)o + r->offset;
    const char *text = NULL;
    if (r->type == OPTION_FLAG)
        return json_get_bool(object, r->name, at, true, e);
    if (r->type == OPTION_INT)
        return json_get_int(object, r->name, (int64_t)r->min, option_largest(r), at, true, e);
    if (r->type == OPTION_NUMBER || (r->type == OPTION_BYTES && json_is_number(json_object_get(object, r->name))))
        return json_get_double(object, r->name, r->min, r->max, at, true, e);
    return json_get_string(object, r->name, &text, true, e) && option_set(r, o, text, e);
}

bool train_options_from_json(TrainOptions *o, const json_t *object, const char *where, Error *e)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        const OptionRow *r = row_find(name);
        if (!r)
            return error_usage(e, "%s: there is no setting '%s'; `tally train --help` lists them", where, name);
        if (!json_value_set(o, r, object, e)) {
            e->usage = true;
            return error_prefix(e, "%s", where);
        }
    }
    return true;
}

json_t *train_options_to_json(const TrainOptions *o)
{
    json_t *object = json_object();
    for (int i = 0; i < ROWS; i++) {
        const OptionRow *r = &table[i];
        const void *at = (const char *)o + r->offset;
        json_t *value = NULL;
        if (r->type == OPTION_HEADING || r->place)
            continue;
        if (r->type == OPTION_TEXT)
            value = json_string(at);
        else if (r->type == OPTION_FLAG)
            value = json_boolean(*(const bool *)at);
        else if (r->type == OPTION_INT)
            value = json_integer(*(const int64_t *)at);
        else
            value = json_real(*(const double *)at);
        json_object_set_new(object, r->name, value);
    }
    return object;
}

/* ---- Command line -------------------------------------------------------------------------------------------------- */

/* Of the flags, those that say where other settings are. */
static bool places_parse(TrainOptions *o, int argc, char **argv, Error *e)
{
    TrainOptions flags = *o;
    if (!options_parse(&options, &flags, argc, argv, e))
        return false;
    strcpy(o->config, flags.config);
    strcpy(o->out_dir, flags.out_dir);
    o->resume = flags.resume;
    return true;
}

/* The settings of --config FILE, when there is one. */
static bool config_read(TrainOptions *o, Error *e)
{
    OptionText path;
    strcpy(path, o->config);
    if (!*path)
        return true;
    json_t *object = json_read(path, e);
    bool ok = object && train_options_from_json(o, object, path, e);
    if (ok && strcmp(path, o->config) != 0)
        ok = error_usage(e, "%s: config: a file of settings cannot name another", path);
    e->usage |= !ok;
    json_decref(object);
    return ok;
}

static bool checkpoint_read(TrainOptions *o, int *lock, char path[PATH_SIZE], json_t **trainer, Error *e)
{
    json_t *settings = NULL;
    return (!lock || !file_exists(o->out_dir) || dir_lock(o->out_dir, lock, e)) &&
           checkpoint_find(o->out_dir, path, trainer, e) && json_get_object(*trainer, "settings", &settings, true, e) &&
           train_options_from_json(o, settings, path, e);
}

bool train_options_parse(TrainOptions *o, int argc, char **argv, int *lock, char checkpoint[PATH_SIZE], json_t **trainer,
                         Error *e)
{
    checkpoint[0] = 0;
    *trainer = NULL;
    /* The file is read twice: it may say which run to resume, whose settings come before the file's own. */
    return places_parse(o, argc, argv, e) && config_read(o, e) && places_parse(o, argc, argv, e) &&
           (!o->resume || checkpoint_read(o, lock, checkpoint, trainer, e)) && config_read(o, e) &&
           options_parse(&options, o, argc, argv, e);
}

/* ---- Precision and run ---------------------------------------------------------------------------------------------- */

static bool role_set(const char *name, const char *text, DType *t, Error *e)
{
    return !text[0] || dtype_parse(text, t) || error_usage(e, "%s: '%s' is none of f32, bf16, f16", name, text);
}

bool train_options_precision(const TrainOptions *o, Precision *p, Error *e)
{
    if (!precision_parse(o->precision, p, e) || !role_set("param_dtype", o->param_dtype, &p->param, e))
        return false;
    if (o->master_dtype[0])
        p->master = strcmp(o->master_dtype, "none") != 0;
    if (p->master && o->master_dtype[0] && strcmp(o->master_dtype, "f32") != 0 && strcmp(o->master_dtype, "fp32") != 0)
        return error_usage(e, "master_dtype: '%s' is neither f32 nor none", o->master_dtype);
    if (p->param == DTYPE_F32 && !o->master_dtype[0])
        p->master = false;
    return role_set("grad_dtype", o->grad_dtype, &p->grad, e) && role_set("act_dtype", o->act_dtype, &p->act, e) &&
           role_set("resid_dtype", o->resid_dtype, &p->resid, e) && role_set("m_dtype", o->m_dtype, &p->m, e) &&
           role_set("v_dtype", o->v_dtype, &p->v, e);
}

/* Devices reckon with these in FP32, where less than FLT_MIN may be 0: an eps or a loss scale by which to divide. */
static bool numbers_check(const TrainOptions *o, Error *e)
{
    for (int i = 0; i < ROWS; i++) {
        double value = table[i].type == OPTION_NUMBER ? *(const double *)((const char *)o + table[i].offset) : 0;
        if (value != 0 && fabs(value) < (double)FLT_MIN)
            return error_usage(e, "%s: is %g, which is 0 in FP32; needs to be 0 or at least %g", table[i].name, value,
                               (double)FLT_MIN);
    }
    return true;
}

bool train_options_run(const TrainOptions *o, ModelRun *run, Error *e)
{
    if (!numbers_check(o, e))
        return false;
    *run = (ModelRun){.training = true,
                      .batch_size = o->batch_size,
                      .block_size = o->block_size,
                      .head_rows = o->head_rows,
                      .sample_size = o->sample_interval > 0,
                      .recompute_every = o->recompute_every,
                      .grad_clip = o->grad_clip,
                      .beta1 = o->beta1,
                      .beta2 = o->beta2,
                      .eps = o->eps,
                      .weight_decay = o->weight_decay};
    if (!recompute_parse(o->recompute, &run->recompute))
        return error_usage(e, "recompute: '%s' is none of none, norm, attention, block", o->recompute);
    return train_options_precision(o, &run->precision, e);
}

/* ---- What depends on what ------------------------------------------------------------------------------------------ */

bool train_options_resolve(TrainOptions *o, Error *e)
{
    ScheduleKind kind;
    if (!schedule_kind_parse(o->schedule, &kind))
        return error_usage(e, "schedule: '%s' is none of cosine, linear, wsd, constant", o->schedule);
    if (o->overfit && o->epochs)
        return error_usage(e, "epochs: is %lld; a run with overfit stays at its first step's data, so give it max_iters",
                           (long long)o->epochs);
    if (o->min_lr < 0)
        o->min_lr = o->learning_rate / 10;
    if (o->lr_decay_iters < 0)
        o->lr_decay_iters = o->max_iters;
    if (o->warmup_iters < 0)
        o->warmup_iters = o->lr_decay_iters / 10 < 100 ? o->lr_decay_iters / 10 : 100;
    if (o->max_iters > 0 && o->warmup_iters > 0 && o->warmup_iters >= o->lr_decay_iters)
        return error_usage(e, "warmup_iters: is %lld; needs to be less than lr_decay_iters, %lld", (long long)o->warmup_iters,
                           (long long)o->lr_decay_iters);
    if (o->min_lr > o->learning_rate)
        return error_usage(e, "min_lr: is %g; needs to be at most learning_rate, %g", o->min_lr, o->learning_rate);
    return true;
}

void train_options_model(const TrainOptions *o, ModelConfig *config)
{
    if (o->n_embd && o->n_embd != config->n_embd) {
        config->n_inner = 4 * o->n_embd;
        config->n_embd = o->n_embd;
    }
    config->n_layer = o->n_layer ? o->n_layer : config->n_layer;
    if (o->n_head)
        config->n_head = config->n_kv_head = o->n_head;
    config->vocab_size = o->vocab_size ? o->vocab_size : config->vocab_size;
    config->vocab_multiple = o->vocab_multiple ? o->vocab_multiple : config->vocab_multiple;
    config->dropout = o->dropout >= 0 ? o->dropout : config->dropout;
    config->bias = config->bias && !o->no_bias;
}
