/* Tiles of attention in FP32: what the plain forward and backward share.
 *
 * A block of 16 x 16 threads owns OWN rows (queries, or keys for dK and dV) and walks over the others, WALK at a time. Thread (y,
 * x) has the rows R y .. R y + R-1 of a tile of scores and the columns C x .. C x + C-1, R = OWN / 16 and C = WALK / 16; of a sum
 * [OWN, HD] the same rows and the columns 4 x + 64 n .. 4 x + 64 n + 3. All products are fused multiply-adds in ascending order.
 *
 * Tiles in shared memory are FP32, rows HD + 4 floats apart, so that eight neighbouring rows begin in different banks. The walked
 * rows are kept in another order, row C x + j at place 16 j + x: threads that read at the same time read neighbouring places, and
 * a thread's columns are still neighbours in T, which share the random bits of a block of Philox. Tiles of scores have their
 * columns in the order of the places. */
#ifndef TALLY_KERNELS_CUDA_ATTENTION_PLAIN_CUH
#define TALLY_KERNELS_CUDA_ATTENTION_PLAIN_CUH

#include "kernels/cuda/attention.cuh"

enum { SIDE = 16, PLAIN_THREADS = SIDE * SIDE };

/* Sizes for head sizes up to HD: three tiles of rows, one of scores and a few numbers per row are at most 56 KiB. */
template <int HEAD, int OWN_ROWS, int WALK_ROWS> struct PlainTiles {
    enum {
        HD = HEAD,
        OWN = OWN_ROWS,
        WALK = WALK_ROWS,
        R = OWN / SIDE,
        C = WALK / SIDE,
        LD = HD + 4,   /* floats from row to row of a tile of rows   */
        LS = WALK + 4, /* of a tile of scores [OWN, WALK]            */
        M = HD / 64    /* groups of four columns of a thread's sums  */
    };
};

/* Calls f(sizes) with the smallest tiles that hold a head of hd elements. */
template <class F> static void with_plain_tiles(int hd, F f)
{
    if (hd <= 64)
        f(PlainTiles<64, 64, 32>());
    else if (hd <= 128)
        f(PlainTiles<128, 32, 32>());
    else
        f(PlainTiles<256, 16, 16>());
}

/* ROWS rows of hd numbers of `from`, the first at element `at`, `stride` apart, into a tile; rows from `rows` on and columns up
 * to HD become 0. With COLUMNS > 0 row COLUMNS x + j goes to place 16 j + x. */
template <int HD, int ROWS, int COLUMNS>
static __device__ __forceinline__ void rows_load(float *tile, Elements from, int64_t at, int64_t stride, int rows, int hd)
{
    for (int i = threadIdx.x; i < ROWS * HD / 4; i += PLAIN_THREADS) {
        int row = i / (HD / 4), d = i % (HD / 4) * 4;
        int place = COLUMNS > 0 ? row % (COLUMNS > 0 ? COLUMNS : 1) * SIDE + row / (COLUMNS > 0 ? COLUMNS : 1) : row;
        int64_t begin = at + row * stride;
        Floats<4> x = load<4>(from, begin + d, row < rows && d < hd ? begin + hd : begin + d);
        *(float4 *)(tile + place * (HD + 4) + d) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    }
}

/* s[i][j] = own row i of this thread times walked row j, over hd elements (rounded up to 4: the rest are zeros). */
template <class P>
static __device__ __forceinline__ void plain_scores(float (&s)[P::R][P::C], const float *own, const float *walk, int hd)
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < P::R * P::C; i++)
        s[i / P::C][i % P::C] = 0.0f;
    for (int d = 0; d < hd; d += 4) {
        float4 left[P::R], right[P::C];
#pragma unroll
        for (int i = 0; i < P::R; i++)
            left[i] = *(const float4 *)(own + (y * P::R + i) * P::LD + d);
#pragma unroll
        for (int j = 0; j < P::C; j++)
            right[j] = *(const float4 *)(walk + (SIDE * j + x) * P::LD + d);
#pragma unroll
        for (int i = 0; i < P::R; i++)
#pragma unroll
            for (int j = 0; j < P::C; j++) {
                float sum = fmaf(left[i].x, right[j].x, s[i][j]);
                sum = fmaf(left[i].y, right[j].y, sum);
                sum = fmaf(left[i].z, right[j].z, sum);
                s[i][j] = fmaf(left[i].w, right[j].w, sum);
            }
    }
}

/* A thread's scores into a tile of scores. */
template <class P> static __device__ __forceinline__ void scores_put(float *tile, const float (&s)[P::R][P::C])
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < P::R; i++)
#pragma unroll
        for (int j = 0; j < P::C; j++)
            tile[(y * P::R + i) * P::LS + SIDE * j + x] = s[i][j];
}

/* A thread's part of a sum [OWN, HD]. */
template <class P> struct Sums {
    float v[P::R][P::M][4];
};

template <class P> static __device__ __forceinline__ void sums_scale(Sums<P> &out, const float (&factor)[P::R])
{
#pragma unroll
    for (int i = 0; i < P::R; i++)
#pragma unroll
        for (int k = 0; k < 4 * P::M; k++)
            out.v[i][k / 4][k % 4] *= factor[i];
}

/* out += tile of scores times walked rows. */
template <class P> static __device__ __forceinline__ void plain_accumulate(Sums<P> &out, const float *tile, const float *walk)
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll 4
    for (int k = 0; k < P::WALK; k++) {
        float4 right[P::M];
#pragma unroll
        for (int m = 0; m < P::M; m++)
            right[m] = *(const float4 *)(walk + k * P::LD + 4 * x + 64 * m);
#pragma unroll
        for (int i = 0; i < P::R; i++) {
            float left = tile[(y * P::R + i) * P::LS + k];
#pragma unroll
            for (int m = 0; m < P::M; m++) {
                out.v[i][m][0] = fmaf(left, right[m].x, out.v[i][m][0]);
                out.v[i][m][1] = fmaf(left, right[m].y, out.v[i][m][1]);
                out.v[i][m][2] = fmaf(left, right[m].z, out.v[i][m][2]);
                out.v[i][m][3] = fmaf(left, right[m].w, out.v[i][m][3]);
            }
        }
    }
}

/* Sums times factor, rounded, to rows of `to`, the block's first at element `at`; only `rows` of them exist. */
template <class P>
static __device__ __forceinline__ void sums_store(Elements to, int64_t at, int64_t stride, const Sums<P> &out,
                                                  const float (&factor)[P::R], int rows, int hd)
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < P::R; i++)
#pragma unroll
        for (int m = 0; m < P::M; m++) {
            int d = 4 * x + 64 * m;
            int64_t begin = at + (y * P::R + i) * stride;
            Floats<4> r;
#pragma unroll
            for (int e = 0; e < 4; e++)
                r.v[e] = out.v[i][m][e] * factor[i];
            if (y * P::R + i < rows && d < hd)
                store<4>(to, begin + d, begin + hd, r);
        }
}

/* Minus infinity where a key comes after its query. query, key: numbers in T of the tile's first row and first column. */
template <class P> static __device__ __forceinline__ void plain_mask(float (&s)[P::R][P::C], int query, int key)
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < P::R; i++)
#pragma unroll
        for (int j = 0; j < P::C; j++)
            if (key + P::C * x + j > query + P::R * y + i)
                s[i][j] = -INFINITY;
}

#endif
