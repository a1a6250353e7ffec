/* Forward attention on tensor cores: att = dropout(softmax(causal(q k' / sqrt(hd)))) v, without the T x T matrix.
 *
 * A block has 64 queries of one head, a warp 16 of them. It walks over the keys and values up to its last query, WALK at a time,
 * and keeps for each query the largest score so far m, the sum of exp(S - m), and O = the sum of exp(S - m) v; when m grows, what
 * was summed so far shrinks by exp(old m - new m) (the online softmax: see kernels/cpu/attention.c). At the end att = O / sum and
 * lse = m + log(sum). Exponentials are powers of two: c = log2(e) / sqrt(hd) is multiplied into the scores.
 *
 * Rounded to 16 bits are the probabilities as left factor of P V, and att; sums, m and lse are FP32. Per block and tile: 4 hd
 * FLOPs per pair of query and key on tensor cores; q, k, v are read from memory once per block, att is written once. */
#include "kernels/cuda/attention_tile.cuh"

template <int HD> struct Forward {
    static constexpr int OWN = 16 * WARPS;                   /* queries of a block       */
    static constexpr int WALK = HD <= 64 ? 64 : 32;          /* keys and values of a tile */
    static constexpr int SHARED = 2 * HD * (OWN + 4 * WALK); /* bytes: queries; two buffers of keys and of values */
};

/* Of the two queries that a lane has a share of: the largest score, and the lane's part of the sum. */
struct Online {
    float top[2], sum[2];
};

/* Scores to exp(score - m), in place; brings m and the sums up to date, and gives how much older sums shrink. A query that has
 * seen only scores of minus infinity has m = -Inf; 0 is subtracted instead, and its probabilities are 0. */
template <int N> static __device__ __forceinline__ void softmax_tile(Piece (&s)[N], Online &o, float (&shrink)[2], float c)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = o.top[half], sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 4 * N; i++)
            top = fmaxf(top, s[i / 4].v[half][i % 4]);
        top = quad_max(top);
        float shift = top == -INFINITY ? 0.0f : __fmul_rn(top, c);
        shrink[half] = exp2_approx(__fmul_rn(o.top[half], c) - shift); /* what was subtracted before, to the last bit */
#pragma unroll
        for (int i = 0; i < 4 * N; i++) {
            float p = exp2_approx(fmaf(s[i / 4].v[half][i % 4], c, -shift));
            s[i / 4].v[half][i % 4] = p;
            sum += p;
        }
        o.top[half] = top;
        o.sum[half] = o.sum[half] * shrink[half] + sum;
    }
}

template <int N> static __device__ __forceinline__ void pieces_shrink(Piece (&out)[N], const float (&shrink)[2])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[n].v[i / 4][i % 4] *= shrink[i / 4];
}

/* Dropped probabilities become 0; the scale of the kept ones waits for the end. */
template <int N> static __device__ __forceinline__ void pieces_drop(Piece (&s)[N], uint32_t kept)
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (!is_kept_by_query(kept, n, i / 4, i % 4))
                s[n].v[i / 4][i % 4] = 0.0f;
}

/* Writes lse, and gives the factor that makes att of O: scores that were all minus infinity give 0 and lse = -Inf. */
static __device__ __forceinline__ void softmax_finish(const AttentionCall &a, const Online &o, float *lse, int rows,
                                                      float (&factor)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = quad_sum(o.sum[half]);
        factor[half] = sum == 0.0f ? 0.0f : a.drop.scale / sum;
        if (threadIdx.x % 4 == 0 && lane_row(half) < rows)
            lse[lane_row(half)] = o.top[half] * a.scale + logf(fmaxf(sum, 1e-30f));
    }
}

template <class T, int HD> static __global__ void __launch_bounds__(THREADS, 1) attention_forward_kernel(const AttentionCall a)
{
    constexpr int OWN = Forward<HD>::OWN, WALK = Forward<HD>::WALK, N = WALK / 16;
    constexpr bool KEEP = HD <= 128; /* the queries, in registers */
    extern __shared__ __align__(16) unsigned char shared[];
    T *queries = (T *)shared, *keys = queries + OWN * HD, *values = keys + 2 * WALK * HD;
    int blocks = (a.T + OWN - 1) / OWN, first = (blocks - 1 - (int)(blockIdx.x % blocks)) * OWN; /* the longest walks first */
    int64_t head = blockIdx.x / blocks;
    HeadPlace at = head_place(a, head);
    const T *k = (const T *)a.qkv + at.key, *v = (const T *)a.qkv + at.value;
    int row = threadIdx.x / WARP * 16, query = first + row; /* the warp's first query, in the tile and in T */
    int tiles = (min(first + OWN, a.T) + WALK - 1) / WALK;
    float c = a.scale * LOG2_E;
    RandomKey random = dropout_key(a.drop, a.state);

    tile_load<T, HD, OWN>(queries, (const T *)a.qkv + at.query + first * a.width, a.width, a.T - first, a);
    tile_load<T, HD, WALK>(keys, k, a.width, a.T, a);
    tile_load<T, HD, WALK>(values, v, a.width, a.T, a);
    OwnRows<T, HD, KEEP> own = {queries, row};
    own_rows_wait<KEEP>();
    own.begin();
    Piece out[HD / 16];
    pieces_zero(out);
    Online online = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
    for (int tile = 0; tile < tiles; tile++) {
        int key = tile * WALK, now = tile % 2 * WALK * HD, next = WALK * HD - now;
        copies_wait();
        __syncthreads(); /* this tile is here, and nobody reads the other buffer any more */
        if (tile + 1 < tiles) {
            tile_load<T, HD, WALK>(keys + next, k + (key + WALK) * a.width, a.width, a.T - key - WALK, a);
            tile_load<T, HD, WALK>(values + next, v + (key + WALK) * a.width, a.width, a.T - key - WALK, a);
        }
        if (key > query + 15)
            continue; /* all these keys come after the warp's queries */
        Piece s[N];
        float shrink[2];
        scores(s, own, keys + now);
        if (key + WALK > query)
            mask_future_keys(s, query, key);
        softmax_tile(s, online, shrink, c);
        if (a.drop.active)
            pieces_drop(s, kept_by_query<N>(random, a.drop.threshold, (uint64_t)((head * a.T + query) * a.T + key), a.T));
        pieces_shrink(out, shrink);
        accumulate<T, HD>(out, s, values + now, 0);
    }
    float factor[2];
    softmax_finish(a, online, a.lse + head * a.T + query, a.T - query, factor);
    own.end();
    tile_put<T, HD>(queries, row, 0, out, factor);
    __syncthreads();
    tile_store<T, HD, OWN>((T *)a.att + at.out + (int64_t)first * a.NH * a.hd, (int64_t)a.NH * a.hd, queries, a.T - first, a);
}

size_t attention_forward_shared(int hd)
{
    size_t bytes = 0;
    with_head_size(hd, [&](auto size) { bytes = Forward<decltype(size)::value>::SHARED; });
    return bytes;
}

void attention_forward_mma(Ctx *c, const AttentionCall &call)
{
    with_head_size(call.hd, [&](auto size) {
        constexpr int HD = decltype(size)::value;
        with_half_type(call.dtype, [&](auto number) {
            attention_launch(c, OP_attention_forward, attention_forward_kernel<decltype(number), HD>,
                             call.heads * blocks_of(call.T, Forward<HD>::OWN), THREADS, Forward<HD>::SHARED, call);
        });
    });
}
