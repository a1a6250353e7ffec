/* Reading a problem: D = epilogue(alpha op(A) op(B) + beta C), with op(A) m x k, op(B) k x n. Whatever the library would not
 * take is refused here, at the heuristic and at the product alike. */
#include <stdarg.h>
#include <stdio.h>

#include "tests/softgpu/cublaslt/lt.h"

#define INVALID       CUBLAS_STATUS_INVALID_VALUE
#define NOT_SUPPORTED CUBLAS_STATUS_NOT_SUPPORTED
#define OK            CUBLAS_STATUS_SUCCESS

cublasStatus_t refuse(cublasStatus_t status, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    softgpu_say("%s: %s", cublasLtGetStatusName(status), text);
    return status;
}

static int value32(const void *object, int attribute)
{
    return (int)((const Attributes *)object)->value[attribute];
}

static uint64_t value64(const void *object, int attribute)
{
    return ((const Attributes *)object)->value[attribute];
}

static bool is_transposed(const void *desc, int attribute)
{
    return value32(desc, attribute) != CUBLAS_OP_N; /* conjugated is the same for real numbers */
}

static cublasStatus_t operand_read(Operand *o, const void *layout, bool transposed, char name)
{
    *o = (Operand){.rows = value64(layout, CUBLASLT_MATRIX_LAYOUT_ROWS),
                   .columns = value64(layout, CUBLASLT_MATRIX_LAYOUT_COLS),
                   .ld = (int64_t)value64(layout, CUBLASLT_MATRIX_LAYOUT_LD),
                   .stride = (int64_t)value64(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET),
                   .type = value32(layout, CUBLASLT_MATRIX_LAYOUT_TYPE),
                   .batch = value32(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT),
                   .row_major = value32(layout, CUBLASLT_MATRIX_LAYOUT_ORDER) == CUBLASLT_ORDER_ROW,
                   .transposed = transposed};
    int order = value32(layout, CUBLASLT_MATRIX_LAYOUT_ORDER);
    if (!element_bytes(o->type))
        return refuse(NOT_SUPPORTED, "data type %d of %c", o->type, name);
    if (order != CUBLASLT_ORDER_COL && order != CUBLASLT_ORDER_ROW)
        return refuse(NOT_SUPPORTED, "order %d of %c", order, name);
    if (value32(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE))
        return refuse(NOT_SUPPORTED, "batch mode of %c", name);
    if (!o->rows || !o->columns || o->batch < 1)
        return refuse(INVALID, "%c is empty", name);
    if (o->rows > INT32_MAX || o->columns > INT32_MAX)
        return refuse(INVALID, "%c is larger than 2^31 - 1", name);
    if (o->ld < (int64_t)(o->row_major ? o->columns : o->rows))
        return refuse(INVALID, "%c, %lu x %lu, has a leading dimension of %ld", name, o->rows, o->columns, o->ld);
    return OK;
}

/* What is multiplied by what, and in which precision. */
static cublasStatus_t types_read(Problem *p, const void *desc)
{
    int compute = value32(desc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE), scale = value32(desc, CUBLASLT_MATMUL_DESC_SCALE_TYPE);
    switch (compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        p->rounding = ROUND_NOT;
        break;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        p->rounding = ROUND_TF32;
        break;
    case CUBLAS_COMPUTE_32F_FAST_16BF:
        p->rounding = ROUND_BF16;
        break;
    case CUBLAS_COMPUTE_32F_FAST_16F:
        p->rounding = ROUND_FP16;
        break;
    default:
        return refuse(NOT_SUPPORTED, "compute type %d", compute);
    }
    if (scale != CUDA_R_32F)
        return refuse(NOT_SUPPORTED, "scale type %d is not CUDA_R_32F", scale);
    if (p->rounding != ROUND_NOT && p->a.type != CUDA_R_32F)
        return refuse(NOT_SUPPORTED, "compute type %d wants CUDA_R_32F matrices", compute);
    if (p->a.type != p->b.type || p->c.type != p->d.type || (p->a.type != p->d.type && p->d.type != CUDA_R_32F))
        return refuse(NOT_SUPPORTED, "data types %d x %d + %d -> %d", p->a.type, p->b.type, p->c.type, p->d.type);
    if (p->a.type == CUDA_R_16BF && softgpu_capability() < 80)
        return refuse(NOT_SUPPORTED, "bf16 below compute capability 8.0");
    return OK;
}

static cublasStatus_t sizes_read(Problem *p)
{
    p->m = p->a.transposed ? p->a.columns : p->a.rows;
    p->k = p->a.transposed ? p->a.rows : p->a.columns;
    p->n = p->b.transposed ? p->b.rows : p->b.columns;
    uint64_t k = p->b.transposed ? p->b.columns : p->b.rows;
    if (k != p->k || p->d.rows != p->m || p->d.columns != p->n || p->c.rows != p->m || p->c.columns != p->n)
        return refuse(INVALID, "op(A) %lu x %lu, op(B) %lu x %lu, C %lu x %lu, D %lu x %lu do not fit together", p->m, p->k, k,
                      p->n, p->c.rows, p->c.columns, p->d.rows, p->d.columns);
    if (p->a.batch != p->d.batch || p->b.batch != p->d.batch || p->c.batch != p->d.batch)
        return refuse(INVALID, "batches of %d, %d, %d, %d matrices", p->a.batch, p->b.batch, p->c.batch, p->d.batch);
    if (p->d.batch > 1 && !p->d.stride)
        return refuse(INVALID, "a batch of D without a stride");
    return OK;
}

