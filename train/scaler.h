/* Loss scaling for FP16 (Micikevicius et al., arXiv 1710.03740): the loss is multiplied by a scale before the backward, so that
 * small gradients do not vanish below FP16's 6e-8, and gradients are divided by it again, in FP32, when they are used. The scale
 * feels its way: halved when a gradient overflows (that step is skipped), doubled after 2000 steps without. */
#ifndef TALLY_TRAIN_SCALER_H
#define TALLY_TRAIN_SCALER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Scaler {
    bool dynamic; /* else `scale` stays                               */
    double scale; /* a power of two unless the user fixed it otherwise */
    int64_t good; /* steps since the last change without overflow     */
} Scaler;

enum { SCALER_START = 65536, SCALER_INTERVAL = 2000, SCALER_FLOOR = 1, SCALER_CEILING = 1 << 24 };

/* fixed > 0: that scale for ever. 0: dynamic for FP16, else 1 for ever. */
Scaler scaler_create(double fixed, bool fp16);

/* After a step: did its gradient overflow? */
void scaler_update(Scaler *s, bool overflow);

/* Can the scale still answer an overflow by becoming smaller? */
bool scaler_can_shrink(const Scaler *s);

#endif
