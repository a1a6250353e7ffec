/* The sum of products. The matrices are cut along K into blocks of KC, copied into panels that are read in order (with the
 * inputs' rounding), and multiplied by a small kernel: TILE_N columns of the result times TILE_M rows stay in registers while k
 * runs. A panel of `a` is KC x TILE_M values, one of `b` KC x TILE_N.
 *
 * Each element of the result is a chain of fused multiply-adds in the order of k within one part, whatever the sizes and the
 * number of threads. */
#include <library_types.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/cublaslt/gemm.h"

enum { TILE_M = 48, TILE_N = 8, KC = 256, LANES = 16, SMALL = 1 << 16 /* one thread is faster below */ };
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));

/* ---- Elements -------------------------------------------------------------------------------------------------------- */

static float bf16_get(uint16_t bits)
{
    uint32_t u = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint16_t bf16_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffff) > 0x7f800000)
        return 0x7fff; /* NaN */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* 10 bits of mantissa, ties away from zero, as cvt.rna.tf32 does. */
static float tf32_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7f800000) != 0x7f800000)
        u += 0x1000;
    u &= 0xffffe000;
    memcpy(&f, &u, sizeof f);
    return f;
}

size_t element_bytes(int type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 0;
}

float element_get(const void *data, int type, size_t i)
{
    switch (type) {
    case CUDA_R_16BF:
        return bf16_get(((const uint16_t *)data)[i]);
    case CUDA_R_16F:
        return (float)((const _Float16 *)data)[i];
    default:
        return ((const float *)data)[i];
    }
}

void element_set(void *data, int type, size_t i, float value)
{
    switch (type) {
    case CUDA_R_16BF:
        ((uint16_t *)data)[i] = bf16_of(value);
        break;
    case CUDA_R_16F:
        ((_Float16 *)data)[i] = (_Float16)value;
        break;
    default:
        ((float *)data)[i] = value;
    }
}

static float round_to(float value, Rounding rounding)
{
    switch (rounding) {
    case ROUND_TF32:
        return tf32_of(value);
    case ROUND_BF16:
        return bf16_get(bf16_of(value));
    case ROUND_FP16:
        return (float)(_Float16)value;
    default:
        return value;
    }
}

/* ---- Panels ---------------------------------------------------------------------------------------------------------- */

/* One panel: out[k * width + x] = element at (begin + x * minor_stride + k * k_stride), zero for x >= used. */
static void pack_panel(float *out, const Matrix *s, size_t begin, size_t minor_stride, size_t k_stride, size_t width, size_t used,
                       size_t k, Rounding rounding)
{
    memset(out, 0, k * width * sizeof *out);
    for (size_t x = 0; x < used; x++)
        for (size_t i = 0; i < k; i++)
            out[i * width + x] = element_get(s->data, s->type, begin + x * minor_stride + i * k_stride);
    for (size_t i = 0; rounding != ROUND_NOT && i < k * width; i++)
        out[i] = round_to(out[i], rounding);
}

/* All panels of `width` rows or columns for k in [k_begin, k_begin + k). */
static void pack(float *out, const Matrix *s, size_t minor, size_t minor_stride, size_t k_stride, size_t width, size_t k_begin,
                 size_t k, Rounding rounding)
{
    size_t panels = (minor + width - 1) / width;
#pragma omp parallel for schedule(static) if (minor * k > SMALL)
    for (size_t p = 0; p < panels; p++) {
        size_t used = minor - p * width < width ? minor - p * width : width;
        pack_panel(out + p * k * width, s, p * width * minor_stride + k_begin * k_stride, minor_stride, k_stride, width, used, k,
                   rounding);
    }
}

/* tile[j][i] += sum over k of a[k][i] b[k][j]; rows of the tile are ld apart. */
static void multiply_tile(float *tile, size_t ld, const float *a, const float *b, size_t k)
{
    Vector sum[TILE_N][TILE_M / LANES];
    for (int j = 0; j < TILE_N; j++)
        for (int v = 0; v < TILE_M / LANES; v++)
            sum[j][v] = *(const Vector *)(tile + (size_t)j * ld + v * LANES);
    for (; k; k--, a += TILE_M, b += TILE_N) {
        Vector a0 = *(const Vector *)a, a1 = *(const Vector *)(a + LANES), a2 = *(const Vector *)(a + 2 * LANES);
#pragma GCC unroll 8
        for (int j = 0; j < TILE_N; j++) {
            sum[j][0] += b[j] * a0;
            sum[j][1] += b[j] * a1;
            sum[j][2] += b[j] * a2;
        }
    }
    for (int j = 0; j < TILE_N; j++)
        for (int v = 0; v < TILE_M / LANES; v++)
            *(Vector *)(tile + (size_t)j * ld + v * LANES) = sum[j][v];
}

/* ---- The product ----------------------------------------------------------------------------------------------------- */

size_t gemm_padded(size_t m)
{
    return (m + TILE_M - 1) / TILE_M * TILE_M;
}

size_t gemm_bytes(size_t m, size_t n)
{
    return gemm_padded(m) * ((n + TILE_N - 1) / TILE_N * TILE_N) * sizeof(float);
}

/* Adds the products for k in [begin, end) to out. */
static void gemm_part(float *out, const Matrix *a, const Matrix *b, size_t m, size_t n, size_t begin, size_t end,
                      Rounding rounding)
{
    size_t ld = gemm_padded(m), tiles_m = ld / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N;
    float *panels_a = malloc(ld * KC * sizeof(float)), *panels_b = malloc(tiles_n * TILE_N * KC * sizeof(float));
    for (size_t k0 = begin; k0 < end; k0 += KC) {
        size_t k = end - k0 < KC ? end - k0 : KC;
        pack(panels_a, a, m, a->row, a->column, TILE_M, k0, k, rounding);
        pack(panels_b, b, n, b->column, b->row, TILE_N, k0, k, rounding);
#pragma omp parallel for schedule(static) if (m * n * k > SMALL)
        for (size_t i = 0; i < tiles_m; i++)
            for (size_t j = 0; j < tiles_n; j++)
                multiply_tile(out + j * TILE_N * ld + i * TILE_M, ld, panels_a + i * k * TILE_M, panels_b + j * k * TILE_N, k);
    }
    free(panels_a);
    free(panels_b);
}

void gemm(float *out, const Matrix *a, const Matrix *b, size_t m, size_t n, size_t k, unsigned parts, Rounding rounding)
{
    size_t bytes = gemm_bytes(m, n), length = (k + parts - 1) / parts;
    float *part = parts > 1 ? malloc(bytes) : NULL;
    memset(out, 0, bytes);
    for (size_t begin = 0; begin < k; begin += length) {
        size_t end = begin + length < k ? begin + length : k;
        float *to = begin ? part : out;
        if (begin)
            memset(part, 0, bytes);
        gemm_part(to, a, b, m, n, begin, end, rounding);
        for (size_t i = 0; begin && i < bytes / sizeof(float); i++)
            out[i] += part[i];
    }
    free(part);
}
