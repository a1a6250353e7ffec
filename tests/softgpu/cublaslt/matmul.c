/* The product: checked at the call, made when the stream gets there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/cublaslt/lt.h"

typedef struct Job {
    Problem problem;
    Algorithm algorithm;
    const void *a, *b, *c;
    void *d, *workspace;
    const void *alpha_at, *beta_at; /* device scalars */
    float alpha, beta;
} Job;

/* ---- Activations, in FP32 as the library computes them ---------------------------------------------------------------- */

#define SQRT_2_OVER_PI 0.7978845608f
#define GELU_CUBIC     0.044715f

static float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)));
}

static float gelu_slope(float x)
{
    float t = tanhf(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x * x);
}

/* ---- One matrix of the batch ------------------------------------------------------------------------------------------ */

/* Matrix `i` of an operand whose first element is at the device address `first`. */
static Matrix matrix_of(const Operand *o, const void *first, int i)
{
    size_t inner = 1, outer = (size_t)o->ld;
    bool by_rows = o->row_major != o->transposed;
    const char *host = softgpu_host(first);
    return (Matrix){host + (size_t)i * (size_t)o->stride * element_bytes(o->type), o->type, by_rows ? outer : inner,
                    by_rows ? inner : outer};
}

/* column[i] becomes what is stored in D, in FP32: column j of the product, scaled and through the epilogue. */
static void column_finish(const Job *job, float *column, size_t j, const Matrix *c, const void *bias)
{
    const Problem *p = &job->problem;
    for (size_t i = 0; i < p->m; i++) {
        float x = job->alpha * column[i];
        size_t aux = j * (size_t)p->aux_ld + i;
        if (job->beta != 0)
            x += job->beta * element_get(c->data, c->type, i * c->row + j * c->column);
        if (p->epilogue & BIAS)
            x += element_get(bias, p->d.type, i);
        if (p->epilogue & GELU && p->epilogue & AUX)
            element_set(softgpu_host(p->aux), p->d.type, aux, x);
        if (p->epilogue & RELU && !(x > 0))
            x = isnan(x) ? x : 0;
        if (p->epilogue & GELU)
            x = gelu(x);
        if (p->epilogue & DGELU)
            x *= gelu_slope(element_get(softgpu_host(p->aux), p->d.type, aux));
        column[i] = x;
    }
}

/* The gradient of a bias: row sums of A, column sums of B, or row sums of the result before it is rounded. */
static void bias_gradient(const Problem *p, void *bias, const Matrix *a, const Matrix *b, const float *out, size_t ld)
{
    size_t length = p->epilogue & BGRAD_B ? p->n : p->m, terms = p->epilogue & BGRAD ? p->n : p->k;
    for (size_t i = 0; i < length; i++) {
        float sum = 0;
        for (size_t t = 0; t < terms; t++)
            sum += p->epilogue & BGRAD     ? out[t * ld + i]
                   : p->epilogue & BGRAD_A ? element_get(a->data, a->type, i * a->row + t * a->column)
                                           : element_get(b->data, b->type, t * b->row + i * b->column);
        element_set(bias, p->d.type, i, sum);
    }
}

static void matrix_multiply(const Job *job, float *out, int i)
{
    const Problem *p = &job->problem;
    Matrix a = matrix_of(&p->a, job->a, i), b = matrix_of(&p->b, job->b, i), c = matrix_of(&p->c, job->c, i);
    Matrix d = matrix_of(&p->d, job->d, i);
    size_t ld = gemm_padded(p->m);
    char *bias = softgpu_host(p->bias);
    gemm(out, &a, &b, p->m, p->n, p->k, job->algorithm.parts, p->rounding);
#pragma omp parallel for schedule(static) if (p->m * p->n > 1 << 14)
    for (size_t j = 0; j < p->n; j++) {
        column_finish(job, out + j * ld, j, &c, bias + (size_t)i * (size_t)p->bias_stride * element_bytes(p->d.type));
        for (size_t r = 0; r < p->m; r++)
            element_set((void *)d.data, d.type, r * d.row + j * d.column, out[j * ld + r]);
    }
    if (p->epilogue & (BGRAD | BGRAD_A | BGRAD_B))
        bias_gradient(p, bias, &a, &b, out, ld);
}

/* ---- The operation ---------------------------------------------------------------------------------------------------- */

/* Columns of the operand, each a piece of `inner` elements, one after another: read or written. */
static bool operand_touch(const Operand *o, const void *first, const char *what, bool write)
{
    size_t bytes = element_bytes(o->type), inner = o->row_major ? o->columns : o->rows,
           outer = o->row_major ? o->rows : o->columns;
    for (size_t i = 0; i < (size_t)o->batch; i++)
        for (size_t j = 0; j < outer; j++) {
            const char *at = (const char *)first + (i * (size_t)o->stride + j * (size_t)o->ld) * bytes;
            if (!(write ? softgpu_write : softgpu_read)(at, inner * bytes, what))
                return false;
        }
    return true;
}

