/* The GPU of a run, looked at every so many steps: memory, clocks, power, temperature, and what the energy bought. */
#ifndef TALLY_TRAIN_GPU_WATCH_H
#define TALLY_TRAIN_GPU_WATCH_H

#include "kernels/nvml.h"
#include "model/ledger.h"

typedef struct GpuWatch {
    Nvml *nvml;       /* NULL: not to be had, and everything but memory is NaN */
    bool warm;        /* the first look has been taken                         */
    double libraries; /* bytes that cuBLASLt took when it was loaded           */

    /* Of the latest look. */
    GpuReading reading;
    GpuLedger ledger;
    double tokens_per_joule; /* since the look before; NaN: unknown                 */
    double tokens, seconds;  /* trained on so far; clock                            */
} GpuWatch;

/* Opens NVML, or says on stdout why there is none. */
void gpu_watch_open(GpuWatch *w);
void gpu_watch_close(GpuWatch *w);

/* Takes a look; `tokens` have been trained on. The first one, when kernels are loaded and graphs built, decides what is context.
 */
void gpu_watch_look(GpuWatch *w, const Model *m, double tokens);

/* The look as JSON, a new reference: {"sm_mhz", "memory_mhz", "watts", "celsius", "busy", "memory_busy": percent of time,
 * "throttle": bits, "held_back_by": words, "tokens_per_joule", "free_bytes", "other_bytes", "remainder_bytes"}; null where
 * unknown. */
json_t *gpu_watch_json(const GpuWatch *w);

/* The same for people, "1410 MHz  250 W  50 C  97 % busy  3.1 tokens/J"; nothing without NVML. */
void gpu_watch_print(FILE *out, const GpuWatch *w);

#endif
