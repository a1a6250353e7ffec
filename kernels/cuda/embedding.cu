/* Token and position embedding: x[b, t] = dropout(wte[tokens[b, t]] + wpe[first + t]).
 *
 * Backward adds each row of dx to the row of its token, and several rows may have the same token. Without atomics, hence with the
 * same bits each time: one kernel marks the rows whose token comes for the first time; then a block for each such row finds
 * the others of that token, each of its warps in a part of the batch of its own, and adds them in order. The marking
 * reads each id for each row, 32 at a time: N^2 / 64 reads from the cache at most, little beside a step.
 *
 * The loader has checked the ids. Should a wrong one come from elsewhere, nothing is read or written outside wte, and the row of
 * NaNs that it gets stops the run. */
#include "kernels/cuda/common.cuh"

enum { N = 4, THREADS = 256, WARPS = THREADS / WARP, SLICE = WARP * N };

/* ---- Forward ------------------------------------------------------------------------------------------------------- */

/* A block a row. */
static __global__ void __launch_bounds__(THREADS)
    embedding_forward_kernel(Elements x, const int32_t *tokens, Elements wte, Elements wpe, int64_t first, int64_t T, int64_t C,
                             int64_t Vp, DropoutPlace drop, const StepState *state)
{
    int64_t n = blockIdx.x, id = tokens[n], position = first + n % T;
    bool known = id >= 0 && id < Vp;
    RandomKey key = dropout_key(drop, state);
    for (int64_t i = threadIdx.x * N; i < C; i += blockDim.x * N) {
        Words<N> position_words = fetch<N>(wpe, position * C + i, (position + 1) * C);
        Floats<N> sum = known ? load<N>(wte, id * C + i, (id + 1) * C) : Floats<N>{};
        Floats<N> add = widen<N>(position_words, wpe.dtype);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum.v[k] = known ? sum.v[k] + add.v[k] : __int_as_float(0x7FC00000);
        dropout_apply<N>(sum, drop, key, n * C + i);
        store<N>(x, n * C + i, (n + 1) * C, sum);
    }
}

extern "C" void cuda_embedding_forward(Ctx *c, Tensor x, Tensor tokens, Tensor wte, Tensor wpe, int64_t first, Dropout drop)
{
    int64_t rows = x.shape[0], C = x.shape[1];
    unsigned threads = (unsigned)(C < THREADS * N ? blocks_of(C, SLICE) * WARP : THREADS);
    embedding_forward_kernel<<<(unsigned)rows, threads, 0, stream_of(c)>>>(elements(x), (const int32_t *)tokens.data,
                                                                           elements(wte), elements(wpe), first, tokens.shape[1],
                                                                           C, wte.shape[0], dropout_place(drop), c->state);
    launch_check(c, OP_embedding_forward);
}

/* ---- Backward ------------------------------------------------------------------------------------------------------ */

/* is_first[n] = has no row before n the same token? A warp a row, looking back from it. */
static __global__ void __launch_bounds__(THREADS)
    embedding_first_rows_kernel(int32_t *is_first, const int32_t *tokens, int64_t rows)
{
    int lane = threadIdx.x % WARP;
    int64_t n = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (n >= rows)
        return;
    int32_t id = tokens[n];
    bool found = false;
    for (int64_t end = n; end > 0 && !found; end -= WARP) {
        int64_t i = end - 1 - lane;
        found = __any_sync(0xFFFFFFFFu, i >= 0 && tokens[i] == id);
    }
    if (lane == 0)
        is_first[n] = !found;
}

/* sum += dropout(row n of dx), columns i .. i+N-1. */
static __device__ __forceinline__ void row_add(Floats<N> &sum, Elements dx, int64_t n, int64_t i, int64_t C,
                                               const DropoutPlace &drop, RandomKey key)
{
    Floats<N> d = load<N>(dx, n * C + i, (n + 1) * C);
    dropout_apply<N>(d, drop, key, n * C + i);
#pragma unroll
    for (int k = 0; k < N; k++)
        sum.v[k] += d.v[k];
}

