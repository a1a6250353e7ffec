/* The curves of a run, from its log.jsonl. More steps than there are places on a screen are drawn in groups of equally many: the
 * line goes through their means, and the band about it from the least to the largest. */
#include "tools/report.h"

#include "base/file.h"
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 500 };

static const struct {
    const char *field, *title;
    bool from_zero; /* does the axis begin at 0 */
} metrics[METRIC_COUNT] = {{"loss", "Loss", false},
                           {"val_loss", "Validation loss", false},
                           {"lr", "Learning rate", true},
                           {"grad_norm", "Gradient norm", true},
                           {"tokens_per_s", "Tokens per second", true}};

/* ---- The log --------------------------------------------------------------------------------------------------------- */

static void row_add(RunLog *log, const json_t *line, Error *e)
{
    int64_t step = json_integer_value(json_object_get(line, "step"));
    double before = log->count ? log->row[log->count - 1].step : 0;
    bool fits = (double)step > before && step < INT64_C(1) << 50;
    if (!fits || !memory_grow(&log->row, &log->capacity, (size_t)log->count + 1, sizeof *log->row, "the log", e)) {
        log->unreadable++;
        return;
    }
    LogRow *row = &log->row[log->count++];
    row->step = (double)step;
    for (int i = 0; i < METRIC_COUNT; i++) {
        const json_t *value = json_object_get(line, metrics[i].field);
        row->value[i] = json_is_number(value) && fabs(json_number_value(value)) < 1e30 ? json_number_value(value) : (double)NAN;
    }
    log->skipped += json_is_true(json_object_get(line, "skipped"));
}

bool log_read(RunLog *log, const char *dir, Error *e)
{
    char path[PATH_SIZE], *bytes;
    size_t size;
    if (!path_join(path, dir, "log.jsonl", e) || !file_read_all(path, SIZE_MAX - 1, &bytes, &size, e))
        return false;
    const char *at = bytes, *end = at + size;
    while (at < end && !e->set) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        if (at == bytes) {
            log->configuration = json_parse(at, n, path, e);
        } else {
            json_t *line = json_loadb(at, n, JSON_REJECT_DUPLICATES, NULL);
            row_add(log, line, e);
            json_decref(line);
        }
        at = stop ? stop + 1 : end;
    }
    if (!log->configuration)
        error_set(e, "%s: is empty; `tally train` begins it with the run's configuration", path);
    free(bytes);
    return !e->set;
}

void log_free(RunLog *log)
{
    json_decref(log->configuration);
    free(log->row);
}

/* ---- Groups ---------------------------------------------------------------------------------------------------------- */

/* Some steps as one place of the curves; NaN where none of them has a value. */
typedef struct Group {
    double first, last, mean[METRIC_COUNT], least[METRIC_COUNT], most[METRIC_COUNT];
} Group;

static Group group_make(const LogRow *row, long n)
{
    Group g = {.first = row[0].step, .last = row[n - 1].step};
    for (int i = 0; i < METRIC_COUNT; i++) {
        double sum = 0, count = 0;
        g.least[i] = g.most[i] = (double)NAN;
        for (long k = 0; k < n; k++) {
            double value = row[k].value[i];
            g.least[i] = fmin(g.least[i], value); /* of a NaN and a number: the number */
            g.most[i] = fmax(g.most[i], value);
            sum += isnan(value) ? 0 : value;
            count += !isnan(value);
        }
        g.mean[i] = sum / count;
    }
    return g;
}

/* {"last": [...], METRIC: [[mean, least, most] or null, ...]}: an element a group, `last` being its last step. */
static json_t *groups_json(const Group *g, int n)
{
    json_t *object = json_object(), *last = json_array();
    for (int k = 0; k < n; k++)
        json_array_append_new(last, json_real(g[k].last));
    json_object_set_new(object, "last", last);
    for (int i = 0; i < METRIC_COUNT; i++) {
        json_t *list = json_array();
        for (int k = 0; k < n; k++)
            json_array_append_new(list, isnan(g[k].mean[i]) ? json_null()
                                                            : json_pack("[f,f,f]", g[k].mean[i], g[k].least[i], g[k].most[i]));
        json_object_set_new(object, metrics[i].field, list);
    }
    return object;
}

/* ---- Drawing --------------------------------------------------------------------------------------------------------- */

