/* Matrices of FP32, BF16 and FP16 values, and their product in FP32. */
#ifndef SOFTGPU_GEMM_H
#define SOFTGPU_GEMM_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of an element of a cudaDataType_t; 0: a type that is not known here. */
size_t element_bytes(int type);

/* Element i; setting rounds to nearest, ties to even. */
float element_get(const void *data, int type, size_t i);
void element_set(void *data, int type, size_t i, float value);

/* Element (i, j) is data[i * row + j * column]. */
typedef struct Matrix {
    const void *data;
    int type;
    size_t row, column;
} Matrix;

/* What the inputs are rounded to before they are multiplied. */
typedef enum Rounding { ROUND_NOT, ROUND_TF32, ROUND_BF16, ROUND_FP16 } Rounding;

/* out[j * ld + i] = sum over k of a[i, k] b[k, j] for i < m, j < n, with ld = gemm_padded(m); out has room for
 * gemm_bytes(m, n). The sum over k is made in `parts` pieces of equal length, which are added at the end. */
size_t gemm_padded(size_t m);
size_t gemm_bytes(size_t m, size_t n);
void gemm(float *out, const Matrix *a, const Matrix *b, size_t m, size_t n, size_t k, unsigned parts, Rounding rounding);

#endif
