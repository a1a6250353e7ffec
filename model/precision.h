/* Precision is a policy: one type for each role that a number plays. Arithmetic is FP32 in any case, and so are statistics,
 * softmax, logits, losses and reductions; the policy says in which type things are kept between ops, and with that what the GEMMs
 * read. */
#ifndef TALLY_MODEL_PRECISION_H
#define TALLY_MODEL_PRECISION_H

#include "base/error.h"
#include "kernels/device.h"

typedef struct Precision {
    DType param; /* the weights that GEMMs read                                                    */
    DType grad;  /* gradients of the weights, accumulated over micro-batches                       */
    DType act;   /* activations and their gradients                                                */
    DType resid; /* the residual stream and its gradient                                           */
    DType m, v;  /* Adam's moments; 16-bit ones are rounded stochastically                         */
    bool tf32;   /* FP32 matrices are multiplied by tensor cores, rounded to TF32: on a GPU only   */
    bool master; /* FP32 weights that the optimizer keeps beside 16-bit ones; without them 16-bit
                    weights are rounded stochastically                                             */
} Precision;

/* The named policies: "fp32" is 4 bytes everywhere; "bf16" and "fp16" have 16-bit weights, activations and residual stream, with
 * FP32 masters, gradients and moments: 18 bytes a parameter. "tf32" is "fp32" but for how a GPU's
 * tensor cores multiply: operands with 10 bits of mantissa, sums in FP32. */
bool precision_parse(const char *text, Precision *p, Error *e);

/* "f32", "bf16" or "f16" (also "fp32", "fp16"). */
bool dtype_parse(const char *text, DType *t);

/* Refuses what makes no sense, FP32 weights with a master copy, and what the target cannot do, TF32. */
bool precision_check(const Precision *p, const Target *t, Error *e);

/* The named policy that p is: "fp32", "tf32", "bf16", "fp16"; NULL when it is none of them. */
const char *precision_name(const Precision *p);

/* "bf16 weights + f32 masters, f32 grads, ...", or "fp32": what the header line says. */
typedef char PrecisionText[96];
const char *precision_text(PrecisionText text, const Precision *p);

/* The type in which GEMMs of activations and weights multiply on that target: a 16-bit one where both are of it and it has units
 * for it, else F32, to which 16-bit operands are widened. */
DType precision_gemm(const Precision *p, const Target *t);

#endif