static bool epilogue_known(unsigned epilogue)
{
    static const unsigned known[] = {
        1,       RELU,   BIAS, RELU | BIAS, GELU, GELU | BIAS, GELU | AUX, GELU | AUX | BIAS, DGELU | AUX, DGELU | AUX | BGRAD,
        BGRAD_A, BGRAD_B};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (epilogue == known[i])
            return true;
    return false;
}

static cublasStatus_t epilogue_read(Problem *p, const void *desc)
{
    unsigned epilogue = p->epilogue = (unsigned)value32(desc, CUBLASLT_MATMUL_DESC_EPILOGUE);
    int bias_type = value32(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
    int aux_type = value32(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE);
    p->bias = (void *)value64(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
    p->bias_stride = (int64_t)value64(desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE);
    p->aux = (void *)value64(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
    p->aux_ld = (int64_t)value64(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
    if (!epilogue_known(epilogue))
        return refuse(epilogue & 8 || epilogue == (RELU | AUX) || epilogue == (RELU | AUX | BIAS) ? NOT_SUPPORTED : INVALID,
                      "epilogue %u", epilogue);
    if (epilogue & AUX) {
        if (aux_type >= 0 && aux_type != p->d.type)
            return refuse(NOT_SUPPORTED, "the auxiliary matrix has another type than D");
        if (p->aux_ld < (int64_t)p->m || p->aux_ld % 8)
            return refuse(INVALID, "the auxiliary matrix's leading dimension %ld must be a multiple of 8 and at least %lu",
                          p->aux_ld, p->m);
        if ((uintptr_t)p->aux % 16)
            return refuse(INVALID, "the auxiliary matrix at %p is not aligned to 16 bytes", p->aux);
    }
    if (epilogue & USES_BIAS) {
        if (bias_type >= 0 && bias_type != p->d.type)
            return refuse(NOT_SUPPORTED, "the bias has another type than D");
        if ((uintptr_t)p->bias % element_bytes(p->d.type))
            return refuse(INVALID, "the bias at %p is not aligned to its elements", p->bias);
    }
    if (p->d.row_major && epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return refuse(NOT_SUPPORTED, "epilogue %u with a row-major D", epilogue);
    if (p->d.batch > 1 && epilogue & (AUX | BGRAD_A | BGRAD_B))
        return refuse(NOT_SUPPORTED, "epilogue %u with a batch", epilogue);
    return OK;
}

cublasStatus_t problem_read(Problem *p, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    *p = (Problem){0};
    if (!desc || !a || !b || !c || !d)
        return refuse(INVALID, "a descriptor or layout is NULL");
    int scalars = value32(desc, CUBLASLT_MATMUL_DESC_POINTER_MODE);
    p->device_scalars = scalars == CUBLASLT_POINTER_MODE_DEVICE;
    if (value32(desc, CUBLASLT_MATMUL_DESC_TRANSC) || (unsigned)value32(desc, CUBLASLT_MATMUL_DESC_TRANSA) > CUBLAS_OP_C ||
        (unsigned)value32(desc, CUBLASLT_MATMUL_DESC_TRANSB) > CUBLAS_OP_C)
        return refuse(INVALID, "a transposition that does not exist");
    cublasStatus_t s = operand_read(&p->a, a, is_transposed(desc, CUBLASLT_MATMUL_DESC_TRANSA), 'A');
    if (!s)
        s = operand_read(&p->b, b, is_transposed(desc, CUBLASLT_MATMUL_DESC_TRANSB), 'B');
    if (!s)
        s = operand_read(&p->c, c, false, 'C');
    if (!s)
        s = operand_read(&p->d, d, false, 'D');
    if (!s)
        s = types_read(p, desc);
    if (!s)
        s = sizes_read(p);
    if (!s && scalars != CUBLASLT_POINTER_MODE_HOST && !p->device_scalars)
        s = refuse(NOT_SUPPORTED, "pointer mode %d", scalars);
    return s ? s : epilogue_read(p, desc);
}

size_t operand_bytes(const Operand *o)
{
    uint64_t inner = o->row_major ? o->columns : o->rows, outer = o->row_major ? o->rows : o->columns;
    uint64_t last = (uint64_t)(o->batch - 1) * (uint64_t)o->stride + (outer - 1) * (uint64_t)o->ld + inner;
    return last * element_bytes(o->type);
}

/* Called by the generated stubs: the functions of the real library that are not written here. */
cublasStatus_t lt_unimplemented(const char *name);

cublasStatus_t lt_unimplemented(const char *name)
{
    return refuse(NOT_SUPPORTED, "%s is not implemented in the software GPU", name);
}
