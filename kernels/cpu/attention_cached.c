/* Attention over a cache of keys and values, for sampling: T new positions, most often one, look at all positions up to their
 * own. Nothing is shared between the few queries, so no tiles: each (sequence, head, query) runs through its keys in chunks
 * with the online softmax of attention.c, and the time is that of reading the cache. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"
#include <math.h>
#include <omp.h>
#include <string.h>

enum { CHUNK = 64 };

/* out[0..hd) = softmax(q k' scale) v over n keys: in the cache the first key is at k, the first value at v, rows `width` apart.
 * row is room for hd floats. As in attention.c, scores that are all minus infinity give 0. */
static void query_attend(float *out, const float *q, const Tensor *cache, int64_t k, int64_t v, int64_t width, int64_t n,
                         int64_t hd, float *row)
{
    float scale = (float)(1.0 / sqrt((double)hd)), max = -INFINITY, sum = 0.0f;
    memset(out, 0, (size_t)hd * sizeof(float));
    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t count = min_of(n - first, CHUNK);
        float p[CHUNK], top = max;
        for (int64_t j = 0; j < count; j++) {
            const float *key = row_in(cache, k + (first + j) * width, hd, row);
            float score = 0.0f;
#pragma omp simd reduction(+ : score)
            for (int64_t d = 0; d < hd; d++)
                score += q[d] * key[d];
            p[j] = score * scale;
            top = p[j] > top ? p[j] : top;
        }
        float shift = top == -INFINITY ? 0.0f : top, shrink = exp_approx(max - shift), chunk_sum = 0.0f;
#pragma omp simd reduction(+ : chunk_sum)
        for (int64_t j = 0; j < count; j++) {
            p[j] = exp_approx(p[j] - shift);
            chunk_sum += p[j];
        }
        for (int64_t d = 0; d < hd; d++)
            out[d] *= shrink;
        for (int64_t j = 0; j < count; j++) {
            const float *value = row_in(cache, v + (first + j) * width, hd, row);
            for (int64_t d = 0; d < hd; d++)
                out[d] += p[j] * value[d];
        }
        sum = sum * shrink + chunk_sum;
        max = top;
    }
    float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (int64_t d = 0; d < hd; d++)
        out[d] *= inverse;
}

void CPU(attention_cached)(Ctx *c, AttentionShape s, Tensor att, Tensor cache, Tensor qkv, int64_t first)
{
    int64_t P = cache.shape[1], kv = s.NKV * s.hd, width = (s.NH + 2 * s.NKV) * s.hd, queries = s.B * s.NH * s.T;
    int64_t stride = partial_width(s.hd);
    if (!workspace_check(c, OP_attention_cached, attention_cached_workspace(s, &c->target)))
        return;
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t t = 0; t < s.T; t++)
            memcpy(element_at(&cache, (b * P + first + t) * 2 * kv), element_at(&qkv, (b * s.T + t) * width + s.NH * s.hd),
                   (size_t)(2 * kv) * dtype_size(cache.dtype));
#pragma omp parallel for schedule(static) num_threads(cpu_threads(c, queries *(first + s.T) * s.hd))
    for (int64_t n = 0; n < queries; n++) {
        int64_t t = n % s.T, h = n / s.T % s.NH, b = n / s.T / s.NH, at = ((b * s.T + t) * s.NH + h) * s.hd;
        int64_t k = b * P * 2 * kv + h / (s.NH / s.NKV) * s.hd;
        float *room = (float *)c->workspace + omp_get_thread_num() * 3 * stride; /* out, q and a row of the cache */
        float *out = row_out(&att, at, room);
        const float *q = row_in(&qkv, (b * s.T + t) * width + h * s.hd, s.hd, room + stride);
        query_attend(out, q, &cache, k, k + kv, 2 * kv, first + t + 1, s.hd, room + 2 * stride);
        row_done(&att, at, s.hd, out);
    }
}
