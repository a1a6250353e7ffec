/* Loss scaling for FP16 (Micikevicius et al., arXiv 1710.03740): the loss is multiplied by a scale before the backward, so that
 * small gradients do not vanish below FP16's 6e-8, and gradients are divided by it again, in FP32, when they are used. The scale
 * feels its way: halved when a gradient overflows (that step is skipped), doubled after 2000 steps without.
 *
 * It is part of the step's state, and the device itself moves it on: the next step need not wait for the host. */
#ifndef TALLY_KERNELS_SCALER_H
#define TALLY_KERNELS_SCALER_H

#include "base/host_device.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Scaler {
    float scale;     /* a power of two unless the user fixed it otherwise */
    int32_t dynamic; /* 0: `scale` stays                                  */
    int32_t good;    /* steps since the last change without overflow      */
} Scaler;

enum { SCALER_START = 65536, SCALER_INTERVAL = 2000, SCALER_FLOOR = 1, SCALER_CEILING = 1 << 24 };

/* fixed > 0: that scale for ever. 0: dynamic for FP16, else 1 for ever. */
static inline Scaler scaler_create(double fixed, bool fp16)
{
    Scaler s = {fixed > 0 ? (float)fixed : fp16 ? (float)SCALER_START : 1.0f, fixed > 0 ? 0 : fp16, 0};
    return s;
}

/* After a step: did its gradient overflow? */
static inline HOST_DEVICE void scaler_update(Scaler *s, bool overflow)
{
    if (!s->dynamic)
        return;
    s->good = overflow ? 0 : s->good + 1;
    if (overflow && s->scale > SCALER_FLOOR)
        s->scale /= 2;
    if (s->good == SCALER_INTERVAL) {
        s->good = 0;
        s->scale = s->scale < SCALER_CEILING ? 2 * s->scale : s->scale;
    }
}

/* Can the scale still answer an overflow by becoming smaller? */
static inline bool scaler_can_shrink(const Scaler *s)
{
    return s->dynamic && s->scale > SCALER_FLOOR;
}

#endif
