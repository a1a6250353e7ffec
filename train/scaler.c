#include "train/scaler.h"

Scaler scaler_create(double fixed, bool fp16)
{
    if (fixed > 0)
        return (Scaler){.scale = fixed};
    return (Scaler){.dynamic = fp16, .scale = fp16 ? SCALER_START : 1};
}

void scaler_update(Scaler *s, bool overflow)
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

bool scaler_can_shrink(const Scaler *s)
{
    return s->dynamic && s->scale > SCALER_FLOOR;
}
