/* See log.h. */
#include "train/log.h"

#include "base/clock.h"
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The step number of a line of log.jsonl; 0 for the configuration, -1 for what is not a whole line. */
static int64_t line_step(const char *line, size_t n)
{
    if (n == 0 || line[n - 1] != '\n')
        return -1;
    json_t *object = json_loadb(line, n, 0, NULL);
    json_t *step = json_object_get(object, "step");
    int64_t number = !object ? -1 : step ? (int64_t)json_integer_value(step) : 0;
    json_decref(object);
    return number;
}

/* Rewrites the log with the lines up to `last` only. */
static bool log_cut(const char *path, int64_t last, Error *e)
{
    char *bytes = NULL;
    size_t size = 0, kept = 0;
    if (!file_read_all(path, SIZE_MAX / 2, &bytes, &size, e))
        return false;
    for (size_t at = 0; at < size;) {
        char *end = memchr(bytes + at, '\n', size - at);
        size_t n = (end ? (size_t)(end - bytes) + 1 : size) - at;
        int64_t step = line_step(bytes + at, n);
        if (step >= 0 && step <= last) {
            memmove(bytes + kept, bytes + at, n);
            kept += n;
        }
        at += n;
    }
    bool ok = file_write_atomic(path, bytes, kept, e);
    free(bytes);
    return ok;
}

static bool object_write(Log *l, const json_t *object, Error *e)
{
    bool ok = object && json_dumpf(object, l->file, JSON_COMPACT | JSON_REAL_PRECISION(12)) == 0 && fputc('\n', l->file) != EOF &&
              fflush(l->file) == 0;
    return ok || error_set(e, "%s: cannot write: %s", l->path, strerror(errno));
}

bool log_open(Log *l, const char *out_dir, const json_t *configuration, int64_t resumed_at, int64_t interval, bool quiet,
              Error *e)
{
    *l = (Log){.interval = interval, .quiet = quiet, .first_step = resumed_at, .started = clock_seconds()};
    if (!path_join(l->path, out_dir, "log.jsonl", e))
        return false;
    bool resumed = resumed_at > 0 && file_exists(l->path);
    if (resumed && !log_cut(l->path, resumed_at, e))
        return false;
    l->file = fopen(l->path, resumed ? "a" : "w");
    if (!l->file)
        return error_set(e, "%s: cannot open: %s", l->path, strerror(errno));
    return resumed || object_write(l, configuration, e);
}

static void time_text(char text[32], double seconds)
{
    long s = lround(seconds);
    if (s >= 3600)
        snprintf(text, 32, "%ldh%02ldm", s / 3600, s / 60 % 60);
    else
        snprintf(text, 32, "%ldm%02lds", s / 60, s % 60);
}

static void loss_print(const char *name, double loss, double floor)
{
    printf("  %s %.4f", name, loss);
    if (!isnan(floor))
        printf(" (floor %.4f + %.4f)", floor, loss - floor);
}

static void step_print(const Log *l, const LogStep *s)
{
    char eta[32];
    double each = (clock_seconds() - l->started) / (double)(s->step - l->first_step); /* evaluations and all */
    time_text(eta, each * (double)(s->steps - s->step));
    printf("step %6lld/%lld", (long long)s->step, (long long)s->steps);
    loss_print("loss", s->loss, s->floor);
    if (s->evaluated)
        loss_print("val", s->val_loss, s->val_floor);
    printf("  lr %.3e  norm %.3f  %.1f ms  %.0f tokens/s", s->learning_rate, s->grad_norm, 1e3 * s->seconds, s->tokens_per_s);
    if (!isnan(s->mfu))
        printf("  %.0f %% of peak", 100 * s->mfu);
    if (s->loss_scale > 0)
        printf("  scale %g", s->loss_scale);
    if (s->wait_seconds > 0.1 * s->seconds)
        printf("  STARVED: %.0f %% of it waiting for data", 100 * s->wait_seconds / s->seconds);
    printf("  ETA %s%s\n", eta, s->skipped ? "  SKIPPED: the gradient is not finite" : "");
    fflush(stdout);
}

static void number_set(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, json_number(value));
}

bool log_step(Log *l, const LogStep *s, Error *e)
{
    bool due = s->step % l->interval == 0 || s->step == s->steps || s->step == l->first_step + 1 || s->evaluated || s->skipped;
    if (due && !l->quiet)
        step_print(l, s);
    if (due && !l->quiet && s->gpu)
        gpu_watch_print(stdout, s->gpu);
    if (s->grad_stats && !l->quiet)
        grad_stats_print(stdout, s->grad_stats);
    json_t *object = json_object();
    json_object_set_new(object, "step", json_integer(s->step));
    number_set(object, "loss", s->loss);
    if (s->evaluated)
        number_set(object, "val_loss", s->val_loss);
    if (!isnan(s->floor)) {
        number_set(object, "floor", s->floor);
        number_set(object, "gap", s->loss - s->floor);
    }
    if (s->evaluated && !isnan(s->val_floor)) {
        number_set(object, "val_floor", s->val_floor);
        number_set(object, "val_gap", s->val_loss - s->val_floor);
    }
    number_set(object, "lr", s->learning_rate);
    number_set(object, "grad_norm", s->grad_norm);
    number_set(object, "ms", 1e3 * s->seconds);
    number_set(object, "tokens_per_s", s->tokens_per_s);
    number_set(object, "mfu", s->mfu);
    number_set(object, "wait_ms", 1e3 * s->wait_seconds);
    if (s->loss_scale > 0)
        number_set(object, "loss_scale", s->loss_scale);
    if (s->gpu)
        json_object_set_new(object, "gpu", gpu_watch_json(s->gpu));
    if (s->grad_stats)
        json_object_set_new(object, "grad_stats", grad_stats_json(s->grad_stats));
    if (s->skipped)
        json_object_set_new(object, "skipped", json_true());
    bool ok = object_write(l, object, e);
    json_decref(object);
    return ok;
}

void log_close(Log *l)
{
    if (l->file)
        fclose(l->file);
    l->file = NULL;
}
