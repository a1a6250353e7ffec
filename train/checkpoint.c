/* The folders: filling one, publishing it under its name, finding the newest, removing the old. The tensors inside are
 * checkpoint_tensors.c's business.
 *
 * trainer.json: {"version": 1, "state": {TrainState's fields; best_loss null: none yet}, "settings": {...},
 *                "files": {"model.safetensors": bytes, ...}} */
#include "train/checkpoint.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "train/checkpoint_tensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { VERSION = 1 };

/* The files beside trainer.json. */
static const struct {
    const char *name;
    bool always;
} files[] = {{"config.json", true},
             {"model.safetensors", true},
             {"optimizer.safetensors", true},
             {"meta.json", false},
             {"gemm-tune.json", false}};

enum { FILES = sizeof files / sizeof files[0] };

/* ---- TrainState as JSON --------------------------------------------------------------------------------------------- */

#define COUNTER(field, min)                                                                                                      \
    {                                                                                                                            \
#field, offsetof(TrainState, field), min                                                                                 \
    }
static const struct {
    const char *name;
    size_t offset;
    int64_t min;
} counters[] = {
    COUNTER(iter, 0),           COUNTER(adam_t, 0),      COUNTER(loader_position, 0), COUNTER(tokens, 0),
    COUNTER(data_tokens, 0),    COUNTER(block_size, 0),  COUNTER(evaluations, 0),     COUNTER(skips, 0),
    COUNTER(skips_in_a_row, 0), COUNTER(scaler_good, 0), COUNTER(best_iter, -1),
};
#undef COUNTER

enum { COUNTERS = sizeof counters / sizeof counters[0] };

static json_t *state_to_json(const TrainState *s)
{
    json_t *object = json_object();
    for (int i = 0; i < COUNTERS; i++)
        json_object_set_new(object, counters[i].name, json_integer(*(const int64_t *)((const char *)s + counters[i].offset)));
    json_object_set_new(object, "loss_scale", json_real(s->loss_scale));
    json_object_set_new(object, "best_loss", isfinite(s->best_loss) ? json_real(s->best_loss) : json_null());
    return object;
}

