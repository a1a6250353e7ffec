/* The tile that forward and backward attention are made of, and the arithmetic on it.
 *
 * A tile is BLOCK queries by BLOCK keys. It is kept transposed, S'[j][i], key j by query i, so that neighbouring queries lie
 * in neighbouring lanes of a vector register: the maximum and the sum over the keys of a row of softmax are then plain
 * vertical vector operations. All five matrix products of attention read such a tile, or write it, without a transposition:
 *
 *   S'[j][i]   = sum_d  K[j][d]  Q'[d][i]        dP'[j][i]  = sum_d  V[j][d]  dO'[d][i]
 *   O[i][d]   += sum_j  P'[j][i] V[j][d]         dQ[i][d]  += sum_j  dS'[j][i] K[j][d]
 *   dV[j][d]  += sum_i  P'[j][i] dO[i][d]        dK[j][d]  += sum_i  dS'[j][i] Q[i][d]
 *
 * The left factor is read a number at a time and spread over a register, the right factor in whole registers. Only Q and dO
 * are transposed, once per block of queries. A tile on the diagonal computes little more than its lower half. */
#ifndef TALLY_KERNELS_CPU_ATTENTION_TILE_H
#define TALLY_KERNELS_CPU_ATTENTION_TILE_H

#include "kernels/cpu/dropout.h"
#include "kernels/cpu/rows.h"
#include <math.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* BLOCK is a multiple of every build's ROWS and VECTOR. ROWS x 2 vectors of partial sums, two vectors of the right
 * factor and one of the left fill the registers of each instruction set: 32 with AVX-512, 16 before. */
enum { BLOCK = 96, LANES_MAX = 16 };
#if defined(__AVX512F__)
enum { ROWS = 8 };
#elif defined(__AVX2__)
enum { ROWS = 6 };
#else
enum { ROWS = 4 };
#endif

typedef float Vec __attribute__((vector_size(VECTOR * 4)));
typedef int32_t VecInt __attribute__((vector_size(VECTOR * 4)));
typedef uint32_t VecBits __attribute__((vector_size(VECTOR * 4)));
typedef float VecAnywhere __attribute__((vector_size(VECTOR * 4), aligned(4), may_alias));

/* ---- Sizes ---------------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Row stride of a tile that holds head vectors: whole registers and whole cache lines in every build. */
ALWAYS_INLINE int64_t head_stride(int64_t hd)
{
    return round_up(hd, LANES_MAX);
}

/* Random words of a tile: four keys more than its rows, since a group of four may begin before it and end after it. */
enum { RANDOM_ROWS = BLOCK + 8 };

/* Floats of a whole head: T rows, in whole blocks. */
ALWAYS_INLINE int64_t head_floats(int64_t T, int64_t hd)
{
    return round_up(T, BLOCK) * head_stride(hd);
}

/* Floats of workspace of one thread. Forward: Q', O; a tile; three numbers per query; random words; K, V of one head. */
ALWAYS_INLINE int64_t forward_floats(int64_t T, int64_t hd)
{
    return BLOCK * (2 * head_stride(hd) + BLOCK + 3 + RANDOM_ROWS) + 2 * head_floats(T, hd);
}

/* Backward: Q, Q', dO, dO', dQ, staging; two tiles; four numbers per query; random words; K, V, dK, dV of one head. */
ALWAYS_INLINE int64_t backward_floats(int64_t T, int64_t hd)
{
    return BLOCK * (6 * head_stride(hd) + 2 * BLOCK + 4 + RANDOM_ROWS) + 4 * head_floats(T, hd);
}

/* ---- Which thread does what ------------------------------------------------------------------------------------------
 * The work is a list of items: blocks of queries, ordered by (sequence, head, block). A causal block number n has n + 1 tiles
 * to visit. Each thread gets a contiguous stretch of the list with about the same number of tiles. */

/* The first item whose tiles begin at or after `tile`, of all tiles in the list's order. */
ALWAYS_INLINE int64_t item_at_tile(int64_t tile, int64_t blocks)
{
    int64_t per_head = blocks * (blocks + 1) / 2, head = tile / per_head, left = tile % per_head, n = 0;
    while (n * (n + 1) / 2 < left)
        n++;
    return head * blocks + n;
}