/* The sum over this warp's part of the rows, of those with that token. */
static __device__ __forceinline__ Floats<N> token_sum(Elements dx, const int32_t *tokens, int32_t id, int64_t from, int64_t rows,
                                                      int64_t i, int64_t C, const DropoutPlace &drop, RandomKey key)
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int64_t share = blocks_of(rows - from, WARPS), begin = from + warp * share, end = begin + share < rows ? begin + share : rows;
    Floats<N> sum = {};
    for (int64_t at = begin; at < end; at += WARP) {
        unsigned same = __ballot_sync(0xFFFFFFFFu, at + lane < end && tokens[at + lane] == id);
        for (; same; same &= same - 1)
            row_add(sum, dx, at + __ffs((int)same) - 1, i, C, drop, key);
    }
    return sum;
}

/* dwte[token] += its rows of dx. Block (n, s): the token of row n, channels of slice s; nothing unless n is the token's first. */
static __global__ void __launch_bounds__(THREADS)
    embedding_token_kernel(Elements dwte, Elements dx, const int32_t *tokens, const int32_t *is_first, int64_t rows, int64_t C,
                           int64_t Vp, DropoutPlace drop, const StepState *state)
{
    __shared__ Floats<N> part[WARPS][WARP];
    int64_t n = blockIdx.x, i = (int64_t)blockIdx.y * SLICE + threadIdx.x % WARP * N;
    int32_t id = tokens[n];
    if (!is_first[n] || id < 0 || id >= Vp)
        return;
    part[threadIdx.x / WARP][threadIdx.x % WARP] = token_sum(dx, tokens, id, n, rows, i, C, drop, dropout_key(drop, state));
    __syncthreads();
    if (threadIdx.x >= WARP || i >= C)
        return;
    int64_t at = id * C + i, end = (id + 1) * C;
    Floats<N> sum = load<N>(dwte, at, end);
    for (int warp = 0; warp < WARPS; warp++)
#pragma unroll
        for (int k = 0; k < N; k++)
            sum.v[k] += part[warp][threadIdx.x].v[k];
    store<N>(dwte, at, end, sum);
}

/* dwpe[t] += rows t, t + T, ... of dx. Block (t, s): position t, channels of slice s of this many threads. */
static __global__ void __launch_bounds__(WARP) embedding_position_kernel(Elements dwpe, Elements dx, int64_t rows, int64_t T,
                                                                         int64_t C, DropoutPlace drop, const StepState *state)
{
    int64_t t = blockIdx.x, i = (int64_t)blockIdx.y * SLICE + threadIdx.x * N;
    if (i >= C)
        return;
    RandomKey key = dropout_key(drop, state);
    Floats<N> sum = load<N>(dwpe, t * C + i, (t + 1) * C);
    for (int64_t n = t; n < rows; n += T)
        row_add(sum, dx, n, i, C, drop, key);
    store<N>(dwpe, t * C + i, (t + 1) * C, sum);
}

extern "C" void cuda_embedding_backward(Ctx *c, Tensor dwte, Tensor dwpe, Tensor dx, Tensor tokens, Dropout drop)
{
    int64_t rows = dx.shape[0], C = dx.shape[1], T = tokens.shape[1], Vp = tensor_present(dwte) ? dwte.shape[0] : 0;
    int32_t *is_first = (int32_t *)c->workspace;
    const int32_t *ids = (const int32_t *)tokens.data;
    unsigned slices = (unsigned)blocks_of(C, SLICE);
    if (!cuda_workspace_check(c, OP_embedding_backward, cuda_embedding_backward_workspace(rows, Vp, &c->target)))
        return;
    if (tensor_present(dwte)) {
        embedding_first_rows_kernel<<<(unsigned)blocks_of(rows, WARPS), THREADS, 0, stream_of(c)>>>(is_first, ids, rows);
        embedding_token_kernel<<<dim3((unsigned)rows, slices), THREADS, 0, stream_of(c)>>>(
            elements(dwte), elements(dx), ids, is_first, rows, C, Vp, dropout_place(drop), c->state);
    }
    if (tensor_present(dwpe))
        embedding_position_kernel<<<dim3((unsigned)T, slices), WARP, 0, stream_of(c)>>>(elements(dwpe), elements(dx), rows, T, C,
                                                                                        dropout_place(drop), c->state);
    launch_check(c, OP_embedding_backward);
}
