/* Backward attention in FP32, for numbers of any type and on any card: the equations and the two passes of attention_backward.cu,
 * the tiles of attention_plain.cuh. Rows that are walked over take turns in one buffer.
 *
 * A float holds an lse of 1000 to 3e-5 only, and exp(S - lse) would be off by as much. Where some lse of a block is large enough
 * to matter, its queries walk over their keys once more beforehand: the sum of the remade probabilities, which should be 1, puts
 * them right. Its inverse, and D, are left in workspace for the second pass. */
#include "kernels/cuda/attention_plain.cuh"

/* Floats of shared memory: two tiles of own rows, one of walked rows, one of scores, a number per own row. */
template <class P> static size_t backward_shared()
{
    return sizeof(float) * (2 * P::OWN * P::LD + P::WALK * P::LD + P::OWN * P::LS + P::OWN);
}

/* What a thread knows of its R queries. P_ij = exp(S_ij - lse) inverse. */
template <class P> struct QueryRows {
    float lse[P::R], inverse[P::R], delta[P::R];
};

/* lse; 0 for a query whose scores were all minus infinity, so that its probabilities are 0; 0 beyond T. */
static __device__ __forceinline__ float lse_at(const AttentionCall &a, int64_t head, int query)
{
    float x = query < a.T ? a.lse[head * a.T + query] : 0.0f;
    return x == -INFINITY ? 0.0f : x;
}

/* D of the block's rows into `delta`, by one thread a row, in the order in which plain_scores() sums dP: so dP - D is exactly 0
 * where a query has one key. */
template <class P> static __device__ __forceinline__ void plain_delta(float *delta, const float *grads, const float *att, int hd)
{
    int row = threadIdx.x;
    if (row >= P::OWN)
        return;
    float sum = 0.0f;
    for (int d = 0; d < (hd + 3) / 4 * 4; d++)
        sum = fmaf(grads[row * P::LD + d], att[row * P::LD + d], sum);
    delta[row] = sum;
}

/* The walk over all keys that sums up the remade probabilities. */
template <class P>
static __device__ __forceinline__ void probabilities_normalize(QueryRows<P> &q, const AttentionCall &a, const HeadPlace &at,
                                                               int query, const float *queries, float *walk)
{
    float sum[P::R] = {};
    for (int key = 0; key < min(query + (int)P::OWN, a.T); key += P::WALK) {
        __syncthreads(); /* all have read the keys before */
        rows_load<P::HD, P::WALK, P::C>(walk, Elements{(void *)a.qkv, a.dtype}, at.key + key * a.width, a.width, a.T - key, a.hd);
        __syncthreads(); /* these keys are here */
        float s[P::R][P::C];
        plain_scores<P>(s, queries, walk, a.hd);
        plain_mask<P>(s, query, key);
#pragma unroll
        for (int i = 0; i < P::R * P::C; i++)
            sum[i / P::C] += expf(fmaf(s[i / P::C][i % P::C], a.scale, -q.lse[i / P::C]));
    }
    __syncthreads(); /* all have read the last keys */
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        float whole = lanes_sum<SIDE>(sum[i]);
        q.inverse[i] = whole == 0.0f ? 0.0f : 1.0f / whole;
    }
}

/* Queries and gradients of the block into their tiles, lse and D of its rows; with a normalization where one is needed. */
template <class P>
static __device__ __forceinline__ void queries_begin(QueryRows<P> &q, const AttentionCall &a, int64_t head, const HeadPlace &at,
                                                     int query, float *queries, float *grads, float *walk, float *delta)
{
    int64_t out_width = (int64_t)a.NH * a.hd, out = at.out + query * out_width;
    rows_load<P::HD, P::OWN, 0>(queries, Elements{a.att, a.dtype}, out, out_width, a.T - query, a.hd); /* att for a moment */
    rows_load<P::HD, P::OWN, 0>(grads, Elements{(void *)a.datt, a.dtype}, out, out_width, a.T - query, a.hd);
    __syncthreads(); /* both are here */
    plain_delta<P>(delta, grads, queries, a.hd);
    __syncthreads(); /* D is here, att no longer needed */
    rows_load<P::HD, P::OWN, 0>(queries, Elements{(void *)a.qkv, a.dtype}, at.query + query * a.width, a.width, a.T - query,
                                a.hd);
    bool large = false;
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        int row = threadIdx.x / SIDE * P::R + i;
        q.lse[i] = lse_at(a, head, query + row);
        q.inverse[i] = 1.0f;
        q.delta[i] = delta[row];
        large |= fabsf(q.lse[i]) > 32.0f;
    }
    if (__syncthreads_or(large))
        probabilities_normalize<P>(q, a, at, query, queries, walk);
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        int row = threadIdx.x / SIDE * P::R + i;
        if (threadIdx.x % SIDE == 0 && query + row < a.T) {
            a.remake[head * a.T + query + row] = q.inverse[i];
            a.delta[head * a.T + query + row] = q.delta[i];
        }
    }
}

