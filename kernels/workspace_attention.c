/* Scratch of attention: tiles of one size for every instruction set, so that a plan does not depend on the processor. */
#include "kernels/cpu/attention_tile.h"
#include "kernels/cuda/cuda.h"

size_t attention_workspace(AttentionShape s, const Target *t)
{
    if (t->kind == DEVICE_CUDA)
        return cuda_attention_workspace(s, t);
    return (size_t)t->threads * (size_t)forward_floats(s.T, s.hd) * sizeof(float);
}

size_t attention_backward_workspace(AttentionShape s, const Target *t)
{
    if (t->kind == DEVICE_CUDA)
        return cuda_attention_backward_workspace(s, t);
    return (size_t)t->threads * (size_t)backward_floats(s.T, s.hd) * sizeof(float);
}

size_t attention_cached_workspace(AttentionShape s, int64_t P, const Target *t)
{
    if (t->kind == DEVICE_CUDA)
        return cuda_attention_cached_workspace(s, P, t);
    return (size_t)(t->threads * 3 * round_up(s.hd, 16)) * sizeof(float);
}
