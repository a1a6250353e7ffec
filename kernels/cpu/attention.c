/* Forward attention without the T x T matrix: att = dropout(softmax(causal(q k' / sqrt(hd)))) v.
 *
 * A block of queries visits the keys a tile at a time and keeps, per query, the largest score so far m, the sum of
 * exp(score - m), and the sum of exp(score - m) v. When a tile brings a larger m, what was summed so far is multiplied by
 * exp(old m - new m): the online softmax (Milakov and Gimelshein 2018; Dao et al. 2022). In the end att = O / sum, and
 * lse = m + log(sum) is all that the backward pass needs to make any probability again. Dropout multiplies the probabilities
 * and leaves the sum alone. FLOPs: 4 hd per (query, key) pair; keys after the query's own tile are never touched. */
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/cpu.h"

typedef struct Forward {
    AttentionShape s;
    Tensor qkv, att;
    float *lse;
    float scale; /* 1 / sqrt(hd) */
    DropoutMask drop;
} Forward;

/* One thread's scratch. */
typedef struct Scratch {
    float *queries; /* Q' [hd, BLOCK]                */
    float *out;     /* O [BLOCK, stride]             */
    float *tile;    /* S', then P' [BLOCK, BLOCK]    */
    float *max;     /* m / scale [BLOCK]             */
    float *sum;     /* [BLOCK]                       */
    float *shrink;  /* exp(old m - new m) [BLOCK]    */
    uint32_t *bits; /* [RANDOM_ROWS, BLOCK]          */
    HeadKeys kv;
} Scratch;

static Scratch scratch_at(float *p, int64_t T, int64_t hd)
{
    int64_t rows = BLOCK * head_stride(hd);
    Scratch w = {.queries = p, .out = p + rows, .tile = p + 2 * rows, .kv.head = -1};
    w.max = w.tile + BLOCK * BLOCK;
    w.sum = w.max + BLOCK;
    w.shrink = w.sum + BLOCK;
    w.bits = (uint32_t *)(w.shrink + BLOCK);
    w.kv.keys = (float *)(w.bits + RANDOM_ROWS * BLOCK);
    w.kv.values = w.kv.keys + head_floats(T, hd);
    return w;
}

/* Scores to probabilities, exp(score - m), in place, for one tile; brings max, sum and shrink up to date. A query that has
 * seen only scores of minus infinity has m = -Inf; 0 is subtracted instead, and its probabilities are 0. Subtraction comes
 * before the scale: it is exact for scores near m, where a product near 1e5 would be off by 0.4 %. */
ALWAYS_INLINE void softmax_tile(const Forward *f, Scratch *w, int64_t nk, int64_t nq, bool diagonal)
{
    for (int64_t i = 0; i < nq; i += VECTOR) {
        int64_t rows = keys_visible(i, nk, diagonal);
        if (diagonal)
            mask_future(w->tile, i, nk);
        Vec old = vec_load(w->max + i), top = old, sum = {0};
        for (int64_t j = 0; j < rows; j++)
            top = vec_max(vec_load(w->tile + j * BLOCK + i), top);
        Vec shift = (Vec)(~(top == -INFINITY) & (VecInt)top);
        for (int64_t j = 0; j < rows; j++) {
            Vec p = vec_exp((vec_load(w->tile + j * BLOCK + i) - shift) * f->scale);
            sum += p;
            vec_store(w->tile + j * BLOCK + i, f->drop.active ? p * dropout_factor(&f->drop, w->bits + j * BLOCK + i) : p);
        }
        Vec shrink = vec_exp((old - shift) * f->scale);
        vec_store(w->max + i, top);
        vec_store(w->sum + i, vec_load(w->sum + i) * shrink + sum);
        vec_store(w->shrink + i, shrink);
    }
}

/* O of each query whose m has grown, multiplied by its shrink. */
ALWAYS_INLINE void rows_shrink(float *out, const float *shrink, int64_t nq, int64_t hd)
{
    for (int64_t i = 0; i < nq; i++)
        if (shrink[i] != 1.0f)
            for (int64_t d = 0; d < hd; d += VECTOR)
                vec_store(out + i * head_stride(hd) + d, vec_load(out + i * head_stride(hd) + d) * shrink[i]);
}

