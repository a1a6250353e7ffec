/* See ledger.h. Reading /proc is in resident.c. */
#include "model/ledger.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

const char *bytes_text(BytesText text, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    for (; fabs(bytes) >= 1024 && unit < 6; unit++)
        bytes /= 1024;
    snprintf(text, sizeof(BytesText), unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

double model_flops_per_token(const Model *m)
{
    double matrices = 0;
    for (int i = 0; i < m->n_weights; i++)
        if (m->weight[i]->value.ndim == 2 && m->weight[i] != &m->wpe)
            matrices += (double)tensor_count(m->weight[i]->value);
    return 6 * matrices + 6 * (double)m->config.n_layer * (double)m->config.n_embd * (double)m->run.block_size;
}

static void row_print(FILE *out, const char *name, size_t bytes, size_t total)
{
    enum { BAR = 30 };
    BytesText text;
    char bar[3 * BAR + 1] = "";
    int filled = total ? (int)lround((double)bytes / (double)total * BAR) : 0;
    for (int i = 0; i < filled && i < BAR; i++)
        strcat(bar, "\xe2\x96\x88");
    fprintf(out, "  %-22s %12s %6.2f %%  %s\n", name, bytes_text(text, (double)bytes),
            total ? 100 * (double)bytes / (double)total : 0.0, bar);
}

static void layers_print(FILE *out, const Model *m)
{
    const Plan *p = &m->plan;
    fprintf(out, "\n  layer      weights    gradients         adam  activations   their gradients (each alive for a few ops)\n");
    for (int layer = -1; layer < m->config.n_layer; layer++) {
        size_t sum[CATEGORY_COUNT] = {0};
        for (int i = 0; i < p->count; i++)
            if (p->tensor[i].layer == layer)
                sum[p->tensor[i].category] += p->tensor[i].bytes;
        BytesText a, b, c, d, f;
        char name[16] = "others";
        if (layer >= 0)
            snprintf(name, sizeof name, "%d", layer);
        fprintf(out, "  %-6s %12s %12s %12s %12s %12s\n", name, bytes_text(a, (double)sum[CATEGORY_WEIGHTS]),
                bytes_text(b, (double)sum[CATEGORY_GRADIENTS]),
                bytes_text(c, (double)(sum[CATEGORY_ADAM_M] + sum[CATEGORY_ADAM_V])),
                bytes_text(d, (double)sum[CATEGORY_ACTIVATIONS]), bytes_text(f, (double)sum[CATEGORY_ACTIVATION_GRADIENTS]));
    }
}

static void costs_print(FILE *out, const Model *m)
{
    double tokens = (double)m->run.batch_size * (double)m->run.block_size;
    if (!m->run.training || tokens == 0)
        return;
    fprintf(out, "\n  FLOPs per token: model %.4g (6 N + 6 L C T)", model_flops_per_token(m));
    for (int phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++)
        fprintf(out, ", %s %.4g", phase_name((Phase)phase), (double)plan_cost(&m->plan, (Phase)phase).gemm_flops / tokens);
    PlanCost update = plan_cost(&m->plan, PHASE_OPTIMIZER);
    BytesText moved;
    fprintf(out, " (head's forward included)\n  bytes moved by an update: at least %s\n",
            bytes_text(moved, (double)(update.bytes_read + update.bytes_written)));
}

void ledger_print(FILE *out, const Model *m, bool per_layer)
{
    const Plan *p = &m->plan;
    size_t total = plan_total_bytes(p);
    BytesText a, b, c;
    fprintf(out, "Memory plan: %.2fM parameters, B %lld x T %lld, fp32, on %s\n", (double)model_parameters(m) / 1e6,
            (long long)m->run.batch_size, (long long)m->run.block_size, m->ctx.target.name);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        if (p->category_bytes[i])
            row_print(out, category_name((Category)i), p->category_bytes[i], total);
    row_print(out, "(alignment)", p->alignment_bytes, total);
    row_print(out, "(packing gap)", p->packing_bytes, total);
    fprintf(out, "  %-22s %12s   = persistent %s + step %s\n", "total", bytes_text(a, (double)total),
            bytes_text(b, (double)p->persistent_bytes), bytes_text(c, (double)p->step_bytes));
    if (p->log.count) {
        const DryOp *op = &p->log.op[p->peak_op];
        fprintf(out, "  step arena's peak: %s in use during %s", bytes_text(a, (double)p->peak_live), op_name(op->op));
        if (op->layer >= 0)
            fprintf(out, " of layer %d", op->layer);
        fprintf(out, " (%s)\n", phase_name(op->phase));
    }
    costs_print(out, m);
    if (per_layer)
        layers_print(out, m);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

static json_t *tensor_json(const PlanTensor *t)
{
    json_t *shape = json_array(), *lives = json_object();
    static const char *const passes[PASS_COUNT] = {"training", "evaluation", "sampling"};
    for (int i = 0; i < t->ndim; i++)
        json_array_append_new(shape, json_integer(t->shape[i]));
    for (int i = 0; i < PASS_COUNT; i++)
        if (t->life[i].first >= 0)
            json_object_set_new(lives, passes[i], json_pack("[I,I]", (json_int_t)t->life[i].first, (json_int_t)t->life[i].last));
    return json_pack("{s:s, s:i, s:s, s:s, s:o, s:I, s:s, s:I, s:o}", "name", t->name, "layer", t->layer, "category",
                     category_name(t->category), "dtype", dtype_name(t->dtype), "shape", shape, "bytes", (json_int_t)t->bytes,
                     "arena", category_is_persistent(t->category) ? "persistent" : "step", "offset", (json_int_t)t->offset,
                     "lives", lives);
}

static json_t *costs_json(const Plan *p)
{
    json_t *phases = json_object();
    for (int i = 0; i < PHASE_COUNT; i++) {
        PlanCost c = plan_cost(p, (Phase)i);
        json_object_set_new(phases, phase_name((Phase)i),
                            json_pack("{s:I, s:I, s:I, s:I}", "gemm_flops", (json_int_t)c.gemm_flops, "other_flops",
                                      (json_int_t)c.other_flops, "bytes_read", (json_int_t)c.bytes_read, "bytes_written",
                                      (json_int_t)c.bytes_written));
    }
    return phases;
}

json_t *ledger_json(const Model *m)
{
    const Plan *p = &m->plan;
    json_t *categories = json_object(), *tensors = json_array(), *peak = json_object();
    for (int i = 0; i < CATEGORY_COUNT; i++)
        json_object_set_new(categories, category_name((Category)i), json_integer((json_int_t)p->category_bytes[i]));
    for (int i = 0; i < p->count; i++)
        json_array_append_new(tensors, tensor_json(&p->tensor[i]));
    json_object_set_new(peak, "bytes", json_integer((json_int_t)p->peak_live));
    if (p->log.count) {
        const DryOp *op = &p->log.op[p->peak_op];
        json_object_set_new(peak, "op", json_string(op_name(op->op)));
        json_object_set_new(peak, "phase", json_string(phase_name(op->phase)));
        json_object_set_new(peak, "layer", json_integer(op->layer));
    }
    return json_pack("{s:o, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:f, s:o, s:o}", "categories", categories, "persistent_bytes",
                     (json_int_t)p->persistent_bytes, "step_bytes", (json_int_t)p->step_bytes, "total_bytes",
                     (json_int_t)plan_total_bytes(p), "peak", peak, "packing_bytes", (json_int_t)p->packing_bytes,
                     "alignment_bytes", (json_int_t)p->alignment_bytes, "parameters", (json_int_t)model_parameters(m),
                     "model_flops_per_token", model_flops_per_token(m), "costs", costs_json(p), "tensors", tensors);
}

/* ---- Does it fit --------------------------------------------------------------------------------------------------- */

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

/* What the run takes in all at another batch_size; `beside` of it belongs to m's own. Infinite when there can be no such run. */
static double needed_at(const Model *m, int64_t batch_size, double beside)
{
    Error ignored = {0};
    Model other;
    ModelRun run = m->run;
    run.batch_size = batch_size;
    double bytes = (double)INFINITY;
    if (model_plan(&other, &m->config, &run, &m->ctx.target, &ignored))
        bytes = (double)plan_total_bytes(&other.plan) + beside * (double)batch_size / (double)m->run.batch_size;
    model_free(&other);
    return bytes;
}

/* The largest batch_size below m's that fits; 0: none. By bisection. */
static int64_t batch_that_fits(const Model *m, double beside, double limit)
{
    int64_t fits = 0, high = m->run.batch_size;
    while (fits + 1 < high) {
        int64_t middle = fits + (high - fits) / 2;
        if (needed_at(m, middle, beside) <= limit)
            fits = middle;
        else
            high = middle;
    }
    return fits;
}

bool ledger_check(const Model *m, size_t beside, double cap, Error *e)
{
    size_t free_bytes = memory_available();
    double needed = (double)plan_total_bytes(&m->plan) + (double)beside;
    double limit = (double)(free_bytes ? free_bytes : m->ctx.target.total_bytes);
    bool capped = cap > 0 && cap < limit;
    limit = capped ? cap : limit;
    if (needed <= limit)
        return true;
    Category category = CATEGORY_WEIGHTS;
    for (int i = 0; i < CATEGORY_COUNT; i++)
        if (m->plan.category_bytes[i] > m->plan.category_bytes[category])
            category = (Category)i;
    bool planned = m->plan.category_bytes[category] >= beside;
    const char *largest = planned ? category_name(category) : "the tokens of a whole optimizer step";
    int64_t fits = batch_that_fits(m, (double)beside, limit);
    BytesText a, b, c, d;
    char advice[160] = "take a smaller model, fewer sequences, or more memory";
    if (fits > 0)
        snprintf(advice, sizeof advice,
                 "--batch-size %lld fits (with --gradient-accumulation-steps for the same tokens per step)", (long long)fits);
    else if (m->run.batch_size)
        snprintf(advice, sizeof advice, "no batch_size fits: take a smaller model, or more memory");
    return error_usage(e, "the plan needs %s, %s more than the %s there %s; the largest part is %s with %s; %s",
                       bytes_text(a, needed), bytes_text(b, needed - limit), bytes_text(c, limit),
                       capped ? "may be (--mem-cap)" : "is free", largest,
                       bytes_text(d, (double)(planned ? m->plan.category_bytes[category] : beside)), advice);
}
