/* The software cublasLt's numbers: every data type, transposition and epilogue against sums in double, for every algorithm that
 * the heuristic offers. */
#include <cublasLt.h>
#include <math.h>

#include "tests/softgpu/rig.h"

static cublasLtHandle_t handle;

/* ---- Matrices on both sides -------------------------------------------------------------------------------------------- */

typedef struct Buffer {
    cudaDataType type;
    size_t n;
    double *value; /* what the device has, exactly */
    void *device;
} Buffer;

static size_t element(cudaDataType type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

static void encode(unsigned char *out, cudaDataType type, float x)
{
    _Float16 half = (_Float16)x;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint16_t bf16 = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    memcpy(out, type == CUDA_R_32F ? (void *)&x : type == CUDA_R_16F ? (void *)&half : (void *)&bf16, element(type));
}

static double decode(const unsigned char *in, cudaDataType type)
{
    float x = 0;
    _Float16 half;
    uint32_t bits = 0;
    memcpy(&half, in, 2);
    if (type == CUDA_R_16BF)
        memcpy((char *)&bits + 2, in, 2);
    else
        memcpy(&bits, in, element(type));
    memcpy(&x, &bits, 4);
    return type == CUDA_R_16F ? (double)half : (double)x;
}

static void download(Buffer *b)
{
    unsigned char *raw = malloc(b->n * element(b->type));
    ok(cudaMemcpy(raw, b->device, b->n * element(b->type), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < b->n; i++)
        b->value[i] = decode(raw + i * element(b->type), b->type);
    free(raw);
}

static Buffer buffer_new(cudaDataType type, size_t n)
{
    static uint32_t random = 1;
    Buffer b = {type, n, malloc(n * sizeof(double)), NULL};
    unsigned char *raw = malloc(n * element(type));
    for (size_t i = 0; i < n; i++) {
        random = random * 1664525u + 1013904223u;
        encode(raw + i * element(type), type, (float)(random >> 8) / 8388608.f - 1);
    }
    ok(cudaMalloc(&b.device, n * element(type)));
    ok(cudaMemcpy(b.device, raw, n * element(type), cudaMemcpyHostToDevice));
    free(raw);
    download(&b);
    return b;
}

static void buffer_free(Buffer *b)
{
    ok(cudaFree(b->device));
    free(b->value);
}

/* ---- A product and its reference ---------------------------------------------------------------------------------------- */

typedef struct Case {
    cudaDataType in, out;
    cublasComputeType_t compute;
    int ta, tb, m, n, k, batch;
    unsigned epilogue;
    float beta;
} Case;

typedef struct Product {
    Case c;
    int lda, ldb, ldd;
    size_t stride_a, stride_b, stride_d;
    Buffer a, b, d, bias, aux;
    double *c_before, *aux_before;
} Product;

static double tanh_gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

static double tanh_gelu_slope(double x)
{
    return (tanh_gelu(x + 1e-5) - tanh_gelu(x - 1e-5)) / 2e-5;
}

static double *copy_of(const Buffer *b)
{
    double *copy = malloc(b->n * sizeof *copy);
    memcpy(copy, b->value, b->n * sizeof *copy);
    return copy;
}

static Product product_new(Case c)
{
    Product p = {.c = c, .lda = (c.ta ? c.k : c.m) + 8, .ldb = (c.tb ? c.n : c.k) + 16, .ldd = c.m + 8};
    p.stride_a = (size_t)p.lda * (size_t)(c.ta ? c.m : c.k);
    p.stride_b = (size_t)p.ldb * (size_t)(c.tb ? c.k : c.n);
    p.stride_d = (size_t)p.ldd * (size_t)c.n;
    p.a = buffer_new(c.in, p.stride_a * (size_t)c.batch);
    p.b = buffer_new(c.in, p.stride_b * (size_t)c.batch);
    p.d = buffer_new(c.out, p.stride_d * (size_t)c.batch);
    p.aux = buffer_new(c.out, p.stride_d);
    p.bias = buffer_new(c.out, (size_t)(c.m > c.n ? c.m : c.n));
    p.c_before = copy_of(&p.d);
    p.aux_before = copy_of(&p.aux);
    return p;
}

static void product_free(Product *p)
{
    buffer_free(&p->a);
    buffer_free(&p->b);
    buffer_free(&p->d);
    buffer_free(&p->aux);
    buffer_free(&p->bias);
    free(p->c_before);
    free(p->aux_before);
}

static void attribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t a, const void *value, size_t bytes)
{
    assert_int_equal(cublasLtMatmulDescSetAttribute(desc, a, value, bytes), 0);
}

static cublasLtMatrixLayout_t layout_new(cudaDataType type, int rows, int columns, int ld, int batch, size_t stride)
{
    cublasLtMatrixLayout_t layout;
    int64_t step = (int64_t)stride;
    assert_int_equal(cublasLtMatrixLayoutCreate(&layout, type, (uint64_t)rows, (uint64_t)columns, ld), 0);
    if (batch > 1) {
        assert_int_equal(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, 4), 0);
        assert_int_equal(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, 8), 0);
    }
    return layout;
}

