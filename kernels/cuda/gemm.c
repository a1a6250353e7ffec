/* C = A B by cuBLASLt, in row-major memory.
 *
 * The library thinks in columns: a row-major matrix is to it the transpose. C = A B is C' = B' A', so it is given B first and A
 * second, each as it lies, and transposes where we do.
 *
 * Both operands must have one type, and C that type or FP32. Where a policy mixes others, operands are widened to FP32 in the
 * workspace, and C is rounded from there. Sums are FP32 in any case, also those of a product that the library splits along K.
 *
 * An epilogue saves a pass over a matrix: the bias, the derivative of GELU, and, while dy is read for a weight's gradient, its
 * column sums. The library wants the matrix of an epilogue in C's type, aligned to 16 bytes and, for GELU, with rows of a
 * multiple of 8; what does not fit, and where it has no algorithm with the epilogue, the op's own kernel does after the product.
 *
 * Which algorithm runs decides the last bits of a result. It is the library's first answer for the shapes, types, alignments and
 * the fixed workspace; asked once for each, and kept: nothing of the model, least of all its recompute level, is part of the
 * question. While the device is being tuned it is the fastest of the first few, and that choice is kept with the run
 * (gemm_choice.c). Where the library has none, or with TALLY_GEMM=plain in the environment, the kernel of gemm_plain.cu
 * multiplies. */
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/gemm_choice.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The library's descriptions of a product, kept ------------------------------------------------------------------- */

enum { CANDIDATES = 8, TIMES = 5 }; /* algorithms that are timed, and how often each */

typedef struct Answer {
    Question question;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t layout[3]; /* of A, B, C */
    bool plain;                       /* it has no algorithm */
    int candidates;                   /* more than one: to be timed */
    cublasLtMatmulHeuristicResult_t candidate[CANDIDATES];
} Answer; /* the algorithm is the first candidate's */

/* Grows by one for each kind of product of the model, some ten. One thread launches at a time (kernels/device.h). */
static struct {
    CublasLt lt;
    bool plain;              /* TALLY_GEMM=plain */
    bool tuning;             /* cuda_tune */
    cublasLtHandle_t handle; /* NULL: not loaded yet */
    Answer *answer;
    size_t count;
} cache;

static bool library_check(Ctx *c, OpId op, cublasStatus_t status, const char *what)
{
    return status == CUBLAS_STATUS_SUCCESS ||
           error_set(c->error, "%s (layer %d): cuBLASLt: %s: %s", op_name(op), c->layer, what, cache.lt.GetStatusString(status));
}

static bool library_start(Ctx *c, OpId op)
{
    const char *wish = getenv("TALLY_GEMM");
    cache.plain = wish && strcmp(wish, "plain") == 0;
    return cache.handle || (cublaslt_load(&cache.lt, c->error) && library_check(c, op, cache.lt.Create(&cache.handle), "start"));
}

