/* Backward attention: dqkv from datt, without the T x T matrix. With P = softmax(S), S = q k' / sqrt(hd), and Z the dropout
 * factors (0 or 1 / (1 - p); 1 without dropout), att = (P o Z) v gives
 *
 *   dV = (P o Z)' dO        dP = (dO V') o Z        D_i = sum_j P_ij dP_ij = sum_d dO_id att_id
 *   dS = P o (dP - D)       dQ = dS K / sqrt(hd)    dK = dS' Q / sqrt(hd)
 *
 * Each tile of P is made again as exp(S - lse), so the pass costs 10 hd FLOPs per (query, key) pair. A block of queries keeps
 * its dQ and visits the tiles of its keys. dK and dV of a key/value head collect in a slot of workspace, one per thread, while
 * that thread goes through the head's queries.
 *
 * A thread's stretch of the work list may begin and end within a key/value head. The thread that has a head's first block
 * writes dK and dV; the slots of the others are added afterwards, in the order of the threads: no atomics, and the same bits
 * in every run with the same number of threads. A thread goes from its last head to its first, the only one that it can have
 * joined midway, so that one slot is enough. */
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/cpu.h"

typedef struct Backward {
    AttentionShape s;
    Tensor dqkv, datt, att, qkv;
    const float *lse;
    float scale; /* 1 / sqrt(hd) */
    DropoutMask drop;
} Backward;

/* One thread's scratch. */
typedef struct Scratch {
    float *queries, *queries_t; /* Q [BLOCK, stride], Q' [hd, BLOCK]                    */
    float *grads, *grads_t;     /* dO [BLOCK, stride], dO' [hd, BLOCK]                  */
    float *dq, *staging;        /* dQ sqrt(hd) [BLOCK, stride]                          */
    float *tile, *grad_tile;    /* S', then (P o Z)'; dP', then dS': [BLOCK, BLOCK]     */
    float *far, *lse;           /* P is exp((q k' - far) / sqrt(hd) - lse) inverse,     */
    float *inverse, *delta;     /* with far 0 and inverse 1 but for huge scores; D      */
    uint32_t *bits;             /* [RANDOM_ROWS, BLOCK]                                 */
    float *dk, *dv;             /* the slot: dK sqrt(hd), dV of one head [rows, stride] */
    HeadKeys kv;
} Scratch;

static Scratch scratch_at(float *p, int64_t T, int64_t hd)
{
    int64_t rows = BLOCK * head_stride(hd);
    Scratch w = {.queries = p,
                 .queries_t = p + rows,
                 .grads = p + 2 * rows,
                 .grads_t = p + 3 * rows,
                 .dq = p + 4 * rows,
                 .staging = p + 5 * rows};
    w.tile = p + 6 * rows;
    w.grad_tile = w.tile + BLOCK * BLOCK;
    w.far = w.grad_tile + BLOCK * BLOCK;
    w.lse = w.far + BLOCK;
    w.inverse = w.lse + BLOCK;
    w.delta = w.inverse + BLOCK;
    w.bits = (uint32_t *)(w.delta + BLOCK);
    w.dk = (float *)(w.bits + RANDOM_ROWS * BLOCK);
    w.dv = w.dk + head_floats(T, hd);
    w.kv = (HeadKeys){w.dv + head_floats(T, hd), w.dv + 2 * head_floats(T, hd), -1, 0};
    return w;
}

/* exp((q k' - far) / sqrt(hd) - lse) for queries i to i + VECTOR - 1 and the key whose row of the tile begins at `at`. */
ALWAYS_INLINE Vec probability(const Backward *f, const Scratch *w, int64_t at, int64_t i)
{
    return vec_exp((vec_load(w->tile + at + i) - vec_load(w->far + i)) * f->scale - vec_load(w->lse + i));
}

/* Scores to probabilities, and with them dP to dS, in place, for one tile. */
ALWAYS_INLINE void gradient_tile(const Backward *f, Scratch *w, int64_t nk, int64_t nq, bool diagonal)
{
    for (int64_t i = 0; i < nq; i += VECTOR) {
        int64_t visible = keys_visible(i, nk, diagonal);
        if (diagonal)
            mask_future(w->tile, i, nk);
        Vec inverse = vec_load(w->inverse + i), delta = vec_load(w->delta + i);
        for (int64_t at = i; at < visible * BLOCK; at += BLOCK) {
            Vec p = probability(f, w, at - i, i) * inverse, dp = vec_load(w->grad_tile + at);
            Vec factor = f->drop.active ? dropout_factor(&f->drop, w->bits + at) : vec_all(1.0f);
            vec_store(w->tile + at, p * factor);
            vec_store(w->grad_tile + at, p * (dp * factor - delta));
        }
    }
}