ALWAYS_INLINE void share_items(AttentionShape s, int id, int threads, int64_t *first, int64_t *last)
{
    int64_t blocks = (s.T + BLOCK - 1) / BLOCK, tiles = s.B * s.NH * (blocks * (blocks + 1) / 2);
    int64_t from, to;
    cpu_share(tiles, id, threads, &from, &to);
    *first = item_at_tile(from, blocks);
    *last = item_at_tile(to, blocks);
}

/* ---- Vectors --------------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE Vec vec_load(const float *p)
{
    return *(const VecAnywhere *)p;
}

ALWAYS_INLINE void vec_store(float *p, Vec x)
{
    *(VecAnywhere *)p = x;
}

ALWAYS_INLINE Vec vec_all(float x)
{
    return x - (Vec){0};
}

ALWAYS_INLINE Vec vec_select(VecInt mask, Vec a, Vec b)
{
    return (Vec)((mask & (VecInt)a) | (~mask & (VecInt)b));
}

/* The larger, lane by lane; b where a is NaN. */
ALWAYS_INLINE Vec vec_max(Vec a, Vec b)
{
    return vec_select(a > b, a, b);
}

/* exp(x) for x <= 88: relative error below 2.5e-7, 0 below -87.33, NaN for NaN. As exp_approx(), with less to care for: the
 * polynomial is the minimax one of degree 5 on [-ln 2 / 2, ln 2 / 2] that begins 1 + r. */
ALWAYS_INLINE Vec vec_exp(Vec x)
{
    Vec shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer k */
    Vec k = shifted - 12582912.0f;
    Vec r = x - k * 0.693359375f + k * 2.12194440e-4f;
    Vec p = r * 8.3125155e-3f + 4.1890200e-2f;
    p = p * r + 1.6667115e-1f;
    p = p * r + 4.9999231e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    VecBits power = ((VecBits)shifted << 23) + 0x3F800000; /* the bits of 2^k */
    return (Vec)(~(x < -87.33f) & (VecInt)(p * (Vec)power));
}

/* log(x) for 1 <= x < 2^60, to 2e-7 or the rounding of the result: two steps of Halley's iteration on exp(y) = x, each of
 * which cubes the error, from the logarithm that the bits of x are. NaN for NaN. */
ALWAYS_INLINE Vec vec_log(Vec x)
{
    Vec y = __builtin_convertvector((VecInt)x - 0x3F800000, Vec) * 0x1.62e43p-24f; /* 2^-23 ln 2 */
    for (int step = 0; step < 2; step++) {
        Vec e = vec_exp(y);
        y += 2.0f * (x - e) / (x + e);
    }
    return y;
}

/* ---- Moving rows ----------------------------------------------------------------------------------------------------- */

/* Outside the tiles numbers are of any float type; a place there is a tensor and the index of an element. */

/* to[0..n) = n rows of hd numbers that begin at from[at] and are from_stride apart; rows n..round_up(n, ROWS) and columns up to
 * to_stride become 0. */
ALWAYS_INLINE void rows_copy(float *to, int64_t to_stride, const Tensor *from, int64_t at, int64_t from_stride, int64_t n,
                             int64_t hd)
{
    for (int64_t i = 0; i < n; i++) {
        float *t = to + i * to_stride;
        if (from->dtype != DTYPE_F32) {
            widen(t, element_at(from, at + i * from_stride), from->dtype, hd);
            memset(t + hd, 0, (size_t)(to_stride - hd) * sizeof(float));
            continue;
        }
        const float *f = element_at(from, at + i * from_stride);
        int64_t whole = hd / VECTOR * VECTOR;
        for (int64_t d = 0; d < whole; d += VECTOR)
            vec_store(t + d, vec_load(f + d));
        for (int64_t d = whole; d < to_stride; d++)
            t[d] = d < hd ? f[d] : 0.0f;
    }
    memset(to + n * to_stride, 0, (size_t)((round_up(n, ROWS) - n) * to_stride) * sizeof(float));
}

/* Asks for n rows of hd floats, which will be written once a block is done, to come near while it is computed. A row of dqkv
 * lies far from the next, and a store waits for the cache line that it goes to. */
ALWAYS_INLINE void rows_prefetch(const Tensor *t, int64_t at, int64_t stride, int64_t n, int64_t hd)
{
    int64_t line = 64 / (int64_t)dtype_size(t->dtype);
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < hd; d += line)
            __builtin_prefetch(element_at(t, at + i * stride + d));
}

