/* The tiles that attention on tensor cores is made of.
 *
 * A block of WARPS warps owns 16 rows a warp of one matrix pair (queries in the forward pass and for dQ, keys for dK and dV) and
 * walks over the rows of the other, a tile of WALK rows at a time, while the next tile is on its way (cp.async, two buffers).
 * A warp's sums of products stay in its registers from one product to the next:
 *
 *   scores      S [16, WALK]  = own rows [16, HD] times the walked rows [WALK, HD] transposed
 *   accumulate  out [16, HD] += S [16, WALK] times the walked rows [WALK, HD]
 *
 * Tiles in shared memory are [rows, HD] in 16 bits, HD the head size rounded up to one that has a kernel; columns beyond the head
 * size and rows beyond T are 0. Two things are moved about in them:
 *
 *   the 16-byte chunks of a row are permuted by XOR with the row's number, so that the eight rows of an 8 x 8 matrix lie in
 *   different banks;
 *
 *   the rows of each group of 16 are permuted, so that a thread's four columns of a piece of S are four neighbours in T, which
 *   draw their random bits from one block of Philox: with lane = 4 g + t, v[half][e] of piece n is
 *   own row  4 (g / 2) + g % 2 + 2 half,  walked row  16 n + 4 t + e. */
#ifndef TALLY_KERNELS_CUDA_ATTENTION_TILE_CUH
#define TALLY_KERNELS_CUDA_ATTENTION_TILE_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

enum { WARPS = 4, THREADS = WARPS * WARP };
static constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

/* Calls f(integral constant) with the smallest head size that has a kernel and is not below hd. */
template <int HD> struct HeadSize {
    static constexpr int value = HD;
};
template <class F> static void with_head_size(int hd, F f)
{
    if (hd <= 32)
        f(HeadSize<32>());
    else if (hd <= 64)
        f(HeadSize<64>());
    else if (hd <= 96)
        f(HeadSize<96>());
    else if (hd <= 128)
        f(HeadSize<128>());
    else if (hd <= 192)
        f(HeadSize<192>());
    else
        f(HeadSize<256>());
}

/* And with the type, which is one of the two that tensor cores multiply. */
template <class F> static void with_half_type(DType dtype, F f)
{
    if (dtype == DTYPE_BF16)
        f(__nv_bfloat16());
    else
        f(__half());
}

/* ---- Tiles in shared memory ------------------------------------------------------------------------------------------ */

/* Element at which chunk `chunk` (8 elements) of row `row` of a tile begins. */
template <int HD> static __device__ __forceinline__ int tile_at(int row, int chunk)
{
    int swizzle = HD % 64 == 0 ? row & 7 : row >> 1 & 3; /* rows of HD % 64 = 32 elements lie half a line of banks apart */
    return row * HD + 8 * (chunk ^ swizzle);
}

/* The row of a tile at which row `row` of the matrix is kept. */
static __device__ __forceinline__ int tile_row(int row)
{
    return (row & ~15) | (row >> 1 & 1) << 3 | (row >> 2 & 3) << 1 | (row & 1);
}

/* The own row, in its group of 16, of which this lane holds v[half]; and the first of its four walked rows of a piece. */
static __device__ __forceinline__ int lane_row(int half)
{
    int g = threadIdx.x % WARP / 4;
    return 4 * (g / 2) + g % 2 + 2 * half;
}
static __device__ __forceinline__ int lane_column()
{
    return 4 * (threadIdx.x % 4);
}

/* The first `count` of 8 elements, and zeros, for rows without any alignment. */
template <class T> static __device__ __forceinline__ uint4 chunk_gather(const T *from, int count)
{
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t low = 2 * i < count ? ((const uint16_t *)from)[2 * i] : 0;
        uint32_t high = 2 * i + 1 < count ? ((const uint16_t *)from)[2 * i + 1] : 0;
        word[i] = low | high << 16;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Starts to bring ROWS rows of hd elements, `stride` apart, into a tile; only `rows` of them exist. */
template <class T, int HD, int ROWS>
static __device__ __forceinline__ void tile_load(T *tile, const T *from, int64_t stride, int rows, const AttentionCall &a)
{
    constexpr int CHUNKS = HD / 8;
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        int row = i / CHUNKS, chunk = i % CHUNKS, left = row < rows ? a.hd - 8 * chunk : 0;
        T *to = tile + tile_at<HD>(tile_row(row), chunk);
        const T *at = left > 0 ? from + row * stride + 8 * chunk : from;
        if (a.aligned)
            copy_async<uint4>(to, at, left > 0);
        else
            *(uint4 *)to = chunk_gather(at, left);
    }
}

