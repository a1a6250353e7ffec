/* What the kernels share: numbers of any type read and written as FP32, reductions, dropout, and the launch.
 *
 * Every role in the model has a type of its own (model/precision.h), so an op with four operands could need 81 kernels. A kernel
 * bound by memory has room to look at the type when it reads: each is written once, for floats, and the type is a number among
 * its arguments, the same for all threads. A thread takes N neighbouring elements at a time, by one access where they are whole
 * and aligned, else one by one: any size and any row stride is right, and good sizes are fast. N is 8 where all operands are
 * 16-bit numbers, else 4: the widest operand is read by 128 bits, and a warp's requests are whole lines in any case.
 *
 *   Floats<4> x = load<4>(t, at, end);      elements at .. at+3 of t; those at or beyond end are 0
 *   store<4>(t, at, end, x);                rounds them to nearest even into t; those beyond end stay as they are */
#ifndef TALLY_KERNELS_CUDA_COMMON_CUH
#define TALLY_KERNELS_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "base/convert.h"
#include "kernels/cuda/cuda.h"

/* ---- Launching ----------------------------------------------------------------------------------------------------- */

static inline cudaStream_t stream_of(const Ctx *c)
{
    return (cudaStream_t)c->stream;
}

/* Right after kernel<<<...>>>(...): records what the runtime refused. */
static inline bool launch_check(Ctx *c, OpId op)
{
    return cuda_check(c, op, cudaGetLastError(), "launch");
}

/* ceil(n / size): blocks of `size` that cover n. */
static inline HOST_DEVICE int64_t blocks_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* f(Width<8>()) where all operands that are present are 16-bit numbers, else f(Width<4>()). */
template <int N> struct Width {
    static constexpr int value = N;
};
template <class F, class... T> static inline void with_width(F f, T... operand)
{
    if (((!operand.data || operand.dtype != DTYPE_F32) && ...))
        f(Width<8>());
    else
        f(Width<4>());
}

/* ---- Numbers of any type ------------------------------------------------------------------------------------------- */

/* What a kernel needs to know of a tensor. data is NULL when it is absent. */
struct Elements {
    void *data;
    DType dtype;
};

static inline Elements elements(Tensor t)
{
    return Elements{t.data, t.dtype};
}

template <int N> struct Floats {
    float v[N];
};

/* N elements as they lie in memory: a word each, or half a word, as 8 of them always do. */
template <int N> struct Words {
    uint32_t word[N];
};

/* Two 16-bit numbers of a word, the first in its low half. */
static __device__ __forceinline__ float2 pair_widen(uint32_t word, DType dtype)
{
    if (dtype == DTYPE_BF16)
        return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000u));
    __half2 h;
    memcpy(&h, &word, sizeof h);
    return __half22float2(h);
}

static __device__ __forceinline__ uint32_t pair_narrow(float low, float high, DType dtype)
{
    uint32_t word;
    if (dtype == DTYPE_BF16) {
        __nv_bfloat162 b = __floats2bfloat162_rn(low, high);
        memcpy(&word, &b, sizeof word);
    } else {
        __half2 h = __floats2half2_rn(low, high);
        memcpy(&word, &h, sizeof word);
    }
    return word;
}

/* Is p aligned for one access of N elements of `size` bytes (16 bytes at most)? */
template <int N> static __device__ __forceinline__ bool is_aligned(const void *p, int size)
{
    return ((uintptr_t)p & (N * size < 16 ? N * size - 1 : 15)) == 0;
}

/* The words of elements at .. at+N-1. Nothing is converted yet, so that the accesses of several operands are in flight together.
 */
