/* Token and position embedding: x[b, t] = dropout(wte[tokens[b, t]] + wpe[first + t]).
 *
 * Backward adds each row of dx to the row of its token, and several rows may have the same token: they are summed in FP32, in
 * order, and rounded once. To need neither locks nor atomics, a thread owns a slice of the channels: the same bits for any number
 * of threads. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/rows.h"

#include <omp.h>
#include <string.h>

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
        for (int64_t i = 0; i < C; i += ROW_PIECE) {
            float buffer[3][ROW_PIECE];
            int64_t count = min_of(C - i, ROW_PIECE), at = n * C + i;
            const float *token = row_in(&wte, id[n] * C + i, count, buffer[0]);
            const float *position = row_in(&wpe, (first + n % T) * C + i, count, buffer[1]);
            float *row = row_out(&x, at, buffer[2]);
#pragma omp simd
            for (int64_t k = 0; k < count; k++)
                row[k] = token[k] + position[k];
            if (mask.active)
                dropout_apply(row, row, count, &mask, at);
            row_done(&x, at, count, row);
        }
    }
}

/* The rows that have the same token form a list: first[token], then next[row] until -1. */
static void lists_make(int32_t *first, int32_t *next, int64_t Vp, const int32_t *id, int64_t N)
{
    memset(first, -1, (size_t)Vp * sizeof *first);
    for (int64_t n = N - 1; n >= 0; n--) {
        next[n] = first[id[n]];
        first[id[n]] = (int32_t)n;
    }
}

/* Elements at .. at+count-1 of sum += channels i .. of the rows n, next[n], ... of dx, or without `next` n, n + T, ... */
static void rows_add(const Tensor *sum, int64_t at, const Tensor *dx, int64_t n, const int32_t *next, int64_t T, int64_t i,
                     int64_t count, const DropoutMask *mask)
{
    float total[ROW_PIECE], wide[ROW_PIECE], dropped[ROW_PIECE];
    int64_t N = dx->shape[0], C = dx->shape[1];
    float *to = row_inout(sum, at, count, total);
    while (n >= 0) {
        const float *d = row_in(dx, n * C + i, count, wide);
        if (mask->active) {
            dropout_apply(dropped, d, count, mask, n * C + i);
            d = dropped;
        }
#pragma omp simd
        for (int64_t k = 0; k < count; k++)
            to[k] += d[k];
        n = next ? next[n] : n + T < N ? n + T : -1;
    }
    row_done(sum, at, count, to);
}

void CPU(embedding_backward)(Ctx *c, Tensor dwte, Tensor dwpe, Tensor dx, Tensor tokens, Dropout drop)
{
    enum { UNIT = 32 }; /* elements: of a slice, so that threads share no cache line */
    int64_t N = dx.shape[0], C = dx.shape[1], T = tokens.shape[1], Vp = tensor_present(dwte) ? dwte.shape[0] : 0;
    const int32_t *id = tokens.data;
    int32_t *first_row = c->workspace, *next = first_row + Vp;
    int threads = cpu_threads(c, N * C);
    DropoutMask mask = dropout_mask(c, drop);
    if (!workspace_check(c, OP_embedding_backward, embedding_backward_workspace(N, Vp, &c->target)) ||
        (Vp && !ids_check(c, OP_embedding_backward, tokens, Vp)))
        return;
    if (Vp)
        lists_make(first_row, next, Vp, id, N);
#pragma omp parallel num_threads(threads)
    {
        int64_t first, last;
        cpu_share((C + UNIT - 1) / UNIT, omp_get_thread_num(), threads, &first, &last);
        last = min_of(last * UNIT, C);
        for (int64_t i = first * UNIT; i < last; i += ROW_PIECE) {
            int64_t count = min_of(last - i, ROW_PIECE);
            for (int64_t n = 0; n < N && Vp; n++)
                if (first_row[id[n]] == n)
                    rows_add(&dwte, id[n] * C + i, &dx, n, next, 0, i, count, &mask);
            for (int64_t t = 0; t < T && tensor_present(dwpe); t++)
                rows_add(&dwpe, t * C + i, &dx, t, NULL, T, i, count, &mask);
        }
    }
}
