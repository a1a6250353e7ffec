/* cuBLASLt, loaded when the first product is asked for: the library is half a GB, which a run on the CPU has no use for. */
#ifndef TALLY_KERNELS_CUDA_CUBLASLT_H
#define TALLY_KERNELS_CUDA_CUBLASLT_H

#include "base/error.h"

#include <cublasLt.h>

/* The functions that gemm.c uses, without their cublasLt. */
#define CUBLASLT_FUNCTIONS(X)                                                                                                    \
    X(GetVersion)                                                                                                                \
    X(Create)                                                                                                                    \
    X(GetStatusString)                                                                                                           \
    X(MatmulDescCreate)                                                                                                          \
    X(MatmulDescDestroy)                                                                                                         \
    X(MatmulDescSetAttribute)                                                                                                    \
    X(MatrixLayoutCreate)                                                                                                        \
    X(MatrixLayoutDestroy)                                                                                                       \
    X(MatmulPreferenceCreate)                                                                                                    \
    X(MatmulPreferenceDestroy)                                                                                                   \
    X(MatmulPreferenceSetAttribute)                                                                                              \
    X(MatmulAlgoGetHeuristic)                                                                                                    \
    X(MatmulAlgoCheck)                                                                                                           \
    X(Matmul)

typedef struct CublasLt {
#define X(name) __typeof__(cublasLt##name) *name;
    CUBLASLT_FUNCTIONS(X)
#undef X
} CublasLt;

/* Fills *lt from the library that this build was compiled for. False with a message when it is not there. */
bool cublaslt_load(CublasLt *lt, Error *e);

#endif
