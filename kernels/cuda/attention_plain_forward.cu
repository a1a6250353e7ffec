/* Forward attention in FP32, for numbers of any type and on any card: the online softmax as in attention_forward.cu, the tiles of
 * attention_plain.cuh. Keys and values take turns in one buffer. */
#include "kernels/cuda/attention_plain.cuh"

/* Floats of shared memory: queries, keys or values, probabilities. */
template <class P> static size_t forward_shared()
{
    return sizeof(float) * (P::OWN * P::LD + P::WALK * P::LD + P::OWN * P::LS);
}

/* Scores to exp(score / sqrt(hd) - m) in place; brings top (m sqrt(hd)) and sum (of this thread's columns) up to date, and gives
 * how much older sums shrink. Scores that are all minus infinity so far have 0 subtracted. */
template <class P>
static __device__ __forceinline__ void plain_softmax(float (&s)[P::R][P::C], float (&top)[P::R], float (&sum)[P::R],
                                                     float (&shrink)[P::R], float scale)
{
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        float now = top[i], part = 0.0f;
#pragma unroll
        for (int j = 0; j < P::C; j++)
            now = fmaxf(now, s[i][j]);
        now = lanes_max<SIDE>(now);
        float shift = now == -INFINITY ? 0.0f : __fmul_rn(now, scale);
        shrink[i] = expf(__fmul_rn(top[i], scale) - shift); /* what was subtracted before, to the last bit */
#pragma unroll
        for (int j = 0; j < P::C; j++) {
            s[i][j] = expf(fmaf(s[i][j], scale, -shift));
            part += s[i][j];
        }
        top[i] = now;
        sum[i] = sum[i] * shrink[i] + part;
    }
}

/* Probabilities of dropped elements to 0; the scale of the kept ones waits for the end. index: element of the stream that the
 * tile's first row and column is. */
template <class P>
static __device__ __forceinline__ void plain_drop(float (&s)[P::R][P::C], const AttentionCall &a, RandomKey key, uint64_t index)
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        uint32_t kept = four_kept(key, index + (uint64_t)(y * P::R + i) * a.T + P::C * x, a.drop.threshold);
#pragma unroll
        for (int j = 0; j < P::C; j++)
            if (!(kept >> j & 1))
                s[i][j] = 0.0f;
    }
}

template <class P>
static __global__ void __launch_bounds__(PLAIN_THREADS, 1) attention_plain_forward_kernel(const AttentionCall a)
{
    extern __shared__ __align__(16) float plain_shared[];
    float *queries = plain_shared, *walk = queries + P::OWN * P::LD, *tile = walk + P::WALK * P::LD;
    int blocks = (a.T + P::OWN - 1) / P::OWN, query = (blocks - 1 - (int)(blockIdx.x % blocks)) * P::OWN;
    int64_t head = blockIdx.x / blocks, out_width = (int64_t)a.NH * a.hd;
    HeadPlace at = head_place(a, head);
    Elements qkv = {(void *)a.qkv, a.dtype}, att = {a.att, a.dtype};
    RandomKey random = dropout_key(a.drop, a.state);

    rows_load<P::HD, P::OWN, 0>(queries, qkv, at.query + query * a.width, a.width, a.T - query, a.hd);
    Sums<P> out = {};
    float top[P::R], sum[P::R], shrink[P::R];
#pragma unroll
    for (int i = 0; i < P::R; i++)
        top[i] = -INFINITY, sum[i] = 0.0f;
    for (int key = 0; key < min(query + (int)P::OWN, a.T); key += P::WALK) {
        rows_load<P::HD, P::WALK, P::C>(walk, qkv, at.key + key * a.width, a.width, a.T - key, a.hd);
        __syncthreads(); /* keys (and queries) are here */
        float s[P::R][P::C];
        plain_scores<P>(s, queries, walk, a.hd);
        plain_mask<P>(s, query, key);
        plain_softmax<P>(s, top, sum, shrink, a.scale);
        if (a.drop.active)
            plain_drop<P>(s, a, random, (uint64_t)((head * a.T + query) * a.T + key));
        scores_put<P>(tile, s);
        sums_scale<P>(out, shrink);
        __syncthreads(); /* all have read the keys */
        rows_load<P::HD, P::WALK, P::C>(walk, qkv, at.value + key * a.width, a.width, a.T - key, a.hd);
        __syncthreads(); /* values and probabilities are here */
        plain_accumulate<P>(out, tile, walk);
        __syncthreads(); /* all have read them */
    }
    float factor[P::R];
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        int row = threadIdx.x / SIDE * P::R + i;
        float whole = lanes_sum<SIDE>(sum[i]);
        factor[i] = whole == 0.0f ? 0.0f : a.drop.scale / whole;
        if (threadIdx.x % SIDE == 0 && query + row < a.T)
            a.lse[head * a.T + query + row] = top[i] * a.scale + logf(fmaxf(whole, 1e-30f));
    }
    sums_store<P>(att, at.out + query * out_width, out_width, out, factor, a.T - query, a.hd);
}

void attention_forward_plain(Ctx *c, const AttentionCall &call)
{
    with_plain_tiles(call.hd, [&](auto tiles) {
        using P = decltype(tiles);
        attention_launch(c, OP_attention_forward, attention_plain_forward_kernel<P>, call.heads * blocks_of(call.T, P::OWN),
                         PLAIN_THREADS, forward_shared<P>(), call);
    });
}
