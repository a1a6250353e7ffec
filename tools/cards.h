/* The GPUs that a plan can be made for without having them. Their numbers are in gpus.csv. */
#ifndef TALLY_TOOLS_CARDS_H
#define TALLY_TOOLS_CARDS_H

#include "base/error.h"
#include "model/precision.h"

/* A row of gpus.csv, column by column; 0: none. */
typedef struct Card {
    const char *name;
    const char *capability; /* "8.9"                                                                       */
    int sms;                /* streaming multiprocessors                                                   */
    double boost_mhz, vram_gib, bandwidth_gbs, l2_mib;
    double fp32, tf32, fp16_acc32, fp16_acc16, bf16, fp8, int8; /* dense TFLOPS, TOPS                      */
    double headline, nvlink_gbs;
    int pcie_generation, pcie_lanes, watts;
} Card;

/* The card of that name, in capitals or not. NULL with a usage error that lists the names when there is none. */
const Card *card_find(const char *name, Error *e);

/* Bytes of its memory. */
double card_bytes(const Card *c);

/* The card as the target of a plan. */
Target card_target(const Card *c);

/* FLOP/s at most of matrix products of activations and weights as the policy has them: 16-bit ones, added up in FP32, or TF32,
 * where the card has units for them; else FP32. *units says which: "fp32", "tf32", "bf16" or "fp16". */
double card_gemm_peak(const Card *c, const Precision *p, const char **units);

#endif
