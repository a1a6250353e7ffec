/* `tally sample`: continuations of a prompt by a trained model, printed as they are drawn. */
#include "tools/commands.h"

#include "base/args.h"
#include "data/prepare.h"
#include "model/fit.h"
#include "model/generate.h"
#include "train/checkpoint.h"

#include <argp.h>
#include <stdlib.h>
#include <string.h>

typedef struct SampleOptions {
    const char *dir, *prompt, *tokenizer, *device;
    bool allow_special;
    GenerateOptions how;
    int64_t samples, threads;
    Error *e;
} SampleOptions;

enum {
    KEY_TEMPERATURE = 1000,
    KEY_TOP_K,
    KEY_TOP_P,
    KEY_SEED,
    KEY_SAMPLES,
    KEY_TOKENS,
    KEY_THREADS,
    KEY_TOKENIZER,
    KEY_SPECIAL,
    KEY_DEVICE
};

static const struct argp_option options[] = {
    {"checkpoint", 'c', "DIR", 0, "a checkpoint, or an --out-dir of `tally train` (its latest is taken); default: out", 0},
    {"out-dir", 'o', "DIR", OPTION_ALIAS, NULL, 0},
    {"prompt", 'p', "TEXT", 0, "what to continue; default: a newline", 0},
    {"temperature", KEY_TEMPERATURE, "X", 0, "default 0.8; 0: always the likeliest token", 0},
    {"top-k", KEY_TOP_K, "N", 0, "draw from the N likeliest only; default 200; 0: all", 0},
    {"top-p", KEY_TOP_P, "X", 0, "draw from the likeliest that have this probability together; default 1: all", 0},
    {"seed", KEY_SEED, "N", 0, "default 1337", 0},
    {"num-samples", KEY_SAMPLES, "N", 0, "default 1", 0},
    {"max-new-tokens", KEY_TOKENS, "N", 0,
     "tokens of each; default 500. A sample of a model of documents ends with its document, at the data's separator", 0},
    {"device", KEY_DEVICE, "NAME", 0, "cuda (the first GPU), cuda:N or cpu; default auto: cuda, or cpu where there is no GPU", 0},
    {"threads", KEY_THREADS, "N", 0, "default: one per core", 0},
    {"allow-special", KEY_SPECIAL, NULL, 0, "Text such as <|endoftext|> in the prompt is the special token of that name", 0},
    {"tokenizer", KEY_TOKENIZER, "WHERE", 0,
     "`byte`, `gpt2:DIR`, a folder with a meta.json, or such a file; default: the checkpoint's", 0},
    {0},
};

static void whole(SampleOptions *o, const char *name, const char *text, int64_t max, int64_t *out)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < 0 || value > max)
        error_usage(o->e, "%s: '%s' is not a whole number from 0 to %lld", name, text, (long long)max);
    *out = value;
}

static void number(SampleOptions *o, const char *name, const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end)
        error_usage(o->e, "%s: '%s' is not a number", name, text);
}

