/* The device's GEMM rate, measured: what a step's speed is compared with. */
#ifndef TALLY_TRAIN_PEAK_H
#define TALLY_TRAIN_PEAK_H

#include "kernels/device.h"

/* FLOPs per second of a product of matrices of that type which is large enough to be fast (best of several runs, a fraction of a
 * second). Takes its memory from the device and gives it back. 0 after recording an error. */
double gemm_peak_measure(const Device *device, const Target *target, DType type, Error *e);

/* Seconds on a clock that only goes forward. */
double clock_seconds(void);

#endif
