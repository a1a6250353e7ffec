/* What the device reaches, measured: what the speed of a step and of its ops is compared with. */
#ifndef TALLY_TRAIN_PEAK_H
#define TALLY_TRAIN_PEAK_H

#include "kernels/device.h"

/* FLOPs per second of a product of matrices of that type which is large enough to be fast: the best run, of as many as it takes
 * until the next ones are no better, and of those that fit into half a second. Takes its memory from the device and gives it
 * back. 0 after recording an error. */
double gemm_peak_measure(const Device *device, const Target *target, DType type, Error *e);

/* The peak after a step has reached `rate`. When that is more, the machine had other work to do while the peak was measured: then
 * it is measured again, and is `rate` at least. */
double gemm_peak_correct(double peak, double rate, const Device *device, const Target *target, DType type);

/* Bytes per second, read and written, of a copy of 128 MiB within the device's memory: the best run, as above. */
double copy_peak_measure(const Device *device, const Target *target, Error *e);

#endif