static error_t option_take(int key, char *arg, struct argp_state *state)
{
    SampleOptions *o = state->input;
    int64_t seed;
    switch (key) {
    case 'c':
    case 'o':
        o->dir = arg;
        break;
    case 'p':
        o->prompt = arg;
        break;
    case KEY_TEMPERATURE:
        number(o, "temperature", arg, &o->how.temperature);
        break;
    case KEY_TOP_K:
        whole(o, "top-k", arg, INT32_MAX, &o->how.top_k);
        break;
    case KEY_TOP_P:
        number(o, "top-p", arg, &o->how.top_p);
        break;
    case KEY_SAMPLES:
        whole(o, "num-samples", arg, 1 << 16, &o->samples);
        break;
    case KEY_TOKENS:
        whole(o, "max-new-tokens", arg, INT64_C(1) << 40, &o->how.length);
        break;
    case KEY_THREADS:
        whole(o, "threads", arg, 4096, &o->threads);
        break;
    case KEY_DEVICE:
        o->device = arg;
        break;
    case KEY_SPECIAL:
        o->allow_special = true;
        break;
    case KEY_TOKENIZER:
        o->tokenizer = arg;
        break;
    case KEY_SEED:
        whole(o, "seed", arg, INT64_MAX, &seed);
        o->how.seed = (uint64_t)seed;
        break;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not a flag", arg);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- The model ----------------------------------------------------------------------------------------------------- */

/* The folder itself when it is a checkpoint, else the latest checkpoint in it. */
static bool checkpoint_choose(const char *dir, char path[PATH_SIZE], Error *e)
{
    char config[PATH_SIZE];
    if (!path_join(config, dir, "config.json", e))
        return false;
    if (file_exists(config)) {
        snprintf(path, PATH_SIZE, "%s", dir);
        return true;
    }
    json_t *trainer = NULL;
    bool found = checkpoint_find(dir, path, &trainer, e);
    json_decref(trainer);
    return found;
}

static bool model_open(Model *m, const char *path, const SampleOptions *o, Error *e)
{
    ModelConfig config;
    ModelRun run = model_run_default();
    Target target;
    run.training = false;
    run.sample_size = o->samples;
    const Device *device = device_open(o->device, (int)o->threads, &target, e);
    if (!device)
        return false;
    Room room = room_here(&target, 0);
    room.loader = false;
    return model_config_load(path, &config, e) && model_plan(m, &config, &run, &target, e) && fit_check(m, 1, &room, e) &&
           model_allocate(m, device, e) && checkpoint_load_weights(m, path, e);
}

/* *separator: the token that ends a document; -1: there is none. */
static Tokenizer *tokenizer_open(const char *path, const SampleOptions *o, int64_t *separator, Error *e)
{
    char meta[PATH_SIZE];
    DataFacts facts;
    *separator = -1;
    if (o->tokenizer)
        return tokenizer_load(o->tokenizer, e);
    if (!path_join(meta, path, "meta.json", e))
        return NULL;
    if (!file_exists(meta)) {
        error_usage(e, "%s has no meta.json, so text cannot be made into tokens; say --tokenizer", path);
        return NULL;
    }
    if (!data_facts_read(meta, &facts, e))
        return NULL;
    *separator = facts.separator;
    return tokenizer_load(meta, e);
}

/* ---- Printing ------------------------------------------------------------------------------------------------------- */

/* One sequence is printed as it comes; several are kept and printed one after the other. */
typedef struct Printer {
    const Tokenizer *tokenizer;
    int64_t samples, length, separator;
    int32_t *kept; /* [samples, length]                                  */
    int64_t *used; /* [samples]                                          */
    bool *ended;   /* [samples]: the separator has come                  */
    int64_t going; /* samples without one; the generation ends with the last */
} Printer;

static bool piece_print(const Printer *p, int32_t token)
{
    size_t n = 0;
    const uint8_t *piece = tokenizer_piece(p->tokenizer, token, &n);
    return (!piece || fwrite(piece, 1, n, stdout) == n) && fflush(stdout) == 0;
}

static bool token_take(void *user, int64_t sequence, int32_t token)
{
    Printer *p = user;
    if (p->ended[sequence])
        return true;
    if (token == p->separator) {
        p->ended[sequence] = true;
        return --p->going > 0;
    }
    if (p->samples == 1)
        return piece_print(p, token);
    p->kept[sequence * p->length + p->used[sequence]++] = token;
    return true;
}

static bool sample(const SampleOptions *o, Model *m, const Tokenizer *tokenizer, int64_t separator, Error *e)
{
    int32_t *prompt = NULL;
    int64_t n = 0;
    Printer p = {
        .tokenizer = tokenizer, .samples = o->samples, .length = o->how.length, .separator = separator, .going = o->samples};
    if (!tokenizer_encode(tokenizer, (const uint8_t *)o->prompt, strlen(o->prompt), &prompt, &n, e))
        return error_prefix(e, "prompt");
    int64_t size = 0;
    if (!product_fits(o->samples, o->how.length, &size))
        error_usage(e, "num-samples x max-new-tokens is too large");
    p.kept = memory_get(e, o->samples > 1 ? (size_t)size : 0, sizeof *p.kept, "the samples");
    p.used = memory_get(e, (size_t)o->samples, sizeof *p.used, "the samples");
    p.ended = memory_get(e, (size_t)o->samples, sizeof *p.ended, "the samples");
    if (o->samples == 1)
        printf("%s", o->prompt);
    bool ok = !e->set && model_generate(m, prompt, n, &o->how, token_take, &p, e);
    for (int64_t s = 0; ok && o->samples > 1 && s < o->samples; s++) {
        printf("---- sample %lld\n%s", (long long)s, o->prompt);
        for (int64_t i = 0; i < p.used[s]; i++)
            piece_print(&p, p.kept[s * p.length + i]);
        printf("\n");
    }
    if (ok && o->samples == 1)
        printf("\n");
    free(prompt);
    free(p.kept);
    free(p.used);
    free(p.ended);
    return ok;
}

bool sample_command(int argc, char **argv, Error *e)
{
    static const struct argp argp = {options, option_take, NULL, "Lets a trained GPT continue a text.", NULL, NULL, NULL};
    Model m;
    memset(&m, 0, sizeof m);
    SampleOptions o = {.dir = "out",
                       .device = "auto",
                       .prompt = "\n",
                       .samples = 1,
                       .e = e,
                       .how = {.temperature = 0.8, .top_k = 200, .top_p = 1, .seed = 1337, .length = 500}};
    args_dashes(argc, argv);
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    if (o.samples < 1)
        error_usage(e, "num-samples: needs to be 1 or more");
    char path[PATH_SIZE];
    Tokenizer *tokenizer = NULL;
    int64_t separator;
    bool ok = !e->set && checkpoint_choose(o.dir, path, e) && (tokenizer = tokenizer_open(path, &o, &separator, e)) &&
              (!o.allow_special || tokenizer_allow_special(tokenizer, e)) && model_open(&m, path, &o, e) &&
              sample(&o, &m, tokenizer, separator, e);
    model_free(&m);
    tokenizer_destroy(tokenizer);
    return ok;
}