/* Writes the first `rows` of a tile's ROWS rows to their places. */
template <class T, int HD, int ROWS>
static __device__ __forceinline__ void tile_store(T *to, int64_t stride, const T *tile, int rows, const AttentionCall &a)
{
    constexpr int CHUNKS = HD / 8;
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        int row = i / CHUNKS, chunk = i % CHUNKS, left = row < rows ? a.hd - 8 * chunk : 0;
        const T *from = tile + tile_at<HD>(tile_row(row), chunk);
        T *at = to + row * stride + 8 * chunk;
        if (a.aligned && left > 0)
            *(uint4 *)at = *(const uint4 *)from;
        for (int e = 0; !a.aligned && e < 8 && e < left; e++)
            at[e] = from[e];
    }
}

/* Sums out [16, 16 N] times factor[half], rounded, into this warp's 16 rows of a tile from `row` on, and columns from 16 first.
 */
template <class T, int HD, int N>
static __device__ __forceinline__ void tile_put(T *tile, int row, int first, const Piece (&out)[N], const float (&factor)[2])
{
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int e = 0; e < 4; e += 2) {
                float f = factor[half], low = out[n].v[half][e] * f, high = out[n].v[half][e + 1] * f;
                T *to = tile + tile_at<HD>(row + g + 8 * half, 2 * (first + n) + e / 2) + 2 * t;
                *(uint32_t *)to = pair_round(low, high, T());
            }
}

/* ---- Products ---------------------------------------------------------------------------------------------------------- */

template <int N> static __device__ __forceinline__ void pieces_zero(Piece (&p)[N])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            p[n].v[i / 4][i % 4] = 0.0f;
}

/* Waits for the tiles of own rows, where they are kept in registers from then on. */
template <bool KEEP> static __device__ __forceinline__ void own_rows_wait()
{
    if (KEEP) {
        copies_wait();
        __syncthreads(); /* own rows are here */
    }
}

/* 16 own rows as left factor. KEEP: in registers, HD / 4 of them, from begin() on, before which comes own_rows_wait(); else read
 * from shared memory each time. end() comes before the warp writes over them. */
template <class T, int HD, bool KEEP> struct OwnRows {
    const T *tile;
    int row; /* the first of them in the tile */
    Operand kept[KEEP ? HD / 16 : 1];

    __device__ __forceinline__ Operand read(int k) const
    {
        int lane = threadIdx.x % WARP;
        return matrix_load(tile + tile_at<HD>(row + lane % 16, 2 * k + lane / 16));
    }
    __device__ __forceinline__ void begin()
    {
#pragma unroll
        for (int k = 0; KEEP && k < HD / 16; k++)
            kept[KEEP ? k : 0] = read(k);
    }
    __device__ __forceinline__ void end() const
    {
        if (!KEEP)
            __syncwarp(); /* no other warp reads them, and this one has read them */
    }
    __device__ __forceinline__ Operand columns(int k) const
    {
        return KEEP ? kept[KEEP ? k : 0] : read(k);
    }
};

/* s [16, 16 N] = 16 own rows times the 16 N rows of tile `walk` transposed. */
template <class T, int HD, bool KEEP, int N>
static __device__ __forceinline__ void scores(Piece (&s)[N], const OwnRows<T, HD, KEEP> &own, const T *walk)
{
    int lane = threadIdx.x % WARP;
    pieces_zero(s);
#pragma unroll
    for (int k = 0; k < HD / 16; k++) {
        Operand left = own.columns(k);
#pragma unroll
        for (int n = 0; n < N; n++)
            mma<T>(s[n], left, matrix_load(walk + tile_at<HD>(16 * n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2)));
    }
}

