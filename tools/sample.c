/* `tally sample`: continuations of a prompt by a trained model, printed as they are drawn. */
#include "tools/commands.h"

#include "base/options.h"
#include "data/prepare.h"
#include "model/fit.h"
#include "model/generate.h"
#include "train/checkpoint.h"

#include <stdlib.h>
#include <string.h>

typedef struct SampleOptions {
    const char *dir, *prompt, *tokenizer, *device;
    bool allow_special;
    GenerateOptions how;
    int64_t samples, threads;
} SampleOptions;

#define AT_TYPE SampleOptions
static const OptionRow rows[] = {
    OPTION('c', "checkpoint", OPTION_WORD, dir, 0, 0, "DIR",
           "a checkpoint, or an --out-dir of `tally train` (its latest is taken); default: out"),
    OPTION('o', "out-dir", OPTION_WORD, dir, 0, 0, "DIR", "the same"),
    OPTION('p', "prompt", OPTION_WORD, prompt, 0, 0, "TEXT",
           "what to continue; default: a newline, or the first token where the vocabulary has none"),
    OPTION(0, "temperature", OPTION_NUMBER, how.temperature, -1e30, 1e30, "X", "default 0.8; 0: always the likeliest token"),
    OPTION(0, "top-k", OPTION_INT, how.top_k, 0, INT32_MAX, "N", "draw from the N likeliest only; default 200; 0: all"),
    OPTION(0, "top-p", OPTION_NUMBER, how.top_p, -1e30, 1e30, "X",
           "draw from the likeliest that have this probability together; default 1: all"),
    OPTION(0, "seed", OPTION_INT, how.seed, 0, 0x1p63, "N", "default 1337"),
    OPTION(0, "num-samples", OPTION_INT, samples, 1, 1 << 16, "N", "default 1"),
    OPTION(0, "max-new-tokens", OPTION_INT, how.length, 0, 0x1p40, "N",
           "tokens of each; default 500. A sample of a model of documents ends with its document, at the data's separator"),
    OPTION(0, "device", OPTION_WORD, device, 0, 0, "NAME",
           "cuda (the first GPU), cuda:N or cpu; default auto: cuda, or cpu where there is no GPU"),
    OPTION(0, "threads", OPTION_INT, threads, 0, 4096, "N", "default: one per core"),
    OPTION(0, "allow-special", OPTION_FLAG, allow_special, 0, 0, NULL,
           "Text such as <|endoftext|> in the prompt is the special token of that name"),
    OPTION(0, "tokenizer", OPTION_WORD, tokenizer, 0, 0, "WHERE",
           "`byte`, `gpt2:DIR`, a folder with a meta.json, or such a file; default: the checkpoint's"),
};

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
    Tokenizer *tokenizer = data_meta_read(meta, &facts, NULL, e);
    *separator = facts.separator;
    return tokenizer;
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
    if (!tokenizer_encode_prompt(tokenizer, o->prompt, &prompt, &n, e))
        return false;
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

/* The checkpoint and all that is read of it. */
static bool checkpoint_open(Model *m, Tokenizer **tokenizer, int64_t *separator, char path[PATH_SIZE], const SampleOptions *o,
                            Error *e)
{
    strcpy(path, ".");
    return checkpoint_choose(o->dir, path, e) && (*tokenizer = tokenizer_open(path, o, separator, e)) &&
           (!o->allow_special || tokenizer_allow_special(*tokenizer, e)) && model_open(m, path, o, e);
}

bool sample_command(int argc, char **argv, Error *e)
{
    static const OptionTable options = {rows, sizeof rows / sizeof *rows, NULL, "Lets a trained GPT continue a text."};
    Model m;
    memset(&m, 0, sizeof m);
    SampleOptions o = {.dir = "out",
                       .device = "auto",
                       .prompt = "\n",
                       .samples = 1,
                       .how = {.temperature = 0.8, .top_k = 200, .top_p = 1, .seed = 1337, .length = 500}};
    char path[PATH_SIZE];
    Tokenizer *tokenizer = NULL;
    int64_t separator;
    if (!options_parse(&options, &o, argc, argv, e))
        return false;
    bool ok = checkpoint_open(&m, &tokenizer, &separator, path, &o, e);
    while (!ok && strcmp(path, o.dir) != 0 && !file_exists(path)) { /* a run has removed it: now it has a newer one */
        model_free(&m);
        tokenizer_destroy(tokenizer);
        tokenizer = NULL;
        *e = (Error){0};
        ok = checkpoint_open(&m, &tokenizer, &separator, path, &o, e);
    }
    ok = ok && sample(&o, &m, tokenizer, separator, e);
    model_free(&m);
    tokenizer_destroy(tokenizer);
    return ok;
}
