/* Attention over a cache of keys and values, for sampling: T new positions, most often one, look at all positions up to their
 * own. The time is that of reading the cache; nothing is shared between the few queries, so there are no tiles.
 *
 * A block has one query of one head. A group of LANES lanes has one key and its value at a time, 8 elements a lane, and the
 * groups of the block take the keys in turns; each keeps its own online softmax (attention_forward.cu): largest score, sum, O. In
 * the end they are brought to one largest score and added, within a warp by shuffles, between warps through shared memory. */
#include "kernels/cuda/attention.cuh"

enum { CACHED_WARPS = 8, CACHED_THREADS = CACHED_WARPS * WARP, AT_ONCE = 4 /* keys on their way to a group */ };

struct CachedCall {
    int T, NH, NKV, hd, first;
    int64_t P;
    int lanes;   /* of a group: a power of two, 8 elements each hold a head       */
    float scale; /* log2(e) / sqrt(hd): exponentials are powers of two            */
    Elements att, cache, qkv;
};

/* 8 elements of any type: FP32 ones by two accesses. */
static __device__ __forceinline__ Words<8> fetch_8(Elements t, int64_t at, int64_t end)
{
    if (t.dtype != DTYPE_F32)
        return fetch<8>(t, at, end);
    Words<4> low = fetch<4>(t, at, end), high = fetch<4>(t, at + 4, end);
    return Words<8>{{low.word[0], low.word[1], low.word[2], low.word[3], high.word[0], high.word[1], high.word[2], high.word[3]}};
}

static __device__ __forceinline__ Floats<8> widen_8(const Words<8> &w, DType dtype)
{
    if (dtype != DTYPE_F32)
        return widen<8>(w, dtype);
    Floats<8> x;
#pragma unroll
    for (int i = 0; i < 8; i++)
        x.v[i] = __uint_as_float(w.word[i]);
    return x;
}

static __device__ __forceinline__ void store_8(Elements t, int64_t at, int64_t end, const Floats<8> &x)
{
    if (t.dtype == DTYPE_F32) {
        store<4>(t, at, end, Floats<4>{{x.v[0], x.v[1], x.v[2], x.v[3]}});
        store<4>(t, at + 4, end, Floats<4>{{x.v[4], x.v[5], x.v[6], x.v[7]}});
    } else {
        store<8>(t, at, end, x);
    }
}

/* A partial softmax of one query: the largest score in powers of two, the sum of 2^(score - top), and of that times v. */
struct Partial {
    float top, sum;
    Floats<8> out;
};

/* p = p and q together. */
static __device__ __forceinline__ void partial_merge(Partial &p, float top, float sum, const Floats<8> &out)
{
    float most = fmaxf(p.top, top), shift = most == -INFINITY ? 0.0f : most;
    float mine = exp2f(p.top - shift), other = exp2f(top - shift);
    p.top = most;
    p.sum = p.sum * mine + sum * other;
#pragma unroll
    for (int i = 0; i < 8; i++)
        p.out.v[i] = p.out.v[i] * mine + out.v[i] * other;
}

/* Rows of the new keys and values into the cache, 8 elements a thread. row: 2 NKV hd elements. */
static __global__ void __launch_bounds__(256) cache_append_kernel(const CachedCall a, int64_t row, int64_t rows)
{
    int64_t chunks = blocks_of(row, 8), i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, n = i / chunks, at = i % chunks * 8;
    if (n >= rows)
        return;
    int64_t from = n * (row + (int64_t)a.NH * a.hd) + (int64_t)a.NH * a.hd, to = (n / a.T * a.P + a.first + n % a.T) * row;
    store_8(a.cache, to + at, to + row, widen_8(fetch_8(a.qkv, from + at, from + row), a.qkv.dtype));
}

