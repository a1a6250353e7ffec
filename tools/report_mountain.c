/* The mountain: live memory over one training step, every tensor a shape with its name and numbers in it.
 *
 * It stands on what lives as long as the run, one stratum a tensor (weights, gradients, moments), at its place in the persistent
 * arena. Upon that the tensors of the step arena are piled in the order of their births. What the forward keeps for the backward
 * dies in the opposite order, so it lies still, layer upon layer; what dies earlier lets those above it sink. The pile's height
 * during op i is what lives of the plan then, to the byte. */
#include "tools/report.h"

#include "model/ledger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Ops of one training step: they come first in the log. */
static long step_ops(const Plan *p)
{
    long n = 0;
    while (n < p->log.count && p->log.op[n].phase <= PHASE_OPTIMIZER)
        n++;
    return n;
}

static bool in_pile(const PlanTensor *t)
{
    return !category_is_persistent(t->category) && t->life[PASS_TRAINING].first >= 0;
}

/* ---- A tensor -------------------------------------------------------------------------------------------------------- */

static void op_text(char *text, size_t size, const Plan *p, int64_t i)
{
    const DryOp *op = &p->log.op[i];
    int used = snprintf(text, size, "%s (%s", op_name(op->op), phase_name(op->phase));
    snprintf(text + used, size - (size_t)used, op->layer < 0 ? ")" : " of layer %d)", op->layer);
}

/* Draws tensor k: lo and hi as for plot_band, of a stratum NULL. */
static void tensor_draw(const Plot *p, const Model *m, int k, const double *lo, const double *hi)
{
    const PlanTensor *t = &m->plan.tensor[k];
    Life life = t->life[PASS_TRAINING];
    char detail[320], more[80] = "", first[96], last[96];
    int used = snprintf(detail, sizeof detail, " \xc2\xb7 %s", dtype_name(t->dtype));
    for (int i = 0; i < t->ndim; i++)
        used += snprintf(detail + used, sizeof detail - (size_t)used, "%s%lld", i ? " \xc3\x97 " : " ", (long long)t->shape[i]);
    snprintf(detail + used, sizeof detail - (size_t)used, " \xc2\xb7 always");
    if (lo) {
        op_text(first, sizeof first, &m->plan, life.first);
        op_text(last, sizeof last, &m->plan, life.last);
        snprintf(detail + used, sizeof detail - (size_t)used, " \xc2\xb7 from %s to %s", first, last);
        snprintf(more, sizeof more, " data-first=\"%lld\" data-last=\"%lld\"", (long long)life.first, (long long)life.last);
    }
    Shape s = {t->name, category_name(t->category), more, detail, t->layer, m->config.n_layer, k % 2, (double)t->bytes};
    shape_begin(p->out, &s);
    if (lo)
        plot_band(p, lo, hi, life.first, life.last);
    else
        fprintf(p->out, "M0 %.2fH1000V%.2fH0Z", plot_y(p, (double)(t->offset + t->bytes)), plot_y(p, (double)t->offset));
    shape_end(p->out);
}

/* ---- The pile ------------------------------------------------------------------------------------------------------- */

typedef struct Birth {
    int64_t op;
    int tensor;
} Birth;

static int earlier_first(const void *a, const void *b)
{
    const Birth *x = a, *y = b;
    return x->op != y->op ? (x->op > y->op) - (x->op < y->op) : x->tensor - y->tensor;
}

/* Draws the pile upon the strata. */
static void pile_draw(const Plot *p, const Model *m, Error *e)
{
    const Plan *plan = &m->plan;
    size_t ops = (size_t)step_ops(plan);
    int n = 0;
    Birth *birth = memory_get(e, (size_t)plan->count, sizeof *birth, "the mountain");
    double *lo = memory_get(e, ops, sizeof *lo, "the mountain"), *hi = memory_get(e, ops, sizeof *hi, "the mountain");
    for (int k = 0; !e->set && k < plan->count; k++)
        if (in_pile(&plan->tensor[k]))
            birth[n++] = (Birth){plan->tensor[k].life[PASS_TRAINING].first, k};
    if (n)
        qsort(birth, (size_t)n, sizeof *birth, earlier_first);
    for (size_t i = 0; n && i < ops; i++)
        lo[i] = (double)plan->persistent_bytes;
    for (int i = 0; i < n; i++) {
        const PlanTensor *t = &plan->tensor[birth[i].tensor];
        Life life = t->life[PASS_TRAINING];
        for (int64_t k = life.first; k <= life.last; k++)
            hi[k] = lo[k] + (double)t->bytes;
        tensor_draw(p, m, birth[i].tensor, lo, hi);
        memcpy(&lo[life.first], &hi[life.first], (size_t)(life.last - life.first + 1) * sizeof *lo);
    }
    free(birth);
    free(lo);
    free(hi);
}

/* ---- One level ------------------------------------------------------------------------------------------------------ */

/* Below the hill: a strip in the colours of the phases, and where the layers begin. */
static void phases_draw(FILE *out, const Model *m, long ops)
{
    const DryOp *op = m->plan.log.op;
    int every = (int)m->config.n_layer / 8 + 1;
    fprintf(out, "<svg class=\"phases\" viewBox=\"0 0 %ld 1\" preserveAspectRatio=\"none\" aria-hidden=\"true\">", ops);
    for (long i = 0; i < ops; i++)
        fprintf(out, "<path style=\"--c:var(--%s)\" d=\"M%ld 0h1v1h-1z\"/>", phase_name(op[i].phase), i);
    fputs("</svg><span class=\"x\">", out);
    for (long i = 1; i < ops; i++)
        if (op[i].layer >= 0 && op[i].layer % every == 0 && op[i].layer != op[i - 1].layer)
            fprintf(out, "<span style=\"left:%.2f%%\">%d</span>", 100 * (double)i / (double)ops, op[i].layer);
    fputs("</span>", out);
}

