/* Choices of algorithms that were made by timing, kept with a run as gemm-tune.json:
 *
 *   {"version": 1, "card": "NVIDIA ..., 108 SMs, sm_80", "library": 130100,
 *    "products": [{"in": "bf16", "out": "f32", "rows_a": 4096, ..., "epilogue": 256, "algorithm": "hexadecimal digits",
 *                  "ms": 0.21, "first_ms": 0.25}, ...]}
 *
 * An algorithm is what the library documents as such: bytes that mean the same to the same version of it. On another card or with
 * another version the file is of no use. */
#include "kernels/cuda/gemm_choice.h"

#include "base/json.h"
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, DIGITS = 2 * sizeof(cublasLtMatmulAlgo_t) };

static struct {
    Choice *choice;
    size_t count;
} kept;

const Choice *gemm_choice_find(const Question *q)
{
    for (size_t i = 0; i < kept.count; i++)
        if (memcmp(&kept.choice[i].question, q, sizeof *q) == 0)
            return &kept.choice[i];
    return NULL;
}

bool gemm_choice_keep(const Choice *c)
{
    Choice *grown = realloc(kept.choice, (kept.count + 1) * sizeof *grown);
    if (!grown)
        return false;
    kept.choice = grown;
    kept.choice[kept.count++] = *c;
    return true;
}

/* ---- As JSON ------------------------------------------------------------------------------------------------------- */

/* The numbers of a question; its two types have names. */
#define FIELD(name, member, least, most)                                                                                         \
    {                                                                                                                            \
        name, offsetof(Question, member), least, most                                                                            \
    }
static const struct {
    const char *name;
    size_t offset;
    int64_t least, most;
} fields[] = {
    FIELD("rows_a", rows[0], 1, INT32_MAX),
    FIELD("columns_a", columns[0], 1, INT32_MAX),
    FIELD("stride_a", stride[0], 1, INT64_MAX),
    FIELD("alignment_a", alignment[0], 1, 16),
    FIELD("transposed_a", transposed[0], 0, 1),
    FIELD("rows_b", rows[1], 1, INT32_MAX),
    FIELD("columns_b", columns[1], 1, INT32_MAX),
    FIELD("stride_b", stride[1], 1, INT64_MAX),
    FIELD("alignment_b", alignment[1], 1, 16),
    FIELD("transposed_b", transposed[1], 0, 1),
    FIELD("rows_c", rows[2], 1, INT32_MAX),
    FIELD("columns_c", columns[2], 1, INT32_MAX),
    FIELD("stride_c", stride[2], 1, INT64_MAX),
    FIELD("alignment_c", alignment[2], 1, 16),
    FIELD("epilogue", epilogue, 1, INT32_MAX),
    FIELD("accumulate", accumulate, 0, 1),
    FIELD("tf32", tf32, 0, 1),
};
#undef FIELD
enum { FIELDS = sizeof fields / sizeof *fields };

static json_t *choice_to_json(const Choice *c)
{
    char digits[DIGITS + 1];
    const unsigned char *byte = (const unsigned char *)&c->algorithm;
    json_t *object = json_pack("{s:s, s:s}", "in", dtype_name((DType)c->question.in), "out", dtype_name((DType)c->question.out));
    for (int i = 0; i < FIELDS; i++)
        json_object_set_new(object, fields[i].name,
                            json_integer(*(const int64_t *)((const char *)&c->question + fields[i].offset)));
    for (int i = 0; i < DIGITS; i += 2)
        sprintf(digits + i, "%02x", byte[i / 2]);
    json_object_set_new(object, "algorithm", json_string(digits));
    json_object_set_new(object, "ms", json_real(c->ms));
    json_object_set_new(object, "first_ms", json_real(c->first_ms));
    return object;
}

static bool type_read(const json_t *object, const char *field, int64_t *type, Error *e)
{
    const char *name;
    if (!json_get_string(object, field, &name, true, e))
        return false;
    for (*type = DTYPE_F32; *type <= DTYPE_F16; ++*type)
        if (strcmp(name, dtype_name((DType)*type)) == 0 && *type != DTYPE_I32)
            return true;
    return error_set(e, "%s: is \"%.20s\"; f32, bf16 or f16", field, name);
}

static bool algorithm_read(const json_t *object, cublasLtMatmulAlgo_t *algorithm, Error *e)
{
    const char *digits;
    unsigned char *byte = (unsigned char *)algorithm;
    if (!json_get_string(object, "algorithm", &digits, true, e))
        return false;
    if (strlen(digits) != DIGITS || strspn(digits, "0123456789abcdef") != DIGITS)
        return error_set(e, "algorithm: has to be %d hexadecimal digits", DIGITS);
    for (int i = 0; i < DIGITS; i += 2)
        sscanf(digits + i, "%2hhx", &byte[i / 2]);
    return true;
}

static bool choice_read(const json_t *object, Choice *c, Error *e)
{
    if (!json_is_object(object))
        return error_set(e, "is no object");
    for (int i = 0; i < FIELDS; i++)
        if (!json_get_int(object, fields[i].name, fields[i].least, fields[i].most,
                          (int64_t *)((char *)&c->question + fields[i].offset), true, e))
            return false;
    return type_read(object, "in", &c->question.in, e) && type_read(object, "out", &c->question.out, e) &&
           algorithm_read(object, &c->algorithm, e) && json_get_double(object, "ms", 0, 1e9, &c->ms, true, e) &&
           json_get_double(object, "first_ms", 0, 1e9, &c->first_ms, true, e);
}

json_t *cuda_tuning_write(const Target *t)
{
    if (kept.count == 0)
        return NULL;
    json_t *products = json_array();
    for (size_t i = 0; i < kept.count; i++)
        json_array_append_new(products, choice_to_json(&kept.choice[i]));
    return json_pack("{s:i, s:s, s:I, s:o}", "version", VERSION, "card", t->name, "library", (json_int_t)gemm_library_version(),
                     "products", products);
}

bool cuda_tuning_read(const json_t *file, const Target *t, char note[TUNING_NOTE], Error *e)
{
    const char *card;
    int64_t version, library, here = gemm_library_version();
    json_t *products = json_object_get(file, "products"), *object;
    size_t i;
    note[0] = 0;
    kept.count = 0;
    if (!json_get_int(file, "version", VERSION, VERSION, &version, true, e) || !json_get_string(file, "card", &card, true, e) ||
        !json_get_int(file, "library", 0, INT64_MAX, &library, true, e))
        return false;
    if (!json_is_array(products))
        return error_set(e, "products: has to be a list");
    json_array_foreach(products, i, object)
    {
        Choice c = {0};
        if (!choice_read(object, &c, e))
            return error_prefix(e, "products: number %zu", i + 1);
        if (!gemm_choice_keep(&c))
            return error_set(e, "out of host memory: %zu products", i + 1);
    }
    gemm_answers_forget();
    if (strcmp(card, t->name) == 0 && library == here)
        return true;
    kept.count = 0;
    snprintf(note, TUNING_NOTE, "was made on %.64s with cuBLASLt %lld; this is %s with %lld, so its choices are not used", card,
             (long long)library, t->name, (long long)here);
    return true;
}
