/* See what_if.h. */
#include "model/what_if.h"
#include "model/ledger.h"

#include <math.h>
#include <string.h>

static const char *policy_name(const Setting *s)
{
    const char *name = precision_name(&s->precision);
    return name ? name : "as asked";
}

static int batches_list(int64_t batch[WHAT_IF_BATCHES], int64_t run)
{
    int64_t wish[WHAT_IF_BATCHES] = {1, run / 4, run / 2, run, 2 * run, 4 * run};
    int n = 0;
    for (int i = 0; i < WHAT_IF_BATCHES; i++)
        if (wish[i] > 0 && (n == 0 || wish[i] > batch[n - 1]))
            batch[n++] = wish[i];
    return n;
}

static int precisions_list(Precision precision[WHAT_IF_PRECISIONS], const Precision *run)
{
    static const char *const named[] = {"fp32", "bf16", "fp16"};
    Error ignored = {0};
    int n = 0;
    for (; n < 3; n++)
        precision_parse(named[n], &precision[n], &ignored);
    if (!precision_name(run))
        precision[n++] = *run;
    return n;
}

void what_if_make(WhatIf *w, const Model *m, int64_t accumulation, const Room *room)
{
    int64_t batch[WHAT_IF_BATCHES], sequences = m->run.batch_size * accumulation;
    Precision precision[WHAT_IF_PRECISIONS];
    w->n_batches = batches_list(batch, m->run.batch_size);
    w->n_precisions = precisions_list(precision, &m->run.precision);
    for (int p = 0; p < w->n_precisions; p++)
        for (int level = 0; level < RECOMPUTE_COUNT; level++)
            for (int b = 0; b < w->n_batches; b++) {
                Setting *s = &w->setting[p][level][b];
                *s = (Setting){.precision = precision[p],
                               .recompute = (Recompute)level,
                               .recompute_every = level == RECOMPUTE_BLOCK ? m->run.recompute_every : 1,
                               .batch_size = batch[b],
                               .accumulation = (sequences + batch[b] - 1) / batch[b]};
                setting_plan(s, m, room);
            }
}

/* FLOPs of a level relative to `none`; NAN when there is no such run. */
static double flops_relative(const WhatIf *w, int precision, int level, int batch)
{
    const Setting *s = &w->setting[precision][level][batch], *none = &w->setting[precision][RECOMPUTE_NONE][batch];
    return s->flops && none->flops ? (double)s->flops / (double)none->flops : (double)NAN;
}

void what_if_print(FILE *out, const WhatIf *w, const Room *room)
{
    BytesText text;
    fprintf(out,
            "\nWhat if: MiB, \xe2\x9c\x93 where that fits into the %s %s; FLOPs executed, relative to those without recompute\n",
            bytes_text(text, room->bytes), room->what);
    fprintf(out, "  precision  recompute    FLOPs");
    for (int b = 0; b < w->n_batches; b++) {
        snprintf(text, sizeof text, "B %lld", (long long)w->setting[0][0][b].batch_size);
        fprintf(out, " %10s  ", text);
    }
    for (int p = 0; p < w->n_precisions; p++)
        for (int level = 0; level < RECOMPUTE_COUNT; level++) {
            const Setting *s = w->setting[p][level];
            char name[32];
            snprintf(name, sizeof name, s->recompute_every > 1 ? "%s/%lld" : "%s", recompute_name(s->recompute),
                     (long long)s->recompute_every);
            fprintf(out, "\n  %-10s %-10s %7.4f", level ? "" : policy_name(s), name, flops_relative(w, p, level, 0));
            for (int b = 0; b < w->n_batches; b++)
                if (isfinite(s[b].bytes))
                    fprintf(out, " %10.1f %s", s[b].bytes / 0x1p20, s[b].bytes <= room->bytes ? "\xe2\x9c\x93" : " ");
                else
                    fprintf(out, " %10s  ", "-");
        }
    fprintf(out, "\n");
}

json_t *what_if_json(const WhatIf *w, const Model *m, const Room *room)
{
    json_t *list = json_array();
    for (int p = 0; p < w->n_precisions; p++)
        for (int level = 0; level < RECOMPUTE_COUNT; level++)
            for (int b = 0; b < w->n_batches; b++) {
                const Setting *s = &w->setting[p][level][b];
                bool possible = isfinite(s->bytes);
                json_array_append_new(
                    list,
                    json_pack("{s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:b}", "precision", policy_name(s), "recompute",
                              recompute_name(s->recompute), "recompute_every", (json_int_t)s->recompute_every, "batch_size",
                              (json_int_t)s->batch_size, "bytes", possible ? json_integer((json_int_t)s->bytes) : json_null(),
                              "flops_per_token", possible ? json_real((double)s->flops / (double)m->run.block_size) : json_null(),
                              "flops_relative", possible ? json_real(flops_relative(w, p, level, b)) : json_null(), "fits",
                              s->bytes <= room->bytes));
            }
    return list;
}