/* The keys that fall to this thread's group. q: its 8 elements; k, v: where the first key and value are. */
static __device__ __forceinline__ Partial keys_attend(const CachedCall &a, const Floats<8> &q, int64_t k, int64_t v, int64_t row,
                                                      int keys)
{
    int groups = CACHED_THREADS / a.lanes, group = threadIdx.x / a.lanes, d = threadIdx.x % a.lanes * 8;
    Partial p = {-INFINITY, 0.0f, {}};
    for (int base = 0; base < keys; base += AT_ONCE * groups) { /* the same number of rounds for all: they shuffle */
        Words<8> key_words[AT_ONCE], value_words[AT_ONCE];
        float score[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            int key = base + u * groups + group;
            int64_t at = key * row, end = key < keys && d < a.hd ? at + a.hd : at + d;
            key_words[u] = fetch_8(a.cache, k + at + d, k + end);
            value_words[u] = fetch_8(a.cache, v + at + d, v + end);
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            Floats<8> x = widen_8(key_words[u], a.cache.dtype);
            score[u] = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++)
                score[u] += q.v[i] * x.v[i];
            for (int distance = a.lanes / 2; distance; distance /= 2)
                score[u] += __shfl_xor_sync(0xFFFFFFFFu, score[u], distance);
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (base + u * groups + group < keys)
                partial_merge(p, score[u] * a.scale, 1.0f, widen_8(value_words[u], a.cache.dtype));
    }
    return p;
}

static __global__ void __launch_bounds__(CACHED_THREADS) attention_cached_kernel(const CachedCall a)
{
    __shared__ float tops[CACHED_WARPS], sums[CACHED_WARPS], outs[CACHED_WARPS][HEAD_SIZE_MAX];
    int h = blockIdx.x % a.NH, kv = h / (a.NH / a.NKV), warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int64_t n = blockIdx.x / a.NH, b = n / a.T, row = 2 * (int64_t)a.NKV * a.hd; /* n = b T + t */
    int64_t q = n * (a.NH * (int64_t)a.hd + row) + (int64_t)h * a.hd, k = b * a.P * row + (int64_t)kv * a.hd;
    int d = threadIdx.x % a.lanes * 8;
    Floats<8> query = widen_8(fetch_8(a.qkv, q + d, d < a.hd ? q + a.hd : q + d), a.qkv.dtype);
    Partial p = keys_attend(a, query, k, k + (int64_t)a.NKV * a.hd, row, a.first + (int)(n % a.T) + 1);
    for (int distance = a.lanes; distance < WARP; distance *= 2) {
        float top = __shfl_xor_sync(0xFFFFFFFFu, p.top, distance), sum = __shfl_xor_sync(0xFFFFFFFFu, p.sum, distance);
        Floats<8> out;
#pragma unroll
        for (int i = 0; i < 8; i++)
            out.v[i] = __shfl_xor_sync(0xFFFFFFFFu, p.out.v[i], distance);
        partial_merge(p, top, sum, out);
    }
    if (lane == 0)
        tops[warp] = p.top, sums[warp] = p.sum;
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (lane < a.lanes)
            outs[warp][d + i] = p.out.v[i];
    __syncthreads(); /* the parts of all warps are here */
    if (warp > 0 || d >= a.hd || lane >= a.lanes)
        return;
    for (int w = 1; w < CACHED_WARPS; w++) {
        Floats<8> out;
#pragma unroll
        for (int i = 0; i < 8; i++)
            out.v[i] = outs[w][d + i];
        partial_merge(p, tops[w], sums[w], out);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        p.out.v[i] = p.sum == 0.0f ? 0.0f : p.out.v[i] / p.sum;
    int64_t to = (n * a.NH + h) * a.hd;
    store_8(a.att, to + d, to + a.hd, p.out);
}

void cuda_attention_cached(Ctx *c, AttentionShape s, Tensor att, Tensor cache, Tensor qkv, int64_t first)
{
    const OpId op = OP_attention_cached;
    if (!head_size_check(c, op, s.hd))
        return;
    CachedCall a = {(int)s.T,
                    (int)s.NH,
                    (int)s.NKV,
                    (int)s.hd,
                    (int)first,
                    cache.shape[1],
                    1,
                    (float)(1.44269504088896340736 / sqrt((double)s.hd)),
                    elements(att),
                    elements(cache),
                    elements(qkv)};
    while (8 * a.lanes < s.hd)
        a.lanes *= 2;
    int64_t row = 2 * s.NKV * s.hd, rows = s.B * s.T;
    cache_append_kernel<<<(unsigned)blocks_of(rows * blocks_of(row, 8), 256), 256, 0, stream_of(c)>>>(a, row, rows);
    if (!launch_check(c, op))
        return;
    attention_cached_kernel<<<(unsigned)(rows * s.NH), CACHED_THREADS, 0, stream_of(c)>>>(a);
    launch_check(c, op);
}