/* O / sum and lse of a finished block to their places. Scores that were all minus infinity give 0 and lse = -Inf. */
ALWAYS_INLINE void rows_finish(const Forward *f, const Scratch *w, int64_t att, float *lse, int64_t nq, int64_t hd)
{
    for (int64_t i = 0; i < nq; i += VECTOR)
        vec_store(w->shrink + i, vec_load(w->max + i) * f->scale + vec_log(vec_max(vec_all(1e-30f), vec_load(w->sum + i))));
    memcpy(lse, w->shrink, (size_t)nq * sizeof(float));
    for (int64_t i = 0; i < nq; i++)
        row_store(&f->att, att + i * f->s.NH * hd, w->out + i * head_stride(hd), w->sum[i] == 0.0f ? 0.0f : 1.0f / w->sum[i], hd,
                  false);
}

/* Item number `item` of the list: one block of queries of one head. */
ALWAYS_INLINE void forward_block(const Forward *f, Scratch *w, int64_t item, int64_t hd)
{
    AttentionShape s = f->s;
    int64_t blocks = (s.T + BLOCK - 1) / BLOCK, first = item % blocks * BLOCK, nq = min_of(BLOCK, s.T - first);
    int64_t head = item / blocks, b = head / s.NH, h = head % s.NH, width = (s.NH + 2 * s.NKV) * hd, kv = h / (s.NH / s.NKV);
    int64_t att = ((b * s.T + first) * s.NH + h) * hd;
    rows_prefetch(&f->att, att, s.NH * hd, nq, hd);
    rows_transpose_from(w->queries, w->out, &f->qkv, (b * s.T + first) * width + h * hd, width, nq, hd);
    head_keys_load(&w->kv, b * s.NKV + kv, first + nq, &f->qkv, b * s.T * width + (s.NH + kv) * hd, s, hd);
    for (int64_t i = 0; i < BLOCK; i++) {
        w->max[i] = -INFINITY;
        w->sum[i] = 0.0f;
    }
    for (int64_t key = 0; key <= first; key += BLOCK) {
        int64_t nk = min_of(BLOCK, s.T - key), at = key * head_stride(hd);
        bool diagonal = key == first;
        product_scores(w->tile, w->kv.keys + at, w->queries, nk, nq, hd, diagonal);
        if (f->drop.active)
            random_tile(w->bits, f->drop.key, (uint64_t)((head * s.T + first) * s.T + key), s.T, nk, nq, diagonal);
        softmax_tile(f, w, nk, nq, diagonal);
        if (key > 0)
            rows_shrink(w->out, w->shrink, nq, hd);
        product_queries(w->out, w->tile, w->kv.values + at, nk, nq, hd, diagonal, key > 0);
    }
    rows_finish(f, w, att, f->lse + head * s.T + first, nq, hd);
}

/* The usual head sizes get code of their own, in which all strides are constants; larger ones do not gain by it. */
static void forward_item(const Forward *f, Scratch *w, int64_t item)
{
    switch (VECTOR > 4 ? f->s.hd : 0) {
    case 32:
        return forward_block(f, w, item, 32);
    case 64:
        return forward_block(f, w, item, 64);
    default:
        return forward_block(f, w, item, f->s.hd);
    }
}

void CPU(attention_forward)(Ctx *c, AttentionShape s, Tensor att, Tensor lse, Tensor qkv, Dropout drop)
{
    if (!workspace_check(c, OP_attention_forward, attention_workspace(s, &c->target)))
        return;
    Forward f = {s, qkv, att, lse.data, (float)(1.0 / sqrt((double)s.hd)), dropout_mask(c, drop)};
    int threads = c->target.threads;
#pragma omp parallel for schedule(static, 1) num_threads(cpu_threads(c, s.B *s.NH *s.T *s.T *s.hd))
    for (int id = 0; id < threads; id++) {
        int64_t first, last;
        share_items(s, id, threads, &first, &last);
        Scratch w = scratch_at((float *)c->workspace + id * forward_floats(s.T, s.hd), s.T, s.hd);
        for (int64_t item = first; item < last; item++)
            forward_item(&f, &w, item);
    }
}
