/* Token and position embedding: x[b, t] = dropout(wte[tokens[b, t]] + wpe[first + t]).
 *
 * Backward adds each row of dx to the row of its token, and several rows may have the same token. Without atomics, hence with the
 * same bits each time: rows are sorted by token, then by number; then a block for each token adds its rows, each warp every so
 * many of them. Sorting goes by pieces that fit into shared memory; a row's place in all is the sum of its places in each piece,
 * found by bisection: N^2 log(PIECE) / PIECE steps all in all, little beside a step.
 *
 * The loader has checked the ids. Should a wrong one come from elsewhere, nothing is read or written outside wte, and the row of
 * NaNs that it gets stops the run. */
#include "kernels/cuda/common.cuh"

enum { N = 4, THREADS = 256, WARPS = THREADS / WARP, SLICE = WARP * N, PIECE = CUDA_EMBEDDING_PIECE };

/* ---- Forward ------------------------------------------------------------------------------------------------------- */

/* A block a row. */
template <int N>
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
    auto launch = [&](auto width) {
        constexpr int N = decltype(width)::value;
        unsigned threads = (unsigned)(C < THREADS * N ? blocks_of(C, WARP * N) * WARP : THREADS);
        embedding_forward_kernel<N><<<(unsigned)rows, threads, 0, stream_of(c)>>>(
            elements(x), (const int32_t *)tokens.data, elements(wte), elements(wpe), first, tokens.shape[1], C, wte.shape[0],
            dropout_place(drop), c->state);
    };
    with_width(launch, x, wte, wpe);
    launch_check(c, OP_embedding_forward);
}

/* ---- Backward ------------------------------------------------------------------------------------------------------ */

/* A row as it is sorted: its token above its number. Places beyond the last row have the largest of all keys. */
typedef unsigned long long RowKey;

static __device__ __forceinline__ int32_t key_token(RowKey key)
{
    return (int32_t)(key >> 32);
}

/* Block p: the rows of piece p, sorted, to pieces [.., PIECE]. Bitonic: each step compares PIECE / 2 pairs. */
static __global__ void __launch_bounds__(PIECE / 2) embedding_sort_kernel(RowKey *pieces, const int32_t *tokens, int64_t rows)
{
    __shared__ RowKey key[PIECE];
    int64_t first = (int64_t)blockIdx.x * PIECE;
    for (int i = threadIdx.x; i < PIECE; i += PIECE / 2)
        key[i] = first + i < rows ? (RowKey)(uint32_t)tokens[first + i] << 32 | (RowKey)(first + i) : ~(RowKey)0;
    for (int size = 2; size <= PIECE; size *= 2)
        for (int distance = size / 2; distance; distance /= 2) {
            int low = 2 * threadIdx.x - (threadIdx.x & (distance - 1)), high = low + distance;
            __syncthreads(); /* the step before is done */
            RowKey a = key[low], b = key[high];
            if ((a > b) == !(low & size))
                key[low] = b, key[high] = a;
        }
    __syncthreads();
    for (int i = threadIdx.x; i < PIECE; i += PIECE / 2)
        pieces[first + i] = key[i];
}

/* sorted [rows] = all rows in order: a thread a row of a piece. */
static __global__ void __launch_bounds__(THREADS)
    embedding_merge_kernel(RowKey *sorted, const RowKey *pieces, int64_t n_pieces, int64_t rows)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, place = 0;
    RowKey key = i < n_pieces * PIECE ? pieces[i] : ~(RowKey)0;
    if (key == ~(RowKey)0)
        return;
    for (int64_t p = 0; p < n_pieces; p++) {
        int below = 0; /* how many keys of the piece are smaller */
        for (int step = PIECE / 2; step; step /= 2)
            below += pieces[p * PIECE + below + step - 1] < key ? step : 0;
        place += below + (pieces[p * PIECE + below] < key);
    }
    sorted[place] = key;
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

/* dwte[token] += its rows of dx. Block (i, s): the token of the i-th row in order, channels of slice s; nothing unless it is the
 * token's first. */
static __global__ void __launch_bounds__(THREADS)
    embedding_token_kernel(Elements dwte, Elements dx, const RowKey *sorted, int64_t rows, int64_t C, int64_t Vp,
                           DropoutPlace drop, const StepState *state)
{
    __shared__ Floats<N> part[WARPS][WARP];
    int64_t first = blockIdx.x, i = (int64_t)blockIdx.y * SLICE + threadIdx.x % WARP * N;
    int32_t id = key_token(sorted[first]);
    if (id < 0 || id >= Vp || (first > 0 && key_token(sorted[first - 1]) == id))
        return;
    RandomKey key = dropout_key(drop, state);
    Floats<N> sum = {};
    for (int64_t at = first + threadIdx.x / WARP; at < rows && key_token(sorted[at]) == id; at += WARPS)
        row_add(sum, dx, (int64_t)(uint32_t)sorted[at], i, C, drop, key);
    part[threadIdx.x / WARP][threadIdx.x % WARP] = sum;
    __syncthreads();
    if (threadIdx.x >= WARP || i >= C)
        return;
    int64_t at = id * C + i, end = (id + 1) * C;
    sum = load<N>(dwte, at, end);
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
    int64_t n_pieces = blocks_of(rows, PIECE);
    RowKey *pieces = (RowKey *)c->workspace, *sorted = pieces + n_pieces * PIECE;
    unsigned slices = (unsigned)blocks_of(C, SLICE);
    if (!workspace_check(c, OP_embedding_backward, embedding_backward_workspace(rows, Vp, &c->target)))
        return;
    if (tensor_present(dwte)) {
        embedding_sort_kernel<<<(unsigned)n_pieces, PIECE / 2, 0, stream_of(c)>>>(pieces, (const int32_t *)tokens.data, rows);
        embedding_merge_kernel<<<(unsigned)blocks_of(n_pieces * PIECE, THREADS), THREADS, 0, stream_of(c)>>>(sorted, pieces,
                                                                                                             n_pieces, rows);
        embedding_token_kernel<<<dim3((unsigned)rows, slices), THREADS, 0, stream_of(c)>>>(
            elements(dwte), elements(dx), sorted, rows, C, Vp, dropout_place(drop), c->state);
    }
    if (tensor_present(dwpe))
        embedding_position_kernel<<<dim3((unsigned)T, slices), WARP, 0, stream_of(c)>>>(elements(dwpe), elements(dx), rows, T, C,
                                                                                        dropout_place(drop), c->state);
    launch_check(c, OP_embedding_backward);
}