static bool inputs_read(const Job *job)
{
    const Problem *p = &job->problem;
    Operand aux = {p->m, p->n, p->aux_ld, 0, p->d.type, 1, false, false};
    size_t bias_bytes = ((size_t)(p->d.batch - 1) * (size_t)p->bias_stride + p->m) * element_bytes(p->d.type);
    return operand_touch(&p->a, job->a, "A", false) && operand_touch(&p->b, job->b, "B", false) &&
           (job->beta == 0 || operand_touch(&p->c, job->c, "C", false)) &&
           (!(p->epilogue & BIAS) || softgpu_read(p->bias, bias_bytes, "bias")) &&
           (!(p->epilogue & DGELU) || operand_touch(&aux, p->aux, "auxiliary matrix", false));
}

static bool outputs_write(const Job *job)
{
    const Problem *p = &job->problem;
    Operand aux = {p->m, p->n, p->aux_ld, 0, p->d.type, 1, false, false};
    size_t bias_bytes = (p->epilogue & BGRAD_B ? p->n : p->m) * element_bytes(p->d.type);
    return operand_touch(&p->d, job->d, "D", true) &&
           (!(p->epilogue & (BGRAD | BGRAD_A | BGRAD_B)) || softgpu_write(p->bias, bias_bytes, "bias gradient")) &&
           (!(p->epilogue & GELU && p->epilogue & AUX) || operand_touch(&aux, p->aux, "auxiliary matrix", true)) &&
           (!job->algorithm.workspace || softgpu_write(job->workspace, job->algorithm.workspace, "workspace"));
}

static bool scalars_read(Job *job)
{
    if (!job->problem.device_scalars)
        return true;
    if (!softgpu_read(job->alpha_at, sizeof(float), "alpha") || !softgpu_read(job->beta_at, sizeof(float), "beta"))
        return false;
    job->alpha = *(const float *)softgpu_host(job->alpha_at);
    job->beta = *(const float *)softgpu_host(job->beta_at);
    return true;
}

static void job_run(void *arg)
{
    Job *job = arg;
    const Problem *p = &job->problem;
    if (!scalars_read(job) || !inputs_read(job) || !outputs_write(job))
        return;
    if (job->algorithm.workspace) /* what was in it is lost */
        memset(softgpu_host(job->workspace), 0xc3, job->algorithm.workspace);
    float *out = malloc(gemm_bytes(p->m, p->n));
    for (int i = 0; out && i < p->d.batch; i++)
        matrix_multiply(job, out, i);
    if (!out)
        softgpu_say("no memory for the product of %lu x %lu", p->m, p->n);
    free(out);
}

/* ---- The call --------------------------------------------------------------------------------------------------------- */

/* What only the call knows: pointers and the workspace. */
static cublasStatus_t pointers_check(const Job *job, bool chosen, size_t workspace_bytes)
{
    const Problem *p = &job->problem;
    const Algorithm *x = &job->algorithm;
    uintptr_t bits = (uintptr_t)job->a | (uintptr_t)job->b | (uintptr_t)job->c | (uintptr_t)job->d;
    if (x->workspace > workspace_bytes || (x->workspace && !job->workspace))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "the algorithm needs a workspace of %lu bytes, there are %zu", x->workspace,
                      workspace_bytes);
    if (x->workspace && (uintptr_t)job->workspace % 16)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace is not aligned to 16 bytes");
    if (bits % x->alignment)
        return refuse(chosen ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_INVALID_VALUE,
                      "an operand is less aligned than the %u bytes that the algorithm wants", x->alignment);
    if (p->epilogue & USES_BIAS && !p->bias)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "epilogue %u without a bias", p->epilogue);
    if (p->epilogue & AUX && !p->aux)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "epilogue %u without an auxiliary matrix", p->epilogue);
    if (job->c == job->d && (p->c.ld != p->d.ld || p->c.type != p->d.type || p->c.row_major != p->d.row_major))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "C and D are one matrix with two layouts");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t job_submit(const Job *job, cudaStream_t stream)
{
    char name[128];
    Job *copy = malloc(sizeof *copy);
    if (!copy)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *copy = *job;
    const Problem *p = &job->problem;
    snprintf(name, sizeof name, "cublasLtMatmul m = %lu, n = %lu, k = %lu, epilogue %u, algorithm %u", p->m, p->n, p->k,
             p->epilogue, job->algorithm.id);
    return softgpu_submit(stream, name, job_run, free, copy) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
                              cublasLtMatrixLayout_t a, const void *B, cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    Job job = {.a = A, .b = B, .c = C, .d = D, .workspace = workspace, .alpha_at = alpha, .beta_at = beta};
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta || !A || !B || !C || !D)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix or scalar is NULL");
    cublasStatus_t s = problem_read(&job.problem, desc, a, b, c, d);
    if (s)
        return s;
    if (algo)
        memcpy(&job.algorithm, algo, sizeof job.algorithm);
    else
        job.algorithm = algorithm_default(&job.problem);
    s = algorithm_check(&job.algorithm, &job.problem);
    if (!s)
        s = pointers_check(&job, algo, workspace_bytes);
    if (s)
        return s;
    if (!job.problem.device_scalars) {
        job.alpha = *(const float *)alpha;
        job.beta = *(const float *)beta;
    }
    return job_submit(&job, stream);
}