/* A float holds an lse of 1000 to 3e-5 only, and exp(S - lse) would be off by as much. Where lse is large enough to matter, it is
 * subtracted before the scale, exactly, and the sum of the remade probabilities, which should be 1, puts them right. first:
 * number of the block's first query. */
ALWAYS_INLINE void probabilities_normalize(const Backward *f, Scratch *w, int64_t first, int64_t nq, int64_t hd)
{
    for (int64_t i = 0; i < BLOCK; i++)
        w->far[i] = w->lse[i] / f->scale;
    memset(w->lse, 0, BLOCK * sizeof(float));
    memset(w->inverse, 0, BLOCK * sizeof(float));
    for (int64_t key = 0; key <= first; key += BLOCK) {
        int64_t nk = min_of(BLOCK, f->s.T - key);
        bool diagonal = key == first;
        product_scores(w->tile, w->kv.keys + key * head_stride(hd), w->queries_t, nk, nq, hd, diagonal);
        for (int64_t i = 0; i < nq; i += VECTOR) {
            int64_t visible = keys_visible(i, nk, diagonal);
            if (diagonal)
                mask_future(w->tile, i, nk);
            Vec sum = vec_load(w->inverse + i);
            for (int64_t j = 0; j < visible; j++)
                sum += probability(f, w, j * BLOCK, i);
            vec_store(w->inverse + i, sum);
        }
    }
    for (int64_t i = 0; i < BLOCK; i++)
        w->inverse[i] = w->inverse[i] == 0.0f ? 0.0f : 1.0f / w->inverse[i];
}

/* Q, dO, lse and D of a block of queries into scratch. query, out: where its first row is in qkv, and in datt and att. Returns
 * whether some lse is large. D is summed in the order in which product_scores() sums dP, so that dP - D is exactly 0 where a
 * query has one key. */
ALWAYS_INLINE bool queries_load(const Backward *f, Scratch *w, int64_t query, int64_t width, int64_t out, int64_t att_width,
                                const float *lse, int64_t nq, int64_t hd)
{
    float *att_t = w->dq; /* free until the first tile */
    rows_copy(w->queries, head_stride(hd), &f->qkv, query, width, nq, hd);
    rows_copy(w->grads, head_stride(hd), &f->datt, out, att_width, nq, hd);
    rows_transpose_from(w->queries_t, w->staging, &f->qkv, query, width, nq, hd);
    rows_transpose_from(w->grads_t, w->staging, &f->datt, out, att_width, nq, hd);
    rows_transpose_from(att_t, w->staging, &f->att, out, att_width, nq, hd);
    for (int64_t i = 0; i < nq; i += VECTOR) {
        Vec sum = {0};
        for (int64_t d = 0; d < hd; d++)
            sum += vec_load(w->grads_t + d * BLOCK + i) * vec_load(att_t + d * BLOCK + i);
        vec_store(w->delta + i, sum);
    }
    bool large = false;
    for (int64_t i = 0; i < BLOCK; i++) {
        w->lse[i] = i < nq && lse[i] != -INFINITY ? lse[i] : 0.0f;
        w->far[i] = 0.0f;
        w->inverse[i] = 1.0f;
        large |= fabsf(w->lse[i]) > 32.0f;
    }
    return large;
}

/* Item number `item` of the list: one block of queries of one head. dQ to its place, dK and dV added to the slot. */
ALWAYS_INLINE void backward_block(const Backward *f, Scratch *w, int64_t item, int64_t hd)
{
    AttentionShape s = f->s;
    int64_t blocks = (s.T + BLOCK - 1) / BLOCK, first = item % blocks * BLOCK, nq = min_of(BLOCK, s.T - first);
    int64_t head = item / blocks, b = head / s.NH, h = head % s.NH, width = (s.NH + 2 * s.NKV) * hd, kv = h / (s.NH / s.NKV);
    int64_t row = b * s.T + first, query = row * width + h * hd, out = (row * s.NH + h) * hd;
    rows_prefetch(&f->dqkv, query, width, nq, hd);
    rows_prefetch(&f->dqkv, row * width + (s.NH + kv) * hd, width, nq, hd);
    rows_prefetch(&f->dqkv, row * width + (s.NH + s.NKV + kv) * hd, width, nq, hd);
    head_keys_load(&w->kv, b * s.NKV + kv, first + nq, &f->qkv, b * s.T * width + (s.NH + kv) * hd, s, hd);
    if (queries_load(f, w, query, width, out, s.NH * hd, f->lse + head * s.T + first, nq, hd))
        probabilities_normalize(f, w, first, nq, hd);
    for (int64_t key = 0; key <= first; key += BLOCK) {
        int64_t nk = min_of(BLOCK, s.T - key), at = key * head_stride(hd);
        bool diagonal = key == first;
        product_scores(w->tile, w->kv.keys + at, w->queries_t, nk, nq, hd, diagonal);
        product_scores(w->grad_tile, w->kv.values + at, w->grads_t, nk, nq, hd, diagonal);
        if (f->drop.active)
            random_tile(w->bits, f->drop.key, (uint64_t)((head * s.T + first) * s.T + key), s.T, nk, nq, diagonal);
        gradient_tile(f, w, nk, nq, diagonal);
        product_keys(w->dv + at, w->tile, w->grads, nk, nq, hd, diagonal);
        product_keys(w->dk + at, w->grad_tile, w->queries, nk, nq, hd, diagonal);
        product_queries(w->dq, w->grad_tile, w->kv.keys + at, nk, nq, hd, diagonal, key > 0);
    }
    for (int64_t i = 0; i < nq; i++)
        row_store(&f->dqkv, query + i * width, w->dq + i * head_stride(hd), f->scale, hd, false);
}

