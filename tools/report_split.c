/* What the memory holds: a bar for each category, in pieces by layer, all on one scale; of the step arena, what is alive at its
 * peak. The bytes of the bars, of alignment and of the packing gap add up to the plan's total. */
#include "tools/report.h"

#include <math.h>

/* Bytes of a layer (-1: in none) in what a category's number is the sum of. */
static double layer_bytes(const Plan *p, int category, int layer)
{
    double sum = 0;
    for (int k = 0; k < p->count; k++) {
        const PlanTensor *t = &p->tensor[k];
        bool counts = category_is_persistent(t->category);
        for (int pass = 0; pass < PASS_COUNT; pass++)
            counts |= t->life[pass].first >= 0 && t->life[pass].first <= p->peak_op && p->peak_op <= t->life[pass].last;
        sum += counts && t->layer == layer && t->category == (Category)category ? (double)t->bytes : 0;
    }
    return sum;
}

static void bar_draw(FILE *out, const Model *m, int category, double widest)
{
    const char *name = category_name((Category)category);
    double at = 0;
    fprintf(out,
            "<svg viewBox=\"0 0 1000 1\" preserveAspectRatio=\"none\" role=\"group\" aria-label=\"%s\" data-chart=\"split\" "
            "data-category=\"%s\" data-total=\"%zu\">\n",
            name, name, m->plan.category_bytes[category]);
    for (int layer = -1; layer < m->config.n_layer; layer++) {
        double bytes = layer_bytes(&m->plan, category, layer), from = 1000 * at / widest;
        Shape s = {layer < 0 ? "outside the blocks" : "block", name, "", "", layer, m->config.n_layer, layer % 2, bytes};
        at += bytes;
        if (bytes == 0)
            continue;
        shape_begin(out, &s);
        fprintf(out, "M%.2f 0H%.2fV1H%.2fZ", from, 1000 * at / widest, from);
        shape_end(out);
    }
    fputs("</svg>\n", out);
}

static void row_write(FILE *out, const char *label, double bytes, double total)
{
    NumberText text, count;
    fprintf(out, "<span class=\"name\">%s</span><span class=\"n\" title=\"%s bytes\">%s</span><span class=\"n\">%.2f %%</span>\n",
            label, count_text(count, bytes), mib_text(text, bytes), 100 * bytes / total);
}

void report_split(FILE *out, Report *r)
{
    const Model *m = &r->level[r->own];
    const Plan *p = &m->plan;
    double widest = 1, total = (double)plan_total_bytes(p);
    for (int c = 0; c < CATEGORY_COUNT; c++)
        widest = fmax(widest, (double)p->category_bytes[c]);
    for (int c = 0; c < CATEGORY_COUNT; c++)
        if (p->category_bytes[c]) {
            row_write(out, category_name((Category)c), (double)p->category_bytes[c], total);
            bar_draw(out, m, c, widest);
        }
    Plot axis = {out, 0, widest, 0, 1, true, 1};
    fputs("<span class=\"scale\"><span>", out);
    plot_x_ticks(&axis);
    fputs("</span></span>\n", out);
    row_write(out, "alignment", (double)p->alignment_bytes, total);
    row_write(out, "packing gap", (double)p->packing_bytes, total);
    row_write(out, "total", total, total);
}
