/* Filling, copying, counting. Host and device memory are the same here, so a copy in or out is memcpy; large ones are shared. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

#include <string.h>

/* to = from, or 0 where from is NULL; each thread writes a contiguous share in units of a cache line. */
static void fill(const Ctx *c, char *to, const char *from, size_t bytes)
{
    int threads = cpu_threads(c, (int64_t)(bytes / 4));
    int64_t lines = (int64_t)((bytes + 63) / 64);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int id = 0; id < threads; id++) {
        int64_t first, last;
        cpu_share(lines, id, threads, &first, &last);
        size_t begin = (size_t)first * 64, end = (size_t)last * 64 < bytes ? (size_t)last * 64 : bytes;
        if (begin >= end)
            continue;
        if (from)
            memcpy(to + begin, from + begin, end - begin);
        else
            memset(to + begin, 0, end - begin);
    }
}

void CPU(copy_in)(Ctx *c, Tensor to, const void *from)
{
    fill(c, to.data, from, tensor_bytes(to));
}

void CPU(copy_out)(Ctx *c, void *to, Tensor from)
{
    fill(c, to, from.data, tensor_bytes(from));
}

void CPU(zero)(Ctx *c, Tensor t)
{
    fill(c, t.data, NULL, tensor_bytes(t));
}

void CPU(cast)(Ctx *c, Tensor to, Tensor from)
{
    int64_t n = tensor_count(to), pieces = (n + ROW_PIECE - 1) / ROW_PIECE;
#pragma omp parallel for num_threads(cpu_threads(c, n)) schedule(static)
    for (int64_t p = 0; p < pieces; p++) {
        float buffer[ROW_PIECE], *out;
        int64_t at = p * ROW_PIECE, count = min_of(n - at, ROW_PIECE);
        const float *in = row_in(&from, at, count, buffer);
        out = row_out(&to, at, (float *)in);
        if (out != in)
            memcpy(out, in, (size_t)count * sizeof(float));
        row_done(&to, at, count, out);
    }
}

void CPU(micro_next)(Ctx *c)
{
    c->state->micro++;
}
