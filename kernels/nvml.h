/* What the driver's management library (NVML, which nvidia-smi shows too) says of a GPU: it is loaded when it is there, and needs
 * neither CUDA nor its headers. */
#ifndef TALLY_KERNELS_NVML_H
#define TALLY_KERNELS_NVML_H

#include "base/error.h"

#include <stdint.h>

/* A number that the library would not give is NaN. */
typedef struct GpuReading {
    char name[96];
    double capability;                     /* compute capability, 10 x major + minor                           */
    double memory_total, memory_free;      /* bytes                                                            */
    double own_bytes, other_bytes;         /* of device memory that this process, and that all others hold     */
    double sm_mhz, sm_mhz_most;            /* clocks, now and at most                                          */
    double memory_mhz, memory_mhz_most;    /*                                                                  */
    double watts, watts_most, watts_usual; /* power now, its limit, and the limit that the card comes with     */
    double joules;                         /* since the driver was loaded                                      */
    double celsius;                        /* of the GPU                                                       */
    double busy, memory_busy;              /* percent of the last moments with a kernel running; with memory read or written */
    double throttle;                       /* bits of why clocks are not higher: throttle_text                 */
    double link_generation, link_generation_most, link_width, link_width_most; /* PCI Express                 */
    double ecc;                                                                /* memory with error correction: 1, 0 */
} GpuReading;

typedef struct Nvml Nvml;

/* The library, started. NULL after recording why not. nvml_close(NULL) is fine. */
Nvml *nvml_open(Error *e);
void nvml_close(Nvml *n);

/* The driver's version, "580.65.06", or "" ; the CUDA that it can run at most, 13000 for 13.0, or 0; and its GPUs. */
void nvml_driver(Nvml *n, char version[96], int *cuda, unsigned *gpus);

/* Fills *r with what there is (without a library, nothing) of GPU number `index`, or of the one on the PCI bus at `bus`
 * ("0000:3b:00.0") unless that is NULL. False when there is no such GPU, or the library lost it. */
bool nvml_read(Nvml *n, unsigned index, const char *bus, GpuReading *r);

/* "power cap, heat" or "nothing": what holds clocks down; GPU_IDLE alone is no fault. Into text, which is returned. */
enum { THROTTLE_IDLE = 0x1, THROTTLE_POWER = 0x4, THROTTLE_HARDWARE = 0x8 | 0x20 | 0x40 | 0x80 };
typedef char ThrottleText[160];
const char *throttle_text(ThrottleText text, double bits);

#endif
