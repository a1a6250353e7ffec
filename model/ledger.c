/* See ledger.h. Reading /proc is in resident.c. */
#include "model/ledger.h"

#include <math.h>
#include <string.h>

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

/* Is the tensor kept from the forward for the backward, which begins with op `turn`? */
static bool is_kept(const PlanTensor *t, int64_t turn)
{
    Life life = t->life[PASS_TRAINING];
    return life.first >= 0 && life.first < turn && life.last >= turn;
}

static void layers_print(FILE *out, const Model *m)
{
    const Plan *p = &m->plan;
    int64_t turn = 0;
    while (turn < p->log.count && p->log.op[turn].phase != PHASE_BACKWARD)
        turn++;
    fprintf(out,
            "\n  layer       weights      masters    gradients         adam         kept   in passing: alive for a few ops\n");
    for (int layer = -1; layer < m->config.n_layer; layer++) {
        size_t sum[CATEGORY_COUNT] = {0}, kept = 0, passing = 0;
        for (int i = 0; i < p->count; i++) {
            const PlanTensor *t = &p->tensor[i];
            bool activation = t->category == CATEGORY_ACTIVATIONS || t->category == CATEGORY_ACTIVATION_GRADIENTS;
            if (t->layer == layer && activation && t->life[PASS_TRAINING].first >= 0)
                *(is_kept(t, turn) ? &kept : &passing) += t->bytes;
            else if (t->layer == layer)
                sum[t->category] += t->bytes;
        }
        BytesText a, b, c, d, f, g;
        char name[16] = "others";
        if (layer >= 0)
            snprintf(name, sizeof name, "%d", layer);
        fprintf(out, "  %-6s %12s %12s %12s %12s %12s %12s\n", name, bytes_text(a, (double)sum[CATEGORY_WEIGHTS]),
                bytes_text(b, (double)sum[CATEGORY_MASTER_WEIGHTS]), bytes_text(c, (double)sum[CATEGORY_GRADIENTS]),
                bytes_text(d, (double)(sum[CATEGORY_ADAM_M] + sum[CATEGORY_ADAM_V])), bytes_text(f, (double)kept),
                bytes_text(g, (double)passing));
    }
}

/* ---- FLOPs --------------------------------------------------------------------------------------------------------- */

/* Tokens that share the cost of a phase: those of a micro-batch, or, for the update, of a whole step. */
static double phase_tokens(const Model *m, Phase phase, int64_t accumulation)
{
    double tokens = (double)m->run.batch_size * (double)m->run.block_size;
    return phase == PHASE_OPTIMIZER ? tokens * (double)accumulation : tokens;
}

double executed_flops_per_token(const Model *m, Phase phase, int64_t accumulation)
{
    double sum = 0;
    for (int i = PHASE_FORWARD; i <= PHASE_OPTIMIZER; i++) {
        PlanCost c = plan_cost(&m->plan, (Phase)i);
        if (phase == PHASE_COUNT || phase == (Phase)i)
            sum += ((double)c.gemm_flops + (double)c.other_flops) / phase_tokens(m, (Phase)i, accumulation);
    }
    return sum;
}

static double intensity(PlanCost c)
{
    int64_t bytes = c.bytes_read + c.bytes_written;
    return bytes ? (double)(c.gemm_flops + c.other_flops) / (double)bytes : 0;
}

static void cost_print(FILE *out, const char *name, bool is_op, PlanCost c, double tokens)
{
    BytesText moved;
    fprintf(out, "  %s%-*s %12.4g %12.4g %12s %11.1f\n", is_op ? "  " : "", is_op ? 23 : 25, name, (double)c.gemm_flops / tokens,
            (double)c.other_flops / tokens, bytes_text(moved, (double)(c.bytes_read + c.bytes_written) / tokens), intensity(c));
}

