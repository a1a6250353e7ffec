/* Descriptors, layouts and preferences: each is a set of numbered attributes, and each attribute has a size, which a program
 * must give exactly. Sizes and initial values are those that the real library answers (the test compares all of them). */
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/cublaslt/lt.h"

typedef struct Kind {
    const char *name;
    int count;
    struct {
        uint8_t bytes; /* 0: there is no such attribute */
        uint64_t initial;
    } attribute[40];
} Kind;

#define UNSET32 0xffffffff /* -1: the output's type */

static const Kind desc_kind = {
    .name = "matmul descriptor",
    .count = 40,
    .attribute = {[CUBLASLT_MATMUL_DESC_COMPUTE_TYPE] = {4},
                  [CUBLASLT_MATMUL_DESC_SCALE_TYPE] = {4},
                  [CUBLASLT_MATMUL_DESC_POINTER_MODE] = {4},
                  [CUBLASLT_MATMUL_DESC_TRANSA] = {4},
                  [CUBLASLT_MATMUL_DESC_TRANSB] = {4},
                  [CUBLASLT_MATMUL_DESC_TRANSC] = {4},
                  [CUBLASLT_MATMUL_DESC_FILL_MODE] = {4, CUBLAS_FILL_MODE_FULL},
                  [CUBLASLT_MATMUL_DESC_EPILOGUE] = {4, CUBLASLT_EPILOGUE_DEFAULT},
                  [CUBLASLT_MATMUL_DESC_BIAS_POINTER] = {8},
                  [CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE] = {8},
                  [CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER] = {8},
                  [CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD] = {8},
                  [CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE] = {8},
                  [CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE] = {8},
                  [CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET] = {4},
                  [16] = {4},
                  [CUBLASLT_MATMUL_DESC_A_SCALE_POINTER] = {8},
                  [CUBLASLT_MATMUL_DESC_B_SCALE_POINTER] = {8},
                  [CUBLASLT_MATMUL_DESC_C_SCALE_POINTER] = {8},
                  [CUBLASLT_MATMUL_DESC_D_SCALE_POINTER] = {8},
                  [CUBLASLT_MATMUL_DESC_AMAX_D_POINTER] = {8},
                  [CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE] = {4, UNSET32},
                  [CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER] = {8},
                  [CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER] = {8},
                  [CUBLASLT_MATMUL_DESC_FAST_ACCUM] = {1},
                  [CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE] = {4, UNSET32},
                  [CUBLASLT_MATMUL_DESC_A_SCALE_MODE] = {4},
                  [CUBLASLT_MATMUL_DESC_B_SCALE_MODE] = {4},
                  [CUBLASLT_MATMUL_DESC_C_SCALE_MODE] = {4},
                  [CUBLASLT_MATMUL_DESC_D_SCALE_MODE] = {4},
                  [CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_MODE] = {4},
                  [CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER] = {8},
                  [CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE] = {4},
                  [CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR] = {8}},
};

static const Kind layout_kind = {
    .name = "matrix layout",
    .count = 9,
    .attribute = {[CUBLASLT_MATRIX_LAYOUT_TYPE] = {4},
                  [CUBLASLT_MATRIX_LAYOUT_ORDER] = {4},
                  [CUBLASLT_MATRIX_LAYOUT_ROWS] = {8},
                  [CUBLASLT_MATRIX_LAYOUT_COLS] = {8},
                  [CUBLASLT_MATRIX_LAYOUT_LD] = {8},
                  [CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT] = {4, 1},
                  [CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET] = {8},
                  [CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET] = {8},
                  [CUBLASLT_MATRIX_LAYOUT_BATCH_MODE] = {4}},
};

static const Kind preference_kind = {
    .name = "matmul preference",
    .count = 13,
    .attribute = {[CUBLASLT_MATMUL_PREF_SEARCH_MODE] = {4},
                  [CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES] = {8},
                  [CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK] = {4, CUBLASLT_REDUCTION_SCHEME_MASK},
                  [CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = {4, 256},
                  [CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES] = {4, 256},
                  [CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES] = {4, 256},
                  [CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES] = {4, 256},
                  [CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT] = {4},
                  [CUBLASLT_MATMUL_PREF_IMPL_MASK] = {8, UINT64_MAX}},
};

static Attributes *create(const Kind *kind)
{
    Attributes *a = calloc(1, sizeof *a);
    for (int i = 0; a && i < kind->count; i++)
        a->value[i] = kind->attribute[i].initial;
    return a;
}

static size_t bytes_of(const Kind *kind, int attribute)
{
    return attribute >= 0 && attribute < kind->count ? kind->attribute[attribute].bytes : 0;
}

static cublasStatus_t set(const Kind *kind, void *object, int attribute, const void *from, size_t bytes)
{
    size_t wanted = bytes_of(kind, attribute);
    if (!object || !from || !wanted || bytes != wanted)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %d of a %s has %zu bytes, not %zu", attribute, kind->name, wanted,
                      bytes);
    ((Attributes *)object)->value[attribute] = 0;
    memcpy(&((Attributes *)object)->value[attribute], from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* bytes = 0 asks for the size. */
static cublasStatus_t get(const Kind *kind, const void *object, int attribute, void *to, size_t bytes, size_t *written)
{
    size_t wanted = bytes_of(kind, attribute);
    if (!object || !wanted || (bytes ? !to || bytes != wanted : !written))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes)
        memcpy(to, &((const Attributes *)object)->value[attribute], bytes);
    if (written)
        *written = wanted;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale)
{
    Attributes *a = create(&desc_kind);
    *desc = (cublasLtMatmulDesc_t)a;
    if (!a)
        return CUBLAS_STATUS_ALLOC_FAILED;
    a->value[CUBLASLT_MATMUL_DESC_COMPUTE_TYPE] = compute;
    a->value[CUBLASLT_MATMUL_DESC_SCALE_TYPE] = scale;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *from, size_t bytes)
{
    return set(&desc_kind, desc, attribute, from, bytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, void *to,
                                              size_t bytes, size_t *written)
{
    return get(&desc_kind, desc, attribute, to, bytes, written);
}

/* Sizes are only looked at when the layout is used. */
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t ld)
{
    Attributes *a = create(&layout_kind);
    *layout = (cublasLtMatrixLayout_t)a;
    if (!a)
        return CUBLAS_STATUS_ALLOC_FAILED;
    a->value[CUBLASLT_MATRIX_LAYOUT_TYPE] = type;
    a->value[CUBLASLT_MATRIX_LAYOUT_ROWS] = rows;
    a->value[CUBLASLT_MATRIX_LAYOUT_COLS] = columns;
    a->value[CUBLASLT_MATRIX_LAYOUT_LD] = (uint64_t)ld;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *from, size_t bytes)
{
    return set(&layout_kind, layout, attribute, from, bytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                                                void *to, size_t bytes, size_t *written)
{
    return get(&layout_kind, layout, attribute, to, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = (cublasLtMatmulPreference_t)create(&preference_kind);
    return *preference ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *from,
                                                    size_t bytes)
{
    return set(&preference_kind, preference, attribute, from, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, void *to, size_t bytes,
                                                    size_t *written)
{
    return get(&preference_kind, preference, attribute, to, bytes, written);
}