/* to[d] = from[d] * factor for d < hd; with `add`, += instead. */
ALWAYS_INLINE void row_scale(float *to, const float *from, float factor, int64_t hd, bool add)
{
    int64_t whole = hd / VECTOR * VECTOR;
    for (int64_t d = 0; d < whole; d += VECTOR)
        vec_store(to + d, add ? vec_load(to + d) + vec_load(from + d) * factor : vec_load(from + d) * factor);
    for (int64_t d = whole; d < hd; d++)
        to[d] = (add ? to[d] : 0.0f) + from[d] * factor;
}

/* hd numbers of `to` from `at` on = row * factor, rounded; with `add`, += instead. */
ALWAYS_INLINE void row_store(const Tensor *to, int64_t at, const float *row, float factor, int64_t hd, bool add)
{
    if (to->dtype == DTYPE_F32) {
        row_scale(element_at(to, at), row, factor, hd, add);
        return;
    }
    for (int64_t d = 0; d < hd; d += BLOCK) {
        float piece[BLOCK];
        int64_t n = min_of(BLOCK, hd - d);
        if (add)
            widen(piece, element_at(to, at + d), to->dtype, n);
        row_scale(piece, row + d, factor, n, add);
        narrow(element_at(to, at + d), piece, to->dtype, n);
    }
}

/* a0 b0 a1 b1 ...: the lower or upper halves of a and b interleaved. */
ALWAYS_INLINE void vec_interleave(Vec *low, Vec *high, Vec a, Vec b)
{
#define FOUR(l) (l), VECTOR + (l), (l) + 1, VECTOR + (l) + 1
#if defined(__AVX512F__)
#define LANES(l) FOUR(l), FOUR(l + 2), FOUR(l + 4), FOUR(l + 6)
#elif defined(__AVX2__)
#define LANES(l) FOUR(l), FOUR(l + 2)
#else
#define LANES(l) FOUR(l)
#endif
    *low = __builtin_shufflevector(a, b, LANES(0));
    *high = __builtin_shufflevector(a, b, LANES(VECTOR / 2));
#undef FOUR
#undef LANES
}

/* x = x' for VECTOR x VECTOR numbers in registers. Interleaving row r with row r + VECTOR/2 rotates the bits of a number's
 * position (row, lane) by one; log2(VECTOR) rounds swap the row's bits with the lane's. */
ALWAYS_INLINE void vec_transpose(Vec x[VECTOR])
{
#pragma GCC unroll 4
    for (int round = 1; round < VECTOR; round *= 2) {
        Vec y[VECTOR];
#pragma GCC unroll 8
        for (int r = 0; r < VECTOR / 2; r++)
            vec_interleave(&y[2 * r], &y[2 * r + 1], x[r], x[r + VECTOR / 2]);
        memcpy(x, y, sizeof y);
    }
}

/* The first n of VECTOR floats, and zeros. */
ALWAYS_INLINE Vec vec_load_some(const float *p, int64_t n)
{
    Vec x = {0};
    if (n >= VECTOR)
        return vec_load(p);
    for (int l = 0; l < n; l++)
        x[l] = p[l];
    return x;
}

/* to[d][i] = from[i][d] for i < n, d < hd; columns n.. up to a multiple of VECTOR become 0. Row strides BLOCK and `stride`. */
ALWAYS_INLINE void rows_transpose(float *to, const float *from, int64_t stride, int64_t n, int64_t hd)
{
    for (int64_t i = 0; i < n; i += VECTOR)
        for (int64_t d = 0; d < hd; d += VECTOR) {
            Vec x[VECTOR];
#pragma GCC unroll 16
            for (int r = 0; r < VECTOR; r++)
                x[r] = i + r < n ? vec_load_some(from + (i + r) * stride + d, hd - d) : (Vec){0};
            vec_transpose(x);
#pragma GCC unroll 16
            for (int r = 0; r < VECTOR; r++)
                if (d + r < hd)
                    vec_store(to + (d + r) * BLOCK + i, x[r]);
        }
}

/* The same for rows of a tensor, through staging [BLOCK, head_stride(hd)] when they must be widened. */
ALWAYS_INLINE void rows_transpose_from(float *to, float *staging, const Tensor *from, int64_t at, int64_t stride, int64_t n,
                                       int64_t hd)
{
    if (from->dtype == DTYPE_F32) {
        rows_transpose(to, element_at(from, at), stride, n, hd);
        return;
    }
    rows_copy(staging, head_stride(hd), from, at, stride, n, hd);
    rows_transpose(to, staging, head_stride(hd), n, hd);
}

