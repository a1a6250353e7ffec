/* Attention over a cache of keys and values, for sampling: T new positions, most often one, look at all positions up to their
 * own. Nothing is shared between the few queries, so no tiles: each (sequence, head, query) runs through its keys in chunks
 * with the online softmax of attention.c, and the time is that of reading the cache. */
#include "kernels/cpu/cpu_ops.h"
#include <math.h>
#include <string.h>

enum { CHUNK = 64 };

/* out[0..hd) = softmax(q k' scale) v over n keys; k and v have rows `width` apart. As in attention.c, scores that are all
 * minus infinity give 0. */
static void query_attend(float *out, const float *q, const float *k, const float *v, int64_t width, int64_t n, int64_t hd)
{
    float scale = (float)(1.0 / sqrt((double)hd)), max = -INFINITY, sum = 0.0f;
    memset(out, 0, (size_t)hd * sizeof(float));
    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t count = n - first < CHUNK ? n - first : CHUNK;
        float p[CHUNK], top = max;
        for (int64_t j = 0; j < count; j++) {
            const float *key = k + (first + j) * width;
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
        for (int64_t j = 0; j < count; j++)
            for (int64_t d = 0; d < hd; d++)
                out[d] += p[j] * v[(first + j) * width + d];
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
    float *out = att.data, *kept = cache.data;
    const float *in = qkv.data;
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t t = 0; t < s.T; t++)
            memcpy(kept + (b * P + first + t) * 2 * kv, in + (b * s.T + t) * width + s.NH * s.hd,
                   (size_t)(2 * kv) * sizeof(float));
#pragma omp parallel for schedule(static) num_threads(cpu_threads(c, queries *(first + s.T) * s.hd))
    for (int64_t n = 0; n < queries; n++) {
        int64_t t = n % s.T, h = n / s.T % s.NH, b = n / s.T / s.NH;
        const float *k = kept + b * P * 2 * kv + h / (s.NH / s.NKV) * s.hd;
        query_attend(out + ((b * s.T + t) * s.NH + h) * s.hd, in + (b * s.T + t) * width + h * s.hd, k, k + kv, 2 * kv,
                     first + t + 1, s.hd);
    }
}
