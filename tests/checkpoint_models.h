/* For the tests of checkpoints: tiny models with known numbers, saving and loading them, a look into folders. */
#ifndef TALLY_TESTS_CHECKPOINT_MODELS_H
#define TALLY_TESTS_CHECKPOINT_MODELS_H

#include "base/json.h"
#include "base/safetensors.h"
#include "train/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/temp_dir.h"

/* In memory, if the machine has such a folder and TMPDIR says nothing else: a save calls fsync twenty times. */
static inline int temp_dir_make_in_memory(void **state)
{
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return temp_dir_make(state);
}

static const ModelConfig small = {.n_layer = 1,
                                  .n_head = 2,
                                  .n_kv_head = 2,
                                  .n_embd = 16,
                                  .n_inner = 64,
                                  .block_size = 8,
                                  .vocab_size = 50,
                                  .vocab_multiple = 1,
                                  .bias = true,
                                  .dropout = 0.25};

static Error model_error; /* outlives every model of a test */

/* t's stored rows = numbers k / 64, |k| <= 127, drawn from `seed`: exact in F16 and BF16, different everywhere. */
static inline void fill(Model *m, Tensor t, int64_t rows, uint32_t seed)
{
    int64_t n = rows * tensor_width(t);
    float *x = malloc((size_t)n * sizeof *x);
    RandomKey key = random_key(seed, RANDOM_INIT, 0, 0, 0);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(int)(random_bits(key, (uint64_t)i) % 255 - 127) / 64;
    copy_in(&m->ctx, tensor_1d(t.data, DTYPE_F32, n), x);
    free(x);
}

/* A model in training (or not) on the CPU with weights and moments that only this seed has; padding rows are 0. */
static inline void model_make(Model *m, const ModelConfig *config, bool training, uint32_t seed)
{
    Target target;
    model_error = (Error){0};
    const Device *cpu = cpu_device(&target, 1, &model_error);
    ModelRun run = model_run_default();
    run.training = training;
    run.batch_size = 1;
    run.block_size = 4;
    assert_non_null(cpu);
    assert_true(model_plan(m, config, &run, &target, &model_error));
    assert_true(model_allocate(m, cpu, &model_error));
    for (int i = 0; i < m->n_weights; i++) {
        Weight *w = m->weight[i];
        int64_t rows = w == &m->wte ? config->vocab_size : tensor_count(w->value) / tensor_width(w->value);
        uint32_t stream = 3 * (seed * 1000 + (uint32_t)i);
        fill(m, w->value, rows, stream);
        if (training) {
            fill(m, w->m, rows, stream + 1);
            fill(m, w->v, rows, stream + 2);
        }
    }
    assert_false(model_error.set);
}

/* What a run has read of its data's meta.json. */
static const char meta_text[] = "{\"tokenizer\": \"byte\"}\n";

static inline bool tensor_equal(Tensor a, Tensor b)
{
    return memcmp(a.data, b.data, tensor_bytes(a)) == 0;
}

/* Bit for bit the same weights and, with `moments`, the same m and v; the shapes are the same. */
static inline bool model_equal(const Model *a, const Model *b, bool moments)
{
    for (int i = 0; i < a->n_weights; i++) {
        const Weight *x = a->weight[i], *y = b->weight[i];
        if (!tensor_equal(x->value, y->value) || (moments && (!tensor_equal(x->m, y->m) || !tensor_equal(x->v, y->v))))
            return false;
    }
    return true;
}

static inline TrainState state_at(int64_t iter)
{
    return (TrainState){.iter = iter, .adam_t = iter, .loss_scale = 1, .best_loss = INFINITY, .best_iter = -1};
}

static inline void save(Model *m, const char *out, TrainState state, int64_t keep)
{
    Error e = {0};
    json_t *settings = json_pack("{s:i, s:s}", "batch_size", 4, "schedule", "cosine");
    if (!checkpoint_save(out, m, &state, settings, NULL, keep, &e))
        fail_msg("%s", e.text);
    json_decref(settings);
}

/* A new folder of that name. */
static inline void folder(char out[PATH_SIZE], const char *name)
{
    snprintf(out, PATH_SIZE, "%s", at(name));
    assert_int_equal(mkdir(out, 0700), 0);
}

/* The names in a folder in their natural order, a blank after each. */
static inline const char *names_in(const char *dir)
{
    static char names[1024];
    struct dirent **list;
    size_t used = 0;
    int n = scandir(dir, &list, NULL, versionsort);
    assert_true(n >= 0);
    names[0] = 0;
    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.')
            used += (size_t)snprintf(names + used, sizeof names - used, "%s ", list[i]->d_name);
        free(list[i]);
    }
    free(list);
    return names;
}

static inline const char *in_folder(const char *dir, const char *name)
{
    static char paths[4][PATH_SIZE];
    static int next;
    char *path = paths[next++ % 4];
    Error e = {0};
    assert_true(path_join(path, dir, name, &e));
    return path;
}

/* Runs checkpoint_find with stderr in a file; what it said is in `said`. */
static inline bool find(const char *out, char path[PATH_SIZE], json_t **trainer, char said[4096], Error *e)
{
    fflush(stderr);
    int old = dup(2), file = open(at("stderr"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(file, 2);
    bool ok = checkpoint_find(out, path, trainer, e);
    fflush(stderr);
    dup2(old, 2);
    ssize_t n = pread(file, said, 4095, 0);
    said[n > 0 ? n : 0] = 0;
    close(file);
    close(old);
    return ok;
}

/* Finds the newest whole checkpoint, which must be of that step, and loads it into m with its state. */
static inline TrainState find_and_load(const char *out, int64_t step, Model *m, char said[4096])
{
    char path[PATH_SIZE], name[32];
    json_t *trainer;
    TrainState state = {0};
    Error e = {0};
    if (!find(out, path, &trainer, said, &e))
        fail_msg("%s", e.text);
    snprintf(name, sizeof name, "step-%ld", step);
    assert_string_equal(strrchr(path, '/') + 1, name);
    if (!checkpoint_read_state(path, trainer, &state, &e) || !checkpoint_load_weights(m, path, &e) ||
        !checkpoint_load_moments(m, path, &e))
        fail_msg("%s", e.text);
    json_decref(trainer);
    return state;
}

#endif