/* K and V of one key/value head, copied out of qkv: [rows, stride] each. In qkv the rows of a head lie thousands of bytes
 * apart, often a multiple of a large power of two, and would fight for a few sets of the caches. */
typedef struct HeadKeys {
    float *keys, *values;
    int64_t head, rows; /* which head is here (-1: none), and how many of its rows, in whole blocks */
} HeadKeys;

/* Makes sure that at least `rows` rows of head number `head` are here. In qkv the head's first key is at `at`, its values NKV*hd
 * numbers further, rows `width` apart; T of them. */
ALWAYS_INLINE void head_keys_load(HeadKeys *h, int64_t head, int64_t rows, const Tensor *qkv, int64_t at, AttentionShape s,
                                  int64_t hd)
{
    int64_t width = (s.NH + 2 * s.NKV) * hd, stride = head_stride(hd);
    if (h->head != head)
        h->rows = 0;
    h->head = head;
    for (; h->rows < rows; h->rows += BLOCK) {
        int64_t k = at + h->rows * width;
        rows_copy(h->keys + h->rows * stride, stride, qkv, k, width, min_of(BLOCK, s.T - h->rows), hd);
        rows_copy(h->values + h->rows * stride, stride, qkv, k + s.NKV * hd, width, min_of(BLOCK, s.T - h->rows), hd);
    }
}

/* ---- Products -------------------------------------------------------------------------------------------------------- */

/* C[m][n] += sum over k in [0, K) of A(m, k) B[k][n], or = instead of += without `accumulate`, for `rows` rows and `vectors`
 * vectors, both constants at every call. A(m, k) is a[m * am + k * ak]. The partial sums stay in registers and grow in
 * ascending k, so that the same product has the same bits wherever it is computed. */