/* out [16, 16 M] += s [16, 16 N], rounded, times columns 16 first .. of the 16 N rows of tile `walk`. */
template <class T, int HD, int N, int M>
static __device__ __forceinline__ void accumulate(Piece (&out)[M], const Piece (&s)[N], const T *walk, int first)
{
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < N; k++) {
        Operand left = left_factor<T>(s[k]);
#pragma unroll
        for (int m = 0; m < M; m++)
            mma<T>(out[m], left, matrix_load_transposed(walk + tile_at<HD>(16 * k + lane % 16, 2 * (first + m) + lane / 16)));
    }
}

/* ---- On the pieces of S ------------------------------------------------------------------------------------------------ */

/* 2^x to 2^-22, 0 for x = -Inf, NaN for NaN. */
static __device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Over the four lanes that share a row. */
static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}
static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

/* Minus infinity where the key (a column) comes after the query (a row). Both are numbers in T, of the warp's first row and the
 * tile's first column. */
template <int N> static __device__ __forceinline__ void mask_future_keys(Piece (&s)[N], int query, int key)
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (key + 16 * n + lane_column() + i % 4 > query + lane_row(i / 4))
                s[n].v[i / 4][i % 4] = -INFINITY;
}

/* The same where rows are keys and columns queries. */
template <int N> static __device__ __forceinline__ void mask_past_queries(Piece (&s)[N], int key, int query)
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (query + 16 * n + lane_column() + i % 4 < key + lane_row(i / 4))
                s[n].v[i / 4][i % 4] = -INFINITY;
}

/* Which elements of a tile dropout keeps, rows being queries: v[half][e] of piece n is bit 8 n + 4 half + e. index: element of
 * the stream that the warp's first row and the tile's first column is. A loop that is not unrolled: ten rounds are much code. */
template <int N>
static __device__ __forceinline__ uint32_t kept_by_query(RandomKey key, uint32_t threshold, uint64_t index, int T)
{
    static_assert(N <= 4, "a bit for each of a thread's elements");
    uint32_t kept = 0;
#pragma unroll 1
    for (int i = 0; i < 2 * N; i++) {
        uint64_t at = index + (uint64_t)lane_row(i % 2) * T + 16 * (i / 2) + lane_column();
        kept |= four_kept(key, at, threshold) << 4 * i;
    }
    return kept;
}

static __device__ __forceinline__ bool is_kept_by_query(uint32_t kept, int n, int half, int e)
{
    return kept >> (8 * n + 4 * half + e) & 1;
}

/* The same, rows being keys. A block of Philox now belongs to one column and four rows, two of them this lane's and two the
 * lane's with g ^ 1. Each of the two lanes makes half of the columns for both: the even one e = 0, 1, the odd one e = 2, 3. */
struct KeptByKey {
    uint32_t bits[2]; /* columns e of 2 i and 2 i + 1: row r of four of column (n, e) is bit 4 (2 n + e % 2) + r */
};

template <int N> static __device__ __forceinline__ KeptByKey kept_by_key(RandomKey key, uint32_t threshold, uint64_t index, int T)
{
    static_assert(N <= 4, "a bit for each of the elements that a thread makes");
    int g = threadIdx.x % WARP / 4, odd = g % 2;
    uint32_t mine = 0;
#pragma unroll 1
    for (int i = 0; i < 2 * N; i++) {
        uint64_t column = 16 * (i / 2) + lane_column() + 2 * odd + i % 2;
        mine |= four_kept(key, index + column * T + 4 * (g / 2), threshold) << 4 * i;
    }
    uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, mine, 4);
    return odd ? KeptByKey{{other, mine}} : KeptByKey{{mine, other}};
}

static __device__ __forceinline__ bool is_kept_by_key(const KeptByKey &kept, int n, int half, int e)
{
    int g = threadIdx.x % WARP / 4;
    return kept.bits[e / 2] >> (4 * (2 * n + e % 2) + g % 2 + 2 * half) & 1;
}

#endif
