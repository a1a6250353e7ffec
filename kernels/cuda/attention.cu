/* Attention: checks what a GPU cannot do, and chooses between two ways to compute.
 *
 *   attention_forward.cu, attention_backward.cu   tensor cores: 16-bit numbers
 *   attention_plain_forward.cu, .._backward.cu    FP32 arithmetic on numbers of any type, on any card
 *
 * A card of capability 7.5 multiplies FP16 on its tensor cores but not BF16, and gives a block 64 KiB of shared memory where
 * later ones give 99 KiB or more: what does not fit there is computed the plain way too. */
#include "kernels/cuda/attention.cuh"

#include <climits>
#include <initializer_list>

bool attention_launch(Ctx *c, OpId op, void (*kernel)(AttentionCall), int64_t blocks, int threads, size_t shared,
                      const AttentionCall &call)
{
    if (blocks > INT_MAX)
        return error_set(c->error, "%s (layer %d): %lld blocks are more than a grid holds; a smaller batch would do", op_name(op),
                         c->layer, (long long)blocks);
    cudaError_t status = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (!cuda_check(c, op, status, "shared memory"))
        return false;
    kernel<<<(unsigned)blocks, threads, shared, stream_of(c)>>>(call);
    return launch_check(c, op);
}

/* What all calls have in common; false after recording an error. */
static bool call_begin(Ctx *c, OpId op, AttentionCall *call, AttentionShape s, Tensor qkv, Dropout drop)
{
    if (!head_size_check(c, op, s.hd))
        return false;
    *call = AttentionCall{};
    call->T = (int)s.T;
    call->NH = (int)s.NH;
    call->NKV = (int)s.NKV;
    call->hd = (int)s.hd;
    call->heads = s.B * s.NH;
    call->width = (s.NH + 2 * s.NKV) * s.hd;
    call->dtype = qkv.dtype;
    call->qkv = qkv.data;
    call->scale = (float)(1.0 / sqrt((double)s.hd));
    call->drop = dropout_place(drop);
    if (!call->drop.active)
        call->drop.scale = 1.0f; /* a factor of sums, with dropout or without */
    call->state = c->state;
    return true;
}

static bool on_tensor_cores(const Ctx *c, DType dtype, size_t shared)
{
    bool multiplied = dtype == DTYPE_F16 || (dtype == DTYPE_BF16 && c->target.capability >= 80);
    return multiplied && shared <= (size_t)(c->target.capability >= 80 ? 99 : 64) * 1024;
}

static bool is_aligned_16(const AttentionCall &call, std::initializer_list<const void *> pointers)
{
    uintptr_t all = (uintptr_t)call.hd * 2;
    for (const void *p : pointers)
        all |= (uintptr_t)p;
    return all % 16 == 0;
}

void cuda_attention_forward(Ctx *c, AttentionShape s, Tensor att, Tensor lse, Tensor qkv, Dropout drop)
{
    AttentionCall call;
    if (!call_begin(c, OP_attention_forward, &call, s, qkv, drop))
        return;
    call.att = att.data;
    call.lse = (float *)lse.data;
    call.aligned = is_aligned_16(call, {qkv.data, att.data});
    if (on_tensor_cores(c, qkv.dtype, attention_forward_shared(call.hd)))
        attention_forward_mma(c, call);
    else
        attention_forward_plain(c, call);
}

void cuda_attention_backward(Ctx *c, AttentionShape s, Tensor dqkv, Tensor datt, Tensor att, Tensor lse, Tensor qkv, Dropout drop)
{
    AttentionCall call;
    if (!workspace_check(c, OP_attention_backward, attention_backward_workspace(s, &c->target)) ||
        !call_begin(c, OP_attention_backward, &call, s, qkv, drop))
        return;
    call.att = att.data;
    call.datt = datt.data;
    call.dqkv = dqkv.data;
    call.lse = (float *)lse.data;
    call.remake = (float *)c->workspace;
    call.delta = call.remake + s.B * s.NH * s.T;
    call.aligned = is_aligned_16(call, {qkv.data, att.data, datt.data, dqkv.data});
    if (on_tensor_cores(c, qkv.dtype, attention_backward_shared(call.hd)))
        attention_backward_mma(c, call);
    else
        attention_backward_plain(c, call);
}
