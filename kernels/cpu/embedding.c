/* Token and position embedding: x[b, t] = dropout(wte[tokens[b, t]] + wpe[first + t]).
 *
 * Backward adds each row of dx to the row of its token, and several rows may have the same token. To need neither locks
 * nor atomics, a thread owns a slice of the channels and walks all rows in order: the same bits for any number of threads. */
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dropout.h"

#include <omp.h>

/* Are all ids in [0, Vp)? The loader has checked them; a bug elsewhere must still not write outside wte. */
static bool ids_check(Ctx *c, OpId op, Tensor tokens, int64_t Vp)
{
    const int32_t *id = tokens.data;
    for (int64_t n = 0; n < tensor_count(tokens); n++)
        if (id[n] < 0 || id[n] >= Vp)
            return error_set(c->error, "%s: token %d at position %lld is outside the vocabulary of %lld", op_name(op), id[n],
                             (long long)n, (long long)Vp);
    return true;
}

void CPU(embedding_forward)(Ctx *c, Tensor x, Tensor tokens, Tensor wte, Tensor wpe, int64_t first, Dropout drop)
{
    int64_t N = x.shape[0], C = x.shape[1], T = tokens.shape[1];
    const int32_t *id = tokens.data;
    DropoutMask mask = dropout_mask(c, drop);
    if (!ids_check(c, OP_embedding_forward, tokens, wte.shape[0]))
        return;
#pragma omp parallel for num_threads(cpu_threads(c, N *C)) schedule(static)
    for (int64_t n = 0; n < N; n++) {
        float *row = (float *)x.data + n * C;
        const float *token = (const float *)wte.data + id[n] * C, *position = (const float *)wpe.data + (first + n % T) * C;
#pragma omp simd
        for (int64_t i = 0; i < C; i++)
            row[i] = token[i] + position[i];
        if (mask.active)
            dropout_apply(row, row, C, &mask, n * C);
    }
}

/* sum [n] += d [n], when there is such a sum. */
static inline void add(float *sum, const float *d, int64_t n)
{
    if (sum)
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            sum[i] += d[i];
}

void CPU(embedding_backward)(Ctx *c, Tensor dwte, Tensor dwpe, Tensor dx, Tensor tokens, Dropout drop)
{
    enum { LINE = 16, PIECE = 256 }; /* floats: of a cache line, the unit of the slices; of the dropped gradients on the stack */
    int64_t N = dx.shape[0], C = dx.shape[1], T = tokens.shape[1];
    const int32_t *id = tokens.data;
    int threads = cpu_threads(c, N * C);
    DropoutMask mask = dropout_mask(c, drop);
    if (tensor_present(dwte) && !ids_check(c, OP_embedding_backward, tokens, dwte.shape[0]))
        return;
#pragma omp parallel num_threads(threads)
    {
        int64_t first, last;
        cpu_share((C + LINE - 1) / LINE, omp_get_thread_num(), threads, &first, &last);
        last = last * LINE < C ? last * LINE : C;
        for (int64_t n = 0; n < N; n++) {
            float *token = dwte.data ? (float *)dwte.data + id[n] * C : NULL;
            float *position = dwpe.data ? (float *)dwpe.data + n % T * C : NULL;
            for (int64_t i = first * LINE; i < last; i += PIECE) {
                int64_t count = last - i < PIECE ? last - i : PIECE;
                const float *d = (const float *)dx.data + n * C + i;
                float dropped[PIECE];
                if (mask.active) {
                    dropout_apply(dropped, d, count, &mask, n * C + i);
                    d = dropped;
                }
                add(token ? token + i : NULL, d, count);
                add(position ? position + i : NULL, d, count);
            }
        }
    }
}