static void costs_print(FILE *out, const Model *m, int64_t accumulation, bool per_op)
{
    if (!m->run.training)
        return;
    fprintf(out, "\n  %-25s %12s %12s %12s %11s\n", "per token", "GEMM FLOPs", "other FLOPs", "bytes moved", "FLOPs/byte");
    for (int phase = PHASE_FORWARD; phase <= PHASE_OPTIMIZER; phase++) {
        double tokens = phase_tokens(m, (Phase)phase, accumulation);
        cost_print(out, phase_name((Phase)phase), false, plan_cost(&m->plan, (Phase)phase), tokens);
        for (int op = 0; per_op && op < OP_COUNT; op++) {
            PlanCost c = plan_op_cost(&m->plan, (Phase)phase, (OpId)op);
            if (c.bytes_read + c.bytes_written)
                cost_print(out, op_name((OpId)op), true, c, tokens);
        }
    }
    double executed = executed_flops_per_token(m, PHASE_COUNT, accumulation);
    double again = executed_flops_per_token(m, PHASE_RECOMPUTE, accumulation);
    fprintf(out, "  (the head's forward is part of the backward; the update's share is that of %.0f tokens a step)\n",
            phase_tokens(m, PHASE_OPTIMIZER, accumulation));
    fprintf(out, "  FLOPs per token: executed %.4g, %.3f x those without recompute; model FLOPs (6 N + 6 L C T) %.4g\n", executed,
            executed / (executed - again), model_flops_per_token(m));
}

/* ---- The plan ------------------------------------------------------------------------------------------------------ */

double ledger_static_bytes(const Model *m)
{
    double bytes = 0;
    for (int i = 0; i < CATEGORY_COUNT; i++)
        bytes += category_is_persistent((Category)i) ? (double)m->plan.category_bytes[i] : 0;
    return bytes / (double)model_parameters(m);
}

/* "18 bytes a parameter stay: weights 2 + master_weights 4 + ..." */
static void static_print(FILE *out, const Model *m)
{
    fprintf(out, "  %g bytes a parameter stay:", ledger_static_bytes(m));
    for (int i = 0, n = 0; i < CATEGORY_COUNT; i++)
        if (category_is_persistent((Category)i) && m->plan.category_bytes[i])
            fprintf(out, "%s %s %g", n++ ? " +" : "", category_name((Category)i),
                    (double)m->plan.category_bytes[i] / (double)model_parameters(m));
    fprintf(out, "\n");
}

static void head_print(FILE *out, const Model *m, int64_t accumulation)
{
    const ModelRun *r = &m->run;
    PrecisionText types;
    fprintf(out, "Memory plan: %.2fM parameters", (double)model_parameters(m) / 1e6);
    if (r->training)
        fprintf(out, ", B %lld x T %lld x %lld a step, recompute %s", (long long)r->batch_size, (long long)r->block_size,
                (long long)accumulation, recompute_name(r->recompute));
    if (r->recompute_every > 1)
        fprintf(out, " every %lld", (long long)r->recompute_every);
    fprintf(out, ",\n  %s, on %s\n", precision_text(types, &r->precision), m->ctx.target.name);
}

void ledger_print(FILE *out, const Model *m, int64_t accumulation, bool verbose)
{
    const Plan *p = &m->plan;
    size_t total = plan_total_bytes(p);
    BytesText a, b, c;
    head_print(out, m, accumulation);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        if (p->category_bytes[i])
            row_print(out, category_name((Category)i), p->category_bytes[i], total);
    row_print(out, "(alignment)", p->alignment_bytes, total);
    row_print(out, "(packing gap)", p->packing_bytes, total);
    fprintf(out, "  %-22s %12s   = persistent %s + step %s\n", "total", bytes_text(a, (double)total),
            bytes_text(b, (double)p->persistent_bytes), bytes_text(c, (double)p->step_bytes));
    static_print(out, m);
    if (p->log.count) {
        const DryOp *op = &p->log.op[p->peak_op];
        fprintf(out, "  step arena's peak: %s in use during %s", bytes_text(a, (double)p->peak_live), op_name(op->op));
        if (op->layer >= 0)
            fprintf(out, " of layer %d", op->layer);
        fprintf(out, " (%s)\n", phase_name(op->phase));
    }
    costs_print(out, m, accumulation, verbose);
    if (verbose)
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

static json_t *cost_json(PlanCost c, double tokens)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "gemm_flops", (json_int_t)c.gemm_flops, "other_flops",
                     (json_int_t)c.other_flops, "bytes_read", (json_int_t)c.bytes_read, "bytes_written",
                     (json_int_t)c.bytes_written, "flops_per_token", (double)(c.gemm_flops + c.other_flops) / tokens,
                     "bytes_per_token", (double)(c.bytes_read + c.bytes_written) / tokens, "intensity", intensity(c));
}