/* dQ of a block of queries. */
template <class P> static __global__ void __launch_bounds__(PLAIN_THREADS, 1) attention_plain_query_kernel(const AttentionCall a)
{
    extern __shared__ __align__(16) float plain_shared[];
    float *queries = plain_shared, *grads = queries + P::OWN * P::LD, *walk = grads + P::OWN * P::LD;
    float *tile = walk + P::WALK * P::LD, *delta = tile + P::OWN * P::LS;
    int blocks = (a.T + P::OWN - 1) / P::OWN, query = (blocks - 1 - (int)(blockIdx.x % blocks)) * P::OWN;
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    int64_t head = blockIdx.x / blocks;
    HeadPlace at = head_place(a, head);
    Elements qkv = {(void *)a.qkv, a.dtype};
    RandomKey random = dropout_key(a.drop, a.state);
    QueryRows<P> q;
    queries_begin<P>(q, a, head, at, query, queries, grads, walk, delta);
    Sums<P> dq = {};
    for (int key = 0; key < min(query + (int)P::OWN, a.T); key += P::WALK) {
        float s[P::R][P::C], dp[P::R][P::C];
        rows_load<P::HD, P::WALK, P::C>(walk, qkv, at.value + key * a.width, a.width, a.T - key, a.hd);
        __syncthreads(); /* values (and queries) are here */
        plain_scores<P>(dp, grads, walk, a.hd);
        __syncthreads(); /* all have read them */
        rows_load<P::HD, P::WALK, P::C>(walk, qkv, at.key + key * a.width, a.width, a.T - key, a.hd);
        __syncthreads(); /* keys are here */
        plain_scores<P>(s, queries, walk, a.hd);
        plain_mask<P>(s, query, key);
#pragma unroll
        for (int i = 0; i < P::R; i++) {
            uint32_t kept = 15;
            if (a.drop.active)
                kept =
                    four_kept(random, (uint64_t)((head * a.T + query + y * P::R + i) * a.T + key + P::C * x), a.drop.threshold);
#pragma unroll
            for (int j = 0; j < P::C; j++) {
                float z = kept >> j & 1 ? a.drop.scale : 0.0f;
                s[i][j] = expf(fmaf(s[i][j], a.scale, -q.lse[i])) * q.inverse[i] * (dp[i][j] * z - q.delta[i]);
            }
        }
        scores_put<P>(tile, s);
        __syncthreads(); /* dS is here */
        plain_accumulate<P>(dq, tile, walk);
        __syncthreads(); /* all have read dS and the keys */
    }
    float factor[P::R];
#pragma unroll
    for (int i = 0; i < P::R; i++)
        factor[i] = a.scale;
    sums_store<P>(Elements{a.dqkv, a.dtype}, at.query + query * a.width, a.width, dq, factor, a.T - query, a.hd);
}

/* S' to P o Z, dP' to dS', for the keys in a thread's rows and the queries in its columns. Where a query comes before the key, or
 * beyond T, both become 0. */
template <class P>
static __device__ __forceinline__ void plain_gradient(float (&s)[P::R][P::C], float (&dp)[P::R][P::C], const AttentionCall &a,
                                                      RandomKey random, int64_t head, int key, int query)
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int j = 0; j < P::C; j++) {
        int i_query = query + P::C * x + j;
        int64_t at = head * a.T + (i_query < a.T ? i_query : 0);
        float lse = lse_at(a, head, i_query), inverse = a.remake[at], delta = a.delta[at];
        uint32_t kept = 15;
        if (a.drop.active)
            kept = four_kept(random, (uint64_t)((head * a.T + i_query) * a.T + key + P::R * y), a.drop.threshold);
#pragma unroll
        for (int i = 0; i < P::R; i++) {
            bool seen = i_query >= key + P::R * y + i && i_query < a.T;
            float p = seen ? expf(fmaf(s[i][j], a.scale, -lse)) * inverse : 0.0f, z = kept >> i & 1 ? a.drop.scale : 0.0f;
            s[i][j] = p * z;
            dp[i][j] = seen ? p * (dp[i][j] * z - delta) : 0.0f;
        }
    }
}