/* Runs it with candidate `pick` of the heuristic, or the last one there is. Returns how many there are. */
static int product_run(Product *p, int pick)
{
    const Case *c = &p->c;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t results[8];
    int found, ta = c->ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = c->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    int64_t aux_ld = p->ldd;
    float alpha = 0.5f;
    size_t bytes = 8 << 20;
    void *workspace;
    ok(cudaMalloc(&workspace, bytes));
    assert_int_equal(cublasLtMatmulDescCreate(&desc, c->compute, CUDA_R_32F), 0);
    attribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, 4);
    attribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, 4);
    attribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &c->epilogue, 4);
    attribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias.device, 8);
    attribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aux.device, 8);
    attribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, 8);
    cublasLtMatrixLayout_t a = layout_new(c->in, c->ta ? c->k : c->m, c->ta ? c->m : c->k, p->lda, c->batch, p->stride_a);
    cublasLtMatrixLayout_t b = layout_new(c->in, c->tb ? c->n : c->k, c->tb ? c->k : c->n, p->ldb, c->batch, p->stride_b);
    cublasLtMatrixLayout_t d = layout_new(c->out, c->m, c->n, p->ldd, c->batch, p->stride_d);
    assert_int_equal(cublasLtMatmulPreferenceCreate(&preference), 0);
    assert_int_equal(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes), 0);
    assert_int_equal(cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 8, results, &found), 0);
    assert_in_range(found, 1, 8);
    const cublasLtMatmulHeuristicResult_t *r = &results[pick < found ? pick : found - 1];
    assert_int_equal(cublasLtMatmul(handle, desc, &alpha, p->a.device, a, p->b.device, b, &c->beta, p->d.device, d, p->d.device,
                                    d, &r->algo, workspace, r->workspaceSize, NULL),
                     0);
    ok(cudaFree(workspace));
    download(&p->d);
    download(&p->bias);
    download(&p->aux);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(a);
    cublasLtMatrixLayoutDestroy(b);
    cublasLtMatrixLayoutDestroy(d);
    cublasLtMatmulDescDestroy(desc);
    return found;
}

static double element_a(const Product *p, int batch, int i, int k)
{
    return p->a.value[(size_t)batch * p->stride_a +
                      (p->c.ta ? (size_t)i * (size_t)p->lda + (size_t)k : (size_t)k * (size_t)p->lda + (size_t)i)];
}

static double element_b(const Product *p, int batch, int k, int j)
{
    return p->b.value[(size_t)batch * p->stride_b +
                      (p->c.tb ? (size_t)k * (size_t)p->ldb + (size_t)j : (size_t)j * (size_t)p->ldb + (size_t)k)];
}

/* Of an element, relative to 1 + |element|: the rounding of what is stored, and of sums of up to 264 products of numbers below 1:
 * 264 x 2^-24, or sqrt(264) times the 2^-11 of a product for TF32. */
static double tolerance(const Case *c)
{
    double sums = c->compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? 4e-3 : 1e-5;
    return sums + (c->out == CUDA_R_16BF ? 1. / 256 : c->out == CUDA_R_16F ? 1. / 2048 : 0);
}

/* scale: 1 + |element|, or a sum of such when `got` is a sum of elements. */
static void near(const Case *c, double got, double wanted, double scale)
{
    if (!(fabs(got - wanted) <= tolerance(c) * scale))
        fail_msg("types %d -> %d, %c%c, epilogue %u, beta %g: %g instead of %g", c->in, c->out, "NT"[c->ta], "NT"[c->tb],
                 c -> epilogue, (double)c -> beta, got, wanted);
}

/* D[i, j] of a matrix of the batch; checks the auxiliary output on the way. */
static double wanted_element(const Product *p, int batch, int i, int j, const double *bias_before)
{
    const Case *c = &p->c;
    size_t at = (size_t)j * (size_t)p->ldd + (size_t)i;
    double x = 0;
    for (int k = 0; k < c->k; k++)
        x += element_a(p, batch, i, k) * element_b(p, batch, k, j);
    x = 0.5 * x + (double)c->beta * p->c_before[(size_t)batch * p->stride_d + at];
    if (c->epilogue & 4)
        x += bias_before[i];
    if ((c->epilogue & 160) == 160)
        near(c, p->aux.value[at], x, 1 + fabs(x));
    if (c->epilogue & 2)
        x = x > 0 ? x : 0;
    if (c->epilogue & 32)
        x = tanh_gelu(x);
    if (c->epilogue & 64)
        x *= tanh_gelu_slope(p->aux_before[at]);
    return x;
}

/* Bias gradients: sums of the result's rows, of A's rows or of B's columns. */
static void check_gradient(const Product *p, const double *rows, const double *scales)
{
    const Case *c = &p->c;
    for (int i = 0; i < (c->epilogue & 512 ? c->n : c->m); i++) {
        double sum = rows[i], scale = scales[i];
        for (int k = 0; c->epilogue & (256 | 512) && k < c->k; k++)
            sum += c->epilogue & 256 ? element_a(p, 0, i, k) : element_b(p, 0, k, i);
        near(c, p->bias.value[i], sum, c->epilogue & 16 ? scale : 1 + fabs(sum));
    }
}

