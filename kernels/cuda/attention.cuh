/* What all kernels of attention share: the arguments of a call, where a block works, and dropout. */
#ifndef TALLY_KERNELS_CUDA_ATTENTION_CUH
#define TALLY_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/common.cuh"

#include <math.h>

enum { HEAD_SIZE_MAX = 256 };

/* A call as its kernels get it. qkv, dqkv [B*T, width], att, datt [B*T, NH*hd], of one type; lse [B, NH, T]. */
struct AttentionCall {
    int T, NH, NKV, hd;
    int64_t heads; /* B * NH                                                                    */
    int64_t width; /* (NH + 2 NKV) hd                                                           */
    DType dtype;
    bool aligned; /* rows of a head begin and end at multiples of 16 bytes                     */
    float scale;  /* 1 / sqrt(hd)                                                              */
    const void *qkv, *datt;
    void *att, *dqkv;
    float *lse;
    float *remake; /* workspace of the backward [B, NH, T]: makes probabilities of scores again */
    float *delta;  /* the same: D = sum_d datt att                                              */
    DropoutPlace drop;
    const StepState *state;
};

/* Has this device kernels for heads of hd elements? Records an error if not. */
static inline bool head_size_check(Ctx *c, OpId op, int64_t hd)
{
    return hd <= HEAD_SIZE_MAX || error_set(c->error, "%s (layer %d): head size %lld; this device has kernels for 1 to %d",
                                            op_name(op), c->layer, (long long)hd, HEAD_SIZE_MAX);
}

/* The two ways to compute, in files of their own; and bytes of shared memory that a block needs for the first. */
size_t attention_forward_shared(int hd);
size_t attention_backward_shared(int hd);
void attention_forward_mma(Ctx *c, const AttentionCall &call);
void attention_backward_mma(Ctx *c, const AttentionCall &call);
void attention_forward_plain(Ctx *c, const AttentionCall &call);
void attention_backward_plain(Ctx *c, const AttentionCall &call);

/* Launches kernel(call) with so many bytes of shared memory. Returns false after recording an error. */
bool attention_launch(Ctx *c, OpId op, void (*kernel)(AttentionCall), int64_t blocks, int threads, size_t shared,
                      const AttentionCall &call);

/* Where query head `head` (b * NH + h) has its first query, and its key/value head its first key and value, in qkv and dqkv, and
 * its first output in att and datt; in elements. Rows are width, or NH * hd, apart. */
struct HeadPlace {
    int64_t query, key, value, out;
};

static __device__ __forceinline__ HeadPlace head_place(const AttentionCall &a, int64_t head)
{
    int64_t b = head / a.NH;
    int h = (int)(head % a.NH), kv = h / (a.NH / a.NKV);
    int64_t row = b * a.T, at = row * a.width;
    return HeadPlace{at + (int64_t)h * a.hd, at + (int64_t)(a.NH + kv) * a.hd, at + (int64_t)(a.NH + a.NKV + kv) * a.hd,
                     (row * a.NH + h) * a.hd};
}

/* Bit k says whether element index + k of the stream is kept, k < 4. Where index is a multiple of 4 (it is when T is) one block
 * of Philox has all four. */
static __device__ __forceinline__ uint32_t four_kept(RandomKey key, uint64_t index, uint32_t threshold)
{
    uint32_t bits = 0, skip = (uint32_t)index & 3;
    Philox p = random_block(key, index >> 2);
#pragma unroll
    for (int k = 0; k < 4; k++)
        bits |= (p.word[k] >= threshold ? 1u : 0u) << k;
    if (skip) {
        p = random_block(key, (index >> 2) + 1);
#pragma unroll
        for (int k = 0; k < 4; k++)
            bits |= (p.word[k] >= threshold ? 16u : 0u) << k;
    }
    return bits >> skip & 15;
}

#endif
