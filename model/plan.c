/* See plan.h. */
#include "model/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Made-up addresses: two regions far from each other and from anything real, apart from the null page. */
static const size_t PERSISTENT_BASE = (size_t)1 << 60, STEP_BASE = (size_t)1 << 61;

const char *category_name(Category category)
{
    static const char *const names[CATEGORY_COUNT] = {"weights", "packed_weights", "master_weights", "gradients",
                                                      "adam_m",  "adam_v",         "activations",    "activation_gradients",
                                                      "logits",  "workspace",      "communication",  "data"};
    return names[category];
}

bool category_is_persistent(Category category)
{
    return category <= CATEGORY_ADAM_V;
}

const char *phase_name(Phase phase)
{
    static const char *const names[PHASE_COUNT] = {"forward", "recompute", "backward", "optimizer", "evaluation", "sampling"};
    return names[phase];
}

static size_t align_up(size_t bytes)
{
    return (bytes + PLAN_ALIGNMENT - 1) & ~(size_t)(PLAN_ALIGNMENT - 1);
}

static size_t align_elements(size_t bytes, DType dtype)
{
    size_t unit = PLAN_ALIGNMENT_ELEMENTS * dtype_size(dtype);
    return (bytes + unit - 1) / unit * unit;
}

static PlanTensor *tensor_add(Plan *p, Error *e)
{
    bool room = memory_grow(&p->tensor, &p->capacity, (size_t)p->count + 1, sizeof *p->tensor, "the tensors of a plan", e);
    return room ? &p->tensor[p->count++] : NULL;
}

/* Bytes of the shape, or false when they do not fit 2^59. */
static bool shape_bytes(DType dtype, int ndim, const int64_t *shape, size_t *bytes)
{
    int64_t n = (int64_t)dtype_size(dtype);
    for (int i = 0; i < ndim; i++)
        if (!product_fits(n, shape[i], &n))
            return false;
    *bytes = (size_t)n;
    return n <= (int64_t)1 << 59;
}

bool plan_tensor(Plan *p, Tensor *slot, Category category, const char *name, int layer, DType dtype, int ndim,
                 const int64_t *shape, Error *e)
{
    size_t bytes;
    if (!shape_bytes(dtype, ndim, shape, &bytes))
        return error_usage(e, "%s (layer %d) would have more than 2^59 bytes; make the model or the batch smaller", name, layer);
    PlanTensor *t = tensor_add(p, e);
    if (!t)
        return false;
    *t = (PlanTensor){.layer = layer, .category = category, .dtype = dtype, .ndim = ndim, .bytes = bytes, .slot = slot};
    for (int pass = 0; pass < PASS_COUNT; pass++)
        t->life[pass] = (Life){-1, -1};
    snprintf(t->name, sizeof t->name, "%s", name);
    memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    size_t *end = category_is_persistent(category) ? &p->persistent_bytes : &p->made_up_end;
    size_t base = category_is_persistent(category) ? PERSISTENT_BASE : STEP_BASE;
    t->offset = *end;
    *end += category_is_persistent(category) ? align_elements(bytes, dtype) : align_up(bytes);
    if (*end > (size_t)1 << 59)
        return error_usage(e, "the run would need more than 2^59 bytes; make the model or the batch smaller");
    *slot = (Tensor){(void *)(base + t->offset), dtype, ndim, {0}};
    memcpy(slot->shape, shape, (size_t)ndim * sizeof *shape);
    return true;
}

void plan_hold(Plan *p, const Tensor *slot)
{
    for (int i = 0; i < p->count; i++)
        if (p->tensor[i].slot == slot)
            p->tensor[i].held = true;
}

/* ---- Lives --------------------------------------------------------------------------------------------------------- */

static size_t made_up_address(const PlanTensor *t)
{
    return (category_is_persistent(t->category) ? PERSISTENT_BASE : STEP_BASE) + t->offset;
}

/* Indices into p->tensor by made-up address: persistent ones first, and those of one arena as they were declared. So the ones
 * that [address, +bytes) touches are found by bisection. NULL after recording an error. */
static int *index_make(const Plan *p, Error *e)
{
    int *index = memory_get(e, (size_t)p->count, sizeof *index, "the plan's index"), n = 0;
    for (int persistent = 1; index && persistent >= 0; persistent--)
        for (int i = 0; i < p->count; i++)
            if (category_is_persistent(p->tensor[i].category) == (persistent == 1))
                index[n++] = i;
    return index;
}

static Pass pass_of(Phase phase)
{
    return phase == PHASE_EVALUATION ? PASS_EVALUATION : phase == PHASE_SAMPLING ? PASS_SAMPLING : PASS_TRAINING;
}

