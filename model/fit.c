/* See fit.h. */
#include "model/fit.h"
#include "model/ledger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Room ---------------------------------------------------------------------------------------------------------- */

static size_t memory_available(void)
{
    size_t kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %zu kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

Room room_here(const Target *target, double cap)
{
    bool gpu = target->kind == DEVICE_CUDA;
    size_t free_bytes = gpu ? target->free_bytes : memory_available();
    Room room = {(double)(free_bytes ? free_bytes : target->total_bytes), "there is free", !gpu};
    if (gpu)
        strcpy(room.what, "there is free on the GPU");
    if (cap > 0 && cap < room.bytes)
        room = (Room){cap, "there may be (--mem-cap)", !gpu};
    return room;
}

/* What the loader holds beside the plan: tokens and targets (I32) of two optimizer steps and of a micro-batch of the evaluation.
 */
static double loader_bytes(int64_t block_size, int64_t batch_size, int64_t accumulation)
{
    return 8 * (double)block_size * (double)batch_size * (2 * (double)accumulation + 1);
}

static double needed_bytes(const Model *m, int64_t accumulation, const Room *room)
{
    double loader = room->loader ? loader_bytes(m->run.block_size, m->run.batch_size, accumulation) : 0;
    return (double)plan_total_bytes(&m->plan) + loader;
}

/* ---- Settings ------------------------------------------------------------------------------------------------------ */

Setting setting_of(const Model *m, int64_t accumulation, const Room *room)
{
    Setting s = {.precision = m->run.precision,
                 .recompute = m->run.recompute,
                 .recompute_every = m->run.recompute_every,
                 .batch_size = m->run.batch_size,
                 .accumulation = accumulation,
                 .bytes = needed_bytes(m, accumulation, room)};
    for (int phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++) {
        PlanCost cost = plan_cost(&m->plan, (Phase)phase);
        s.flops += (cost.gemm_flops + cost.other_flops) / s.batch_size; /* every sequence costs the same */
    }
    return s;
}

void setting_plan(Setting *s, const Model *m, const Room *room)
{
    Error ignored = {0};
    Model other;
    ModelRun run = m->run;
    run.precision = s->precision;
    run.recompute = s->recompute;
    run.recompute_every = s->recompute_every;
    run.batch_size = s->batch_size;
    s->bytes = (double)INFINITY;
    s->flops = 0;
    if (model_plan(&other, &m->config, &run, &m->ctx.target, &ignored))
        *s = setting_of(&other, s->accumulation, room);
    model_free(&other);
}

/* "--recompute block --recompute-every 2" */
static const char *level_text(SettingText text, const Setting *s)
{
    int n = snprintf(text, sizeof(SettingText), "--recompute %s", recompute_name(s->recompute));
    if (s->recompute_every > 1)
        snprintf(text + n, sizeof(SettingText) - (size_t)n, " --recompute-every %lld", (long long)s->recompute_every);
    return text;
}

const char *setting_text(SettingText text, const Setting *s)
{
    SettingText level;
    snprintf(text, sizeof(SettingText), "--batch-size %lld --gradient-accumulation-steps %lld %.60s", (long long)s->batch_size,
             (long long)s->accumulation, level_text(level, s));
    return text;
}

/* Recompute levels by what they cost: each executes more FLOPs than the one before it and keeps less. With an input kept for
 * every K-th block, L / K inputs and the 16 C of K blocks are alive at once, so up to 320 layers a K beyond 4 saves nothing. */
static const struct {
    Recompute level;
    int64_t every;
} rungs[] = {{RECOMPUTE_NONE, 1},  {RECOMPUTE_NORM, 1},  {RECOMPUTE_ATTENTION, 1}, {RECOMPUTE_BLOCK, 1},
             {RECOMPUTE_BLOCK, 2}, {RECOMPUTE_BLOCK, 3}, {RECOMPUTE_BLOCK, 4}};
enum { RUNGS = sizeof rungs / sizeof *rungs };

static void rung_set(Setting *s, int rung)
{
    s->recompute = rungs[rung].level;
    s->recompute_every = rungs[rung].every;
}

/* ---- Choosing ------------------------------------------------------------------------------------------------------ */

/* Micro-batches to choose from, ascending: batch[0 .. n-1], or 1 .. n where batch is NULL. */
typedef struct Choices {
    int64_t *batch, n;
} Choices;

static void batch_take(Setting *s, const Model *m, const Room *room, const Choices *from, int64_t i, int64_t sequences)
{
    s->batch_size = from->batch ? from->batch[i] : i + 1;
    s->accumulation = (sequences + s->batch_size - 1) / s->batch_size;
    setting_plan(s, m, room);
}

/* The largest micro-batch with which the setting fits, for so many sequences a step, by bisection: a larger one never needs less.
 * False, and the smallest one in *s, when none fits. */
static bool batch_find(Setting *s, const Model *m, const Room *room, const Choices *from, int64_t sequences)
{
    int64_t fits = 0, high = from->n;
    batch_take(s, m, room, from, 0, sequences);
    if (s->bytes > room->bytes)
        return false;
    while (fits + 1 < high) {
        int64_t middle = fits + (high - fits) / 2;
        Setting larger = *s;
        batch_take(&larger, m, room, from, middle, sequences);
        if (larger.bytes <= room->bytes) {
            fits = middle;
            *s = larger;
        } else {
            high = middle;
        }
    }
    return true;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The divisors of `sequences` that a micro-batch may have: at most INT32_MAX rows, at most 2^24 of them a step. */
static bool divisors_list(Choices *list, int64_t sequences, int64_t block_size, Error *e)
{
    int64_t most = INT32_MAX / block_size, least = (sequences - 1) / (1 << 24) + 1;
    list->n = 0;
    list->batch = memory_get(e, 1 << 16, sizeof *list->batch, "divisors"); /* more than a number below 2^54 has */
    for (int64_t d = 1; list->batch && d <= most && d * d <= sequences; d++) {
        int64_t pair[2] = {d, sequences / d};
        for (int k = 0; k < 2 && sequences % d == 0; k++)
            if (pair[k] >= least && pair[k] <= most && (k == 0 || pair[1] != pair[0]))
                list->batch[list->n++] = pair[k];
    }
    if (list->batch)
        qsort(list->batch, (size_t)list->n, sizeof *list->batch, ascending);
    return list->batch != NULL;
}

bool fit_choose(Setting *best, const Model *m, int64_t accumulation, const Room *room, Error *e)
{
    int64_t sequences = m->run.batch_size * accumulation;
    Choices divisors;
    Setting s = setting_of(m, accumulation, room), least = s;
    BytesText a, b;
    SettingText text;
    if (!divisors_list(&divisors, sequences, m->run.block_size, e))
        return false;
    bool found = false;
    for (int rung = 0; !found && divisors.n && rung < RUNGS; rung++) {
        rung_set(&s, rung);
        found = batch_find(&s, m, room, &divisors, sequences);
        least = s.bytes < least.bytes ? s : least;
    }
    free(divisors.batch);
    *best = s;
    return found || error_usage(e,
                                "fit: nothing fits into the %s %s: the least, with %s, needs %s; take a smaller model, a shorter "
                                "--block-size, smaller types (--precision) or more memory",
                                bytes_text(a, room->bytes), room->what, setting_text(text, &least), bytes_text(b, least.bytes));
}

/* ---- Does it fit --------------------------------------------------------------------------------------------------- */

/* The first recompute level above the run's with which it fits as it is. */
static bool level_find(Setting *s, const Model *m, const Room *room)
{
    int rung = 0;
    while (rung < RUNGS && rungs[rung].level != m->run.recompute)
        rung++;
    while (++rung < RUNGS) {
        rung_set(s, rung);
        setting_plan(s, m, room);
        if (s->bytes <= room->bytes)
            return true;
    }
    return false;
}

/* What to do about a run that does not fit. */
static void advice_write(char *text, size_t size, const Model *m, int64_t accumulation, const Room *room)
{
    static const char same[] = "with --gradient-accumulation-steps for the same tokens per step";
    if (!m->run.training) {
        snprintf(text, size, "take a smaller model, fewer sequences, or more memory");
        return;
    }
    int64_t sequences = m->run.batch_size * accumulation;
    Choices smaller = {NULL, m->run.batch_size - 1};
    Setting now = setting_of(m, accumulation, room), level = now, batch = now;
    SettingText flags;
    bool by_level = level_find(&level, m, room);
    bool by_batch = smaller.n > 0 && batch_find(&batch, m, room, &smaller, sequences);
    if (by_level && by_batch)
        snprintf(text, size, "%s fits, and so does --batch-size %lld (%s)", level_text(flags, &level),
                 (long long)batch.batch_size, same);
    else if (by_level)
        snprintf(text, size, "%s fits", level_text(flags, &level));
    else if (by_batch)
        snprintf(text, size, "--batch-size %lld fits (%s)", (long long)batch.batch_size, same);
    bool found = by_level || by_batch;
    for (int rung = 0; !found && smaller.n > 0 && rung < RUNGS; rung++) {
        rung_set(&batch, rung);
        found = batch_find(&batch, m, room, &smaller, sequences);
        snprintf(text, size, "%s fits", setting_text(flags, &batch));
    }
    if (!found)
        snprintf(text, size, "no batch_size fits at any recompute level: take a smaller model, or more memory");
}

bool fit_check(const Model *m, int64_t accumulation, const Room *room, Error *e)
{
    double needed = needed_bytes(m, accumulation, room), loader = needed - (double)plan_total_bytes(&m->plan);
    if (needed <= room->bytes)
        return true;
    Category largest = CATEGORY_WEIGHTS;
    for (int i = 0; i < CATEGORY_COUNT; i++)
        if (m->plan.category_bytes[i] > m->plan.category_bytes[largest])
            largest = (Category)i;
    double part = (double)m->plan.category_bytes[largest];
    BytesText a, b, c, d;
    char advice[320];
    advice_write(advice, sizeof advice, m, accumulation, room);
    return error_usage(e, "the plan needs %s, %s more than the %s %s; the largest part is %s with %s; %s", bytes_text(a, needed),
                       bytes_text(b, needed - room->bytes), bytes_text(c, room->bytes), room->what,
                       part >= loader ? category_name(largest) : "the tokens of a whole optimizer step",
                       bytes_text(d, fmax(part, loader)), advice);
}