/* The mountain at one level; `top`: what the upper edge stands for, the same at all levels. */
static void level_draw(FILE *out, const Report *r, int level, double top)
{
    const Model *m = &r->level[level];
    const Plan *plan = &m->plan;
    const char *name = recompute_name((Recompute)level);
    long ops = step_ops(plan);
    double total = (double)plan_total_bytes(plan);
    Plot p = {out, 0, (double)ops, 0, top, true, 7};
    char text[256], peak[96];
    NumberText size;
    fprintf(out, "<div class=\"level\" data-level=\"%s\">\n", name);
    snprintf(text, sizeof text,
             "role=\"group\" aria-label=\"Live memory, recompute %s\" data-chart=\"mountain\" data-top=\"%.17g\" "
             "data-ops=\"%ld\"",
             name, top, ops);
    plot_begin(&p, "min(60vh,30rem)", text);
    for (int k = 0; k < plan->count; k++)
        if (category_is_persistent(plan->tensor[k].category))
            tensor_draw(&p, m, k, NULL, NULL);
    fprintf(out, "<g id=\"pile-%s\">\n", name);
    pile_draw(&p, m, r->error);
    fputs("</g></svg>\n", out);
    op_text(peak, sizeof peak, plan, plan->peak_op);
    snprintf(text, sizeof text, "%s, at the peak in %s", mib_text(size, total), peak);
    plot_label(&p, "across", 0, total, text);
    if (plan->peak_op < ops)
        plot_label(&p, "peak", (double)plan->peak_op + 0.5, total, "\xe2\x96\xbc");
    snprintf(text, sizeof text, "%s %s", mib_text(size, r->room.bytes), r->room.what);
    if (r->room.bytes > 0 && r->room.bytes < top)
        plot_label(&p, "across room", 0, r->room.bytes, text);
    fputs("</span><span>", out);
    phases_draw(out, m, ops);
    plot_end(&p);
    fputs("</div>\n", out);
}

/* What the upper edge of all mountains stands for: the largest, with the room that it has if that is not far above. */
static double top_choose(const Report *r)
{
    double top = 0;
    for (int i = 0; i < RECOMPUTE_COUNT; i++)
        top = fmax(top, (double)plan_total_bytes(&r->level[i].plan));
    return 1.1 * (r->room.bytes > top && r->room.bytes < 1.4 * top ? r->room.bytes : top);
}

void report_mountains(FILE *out, Report *r)
{
    for (int i = 0; i < RECOMPUTE_COUNT; i++)
        level_draw(out, r, i, top_choose(r));
}

void report_levels(FILE *out, Report *r)
{
    double widest = 0, flops[RECOMPUTE_COUNT], top = top_choose(r);
    for (int i = 0; i < RECOMPUTE_COUNT; i++) {
        widest = fmax(widest, (double)step_ops(&r->level[i].plan));
        flops[i] = executed_flops_per_token(&r->level[i], PHASE_COUNT, r->accumulation);
    }
    for (int i = 0; i < RECOMPUTE_COUNT; i++) {
        const Plan *plan = &r->level[i].plan;
        const char *name = recompute_name((Recompute)i), *mine = r->dir ? " (this run)" : " (this plan)";
        bool own = i == (int)r->own;
        double total = (double)plan_total_bytes(plan);
        Plot p = {out, 0, widest, 0, top, true, 3};
        NumberText size, exact;
        fprintf(
            out,
            "<label data-chart=\"level\" data-recompute=\"%s\" data-total=\"%.17g\" data-flops=\"%.17g\"><input type=\"radio\" "
            "name=\"level\" value=\"%s\"%s><b>%s</b>%s<span title=\"%s\">%s, %.3f &times; FLOPs</span>\n<span inert>",
            name, total, flops[i], name, own ? " checked" : "", name, own ? mine : "", exact_text(exact, total),
            mib_text(size, total), flops[i] / flops[RECOMPUTE_NONE]);
        plot_begin(&p, "7rem", "aria-hidden=\"true\"");
        fprintf(out,
                "<path class=\"strata\" d=\"M0 1000H1000V%.2fH0Z\"/><use href=\"#pile-%s\" transform=\"scale(%.5f 1)\"/></svg>"
                "</span><span>",
                plot_y(&p, (double)plan->persistent_bytes), name, (double)step_ops(plan) / widest);
        plot_end(&p);
        fputs("</span></label>\n", out);
    }
}

void report_legend(FILE *out, Report *r)
{
    for (int c = 0; c < CATEGORY_COUNT; c++)
        if (r->level[r->own].plan.category_bytes[c])
            fprintf(out, "<li style=\"--c:var(--%s)\">%s</li>\n", category_name((Category)c), category_name((Category)c));
    for (int i = PHASE_FORWARD; i <= PHASE_OPTIMIZER; i++)
        fprintf(out, "<li class=\"phase\" style=\"--c:var(--%s)\">%s</li>\n", phase_name((Phase)i), phase_name((Phase)i));
}