static void check(Case c, int pick)
{
    Product p = product_new(c);
    double *bias_before = copy_of(&p.bias), *rows = calloc((size_t)(c.m + c.n), sizeof *rows),
           *scales = calloc((size_t)(c.m + c.n), 8);
    product_run(&p, pick);
    for (int batch = 0; batch < c.batch; batch++)
        for (int j = 0; j < c.n; j++)
            for (int i = 0; i < c.m; i++) {
                double wanted = wanted_element(&p, batch, i, j, bias_before), scale = 1 + fabs(wanted);
                near(&c, p.d.value[(size_t)batch * p.stride_d + (size_t)j * (size_t)p.ldd + (size_t)i], wanted, scale);
                rows[i] += c.epilogue & 16 ? wanted : 0;
                scales[i] += scale;
            }
    if (c.epilogue & (16 | 256 | 512))
        check_gradient(&p, rows, scales);
    free(rows);
    free(scales);
    free(bias_before);
    product_free(&p);
}

static const struct {
    cudaDataType in, out;
    cublasComputeType_t compute;
} types[] = {{CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},   {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
             {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F}, {CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F},
             {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},  {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F}};
enum { TYPES = sizeof types / sizeof *types };

static void test_transpositions(void **state)
{
    (void)state;
    fresh("");
    for (int t = 0; t < TYPES; t++)
        for (int i = 0; i < 4; i++)
            check((Case){types[t].in, types[t].out, types[t].compute, i & 1, i >> 1, 72, 40, 200, 1, 1, i == 2}, i);
}

static void test_epilogues(void **state)
{
    (void)state;
    static const unsigned epilogues[] = {2, 4, 6, 32, 36, 160, 164, 192, 208, 256, 512};
    fresh("");
    for (int t = 0; t < TYPES; t++)
        for (unsigned i = 0; i < sizeof epilogues / sizeof *epilogues; i++)
            check(
                (Case){types[t].in, types[t].out, types[t].compute, i & 1, i >> 1 & 1, 56, 24, 264, 1, epilogues[i], i % 3 == 0},
                (int)i % 4);
}

static void test_batches(void **state)
{
    (void)state;
    fresh("");
    for (int t = 0; t < TYPES; t++)
        check((Case){types[t].in, types[t].out, types[t].compute, 1, 0, 40, 24, 64, 3, 1, 0}, 0);
}

static void test_odd_sizes(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 7, 31, 33, 49};
    fresh("");
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 7; j++)
            check((Case){CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 0, 0, sizes[i], sizes[j], sizes[(i + j) % 7], 1, 1, 0}, 0);
}

/* The same candidate gives the same bits every time, and another one others: K is cut differently. */
static void test_sums(void **state)
{
    (void)state;
    fresh("");
    Case c = {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 0, 0, 48, 8, 1024, 1, 1, 0};
    Product p = product_new(c);
    int found = product_run(&p, 0), differing = 0;
    double *first = copy_of(&p.d);
    product_run(&p, 0);
    assert_memory_equal(first, p.d.value, p.d.n * sizeof *first); /* the same bits every time */
    product_run(&p, found - 1);
    for (size_t i = 0; i < p.d.n; i++)
        differing += first[i] != p.d.value[i];
    assert_in_range(differing, 1, 48 * 8);
    free(first);
    product_free(&p);
}

/* Through a stream and a captured graph, ordered by its events. */
static void test_captured(void **state)
{
    (void)state;
    fresh("RACE=1 SEED=3");
    float one = 1, zero = 0, *x = device_floats(1024), *y = device_floats(1024);
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t exec;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t l = layout_new(CUDA_R_32F, 32, 32, 32, 1, 0);
    assert_int_equal(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    ok(fill(x, 2, 1024, s));
    assert_int_equal(cublasLtMatmul(handle, desc, &one, x, l, x, l, &zero, y, l, y, l, NULL, NULL, 0, s), 0);
    ok(cudaStreamEndCapture(s, &g));
    ok(cudaGraphInstantiate(&exec, g, 0));
    one = 9; /* alpha was taken at the call */
    ok(cudaGraphLaunch(exec, s));
    ok(cudaGraphLaunch(exec, s));
    ok(cudaStreamSynchronize(s));
    assert_float_equal(value_at(y + 1023), 128, 0);
}

static int setup(void **state)
{
    return rig_setup(state) || cublasLtCreate(&handle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transpositions), cmocka_unit_test(test_epilogues),
                                       cmocka_unit_test(test_batches),        cmocka_unit_test(test_odd_sizes),
                                       cmocka_unit_test(test_sums),           cmocka_unit_test(test_captured)};
    return cmocka_run_group_tests(tests, setup, rig_teardown);
}
