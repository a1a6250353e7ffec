/* A libcublasLt of software: what its files share.
 *
 *   attributes.c  descriptors, layouts, preferences: values of given sizes
 *   problem.c     what the four layouts and the descriptor ask for, and all that is wrong with it
 *   heuristic.c   algorithms: candidates, what each wants of pointers and workspace
 *   matmul.c      the call, and the product as an operation of a stream, with its epilogue
 *   gemm.c        the sum of products
 *
 * It refuses what the real library refuses, as far as it is known, with a line on stderr that says why; and where the real one
 * has a choice, it has several algorithms whose results differ in rounding. D = epilogue(alpha op(A) op(B) + beta C), where
 * sums and epilogues are FP32 and only what is stored is rounded. */
#ifndef SOFTGPU_LT_H
#define SOFTGPU_LT_H

#include <cublasLt.h>
#include <stdbool.h>

#include "tests/softgpu/runtime/library.h"
#include "tests/softgpu/cublaslt/gemm.h"

/* Says why, as NAME(format), and returns status. */
cublasStatus_t refuse(cublasStatus_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- attributes.c ---- */

/* A descriptor, layout or preference: attribute i in value[i], in its low bytes. */
typedef struct Attributes {
    uint64_t value[40];
} Attributes;

/* ---- problem.c ---- */

typedef struct Operand {
    uint64_t rows, columns; /* as stored, before op() */
    int64_t ld, stride;     /* elements between columns (rows, when row_major) and between matrices of a batch */
    int type, batch;
    bool row_major, transposed;
} Operand;

typedef struct Problem {
    Operand a, b, c, d;
    uint64_t m, n, k;
    Rounding rounding;   /* of A and B, by the compute type */
    bool device_scalars; /* alpha and beta are in device memory */
    unsigned epilogue;   /* bits of cublasLtEpilogue_t */
    void *bias, *aux;    /* device addresses */
    int64_t bias_stride, aux_ld;
} Problem;

/* Parts of an epilogue. */
enum { RELU = 2, BIAS = 4, BGRAD = 16, GELU = 32, DGELU = 64, AUX = 128, BGRAD_A = 256, BGRAD_B = 512 };
#define USES_BIAS (BIAS | BGRAD | BGRAD_A | BGRAD_B)

/* Fills *p. INVALID_VALUE or NOT_SUPPORTED, after saying why, for what the library does not take. */
cublasStatus_t problem_read(Problem *p, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d);

/* Bytes from the first element of an operand to behind its last, batch included. */
size_t operand_bytes(const Operand *o);

/* ---- heuristic.c ---- */

/* What is in a cublasLtMatmulAlgo_t. */
typedef struct Algorithm {
    uint32_t magic, id;
    uint32_t parts;     /* K is cut into so many sums */
    uint32_t alignment; /* of every operand's address, in bytes */
    uint64_t workspace;
    uint32_t m, n, k;
    uint16_t type_in, type_out;
    uint32_t epilogue;
} Algorithm;

/* The algorithm for a call without one. */
Algorithm algorithm_default(const Problem *p);

/* Success, or what is wrong with using it for this. */
cublasStatus_t algorithm_check(const Algorithm *algorithm, const Problem *p);

#endif