static void curve_draw(const Plot *p, const Group *g, int n, int metric)
{
    bool dots = metric == METRIC_VAL_LOSS, pen = false; /* what is measured now and then gets a dot each */
    fputs("<path class=\"band\" d=\"", p->out);
    for (int i = 0; i < n; i++)
        if (g[i].most[metric] > g[i].least[metric])
            fprintf(p->out, "M%.2f %.2fV%.2f", plot_x(p, g[i].last), plot_y(p, g[i].least[metric]), plot_y(p, g[i].most[metric]));
    fprintf(p->out, "\"/><path class=\"%s\" data-line=\"%s\" d=\"", dots ? "dots" : "line", metrics[metric].field);
    for (int i = 0; i < n; i++) {
        double y = g[i].mean[metric];
        if (!isnan(y))
            fprintf(p->out, pen && !dots ? "L%.2f %.2f" : "M%.2f %.2fh0", plot_x(p, g[i].last), plot_y(p, y));
        pen = !isnan(y);
    }
    fputs("\"/>", p->out);
}

/* The chart of a metric; that of the loss has the validation's too. all: the whole log as one group. */
static void chart_draw(FILE *out, const RunLog *log, const Group *g, int n, const Group *all, int metric)
{
    int other = metric == METRIC_LOSS && !isnan(all->mean[METRIC_VAL_LOSS]) ? METRIC_VAL_LOSS : metric;
    double low = metrics[metric].from_zero ? fmin(0, all->least[metric]) : fmin(all->least[metric], all->least[other]);
    double high = fmax(all->most[metric], all->most[other]), margin = fmax(0.05 * (high - low), 1e-6 * fabs(high) + 1e-30);
    double last = log->row[log->count - 1].value[metric];
    Plot p = {out, all->first - 1, all->last, low < 0 || !metrics[metric].from_zero ? low - margin : 0, high + margin, false, 4};
    char attributes[512];
    if (isnan(high))
        return;
    snprintf(attributes, sizeof attributes,
             "tabindex=\"0\" role=\"img\" aria-label=\"%s: at the end %.6g, least %.6g, most %.6g\" data-chart=\"curve\" "
             "data-metric=\"%s\" "
             "data-last=\"%.17g\" data-min=\"%.17g\" data-max=\"%.17g\" data-x=\"%.17g %.17g\" data-y=\"%.17g %.17g\"",
             metrics[metric].title, last, all->least[metric], all->most[metric], metrics[metric].field, last, all->least[metric],
             all->most[metric], p.x0, p.x1, p.y0, p.y1);
    fprintf(out, "<figure class=\"curve\">\n<h3>%s%s</h3>\n<p class=\"readout\" aria-live=\"polite\">at the end %.6g</p>\n",
            metrics[metric].title, other == metric ? "" : " (dots: validation)", last);
    plot_begin(&p, "12rem", attributes);
    curve_draw(&p, g, n, metric);
    if (other != metric)
        curve_draw(&p, g, n, other);
    fputs("<path class=\"cursor\"/></svg>", out);
    plot_x_ticks(&p);
    plot_end(&p);
    fputs("</figure>\n", out);
}

void report_curves(FILE *out, Report *r)
{
    const RunLog *log = &r->log;
    Group groups[GROUPS], all = group_make(log->row, log->count);
    int n = log->count < GROUPS ? (int)log->count : GROUPS;
    for (long i = 0; i < n; i++)
        groups[i] = group_make(&log->row[i * log->count / n], (i + 1) * log->count / n - i * log->count / n);
    fprintf(out, "<p data-steps=\"%ld\" data-skipped=\"%ld\">%ld steps, %ld of them skipped for a gradient that was not finite. ",
            log->count, log->skipped, log->count, log->skipped);
    if (log->unreadable)
        fprintf(out, "%ld lines of the log are no steps. ", log->unreadable);
    fputs("Point at a curve, or Tab to it and use the arrow keys.</p>\n<div class=\"curves\">\n", out);
    for (int metric = 0; metric < METRIC_COUNT; metric++)
        if (metric != METRIC_VAL_LOSS)
            chart_draw(out, log, groups, n, &all, metric);
    fputs("</div>\n", out);
    json_object_set_new(r->data, "log", groups_json(groups, n));
}
