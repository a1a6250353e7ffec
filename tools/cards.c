/* See cards.h. gpus.inc is gpus.csv as C: the Makefile makes a row in braces of each line. */
#include "tools/cards.h"

#include <stdio.h>
#include <string.h>

static const Card table[] = {
#include "gpus.inc"
};

enum { CARDS = sizeof table / sizeof *table };

const Card *card_find(const char *name, Error *e)
{
    char names[768] = "";
    for (int i = 0; i < CARDS; i++) {
        if (strcasecmp(name, table[i].name) == 0)
            return &table[i];
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", table[i].name);
    }
    error_usage(e, "card: there is no '%s' in the list: %s. For another one say --vram", name, names);
    return NULL;
}

double card_bytes(const Card *c)
{
    return c->vram_gib * 0x1p30;
}

Target card_target(const Card *c)
{
    int major = 0, minor = 0;
    sscanf(c->capability, "%d.%d", &major, &minor);
    Target t = {.kind = DEVICE_CUDA,
                .threads = 1,
                .bf16_gemm = c->bf16 > 0,
                .capability = major * 10 + minor,
                .sm_count = c->sms,
                .total_bytes = (size_t)card_bytes(c)};
    snprintf(t.name, sizeof t.name, "%s", c->name);
    return t;
}

double card_gemm_peak(const Card *c, const Precision *p, const char **units)
{
    bool bf16 = p->act == DTYPE_BF16 && p->param == DTYPE_BF16 && c->bf16 > 0;
    bool fp16 = p->act == DTYPE_F16 && p->param == DTYPE_F16 && c->fp16_acc32 > 0;
    bool tf32 = p->tf32 && c->tf32 > 0;
    *units = bf16 ? "bf16" : fp16 ? "fp16" : tf32 ? "tf32" : "fp32";
    return 1e12 * (bf16 ? c->bf16 : fp16 ? c->fp16_acc32 : tf32 ? c->tf32 : c->fp32);
}