/* dK and dV of a block of keys: over the queries from the first of them on, of every query head of their key/value head. */
template <class P> static __global__ void __launch_bounds__(PLAIN_THREADS, 1) attention_plain_key_kernel(const AttentionCall a)
{
    extern __shared__ __align__(16) float plain_shared[];
    float *keys = plain_shared, *values = keys + P::OWN * P::LD, *walk = values + P::OWN * P::LD, *tile = walk + P::WALK * P::LD;
    int blocks = (a.T + P::OWN - 1) / P::OWN, key = (int)(blockIdx.x % blocks) * P::OWN, group = a.NH / a.NKV;
    int tiles = (a.T - key + P::WALK - 1) / P::WALK;
    int64_t first_head = blockIdx.x / blocks * group, out_width = (int64_t)a.NH * a.hd;
    HeadPlace at = head_place(a, first_head);
    Elements qkv = {(void *)a.qkv, a.dtype}, datt = {(void *)a.datt, a.dtype}, dqkv = {a.dqkv, a.dtype};
    RandomKey random = dropout_key(a.drop, a.state);

    rows_load<P::HD, P::OWN, 0>(keys, qkv, at.key + key * a.width, a.width, a.T - key, a.hd);
    rows_load<P::HD, P::OWN, 0>(values, qkv, at.value + key * a.width, a.width, a.T - key, a.hd);
    Sums<P> dk = {}, dv = {};
    for (int step = 0; step < tiles * group; step++) {
        int member = step / tiles, query = key + step % tiles * P::WALK; /* which of the query heads; the tile's first query */
        int64_t q = at.query + member * a.hd + query * a.width, out = at.out + member * a.hd + query * out_width;
        float s[P::R][P::C], dp[P::R][P::C];
        rows_load<P::HD, P::WALK, P::C>(walk, qkv, q, a.width, a.T - query, a.hd);
        __syncthreads(); /* queries (and keys, values) are here */
        plain_scores<P>(s, keys, walk, a.hd);
        __syncthreads(); /* all have read them */
        rows_load<P::HD, P::WALK, P::C>(walk, datt, out, out_width, a.T - query, a.hd);
        __syncthreads(); /* gradients are here */
        plain_scores<P>(dp, values, walk, a.hd);
        plain_gradient<P>(s, dp, a, random, first_head + member, key, query);
        scores_put<P>(tile, s);
        __syncthreads(); /* P o Z is here */
        plain_accumulate<P>(dv, tile, walk);
        __syncthreads(); /* all have read it, and the gradients */
        scores_put<P>(tile, dp);
        rows_load<P::HD, P::WALK, P::C>(walk, qkv, q, a.width, a.T - query, a.hd);
        __syncthreads(); /* dS and the queries are here */
        plain_accumulate<P>(dk, tile, walk);
        __syncthreads(); /* all have read them */
    }
    float one[P::R], scale[P::R];
#pragma unroll
    for (int i = 0; i < P::R; i++)
        one[i] = 1.0f, scale[i] = a.scale;
    sums_store<P>(dqkv, at.key + key * a.width, a.width, dk, scale, a.T - key, a.hd);
    sums_store<P>(dqkv, at.value + key * a.width, a.width, dv, one, a.T - key, a.hd);
}

void attention_backward_plain(Ctx *c, const AttentionCall &call)
{
    with_plain_tiles(call.hd, [&](auto tiles) {
        using P = decltype(tiles);
        const OpId op = OP_attention_backward;
        int64_t blocks = blocks_of(call.T, P::OWN), units = call.heads / call.NH * call.NKV;
        if (attention_launch(c, op, attention_plain_query_kernel<P>, call.heads * blocks, PLAIN_THREADS, backward_shared<P>(),
                             call))
            attention_launch(c, op, attention_plain_key_kernel<P>, units * blocks, PLAIN_THREADS, backward_shared<P>(), call);
    });
}