static json_t *costs_json(const Model *m, int64_t accumulation)
{
    json_t *phases = json_object();
    for (int phase = PHASE_FORWARD; m->run.training && phase <= PHASE_OPTIMIZER; phase++) {
        double tokens = phase_tokens(m, (Phase)phase, accumulation);
        json_t *ops = json_object(), *all = cost_json(plan_cost(&m->plan, (Phase)phase), tokens);
        for (int op = 0; op < OP_COUNT; op++) {
            PlanCost c = plan_op_cost(&m->plan, (Phase)phase, (OpId)op);
            if (c.bytes_read + c.bytes_written)
                json_object_set_new(ops, op_name((OpId)op), cost_json(c, tokens));
        }
        json_object_set_new(all, "ops", ops);
        json_object_set_new(phases, phase_name((Phase)phase), all);
    }
    return phases;
}

static json_t *run_json(const ModelRun *r, int64_t accumulation)
{
    const Precision *p = &r->precision;
    json_t *types = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "param", dtype_name(p->param), "master",
                              p->master ? "f32" : "none", "grad", dtype_name(p->grad), "act", dtype_name(p->act), "resid",
                              dtype_name(p->resid), "m", dtype_name(p->m), "v", dtype_name(p->v));
    return json_pack("{s:I, s:I, s:I, s:o, s:s, s:I}", "batch_size", (json_int_t)r->batch_size, "block_size",
                     (json_int_t)r->block_size, "gradient_accumulation_steps", (json_int_t)accumulation, "precision", types,
                     "recompute", recompute_name(r->recompute), "recompute_every", (json_int_t)r->recompute_every);
}

static json_t *peak_json(const Plan *p)
{
    json_t *peak = json_pack("{s:I}", "bytes", (json_int_t)p->peak_live);
    if (p->log.count) {
        const DryOp *op = &p->log.op[p->peak_op];
        json_object_set_new(peak, "op", json_string(op_name(op->op)));
        json_object_set_new(peak, "phase", json_string(phase_name(op->phase)));
        json_object_set_new(peak, "layer", json_integer(op->layer));
    }
    return peak;
}

json_t *ledger_json(const Model *m, int64_t accumulation)
{
    const Plan *p = &m->plan;
    json_t *categories = json_object(), *tensors = json_array();
    for (int i = 0; i < CATEGORY_COUNT; i++)
        json_object_set_new(categories, category_name((Category)i), json_integer((json_int_t)p->category_bytes[i]));
    for (int i = 0; i < p->count; i++)
        json_array_append_new(tensors, tensor_json(&p->tensor[i]));
    double executed = m->run.training ? executed_flops_per_token(m, PHASE_COUNT, accumulation) : 0;
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:f, s:f, s:f, s:o, s:o, s:o}", "categories", categories,
                     "persistent_bytes", (json_int_t)p->persistent_bytes, "step_bytes", (json_int_t)p->step_bytes, "total_bytes",
                     (json_int_t)plan_total_bytes(p), "alignment_bytes", (json_int_t)p->alignment_bytes, "packing_bytes",
                     (json_int_t)p->packing_bytes, "peak", peak_json(p), "parameters", (json_int_t)model_parameters(m),
                     "static_bytes_per_parameter", ledger_static_bytes(m), "model_flops_per_token", model_flops_per_token(m),
                     "executed_flops_per_token", executed, "run", run_json(&m->run, accumulation), "costs",
                     costs_json(m, accumulation), "tensors", tensors);
}