template <int N> static __device__ __forceinline__ Words<N> fetch(Elements t, int64_t at, int64_t end)
{
    static_assert(N == 4 || N == 8, "a thread takes 4 or 8 elements");
    Words<N> w;
    bool wide = N == 4 && t.dtype == DTYPE_F32;
    const char *p = (const char *)t.data + at * (wide ? 4 : 2);
    if (at + N <= end && is_aligned<N>(p, wide ? 4 : 2)) {
        if (N == 4 && !wide) {
            uint2 u = *(const uint2 *)p;
            w.word[0] = u.x, w.word[1] = u.y;
            return w;
        }
        uint4 u = *(const uint4 *)p;
        w.word[0] = u.x, w.word[1] = u.y, w.word[2] = u.z, w.word[3] = u.w;
        return w;
    }
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        uint32_t first = 0, second = 0;
        if (at + i < end)
            first = wide ? ((const uint32_t *)p)[i] : ((const uint16_t *)p)[i];
        if (at + i + 1 < end)
            second = wide ? ((const uint32_t *)p)[i + 1] : ((const uint16_t *)p)[i + 1];
        if (wide)
            w.word[i] = first, w.word[i + 1] = second;
        else
            w.word[i / 2] = first | second << 16;
    }
    return w;
}

template <int N> static __device__ __forceinline__ Floats<N> widen(const Words<N> &w, DType dtype)
{
    Floats<N> x;
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        float2 pair = N == 4 && dtype == DTYPE_F32 ? make_float2(__uint_as_float(w.word[i]), __uint_as_float(w.word[i + 1]))
                                                   : pair_widen(w.word[i / 2], dtype);
        x.v[i] = pair.x, x.v[i + 1] = pair.y;
    }
    return x;
}

template <int N> static __device__ __forceinline__ Floats<N> load(Elements t, int64_t at, int64_t end)
{
    return widen<N>(fetch<N>(t, at, end), t.dtype);
}

/* x rounded to the type, as it will lie in memory. */
template <int N> static __device__ __forceinline__ Words<N> narrow(const Floats<N> &x, DType dtype)
{
    Words<N> w;
    if (N == 4 && dtype == DTYPE_F32) {
#pragma unroll
        for (int i = 0; i < N; i++)
            w.word[i] = __float_as_uint(x.v[i]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 2)
            w.word[i / 2] = pair_narrow(x.v[i], x.v[i + 1], dtype);
    }
    return w;
}

template <int N> static __device__ __forceinline__ void put(Elements t, int64_t at, int64_t end, const Words<N> &w)
{
    bool wide = N == 4 && t.dtype == DTYPE_F32;
    char *p = (char *)t.data + at * (wide ? 4 : 2);
    if (at + N <= end && is_aligned<N>(p, wide ? 4 : 2)) {
        if (N == 4 && !wide) {
            *(uint2 *)p = make_uint2(w.word[0], w.word[1]);
            return;
        }
        *(uint4 *)p = make_uint4(w.word[0], w.word[1], w.word[2], w.word[3]);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (at + i < end) {
            if (wide)
                ((uint32_t *)p)[i] = w.word[i];
            else
                ((uint16_t *)p)[i] = (uint16_t)(w.word[i / 2] >> 16 * (i & 1));
        }
    }
}

template <int N> static __device__ __forceinline__ void store(Elements t, int64_t at, int64_t end, const Floats<N> &x)
{
    put<N>(t, at, end, narrow<N>(x, t.dtype));
}

/* The same, and returns what t now holds: for a kernel that goes on with its own output. */
template <int N>
static __device__ __forceinline__ Floats<N> store_rounded(Elements t, int64_t at, int64_t end, const Floats<N> &x)
{
    Words<N> w = narrow<N>(x, t.dtype);
    put<N>(t, at, end, w);
    return widen<N>(w, t.dtype);
}

/* One element. */
static __device__ __forceinline__ float load_one(Elements t, int64_t at)
{
    if (t.dtype == DTYPE_F32)
        return ((const float *)t.data)[at];
    return t.dtype == DTYPE_BF16 ? __bfloat162float(((const __nv_bfloat16 *)t.data)[at])
                                 : __half2float(((const __half *)t.data)[at]);
}

static __device__ __forceinline__ void store_one(Elements t, int64_t at, float x)
{
    if (t.dtype == DTYPE_F32)
        ((float *)t.data)[at] = x;
    else if (t.dtype == DTYPE_BF16)
        ((__nv_bfloat16 *)t.data)[at] = __float2bfloat16_rn(x);
    else
        ((__half *)t.data)[at] = __float2half_rn(x);
}

