#include "model/precision.h"

#include <stdio.h>
#include <string.h>

bool dtype_parse(const char *text, DType *t)
{
    static const struct {
        const char *name;
        DType dtype;
    } names[] = {{"f32", DTYPE_F32}, {"fp32", DTYPE_F32}, {"bf16", DTYPE_BF16}, {"f16", DTYPE_F16}, {"fp16", DTYPE_F16}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i].name) == 0) {
            *t = names[i].dtype;
            return true;
        }
    }
    return false;
}

bool precision_parse(const char *text, Precision *p, Error *e)
{
    DType t;
    bool tf32 = strcmp(text, "tf32") == 0;
    if (!dtype_parse(tf32 ? "fp32" : text, &t))
        return error_usage(e, "precision: '%s' is none of fp32, tf32, bf16, fp16", text);
    *p = (Precision){.param = t,
                     .grad = DTYPE_F32,
                     .act = t,
                     .resid = t,
                     .m = DTYPE_F32,
                     .v = DTYPE_F32,
                     .tf32 = tf32,
                     .master = t != DTYPE_F32};
    return true;
}

bool precision_check(const Precision *p, const Target *t, Error *e)
{
    if (p->tf32 && t->kind != DEVICE_CUDA)
        return error_usage(
            e, "precision: tf32 is how a GPU's tensor cores multiply FP32 numbers; a CPU has no such unit: take fp32 or bf16");
    if (p->tf32 && t->capability < 80)
        return error_usage(e, "precision: tf32 needs compute capability 8.0 (Ampere); %s has no such unit: take fp32 or fp16",
                           t->name);
    if (p->master && p->param == DTYPE_F32)
        return error_usage(e, "master_dtype: FP32 weights need no FP32 master copy; say --master-dtype none");
    return true;
}

static bool precision_equal(const Precision *a, const Precision *b)
{
    return a->param == b->param && a->grad == b->grad && a->act == b->act && a->resid == b->resid && a->m == b->m &&
           a->v == b->v && a->master == b->master && a->tf32 == b->tf32;
}

const char *precision_name(const Precision *p)
{
    static const char *const names[] = {"fp32", "tf32", "bf16", "fp16"};
    for (int i = 0; i < 4; i++) {
        Precision named = {0};
        Error ignored = {0};
        if (precision_parse(names[i], &named, &ignored) && precision_equal(p, &named))
            return names[i];
    }
    return NULL;
}

const char *precision_text(PrecisionText text, const Precision *p)
{
    const char *name = precision_name(p);
    if (name && strcmp(name + 2, "32") == 0)
        return strcpy(text, name);
    snprintf(text, sizeof(PrecisionText), "%s weights%s, %s grads, %s acts, %s resid, %s/%s moments", dtype_name(p->param),
             p->master ? " + f32 masters" : "", dtype_name(p->grad), dtype_name(p->act), dtype_name(p->resid), dtype_name(p->m),
             dtype_name(p->v));
    return text;
}

DType precision_gemm(const Precision *p, const Target *t)
{
    bool units = p->act == DTYPE_BF16 ? t->bf16_gemm : t->kind == DEVICE_CUDA;
    return p->act == p->param && units ? p->act : DTYPE_F32;
}
