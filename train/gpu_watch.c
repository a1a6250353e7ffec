#include "train/gpu_watch.h"

#include "base/clock.h"
#include "base/json.h"

#include <math.h>

void gpu_watch_open(GpuWatch *w)
{
    Error why = {0};
    w->nvml = nvml_open(&why);
    if (!w->nvml)
        printf("Clocks, power and temperature of the GPU are not measured: %s\n", why.text);
}

void gpu_watch_close(GpuWatch *w)
{
    nvml_close(w->nvml);
}

void gpu_watch_look(GpuWatch *w, const Model *m, double tokens)
{
    const Target *t = &m->ctx.target;
    double now = clock_seconds(), before = w->reading.joules;
    nvml_read(w->nvml, 0, t->bus, &w->reading);
    double joules = w->reading.joules - before;
    if (!(joules > 0)) /* no counter, or its first value: the power now, all the time */
        joules = w->reading.watts * (now - w->seconds);
    w->tokens_per_joule = w->warm ? (tokens - w->tokens) / joules : NAN;
    w->tokens = tokens;
    w->seconds = now;
    w->ledger = gpu_ledger(m, (double)m->ctx.device->memory_free(), w->reading.own_bytes, w->reading.other_bytes, w->libraries,
                           w->warm ? w->ledger.context : NAN);
    w->warm = true;
}

json_t *gpu_watch_json(const GpuWatch *w)
{
    const GpuReading *r = &w->reading;
    ThrottleText held;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o}", "sm_mhz", json_number(r->sm_mhz),
                     "memory_mhz", json_number(r->memory_mhz), "watts", json_number(r->watts), "celsius", json_number(r->celsius),
                     "busy", json_number(r->busy), "memory_busy", json_number(r->memory_busy), "throttle",
                     json_number(r->throttle), "held_back_by", throttle_text(held, r->throttle), "tokens_per_joule",
                     json_number(w->tokens_per_joule), "free_bytes", json_number(w->ledger.free), "other_bytes",
                     json_number(w->ledger.others), "remainder_bytes", json_number(w->ledger.remainder));
}

void gpu_watch_print(FILE *out, const GpuWatch *w)
{
    const GpuReading *r = &w->reading;
    ThrottleText held;
    if (!w->nvml)
        return;
    fprintf(out, "  GPU: %.0f MHz  %.0f W  %.0f C  %.0f %% busy", r->sm_mhz, r->watts, r->celsius, r->busy);
    if (isfinite(w->tokens_per_joule))
        fprintf(out, "  %.4g tokens/J", w->tokens_per_joule);
    if (r->throttle > 0)
        fprintf(out, "  held back by: %s", throttle_text(held, r->throttle));
    fprintf(out, "\n");
}