ALWAYS_INLINE void product_kernel(float *c, int64_t ldc, const float *a, int64_t am, int64_t ak, const float *b, int64_t ldb,
                                  int64_t K, const int rows, const int vectors, bool accumulate)
{
    Vec sum[2 * ROWS][2];
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[m][v] = accumulate ? vec_load(c + m * ldc + v * VECTOR) : (Vec){0};
    for (int64_t k = 0; k < K; k++) {
        Vec right[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            right[v] = vec_load(b + k * ldb + v * VECTOR);
#pragma GCC unroll 16
        for (int m = 0; m < rows; m++) {
            Vec left = vec_all(a[m * am + k * ak]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                sum[m][v] += left * right[v];
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            vec_store(c + m * ldc + v * VECTOR, sum[m][v]);
}

/* How many of a tile's nk keys take part for queries i .. i+VECTOR-1: all, or, on the diagonal, those up to the last of
 * these queries, in whole groups of ROWS. The products below read nothing beyond. */
ALWAYS_INLINE int64_t keys_visible(int64_t i, int64_t nk, bool diagonal)
{
    return diagonal ? min_of(nk, round_up(i + VECTOR, ROWS)) : nk;
}

/* Minus infinity where a key comes after its query, in the columns i .. i+VECTOR-1 of a tile on the diagonal. */
ALWAYS_INLINE void mask_future(float *tile, int64_t i, int64_t nk)
{
    for (int64_t j = i + 1; j < keys_visible(i, nk, true); j++)
        for (int64_t l = i; l < min_of(j, i + VECTOR); l++)
            tile[j * BLOCK + l] = -INFINITY;
}

/* tile[j][i] = sum over d < hd of keys[j][d] queries[d][i], for nq queries and the visible ones of nk keys. */
ALWAYS_INLINE void product_scores(float *tile, const float *keys, const float *queries, int64_t nk, int64_t nq, int64_t hd,
                                  bool diagonal)
{
    int64_t stride = head_stride(hd), i = 0;
    for (; !diagonal && i + VECTOR < nq; i += 2 * VECTOR)
        for (int64_t j = 0; j < nk; j += ROWS)
            product_kernel(tile + j * BLOCK + i, BLOCK, keys + j * stride, stride, 1, queries + i, BLOCK, hd, ROWS, 2, false);
    for (; i < nq; i += VECTOR) {
        int64_t visible = keys_visible(i, nk, diagonal), j = 0;
        for (; j + ROWS < visible; j += 2 * ROWS)
            product_kernel(tile + j * BLOCK + i, BLOCK, keys + j * stride, stride, 1, queries + i, BLOCK, hd, 2 * ROWS, 1, false);
        if (j < visible)
            product_kernel(tile + j * BLOCK + i, BLOCK, keys + j * stride, stride, 1, queries + i, BLOCK, hd, ROWS, 1, false);
    }
}

/* out[m][d] += sum over k in [k_first, k_last) of A(m, k) b[k][d], for ROWS rows from m, of hd floats. Without `accumulate`,
 * = instead of +=. A is the tile, or the tile transposed. */
ALWAYS_INLINE void product_rows(float *out, const float *a, int64_t am, int64_t ak, const float *b, int64_t hd, int64_t m,
                                int64_t k_first, int64_t k_last, bool accumulate)
{
    int64_t stride = head_stride(hd), d = 0, K = k_last - k_first;
    const float *left = a + m * am + k_first * ak, *right = b + k_first * stride;
    float *c = out + m * stride;
    for (; d + VECTOR < hd; d += 2 * VECTOR)
        product_kernel(c + d, stride, left, am, ak, right + d, stride, K, ROWS, 2, accumulate);
    if (d < hd)
        product_kernel(c + d, stride, left, am, ak, right + d, stride, K, ROWS, 1, accumulate);
}

/* out[i][d] += sum over keys j of tile[j][i] b[j][d]: O and dQ. On the diagonal j stops at i. */
ALWAYS_INLINE void product_queries(float *out, const float *tile, const float *b, int64_t nk, int64_t nq, int64_t hd,
                                   bool diagonal, bool accumulate)
{
    for (int64_t i = 0; i < nq; i += ROWS)
        product_rows(out, tile, 1, BLOCK, b, hd, i, 0, diagonal ? min_of(nk, i + ROWS) : nk, accumulate);
}

/* out[j][d] += sum over queries i of tile[j][i] b[i][d]: dK and dV. On the diagonal i starts at j. */
ALWAYS_INLINE void product_keys(float *out, const float *tile, const float *b, int64_t nk, int64_t nq, int64_t hd, bool diagonal)
{
    for (int64_t j = 0; j < nk; j += ROWS)
        product_rows(out, tile, BLOCK, 1, b, hd, j, diagonal ? j : 0, nq, true);
}

/* ---- Dropout --------------------------------------------------------------------------------------------------------- */

/* bits[j][i] = the random bits of element first + i*T + j, `first` being the index of the tile's corner. Four neighbouring
 * keys share one Philox block, so each lane makes the blocks of its own query, from the one its first key lies in; where T is
 * not a multiple of 4 the keys then begin in the middle of a block, and the rows move up by that much. */
ALWAYS_INLINE void random_tile(uint32_t *bits, RandomKey key, uint64_t first, int64_t T, int64_t nk, int64_t nq, bool diagonal)
{
    for (int64_t i = 0; i < nq; i += VECTOR) {
        VecWide word[2][4], even, odd; /* block numbers of queries i, i+2, ... and i+1, i+3, ... */
        for (int l = 0; l < WIDE; l++) {
            even[l] = (first + (uint64_t)((i + 2 * l) * T)) >> 2;
            odd[l] = (first + (uint64_t)((i + 2 * l + 1) * T)) >> 2;
        }
        int64_t visible = keys_visible(i, nk, diagonal);
        for (int64_t j = 0; j < visible + 3; j += 4, even += 1, odd += 1) {
            philox_lanes(word, (VecWide[2]){even, odd}, key);
            for (int64_t w = 0; w < 4; w++) {
                VecWide both = (word[0][w] & 0xFFFFFFFF) | (word[1][w] << 32);
                memcpy(bits + (j + w) * BLOCK + i, &both, sizeof both);
            }
        }
        for (int64_t j = 0; T % 4 != 0 && j < visible; j++)
            for (int64_t l = i; l < i + VECTOR; l++)
                bits[j * BLOCK + l] = bits[(j + (int64_t)((first + (uint64_t)(l * T)) & 3)) * BLOCK + l];
    }
}

/* The factor of the elements with these bits: scale or 0. */
ALWAYS_INLINE Vec dropout_factor(const DropoutMask *d, const uint32_t *bits)
{
    VecBits b;
    memcpy(&b, bits, sizeof b);
    return (Vec)((VecInt)(b >= d->threshold) & (VecInt)vec_all(d->scale));
}

#endif