static cudaDataType_t library_type(DType t)
{
    return t == DTYPE_F32 ? CUDA_R_32F : t == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* The alignment that all rows of a matrix have, in bytes; 16 at most, which all of the plan's tensors with even rows have: their
 * addresses do not decide. */
static int64_t matrix_alignment(Matrix m)
{
    const size_t most = 16;
    size_t bits = (size_t)m.data | (size_t)m.stride * dtype_size(m.dtype) | most;
    return (int64_t)(bits & (~bits + 1));
}

static Question question_make(Matrix C, Matrix A, Matrix B, cublasLtEpilogue_t epilogue, bool accumulate, const Target *t)
{
    Question q = {.in = A.dtype, .out = C.dtype, .epilogue = epilogue, .accumulate = accumulate, .tf32 = t->tf32};
    Matrix m[3] = {A, B, C};
    for (int i = 0; i < 3; i++) {
        q.rows[i] = m[i].rows, q.columns[i] = m[i].columns, q.stride[i] = m[i].stride;
        q.alignment[i] = matrix_alignment(m[i]);
    }
    q.transposed[0] = A.transposed, q.transposed[1] = B.transposed;
    return q;
}

/* Sets the matrix or vector that the product's epilogue reads or writes. */
static cublasStatus_t epilogue_point(Answer *a, const void *operand)
{
    bool gelu = a->question.epilogue == CUBLASLT_EPILOGUE_DGELU;
    if (!operand)
        return CUBLAS_STATUS_SUCCESS;
    return cache.lt.MatmulDescSetAttribute(a->product,
                                           gelu ? CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER : CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                           &operand, sizeof operand);
}

/* Describes the product to the library. */
static cublasStatus_t product_describe(Answer *a)
{
    const Question *q = &a->question;
    bool tf32 = q->tf32 && q->in == DTYPE_F32;
    cublasOperation_t first = q->transposed[1] ? CUBLAS_OP_T : CUBLAS_OP_N, second = q->transposed[0] ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)q->epilogue;
    cublasStatus_t s =
        cache.lt.MatmulDescCreate(&a->product, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!s)
        s = cache.lt.MatmulDescSetAttribute(a->product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    if (!s)
        s = cache.lt.MatmulDescSetAttribute(a->product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    if (!s)
        s = cache.lt.MatmulDescSetAttribute(a->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (!s && epilogue == CUBLASLT_EPILOGUE_DGELU)
        s = cache.lt.MatmulDescSetAttribute(a->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &q->columns[2], sizeof(int64_t));
    for (int i = 0; i < 3 && !s; i++)
        s = cache.lt.MatrixLayoutCreate(&a->layout[i], library_type((DType)(i < 2 ? q->in : q->out)), (uint64_t)q->columns[i],
                                        (uint64_t)q->rows[i], q->stride[i]);
    return s;
}

/* Asks for algorithms, or finds that there is none: within the workspace, for the operands' alignment, and never with partial
 * sums in a 16-bit type. */
static cublasStatus_t algorithm_ask(Answer *a, size_t workspace)
{
    static const cublasLtMatmulPreferenceAttributes_t alignment[3] = {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                                      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                                      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES};
    cublasLtMatmulPreference_t wish;
    uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, bytes;
    int wanted = cache.tuning ? CANDIDATES : 1, found = 0;
    cublasStatus_t s = cache.lt.MatmulPreferenceCreate(&wish);
    if (s)
        return s;
    s = cache.lt.MatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    if (!s)
        s = cache.lt.MatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums);
    for (int i = 0; i < 3 && !s; i++) {
        bytes = (uint32_t)a->question.alignment[i];
        s = cache.lt.MatmulPreferenceSetAttribute(wish, alignment[i], &bytes, sizeof bytes);
    }
    if (!s) /* bytes is C's, and C is D */
        s = cache.lt.MatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &bytes, sizeof bytes);
    if (!s)
        s = cache.lt.MatmulAlgoGetHeuristic(cache.handle, a->product, a->layout[1], a->layout[0], a->layout[2], a->layout[2],
                                            wish, wanted, a->candidate, &found);
    cache.lt.MatmulPreferenceDestroy(wish);
    a->candidates = found;
    a->plain = cache.plain || s == CUBLAS_STATUS_NOT_SUPPORTED || (!s && !found);
    return a->plain ? CUBLAS_STATUS_SUCCESS : s;
}

/* Takes the algorithm that was once chosen by timing, if the library still does. */
static cublasStatus_t algorithm_take(Answer *a, const Choice *c, size_t workspace)
{
    cublasStatus_t s = cache.lt.MatmulAlgoCheck(cache.handle, a->product, a->layout[1], a->layout[0], a->layout[2], a->layout[2],
                                                &c->algorithm, &a->candidate[0]);
    a->candidate[0].algo = c->algorithm;
    a->plain = cache.plain;
    return s || a->candidate[0].workspaceSize <= workspace ? s : CUBLAS_STATUS_NOT_SUPPORTED;
}

static void answer_free(Answer *a)
{
    for (int i = 0; i < 3; i++)
        if (a->layout[i])
            cache.lt.MatrixLayoutDestroy(a->layout[i]);
    if (a->product)
        cache.lt.MatmulDescDestroy(a->product);
}

void gemm_answers_forget(void)
{
    while (cache.count)
        answer_free(&cache.answer[--cache.count]);
}

int64_t gemm_library_version(void)
{
    Error ignored = {0};
    return cache.handle || cublaslt_load(&cache.lt, &ignored) ? (int64_t)cache.lt.GetVersion() : 0;
}

void cuda_tune(bool on)
{
    if (on)
        gemm_answers_forget();
    cache.tuning = on;
}

/* The kept answer to the question, or a new one; `operand` is the epilogue's. NULL after recording why there is none. */
static Answer *answer_find(Ctx *c, OpId op, const Question *q, const void *operand)
{
    for (size_t i = 0; i < cache.count; i++)
        if (memcmp(&cache.answer[i].question, q, sizeof *q) == 0)
            return &cache.answer[i];
    size_t room = gemm_library_bytes(&c->target);
    const Choice *chosen = gemm_choice_find(q);
    Answer a = {.question = *q}, *grown = realloc(cache.answer, (cache.count + 1) * sizeof *grown);
    if (!grown) {
        error_set(c->error, "out of host memory: %zu kinds of matrix products", cache.count + 1);
        return NULL;
    }
    cache.answer = grown;
    if (!library_start(c, op) || !library_check(c, op, product_describe(&a), "description of a product") ||
        !library_check(c, op, epilogue_point(&a, operand), "an epilogue's operand") ||
        (chosen && !library_check(c, op, algorithm_take(&a, chosen, room), "the algorithm that gemm-tune.json has for it")) ||
        (!chosen && !library_check(c, op, algorithm_ask(&a, room), "choice of an algorithm"))) {
        answer_free(&a);
        return NULL;
    }
    cache.answer[cache.count] = a;
    return &cache.answer[cache.count++];
}

/* ---- The product ---------------------------------------------------------------------------------------------------- */

/* What of an epilogue is asked of the library, and its operand. */
typedef struct Fused {
    cublasLtEpilogue_t epilogue;
    void *operand;
} Fused;

/* A product as it is handed to the library. */
typedef struct Product {
    const void *A, *B;
    void *C, *scratch;
    float beta;
} Product;

static cublasStatus_t product_launch(const Ctx *c, const Answer *a, const cublasLtMatmulAlgo_t *algorithm, const Product *p)
{
    const float one = 1;
    return cache.lt.Matmul(cache.handle, a->product, &one, p->B, a->layout[1], p->A, a->layout[0], &p->beta, p->C, a->layout[2],
                           p->C, a->layout[2], algorithm, p->scratch, gemm_library_bytes(&c->target), (cudaStream_t)c->stream);
}

/* Milliseconds of the algorithm between two events, the least of TIMES after one that counts for nothing; INFINITY when the
 * library, which proposed it, refuses it. */
static float product_time(const Ctx *c, const Answer *a, const cublasLtMatmulAlgo_t *algorithm, const Product *p)
{
    cudaStream_t stream = (cudaStream_t)c->stream;
    cudaEvent_t begin = NULL, end = NULL;
    float least = INFINITY, ms;
    bool ok = !cudaEventCreate(&begin) && !cudaEventCreate(&end);
    for (int i = 0; ok && i <= TIMES; i++) {
        ok = !cudaEventRecord(begin, stream) && !product_launch(c, a, algorithm, p) && !cudaEventRecord(end, stream) &&
             !cudaEventSynchronize(end) && !cudaEventElapsedTime(&ms, begin, end);
        least = ok && i > 0 ? fminf(least, ms) : least;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return ok ? least : INFINITY;
}

/* Puts the fastest of an answer's candidates in front and keeps it as the run's choice. */
static bool product_tune(Ctx *c, Answer *a, const Product *p)
{
    Choice choice = {.question = a->question, .ms = INFINITY};
    for (int i = 0; i < a->candidates; i++) {
        double ms = product_time(c, a, &a->candidate[i].algo, p);
        choice.first_ms = i == 0 ? ms : choice.first_ms;
        if (ms < choice.ms) {
            choice.ms = ms;
            a->candidate[0] = a->candidate[i];
        }
    }
    a->candidates = 1;
    choice.algorithm = a->candidate[0].algo;
    return !isfinite(choice.first_ms) || gemm_choice_keep(&choice) || error_set(c->error, "out of host memory for a choice");
}

/* A product of types that the library takes. False when it has no algorithm with the epilogue: then nothing has been done. */
static bool product_run(Ctx *c, OpId op, Matrix C, Matrix A, Matrix B, Fused f, bool accumulate, void *scratch)
{
    const Product p = {A.data, B.data, C.data, scratch, accumulate ? 1 : 0};
    Question q = question_make(C, A, B, f.epilogue, accumulate, &c->target);
    Answer *a = answer_find(c, op, &q, f.operand);
    if (!a)
        return true;
    if (a->plain && (f.epilogue == CUBLASLT_EPILOGUE_DGELU || f.epilogue == CUBLASLT_EPILOGUE_BGRADA))
        return false;
    if (a->plain)
        cuda_gemm_plain(c, op, C, A, B, tensor_1d(f.operand, C.dtype, C.columns), accumulate);
    else if (library_check(c, op, epilogue_point(a, f.operand), "an epilogue's operand") &&
             (a->candidates <= 1 || product_tune(c, a, &p)))
        library_check(c, op, product_launch(c, a, &a->candidate[0].algo, &p), "product");
    return true;
}

/* The matrix as `as`: itself, or a place of that type at *scratch, which moves behind it. */
static Matrix matrix_as(Matrix m, DType as, char **scratch)
{
    Matrix copy = m;
    if (m.dtype == as)
        return m;
    copy.dtype = as;
    copy.data = *scratch;
    *scratch += matrix_scratch(m, as);
    return copy;
}

static void matrix_cast(Ctx *c, Matrix to, Matrix from)
{
    if (to.data != from.data)
        cuda_cast(c, tensor_1d(to.data, to.dtype, matrix_span(to)), tensor_1d(from.data, from.dtype, matrix_span(from)));
}

/* The epilogue for C as the library makes it, a type that may not be the op's; `row` [columns of C] is scratch for it. */
static Fused epilogue_fuse(Ctx *c, const GemmEpilogue *e, Matrix C, bool is_output, void *row)
{
    Fused f = {CUBLASLT_EPILOGUE_DEFAULT, NULL};
    if (tensor_present(e->bias)) {
        f = (Fused){CUBLASLT_EPILOGUE_BIAS, e->bias.data};
        if (e->bias.dtype != C.dtype) {
            f.operand = row;
            cuda_cast(c, tensor_1d(row, C.dtype, C.columns), e->bias);
        }
    } else if (tensor_present(e->bias_sum) && C.dtype == DTYPE_F32) { /* the library stores the sums in C's type */
        f = (Fused){CUBLASLT_EPILOGUE_BGRADA, row};
    } else if (tensor_present(e->pre_gelu) && is_output && C.columns % 8 == 0 && (size_t)e->pre_gelu.data % 16 == 0) {
        f = (Fused){CUBLASLT_EPILOGUE_DGELU, e->pre_gelu.data};
    }
    return f;
}

/* What is left of an epilogue after the product. */
static void epilogue_finish(Ctx *c, OpId op, const GemmEpilogue *e, Matrix C, Matrix B, Fused done)
{
    Tensor product = {.data = C.data, .dtype = C.dtype, .ndim = 2, .shape = {C.rows, C.columns}};
    Tensor second = {.data = B.data, .dtype = B.dtype, .ndim = 2, .shape = {B.rows, B.columns}};
    if (tensor_present(e->bias_sum) && done.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        cuda_column_groups_add(c, op, e->bias_sum, done.operand, 1, C.columns);
    else if (tensor_present(e->bias_sum))
        cuda_column_sums(c, op, e->bias_sum, second);
    if (tensor_present(e->pre_gelu) && done.epilogue != CUBLASLT_EPILOGUE_DGELU)
        cuda_gelu_backward(c, product, product, e->pre_gelu);
}

void cuda_gemm(Ctx *c, OpId op, Matrix C, Matrix A, Matrix B, GemmEpilogue e, bool accumulate)
{
    GemmWay way = gemm_way(C.dtype, A.dtype, B.dtype, &c->target);
    char *library =
        (char *)(((size_t)c->workspace + GEMM_SCRATCH_ALIGNMENT - 1) / GEMM_SCRATCH_ALIGNMENT * GEMM_SCRATCH_ALIGNMENT);
    char *scratch = library + gemm_library_bytes(&c->target);
    if (!workspace_check(c, op, cuda_gemm_workspace(C, A, B, &c->target)))
        return;
    Matrix a = matrix_as(A, way.in, &scratch), b = matrix_as(B, way.in, &scratch), sum = matrix_as(C, way.out, &scratch);
    matrix_cast(c, a, A);
    matrix_cast(c, b, B);
    if (accumulate)
        matrix_cast(c, sum, C);
    Fused f = epilogue_fuse(c, &e, sum, sum.data == C.data, scratch);
    if (!product_run(c, op, sum, a, b, f, accumulate, library)) {
        f = (Fused){CUBLASLT_EPILOGUE_DEFAULT, NULL};
        product_run(c, op, sum, a, b, f, accumulate, library);
    }
    if (c->error->set)
        return;
    matrix_cast(c, C, sum);
    epilogue_finish(c, op, &e, C, B, f);
}