/* ---- Reductions ----------------------------------------------------------------------------------------------------
 * By a fixed tree, so that the bits do not depend on the order in which warps run. Every lane gets the result. */

enum { WARP = 32 };

/* Over LANES neighbouring lanes, a power of two. */
template <int LANES, class T> static __device__ __forceinline__ T lanes_sum(T x)
{
#pragma unroll
    for (int distance = LANES / 2; distance; distance /= 2)
        x += __shfl_xor_sync(0xFFFFFFFFu, x, distance);
    return x;
}

template <int LANES> static __device__ __forceinline__ float lanes_max(float x)
{
#pragma unroll
    for (int distance = LANES / 2; distance; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, distance));
    return x;
}

template <class T> static __device__ __forceinline__ T warp_sum(T x)
{
    return lanes_sum<WARP>(x);
}

/* Sum over a block of whole warps; all threads call it, and all get the sum. */
template <class T> static __device__ __forceinline__ T block_sum(T x)
{
    __shared__ T part[WARP];
    int warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0)
        part[warp] = x;
    __syncthreads();
    x = (int)(threadIdx.x % WARP) < warps ? part[threadIdx.x % WARP] : T(0);
    x = warp_sum(x);
    __syncthreads(); /* part may be used again */
    return x;
}

/* ---- Dropout: the bits of kernels/cpu/dropout.h -------------------------------------------------------------------- */

/* Dropout of one op as it is given to its kernel: what does not change from step to step. */
struct DropoutPlace {
    bool active; /* p > 0 */
    uint32_t threshold;
    float scale; /* 1 / (1 - p) */
    RandomPurpose purpose;
    uint32_t layer;
};

static inline DropoutPlace dropout_place(Dropout d)
{
    if (!(d.p > 0))
        return DropoutPlace{};
    return DropoutPlace{true, dropout_threshold(d), 1.0f / (1.0f - d.p), d.purpose, (uint32_t)d.layer};
}

/* The key of its stream at the present step and micro-batch. */
static __device__ __forceinline__ RandomKey dropout_key(const DropoutPlace &d, const StepState *s)
{
    return d.active ? random_key(s->seed, d.purpose, d.layer, (uint64_t)s->step, (uint32_t)s->micro) : RandomKey{};
}

static __device__ __forceinline__ float dropout_value(float x, uint32_t bits, const DropoutPlace &d)
{
    return bits >= d.threshold ? x * d.scale : 0.0f;
}

/* The random words of elements index .. index+N-1. A block of Philox has those of four elements from a multiple of 4 on; words
 * are picked by comparing, since an index would put the blocks into memory. */
template <int N> static __device__ __forceinline__ Words<N> random_words(RandomKey key, int64_t index)
{
    Words<N + 4> all;
    Words<N> w;
    int skip = (int)(index & 3);
#pragma unroll
    for (int i = 0; i < N + 4; i += 4) {
        Philox p = i < N || skip ? random_block(key, ((uint64_t)index >> 2) + i / 4) : Philox{};
        all.word[i] = p.word[0], all.word[i + 1] = p.word[1], all.word[i + 2] = p.word[2], all.word[i + 3] = p.word[3];
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t low = skip & 1 ? all.word[i + 1] : all.word[i], high = skip & 1 ? all.word[i + 3] : all.word[i + 2];
        w.word[i] = skip & 2 ? high : low;
    }
    return w;
}

/* x = dropout(x), where x.v[0] is element `index` of the stream. */
template <int N>
static __device__ __forceinline__ void dropout_apply(Floats<N> &x, const DropoutPlace &d, RandomKey key, int64_t index)
{
    if (!d.active)
        return;
    Words<N> w = random_words<N>(key, index);
#pragma unroll
    for (int i = 0; i < N; i++)
        x.v[i] = dropout_value(x.v[i], w.word[i], d);
}

#endif
