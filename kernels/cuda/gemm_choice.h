/* Which algorithm makes a product: what is asked, and what was chosen by timing. See gemm.c and gemm_choice.c. */
#ifndef TALLY_KERNELS_CUDA_GEMM_CHOICE_H
#define TALLY_KERNELS_CUDA_GEMM_CHOICE_H

#include "kernels/tensor.h"

#include <cublasLt.h>

/* All that the choice of an algorithm depends on. No padding: it is compared as bytes. */
typedef struct Question {
    int64_t rows[3], columns[3], stride[3], alignment[3]; /* of A, B, C, as they lie in memory */
    int64_t transposed[2];
    int64_t in, out, epilogue, accumulate, tf32;
} Question;

typedef struct Choice {
    Question question;
    cublasLtMatmulAlgo_t algorithm;
    double ms, first_ms; /* its time, and that of the library's first answer */
} Choice;

/* What was chosen for the question by timing, here or in the run that is resumed; NULL: nothing. */
const Choice *gemm_choice_find(const Question *q);

/* Keeps a choice. False when there is no host memory. */
bool gemm_choice_keep(const Choice *c);

/* The library's version, of cublasLtGetVersion; 0 when it cannot be loaded. In gemm.c. */
int64_t gemm_library_version(void);

/* Forgets all answers that were not chosen by timing, so that they are asked again. In gemm.c. */
void gemm_answers_forget(void);

#endif