/* What of a run happened in some of its iterations cannot have happened more often than there were iterations. */
static bool state_check(const TrainState *s, Error *e)
{
    const struct {
        const char *name, *limit_name;
        int64_t value, limit;
    } pairs[] = {{"adam_t", "iter", s->adam_t, s->iter},
                 {"skips", "iter", s->skips, s->iter},
                 {"skips_in_a_row", "skips", s->skips_in_a_row, s->skips},
                 {"scaler_good", "the scaler's interval less 1", s->scaler_good, SCALER_INTERVAL - 1},
                 {"best_iter", "iter", s->best_iter, s->iter}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (pairs[i].value > pairs[i].limit)
            return error_set(e, "%s: is %ld; must be at most %s = %ld", pairs[i].name, pairs[i].value, pairs[i].limit_name,
                             pairs[i].limit);
    return true;
}

/* *s from the "state" of a trainer.json; messages begin with the field. On error *s is untouched. */
static bool state_from_json(const json_t *trainer, TrainState *s, Error *e)
{
    TrainState read = {.best_loss = INFINITY};
    json_t *object;
    if (!json_get_object(trainer, "state", &object, true, e))
        return false;
    for (int i = 0; i < COUNTERS; i++)
        if (!json_get_int(object, counters[i].name, counters[i].min, INT64_MAX - 1,
                          (int64_t *)((char *)&read + counters[i].offset), true, e))
            return error_prefix(e, "state");
    if (!json_get_double(object, "loss_scale", FLT_MIN, FLT_MAX, &read.loss_scale, true, e) ||
        !json_get_double(object, "best_loss", 0, DBL_MAX, &read.best_loss, false, e) || !state_check(&read, e))
        return error_prefix(e, "state");
    *s = read;
    return true;
}

/* ---- The folders of a run ------------------------------------------------------------------------------------------- */

/* path = out_dir/step-<step><suffix> */
static bool step_path(char path[PATH_SIZE], const char *out_dir, int64_t step, const char *suffix, Error *e)
{
    char name[64];
    snprintf(name, sizeof name, "step-%ld%s", step, suffix);
    return path_join(path, out_dir, name, e);
}

/* Is `name` exactly "step-<N><suffix>", N written as step_path writes it? */
static bool step_parse(const char *name, const char *suffix, int64_t *step)
{
    char again[64];
    *step = strncmp(name, "step-", 5) == 0 ? strtol(name + 5, NULL, 10) : -1;
    snprintf(again, sizeof again, "step-%ld%s", *step, suffix);
    return *step >= 0 && strcmp(name, again) == 0;
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* The numbers of all step-N<suffix> in out_dir, largest first: *n of them in a new array. NULL on error. */
static int64_t *steps_list(const char *out_dir, const char *suffix, size_t *n, Error *e)
{
    size_t capacity = 0;
    int64_t *list = NULL, step;
    DIR *dir = opendir(out_dir);
    if (!dir) {
        error_set(e, "%s: cannot read the folder: %s", out_dir, strerror(errno));
        return NULL;
    }
    for (struct dirent *d; (d = readdir(dir));)
        capacity += step_parse(d->d_name, suffix, &step);
    list = memory_get(e, capacity, sizeof *list, out_dir);
    rewinddir(dir);
    *n = 0;
    for (struct dirent *d; list && *n < capacity && (d = readdir(dir));)
        if (step_parse(d->d_name, suffix, &step))
            list[(*n)++] = step;
    closedir(dir);
    if (list)
        qsort(list, *n, sizeof *list, descending);
    return list;
}

/* Removes the step-N.tmp that a save or a removal has left half done. */
static bool leftovers_remove(const char *out_dir, Error *e)
{
    size_t n;
    char path[PATH_SIZE];
    int64_t *step = steps_list(out_dir, ".tmp", &n, e);
    bool ok = step != NULL;
    for (size_t i = 0; ok && i < n; i++)
        ok = step_path(path, out_dir, step[i], ".tmp", e) && dir_remove(path, e);
    free(step);
    return ok;
}

/* Removes step-N by way of step-N.tmp, so that no name without .tmp ever stands for half a checkpoint. */
static bool step_remove(const char *out_dir, int64_t step, Error *e)
{
    char path[PATH_SIZE], temp[PATH_SIZE];
    return step_path(path, out_dir, step, "", e) && step_path(temp, out_dir, step, ".tmp", e) && file_rename(path, temp, e) &&
           dir_remove(temp, e);
}

/* Removes what is older than the checkpoint just saved, but the newest keep - 1 and the best. Steps beyond it are damaged ones
 * that were passed over when resuming, or another run's: not ours to remove. */
static bool old_remove(const char *out_dir, const TrainState *state, int64_t keep, Error *e)
{
    size_t n;
    int64_t older = 0, *step = steps_list(out_dir, "", &n, e);
    bool ok = step != NULL;
    for (size_t i = 0; ok && i < n; i++)
        if (step[i] < state->iter && ++older >= keep && step[i] != state->best_iter)
            ok = step_remove(out_dir, step[i], e);
    free(step);
    return ok;
}

/* ---- Saving --------------------------------------------------------------------------------------------------------- */

static bool meta_write(const char *dir, const char *meta, Error *e)
{
    char path[PATH_SIZE];
    return path_join(path, dir, "meta.json", e) && file_write_atomic(path, meta, strlen(meta), e);
}

/* The algorithms that the device has chosen by timing. */
static bool tuning_save(const char *dir, const Model *m, Error *e)
{
    char path[PATH_SIZE];
    const Device *device = m->ctx.device;
    json_t *tuning = device->tuning_write ? device->tuning_write(&m->ctx.target) : NULL;
    bool ok = !tuning || (path_join(path, dir, "gemm-tune.json", e) && json_write(path, tuning, e));
    json_decref(tuning);
    return ok;
}

/* Writes trainer.json with the sizes of the files that are in the folder. */
static bool trainer_write(const char *dir, const TrainState *state, const json_t *settings, Error *e)
{
    char path[PATH_SIZE];
    json_t *sizes = json_object();
    struct stat st;
    for (int i = 0; i < FILES; i++)
        if (path_join(path, dir, files[i].name, e) && stat(path, &st) == 0)
            json_object_set_new(sizes, files[i].name, json_integer(st.st_size));
    json_t *trainer = json_pack("{s:i, s:o, s:O, s:o}", "version", VERSION, "state", state_to_json(state), "settings", settings,
                                "files", sizes);
    bool ok = trainer ? path_join(path, dir, "trainer.json", e) && json_write(path, trainer, e)
                      : error_set(e, "%s: out of memory for trainer.json", dir);
    json_decref(trainer);
    return ok;
}

/* All files of a checkpoint in a new folder; each is durable, name included, when its call returns. */
static bool folder_fill(const char *dir, Model *m, const TrainState *state, const json_t *settings, const char *meta, Error *e)
{
    return dir_make(dir, e) && model_config_save(dir, &m->config, e) && checkpoint_write_weights(dir, m, e) &&
           checkpoint_write_moments(dir, m, e) && (!meta || meta_write(dir, meta, e)) && tuning_save(dir, m, e) &&
           trainer_write(dir, state, settings, e);
}

/* Gives the folder `temp` the name `path`. If there is a checkpoint of that name (a run that saves twice at one step), the two
 * swap names in one instant; a file system that cannot do that loses the old one first. */
static bool folder_publish(const char *temp, const char *path, const char *out_dir, Error *e)
{
    if (!file_exists(path))
        return file_rename(temp, path, e);
    if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_EXCHANGE) == 0)
        return dir_sync(out_dir, e) && dir_remove(temp, e);
    return dir_remove(path, e) && file_rename(temp, path, e);
}

