/* What the page says in words: what is reported on, its main numbers, and the command that does it again. */
#include "tools/report.h"

#include "model/ledger.h"
#include "train/checkpoint.h"
#include "train/options.h"

#include <math.h>
#include <stdlib.h>

void report_title(FILE *out, Report *r)
{
    const char *model = json_string_value(json_object_get(r->settings, "model"));
    fputs(r->dir ? "" : "Plan of ", out);
    html_text(out, r->dir ? r->dir : model ? model : "a model");
}

void report_summary(FILE *out, Report *r)
{
    const Model *m = &r->level[r->own];
    const ModelConfig *f = &m->config;
    PrecisionText types;
    fprintf(out, "GPT of %lld layers, %lld heads, %lld channels, context %lld, vocabulary %lld. ", (long long)f->n_layer,
            (long long)f->n_head, (long long)f->n_embd, (long long)f->block_size, (long long)f->vocab_size);
    fprintf(out, "A step is B&nbsp;%lld &times; T&nbsp;%lld &times; %lld tokens, in %s, recompute %s. ",
            (long long)m->run.batch_size, (long long)m->run.block_size, (long long)r->accumulation,
            precision_text(types, &m->run.precision), recompute_name(r->own));
    html_text(out, m->ctx.target.name);
    int64_t taken = json_integer_value(json_object_get(r->log.configuration, "persistent_bytes")) +
                    json_integer_value(json_object_get(r->log.configuration, "step_bytes"));
    if (r->dir && taken != (int64_t)plan_total_bytes(&m->plan))
        fprintf(out, ". <strong>The run took %lld bytes, which this version of tally does not</strong>", (long long)taken);
}

/* A number with what it means; pointing at it shows the exact one. `format` is printf's for it, or a text that says it. */
static void fact_write(FILE *out, const char *name, const char *format, double value, const char *label)
{
    fprintf(out, "<div data-fact=\"%s\" title=\"%.17g\"><dt>%s</dt><dd>", name, value, label);
    fprintf(out, format, value);
    fputs("</dd></div>\n", out);
}

void report_facts(FILE *out, Report *r)
{
    const Model *m = &r->level[r->own];
    NumberText size, room;
    char label[192] = "of memory, taken before the first step";
    double best = (double)NAN, total = (double)plan_total_bytes(&m->plan);
    double flops = executed_flops_per_token(m, PHASE_COUNT, r->accumulation);
    bool fits = setting_of(m, r->accumulation, &r->room).bytes <= r->room.bytes;
    if (r->room.bytes > 0)
        snprintf(label, sizeof label, "of memory: %s the %s %s", fits ? "fits into" : "<strong>does not fit</strong> into",
                 mib_text(room, r->room.bytes), r->room.what);
    fact_write(out, "total", mib_text(size, total), total, label);
    fact_write(out, "parameters", "%.2f M", (double)model_parameters(m) / 1e6, "parameters");
    fact_write(out, "static", "%.4g", ledger_static_bytes(m), "bytes a parameter stay");
    fact_write(out, "flops", flops < 1e9 ? "%.4g M" : "%.4g G", flops / (flops < 1e9 ? 1e6 : 1e9), "FLOPs a token, executed");
    for (long i = 0; i < r->log.count; i++)
        best = fmin(best, r->log.row[i].value[METRIC_VAL_LOSS]);
    if (r->log.count)
        fact_write(out, "loss", "%.4f", r->log.row[r->log.count - 1].value[METRIC_LOSS], "loss of the last step");
    if (!isnan(best))
        fact_write(out, "val_loss", "%.4f", best, "validation loss, the least");
    const json_t *floor = json_object_get(r->log.configuration, "val_floor");
    if (json_is_number(floor))
        fact_write(out, "val_floor", "%.4f", json_number_value(floor), "its floor, below which no model goes");
}

/* The settings that differ from `usual`, as flags. */
static void flags_write(FILE *out, const json_t *settings, const json_t *usual)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)settings, name, value)
    {
        if (json_equal(value, json_object_get(usual, name)))
            continue;
        char *number = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
        const char *text = number ? number : json_string_value(value);
        fputs(" <span>--", out); /* a span is not broken into lines */
        for (const char *c = name; *c; c++)
            fputc(*c == '_' ? '-' : *c, out);
        fputs(json_is_boolean(value) || *text == '-' ? "</span>=" : "</span> ", out);
        html_word(out, text);
        free(number);
    }
}

static void run_command_write(FILE *out, Report *r)
{
    const char *from = json_string_value(json_object_get(r->log.configuration, "init_from"));
    TrainOptions usual = train_options_default();
    json_t *defaults = train_options_to_json(&usual), *checkpoint = NULL;
    char path[PATH_SIZE];
    Error none = {0};
    fputs("tally train --out-dir ", out);
    html_word(out, r->dir);
    if (from) {
        fputs(" --init-from ", out);
        html_word(out, from);
    }
    flags_write(out, r->settings, defaults);
    /* The settings of a run that was resumed with others are in its latest checkpoint. */
    const json_t *now = checkpoint_find(r->dir, path, &checkpoint, &none) ? json_object_get(checkpoint, "settings") : NULL;
    if (now && !json_equal(now, r->settings)) {
        fputs("\ntally train --resume --out-dir ", out);
        html_word(out, r->dir);
        flags_write(out, now, r->settings);
    }
    json_decref(checkpoint);
    json_decref(defaults);
}

void report_again(FILE *out, Report *r)
{
    if (r->dir) {
        run_command_write(out, r);
        return;
    }
    fputs("tally plan", out);
    for (char **word = r->words; *word; word++) {
        fputs(**word == '-' ? " <span>" : " ", out);
        html_word(out, *word);
        fputs(**word == '-' ? "</span>" : "", out);
    }
}