/* The usual head sizes get code of their own, in which all strides are constants; larger ones do not gain by it. */
static void backward_item(const Backward *f, Scratch *w, int64_t item)
{
    switch (VECTOR > 4 ? f->s.hd : 0) {
    case 32:
        return backward_block(f, w, item, 32);
    case 64:
        return backward_block(f, w, item, 64);
    default:
        return backward_block(f, w, item, f->s.hd);
    }
}

/* Rows from .. to-1 of the slot into dK and dV of key/value head `unit` (b * NKV + its number): stored, or added. */
static void slot_write(const Backward *f, const Scratch *w, int64_t unit, int64_t from, int64_t to, bool add)
{
    AttentionShape s = f->s;
    int64_t width = (s.NH + 2 * s.NKV) * s.hd, stride = head_stride(s.hd);
    for (int64_t t = from; t < to; t++) {
        int64_t dk = (unit / s.NKV * s.T + t) * width + (s.NH + unit % s.NKV) * s.hd, dv = dk + s.NKV * s.hd;
        row_store(&f->dqkv, dk, w->dk + t * stride, f->scale, s.hd, add);
        row_store(&f->dqkv, dv, w->dv + t * stride, 1.0f, s.hd, add);
    }
}

/* Items first .. last-1, head by head from the last. What remains in the slot is a part of the first head when the stretch
 * begins midway in it. `per` is the number of items of a key/value head. */
static void backward_stretch(const Backward *f, Scratch w, int64_t first, int64_t last, int64_t per)
{
    AttentionShape s = f->s;
    for (int64_t unit = (last - 1) / per; last > first; unit--) {
        int64_t begin = unit * per > first ? unit * per : first;
        memset(w.dk, 0, (size_t)head_floats(s.T, s.hd) * sizeof(float));
        memset(w.dv, 0, (size_t)head_floats(s.T, s.hd) * sizeof(float));
        for (int64_t item = begin; item < last; item++)
            backward_item(f, &w, item);
        if (begin == unit * per)
            slot_write(f, &w, unit, 0, s.T, false);
        last = begin;
    }
}

void CPU(attention_backward)(Ctx *c, AttentionShape s, Tensor dqkv, Tensor datt, Tensor att, Tensor lse, Tensor qkv, Dropout drop)
{
    if (!workspace_check(c, OP_attention_backward, attention_backward_workspace(s, &c->target)))
        return;
    Backward f = {s, dqkv, datt, att, qkv, lse.data, (float)(1.0 / sqrt((double)s.hd)), dropout_mask(c, drop)};
    int64_t per = (s.T + BLOCK - 1) / BLOCK * (s.NH / s.NKV);
    int threads = c->target.threads, running = cpu_threads(c, s.B * s.NH * s.T * s.T * s.hd);
#pragma omp parallel for schedule(static, 1) num_threads(running)
    for (int id = 0; id < threads; id++) {
        int64_t first, last;
        share_items(s, id, threads, &first, &last);
        Scratch w = scratch_at((float *)c->workspace + id * backward_floats(s.T, s.hd), s.T, s.hd);
        backward_stretch(&f, w, first, last, per);
    }
#pragma omp parallel for schedule(static, 1) num_threads(running)
    for (int id = 0; id < threads; id++) {
        int64_t from, to;
        cpu_share(s.T, id, threads, &from, &to);
        for (int other = 0; other < threads; other++) {
            int64_t first, last;
            share_items(s, other, threads, &first, &last);
            Scratch w = scratch_at((float *)c->workspace + other * backward_floats(s.T, s.hd), s.T, s.hd);
            if (first < last && first % per != 0)
                slot_write(&f, &w, first / per, from, to, true);
        }
    }
}