bool checkpoint_save(const char *out_dir, Model *m, const TrainState *state, const json_t *settings, const char *meta,
                     int64_t keep, Error *e)
{
    char path[PATH_SIZE], temp[PATH_SIZE];
    if (!dir_make(out_dir, e) || !leftovers_remove(out_dir, e) || !step_path(path, out_dir, state->iter, "", e) ||
        !step_path(temp, out_dir, state->iter, ".tmp", e))
        return false;
    if (!folder_fill(temp, m, state, settings, meta, e) || !folder_publish(temp, path, out_dir, e)) {
        dir_remove(temp, &(Error){0}); /* the first failure is the one to report */
        return false;
    }
    return old_remove(out_dir, state, keep, e);
}

/* ---- Finding -------------------------------------------------------------------------------------------------------- */

/* Can the whole file be read: JSON to its end, or a safetensors header that accounts for every byte? */
static bool content_check(const char *path, Error *e)
{
    size_t n = strlen(path);
    if (n > 5 && strcmp(path + n - 5, ".json") == 0) {
        json_t *object = json_read(path, e);
        json_decref(object);
        return object != NULL;
    }
    SafeTensors file;
    bool ok = safetensors_open(&file, path, e);
    safetensors_close(&file);
    return ok;
}

static bool file_check(const char *dir, const char *name, int64_t size, Error *e)
{
    char path[PATH_SIZE];
    struct stat st;
    if (!path_join(path, dir, name, e))
        return false;
    if (stat(path, &st) != 0)
        return error_set(e, "%s: cannot be read: %s", path, strerror(errno));
    if (st.st_size != size)
        return error_set(e, "%s: has %ld bytes; %ld were written", path, (long)st.st_size, size);
    return content_check(path, e);
}

/* Are the files those that trainer.json was written for? */
static bool files_check(const char *dir, const json_t *trainer, Error *e)
{
    json_t *sizes;
    if (!json_get_object(trainer, "files", &sizes, true, e))
        return error_prefix(e, "%s/trainer.json", dir);
    for (int i = 0; i < FILES; i++) {
        int64_t size = -1;
        if (!json_get_int(sizes, files[i].name, 0, INT64_MAX, &size, files[i].always, e))
            return error_prefix(e, "%s/trainer.json: files", dir);
        if (size >= 0 && !file_check(dir, files[i].name, size, e))
            return false;
    }
    return true;
}

/* The trainer.json of a whole checkpoint of that step, a new reference; NULL with what is wrong with file or folder. */
static json_t *step_open(const char *dir, int64_t step, Error *e)
{
    char path[PATH_SIZE];
    json_t *trainer = path_join(path, dir, "trainer.json", e) ? json_read(path, e) : NULL, *settings;
    if (!trainer)
        return NULL;
    int64_t version;
    TrainState state;
    bool ok = json_get_int(trainer, "version", VERSION, VERSION, &version, true, e) && state_from_json(trainer, &state, e) &&
              json_get_object(trainer, "settings", &settings, true, e) &&
              (state.iter == step || error_set(e, "state: iter: is %ld, in the folder of step %ld", state.iter, step));
    if (!ok)
        error_prefix(e, "%s", path);
    if (ok && files_check(dir, trainer, e))
        return trainer;
    json_decref(trainer);
    return NULL;
}

bool checkpoint_present(const char *out_dir)
{
    size_t n = 0;
    free(steps_list(out_dir, "", &n, &(Error){0}));
    return n > 0;
}

bool checkpoint_find(const char *out_dir, char path[PATH_SIZE], json_t **trainer, Error *e)
{
    size_t n;
    bool removed; /* one of them, meanwhile, by the run that goes on there: then it has a newer one */
    *trainer = NULL;
    do {
        int64_t *step = steps_list(out_dir, "", &n, e);
        removed = false;
        for (size_t i = 0; step && i < n && !*trainer && !e->set; i++) {
            Error damage = {0};
            if (!step_path(path, out_dir, step[i], "", e) || (*trainer = step_open(path, step[i], &damage)))
                continue;
            if (file_exists(path))
                fprintf(stderr, "tally: step-%ld is damaged and passed over: %s\n", step[i], damage.text);
            else
                removed = true;
        }
        free(step);
    } while (removed && !*trainer && !e->set);
    if (e->set)
        return false;
    if (*trainer)
        return true;
    return n ? error_set(e, "%s: none of its %zu checkpoints is whole", out_dir, n)
             : error_set(e, "%s: there is no checkpoint (a folder step-N) in it", out_dir);
}

bool checkpoint_read_state(const char *dir, const json_t *trainer, TrainState *state, Error *e)
{
    return state_from_json(trainer, state, e) || error_prefix(e, "%s/trainer.json", dir);
}