static void life_extend(Life *life, int64_t op)
{
    if (life->first < 0)
        life->first = op;
    life->last = op;
}

static void lives_extend(Plan *p, const int *index, const DryOperand *o, int64_t op)
{
    size_t begin = (size_t)o->address, end = begin + o->bytes;
    int low = 0, high = p->count; /* first tensor that ends after begin */
    while (low < high) {
        int middle = (low + high) / 2;
        const PlanTensor *t = &p->tensor[index[middle]];
        if (made_up_address(t) + t->bytes <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < p->count; low++) {
        PlanTensor *t = &p->tensor[index[low]];
        if (made_up_address(t) >= end)
            break;
        life_extend(&t->life[pass_of(p->log.op[op].phase)], op);
    }
}

static bool lives_find(Plan *p, Error *e)
{
    int *index = index_make(p, e);
    if (!index)
        return false;
    for (int64_t i = 0; i < p->log.count; i++)
        for (int k = 0; k < p->log.op[i].n_operands; k++)
            lives_extend(p, index, &p->log.op[i].operand[k], i);
    free(index);
    Life whole[PASS_COUNT] = {{-1, -1}, {-1, -1}, {-1, -1}};
    for (int64_t i = 0; i < p->log.count; i++)
        life_extend(&whole[pass_of(p->log.op[i].phase)], i);
    for (int k = 0; k < p->count; k++)
        for (int pass = 0; p->tensor[k].held && pass < PASS_COUNT; pass++)
            if (p->tensor[k].life[pass].first >= 0)
                p->tensor[k].life[pass] = whole[pass];
    return true;
}

/* ---- Packing ------------------------------------------------------------------------------------------------------- */

/* What packing asks of a placed tensor, side by side in memory: every tensor that is placed later looks at all of them. */
typedef struct Place {
    size_t begin, end;
    Life life[PASS_COUNT];
} Place;

static bool lives_meet(const Life *a, const Life *b)
{
    for (int pass = 0; pass < PASS_COUNT; pass++) {
        Life x = a[pass], y = b[pass];
        if (x.first >= 0 && y.first >= 0 && x.first <= y.last && y.first <= x.last)
            return true;
    }
    return false;
}

static int larger_first(const void *a, const void *b, void *plan)
{
    const PlanTensor *x = &((Plan *)plan)->tensor[*(const int *)a], *y = &((Plan *)plan)->tensor[*(const int *)b];
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return *(const int *)a - *(const int *)b;
}

/* The lowest offset at which tensor t fits among those already placed, which are sorted by offset. */
static size_t place_find(const Place *placed, int n, const PlanTensor *t)
{
    size_t offset = 0;
    for (int i = 0; i < n; i++) {
        if (!lives_meet(t->life, placed[i].life))
            continue;
        if (offset + align_up(t->bytes) <= placed[i].begin)
            break;
        offset = placed[i].end > offset ? placed[i].end : offset;
    }
    return offset;
}

static bool step_pack(Plan *p, Error *e)
{
    int *order = memory_get(e, (size_t)p->count, sizeof *order, "packing"), n = 0;
    Place *placed = memory_get(e, (size_t)p->count, sizeof *placed, "packing");
    for (int i = 0; order && i < p->count; i++)
        if (!category_is_persistent(p->tensor[i].category))
            order[n++] = i;
    if (order && placed)
        qsort_r(order, (size_t)n, sizeof *order, larger_first, p);
    for (int i = 0; order && placed && i < n; i++) {
        PlanTensor *t = &p->tensor[order[i]];
        t->offset = place_find(placed, i, t);
        Place place = {.begin = t->offset, .end = t->offset + align_up(t->bytes)};
        memcpy(place.life, t->life, sizeof place.life);
        p->step_bytes = place.end > p->step_bytes ? place.end : p->step_bytes;
        int at = i;
        for (; at > 0 && placed[at - 1].begin > place.begin; at--)
            placed[at] = placed[at - 1];
        placed[at] = place;
    }
    bool ok = order && placed;
    free(order);
    free(placed);
    return ok;
}

/* ---- What it adds up to -------------------------------------------------------------------------------------------- */

static bool alive(const PlanTensor *t, int64_t op)
{
    bool yes = false; /* op numbers run on through the passes, so at most one life can hold this one */
    for (int pass = 0; pass < PASS_COUNT; pass++)
        yes |= t->life[pass].first >= 0 && t->life[pass].first <= op && op <= t->life[pass].last;
    return yes && !category_is_persistent(t->category);
}

/* change[i]: bytes that become alive with op i, less those that were for the last time alive in op i - 1. Numbers wrap round. */
static void changes_add(size_t *change, const PlanTensor *t)
{
    for (int pass = 0; pass < PASS_COUNT && !category_is_persistent(t->category); pass++)
        if (t->life[pass].first >= 0) {
            change[t->life[pass].first] += t->bytes;
            change[t->life[pass].last + 1] -= t->bytes;
        }
}

static bool peak_find(Plan *p, Error *e)
{
    size_t *change = memory_get(e, (size_t)p->log.count + 1, sizeof *change, "the plan's peak"), live = 0, persistent = 0;
    if (!change)
        return false;
    for (int k = 0; k < p->count; k++)
        changes_add(change, &p->tensor[k]);
    for (int64_t i = 0; i < p->log.count; i++) {
        live += change[i];
        if (live > p->peak_live) {
            p->peak_live = live;
            p->peak_op = i;
        }
    }
    free(change);
    for (int k = 0; k < p->count; k++) {
        const PlanTensor *t = &p->tensor[k];
        bool counted = category_is_persistent(t->category) || alive(t, p->peak_op);
        p->category_bytes[t->category] += counted ? t->bytes : 0;
        persistent += category_is_persistent(t->category) ? t->bytes : 0;
    }
    p->alignment_bytes = p->persistent_bytes - persistent;
    p->packing_bytes = p->step_bytes - p->peak_live;
    return true;
}

bool plan_pack(Plan *p, Tensor *workspace, Error *e)
{
    size_t scratch = 0;
    for (int64_t i = 0; i < p->log.count; i++)
        scratch = p->log.op[i].workspace > scratch ? p->log.op[i].workspace : scratch;
    int64_t words = (int64_t)((scratch + 3) / 4);
    if (!plan_tensor(p, workspace, CATEGORY_WORKSPACE, "workspace", -1, DTYPE_F32, 1, &words, e))
        return false;
    for (int64_t i = 0; i < p->log.count; i++) /* any op may use all of it */
        life_extend(&p->tensor[p->count - 1].life[pass_of(p->log.op[i].phase)], i);
    if (!lives_find(p, e))
        return false;
    return step_pack(p, e) && peak_find(p, e);
}

void plan_bind(Plan *p, void *persistent, void *step)
{
    for (int i = 0; i < p->count; i++) {
        PlanTensor *t = &p->tensor[i];
        t->slot->data = (char *)(category_is_persistent(t->category) ? persistent : step) + t->offset;
    }
}

bool plan_verify(const Plan *p, const void *persistent, const void *step, Error *e)
{
    for (int i = 0; i < p->count; i++) {
        const PlanTensor *t = &p->tensor[i];
        bool stays = category_is_persistent(t->category);
        const char *place = (const char *)(stays ? persistent : step) + t->offset;
        size_t end = t->offset + t->bytes, size = stays ? p->persistent_bytes : p->step_bytes;
        if (t->slot->data != place || t->slot->dtype != t->dtype || tensor_bytes(*t->slot) != t->bytes || end > size)
            return error_set(e, "%s (layer %d): %zu bytes of %s are not the %zu bytes of %s that were planned", t->name, t->layer,
                             tensor_bytes(*t->slot), dtype_name(t->slot->dtype), t->bytes, dtype_name(t->dtype));
    }
    return true;
}

size_t plan_total_bytes(const Plan *p)
{
    return p->persistent_bytes + p->step_bytes;
}

PlanCost plan_op_cost(const Plan *p, Phase phase, OpId only)
{
    PlanCost sum = {0};
    for (int64_t i = 0; i < p->log.count; i++) {
        const DryOp *op = &p->log.op[i];
        if ((phase != PHASE_COUNT && op->phase != phase) || (only != OP_COUNT && op->op != only))
            continue;
        sum.gemm_flops += op->gemm_flops;
        sum.other_flops += op->other_flops;
        sum.bytes_read += op->bytes_read;
        sum.bytes_written += op->bytes_written;
    }
    return sum;
}

PlanCost plan_cost(const Plan *p, Phase phase)
{
    return plan_op_cost(p, phase, OP_COUNT);
}

double plan_seconds(const Plan *p, Phase phase, const PlanRates *rates)
{
    double seconds = 0;
    for (int64_t i = 0; i < p->log.count; i++) {
        const DryOp *op = &p->log.op[i];
        double gemm = (double)op->gemm_flops / rates->gemm_flops, other = (double)op->other_flops / rates->other_flops;
        double bytes = (double)(op->bytes_read + op->bytes_written) / rates->bytes;
        if (op->phase == phase)
            seconds += fmax(fmax(gemm, other), bytes);
    }
    return seconds;
}

void plan_free(Plan *p)
{
    free(p->tensor);
    dry_log_free(&p->log);
    *p = (Plan){0};
}
