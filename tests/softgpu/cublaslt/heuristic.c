/* Algorithms. The real library has hundreds and proposes those it believes in; here there are five, which differ in what a
 * program can notice: how many parts K is cut into, hence the order of summation and the workspace, and what alignment of
 * pointers they want. A program that takes whatever comes first, gives no workspace, or a pointer less aligned than it said,
 * is treated as the real library would treat it. */
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/cublaslt/lt.h"

#define MAGIC      0x5347 /* in what the heuristic made, and in a handle */
#define CANDIDATES 5
#define MIN_PART   64 /* products in one part of K, at least */

typedef struct Handle {
    uint64_t magic;
} Handle;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    Handle *h = calloc(1, sizeof *h);
    *handle = (cublasLtHandle_t)h;
    if (!h)
        return CUBLAS_STATUS_ALLOC_FAILED;
    h->magic = MAGIC;
    return softgpu_capability() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

size_t cublasLtGetCudartVersion(void)
{
    return CUDART_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
        return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_UNKNOWN";
    }
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

/* ---- Alignment ------------------------------------------------------------------------------------------------------- */

/* The largest power of two up to 16 bytes that columns and matrices of the operand keep. */
static uint32_t operand_alignment(const Operand *o)
{
    size_t bytes = element_bytes(o->type);
    uint32_t alignment = 16;
    while (alignment > bytes && ((size_t)o->ld * bytes % alignment || (o->batch > 1 && (size_t)o->stride * bytes % alignment)))
        alignment /= 2;
    return alignment;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t problem_alignment(const Problem *p)
{
    return smaller(smaller(operand_alignment(&p->a), operand_alignment(&p->b)),
                   smaller(operand_alignment(&p->c), operand_alignment(&p->d)));
}

/* ---- Candidates ------------------------------------------------------------------------------------------------------ */

static Algorithm algorithm_new(const Problem *p, uint32_t id, uint32_t parts, uint32_t alignment)
{
    return (Algorithm){.magic = MAGIC,
                       .id = id,
                       .parts = parts,
                       .alignment = alignment,
                       .workspace = p->m * p->n * sizeof(float) * (parts - 1),
                       .m = (uint32_t)p->m,
                       .n = (uint32_t)p->n,
                       .k = (uint32_t)p->k,
                       .type_in = (uint16_t)p->a.type,
                       .type_out = (uint16_t)p->d.type,
                       .epilogue = p->epilogue};
}

Algorithm algorithm_default(const Problem *p)
{
    return algorithm_new(p, 0, 1, problem_alignment(p));
}

cublasStatus_t algorithm_check(const Algorithm *x, const Problem *p)
{
    if (x->magic != MAGIC)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm that the heuristic did not make");
    if (x->m != p->m || x->n != p->n || x->k != p->k || x->type_in != p->a.type || x->type_out != p->d.type ||
        x->epilogue != p->epilogue)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm that was made for another problem");
    return CUBLAS_STATUS_SUCCESS;
}

/* Candidate `id` of the problem. False when it is of no use: too little workspace, too little to sum. */
static bool candidate(Algorithm *x, const Problem *p, uint32_t id, uint32_t alignment, uint64_t max_workspace)
{
    /* 0: as aligned as may be; 1: by elements; 2, 3, 4: K in 2, 4, 8 parts */
    uint32_t parts = id < 2 ? 1 : 1u << (id - 1), element = (uint32_t)element_bytes(p->a.type);
    if (id == 1 && alignment == element)
        return false;
    *x = algorithm_new(p, id, parts, id == 1 ? element : alignment);
    return parts == 1 || (x->workspace <= max_workspace && p->k >= MIN_PART * parts && p->d.batch == 1);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    Problem p;
    if (!handle || ((const Handle *)handle)->magic != MAGIC)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!preference || !results || !found || wanted < 1)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "no preference, no place for results, or none wanted");
    *found = 0;
    cublasStatus_t s = problem_read(&p, desc, a, b, c, d);
    if (s)
        return s;
    const uint64_t *value = ((const Attributes *)preference)->value;
    uint32_t alignment = problem_alignment(&p);
    for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++) {
        if (value[i] < element_bytes(i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES ? p.a.type : p.d.type))
            return refuse(CUBLAS_STATUS_INVALID_VALUE, "the preferred alignment of %lu bytes is below an element's", value[i]);
        alignment = smaller(alignment, (uint32_t)value[i]);
    }
    for (uint32_t id = 0; id < CANDIDATES && *found < wanted; id++) {
        Algorithm x;
        if (!candidate(&x, &p, id, alignment, value[CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES]))
            continue;
        results[*found] = (cublasLtMatmulHeuristicResult_t){.workspaceSize = x.workspace, .wavesCount = 1};
        memcpy(&results[(*found)++].algo, &x, sizeof x);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result)
{
    Problem p;
    Algorithm x;
    (void)handle;
    cublasStatus_t s = problem_read(&p, desc, a, b, c, d);
    if (s)
        return s;
    memcpy(&x, algo, sizeof x);
    *result = (cublasLtMatmulHeuristicResult_t){.algo = *algo, .workspaceSize = x.workspace};
    return algorithm_check(&x, &p);
}

/* Tells algorithms apart: number and parts; the rest is the real library's business and 0. */
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *to, size_t bytes,
                                                    size_t *written)
{
    Algorithm x;
    memcpy(&x, algo, sizeof x);
    uint32_t value = attribute == CUBLASLT_ALGO_CONFIG_ID ? x.id : attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? x.parts : 0;
    size_t wanted = attribute >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? sizeof(uint16_t) : sizeof value;
    if (bytes ? !to || bytes != wanted : !written)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes)
        memcpy(to, &value, bytes);
    if (written)
        *written = wanted;
    return CUBLAS_STATUS_SUCCESS;
}

_Static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm fits where the library's does");
