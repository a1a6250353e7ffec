/* What the software cublasLt refuses, and that every attribute answers as the toolkit's own library does. */
#include <cublasLt.h>

#include "tests/softgpu/rig.h"

static cublasLtHandle_t handle;
static cublasLtMatmulDesc_t desc;
static cublasLtMatrixLayout_t a, b, c;
static cublasLtMatmulPreference_t preference;
static cublasLtMatmulHeuristicResult_t result;
static int found;
static float *memory, alpha = 1, beta;

enum { INVALID = CUBLAS_STATUS_INVALID_VALUE, NOT_SUPPORTED = CUBLAS_STATUS_NOT_SUPPORTED };

static cublasStatus_t heuristic(void)
{
    return cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, c, c, preference, 1, &result, &found);
}

/* Three matrices of 32 x 32 floats one after another, A moved by `shift` floats. */
static cublasStatus_t multiply(const cublasLtMatmulAlgo_t *algo, int shift)
{
    return cublasLtMatmul(handle, desc, &alpha, memory + shift, a, memory + 1024, b, &beta, memory + 2048, c, memory + 2048, c,
                          algo, NULL, 0, NULL);
}

static void desc32(cublasLtMatmulDescAttributes_t attribute, int value)
{
    assert_int_equal(cublasLtMatmulDescSetAttribute(desc, attribute, &value, 4), 0);
}

static void layout64(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, int64_t value)
{
    assert_int_equal(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, 8), 0);
}

static void layout32(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, int value)
{
    assert_int_equal(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, 4), 0);
}

static int setup(void **state)
{
    (void)state;
    fresh("");
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 32, 32, 32);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 32, 32, 32);
    cublasLtMatrixLayoutCreate(&c, CUDA_R_32F, 32, 32, 32);
    cublasLtMatmulPreferenceCreate(&preference);
    memory = device_floats(4096);
    return cudaMemset(memory, 0, 4096 * sizeof(float));
}

static int teardown(void **state)
{
    (void)state;
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(a);
    cublasLtMatrixLayoutDestroy(b);
    cublasLtMatrixLayoutDestroy(c);
    return cublasLtMatmulDescDestroy(desc);
}

static void test_good(void **state)
{
    (void)state;
    assert_int_equal(heuristic(), 0);
    assert_int_equal(found, 1);
    assert_int_equal(multiply(&result.algo, 0), 0);
    assert_int_equal(multiply(NULL, 0), 0);
    ok(cudaDeviceSynchronize());
}

static void test_attribute_sizes(void **state)
{
    (void)state;
    char bytes[16] = {0};
    assert_int_equal(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, bytes, 8), INVALID);
    assert_int_equal(cublasLtMatrixLayoutSetAttribute(a, CUBLASLT_MATRIX_LAYOUT_LD, bytes, 4), INVALID);
    assert_int_equal(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes, 4),
                     INVALID);
    assert_int_equal(cublasLtMatmulDescSetAttribute(desc, (cublasLtMatmulDescAttributes_t)99, bytes, 4), INVALID);
}

static void test_layouts(void **state)
{
    (void)state;
    layout64(a, CUBLASLT_MATRIX_LAYOUT_LD, 31);
    assert_int_equal(heuristic(), INVALID);
    assert_int_equal(multiply(NULL, 0), INVALID);
    layout64(a, CUBLASLT_MATRIX_LAYOUT_LD, 32);
    layout64(a, CUBLASLT_MATRIX_LAYOUT_COLS, 31);
    assert_int_equal(heuristic(), INVALID);
    assert_true(said("do not fit together"));
    layout64(a, CUBLASLT_MATRIX_LAYOUT_COLS, 0);
    assert_int_equal(heuristic(), INVALID);
    layout64(a, CUBLASLT_MATRIX_LAYOUT_COLS, 32);
    layout32(a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 2);
    assert_int_equal(heuristic(), INVALID);
}

static void test_types(void **state)
{
    (void)state;
    layout32(a, CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_16BF);
    assert_int_equal(heuristic(), NOT_SUPPORTED);
    layout32(b, CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_16BF);
    assert_int_equal(heuristic(), 0);
    desc32(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F_FAST_TF32);
    assert_int_equal(heuristic(), NOT_SUPPORTED);
    desc32(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_16F);
    assert_int_equal(heuristic(), NOT_SUPPORTED);
    desc32(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F);
    layout32(c, CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_16F);
    assert_int_equal(heuristic(), NOT_SUPPORTED);
    layout32(c, CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_64F);
    assert_int_equal(heuristic(), NOT_SUPPORTED);
    layout32(c, CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_16BF);
    assert_int_equal(heuristic(), 0);
    fresh("CARD=t4");
    assert_int_equal(heuristic(), NOT_SUPPORTED);
}

static void test_alignment(void **state)
{
    (void)state;
    uint32_t four = 4;
    assert_int_equal(heuristic(), 0);
    assert_int_equal(multiply(&result.algo, 1), NOT_SUPPORTED); /* the heuristic was not told */
    assert_int_equal(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &four, 4), 0);
    assert_int_equal(heuristic(), 0);
    assert_int_equal(multiply(&result.algo, 1), 0);
    ok(cudaDeviceSynchronize());
}

static void test_algorithms(void **state)
{
    (void)state;
    cublasLtMatmulAlgo_t made_up = {{0}};
    assert_int_equal(heuristic(), 0);
    assert_int_equal(multiply(&made_up, 0), INVALID);
    desc32(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
    assert_int_equal(multiply(&result.algo, 0), INVALID);
    desc32(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
    size_t bytes = 1 << 20;
    layout64(a, CUBLASLT_MATRIX_LAYOUT_COLS, 256);
    layout64(b, CUBLASLT_MATRIX_LAYOUT_ROWS, 256);
    layout64(b, CUBLASLT_MATRIX_LAYOUT_LD, 256);
    cublasLtMatmulHeuristicResult_t all[8];
    assert_int_equal(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, 8), 0);
    assert_int_equal(cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, c, c, preference, 8, all, &found), 0);
    assert_in_range(found, 2, 8);
    assert_true(all[found - 1].workspaceSize > 0);
    assert_int_equal(multiply(&all[found - 1].algo, 0), INVALID); /* without the workspace */
}

static void test_epilogues(void **state)
{
    (void)state;
    void *p = memory + 3072;
    int64_t ld = 36;
    desc32(CUBLASLT_MATMUL_DESC_EPILOGUE, 3);
    assert_int_equal(heuristic(), INVALID);
    desc32(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    assert_int_equal(multiply(NULL, 0), INVALID); /* no pointer */
    desc32(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p, 8);
    assert_int_equal(multiply(NULL, 0), INVALID); /* no leading dimension */
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, 8);
    assert_int_equal(multiply(NULL, 0), INVALID); /* not a multiple of 8 */
    ld = 32;
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, 8);
    assert_int_equal(multiply(NULL, 0), 0);
    ok(cudaDeviceSynchronize());
}

/* What only the device can know fails there. */
static void test_bounds(void **state)
{
    (void)state;
    assert_int_equal(cublasLtMatmul(handle, desc, &alpha, memory, a, memory, b, &beta, memory + 3076, c, memory + 3076, c, NULL,
                                    NULL, 0, NULL),
                     0);
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_true(said("cublasLtMatmul m = 32, n = 32, k = 32"));
    assert_true(said("past the end of"));
}

static void test_unwritten(void **state)
{
    (void)state;
    fresh("CHECK=1");
    memory = device_floats(4096);
    ok(cudaMemset(memory, 0, 8191));
    assert_int_equal(multiply(NULL, 0), 0);
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    assert_true(said("B: byte"));
    assert_true(said("never written"));
}

/* ---- Attributes ------------------------------------------------------------------------------------------------------- */

/* Prints what each attribute of each object answers when it is read, and when that is written back, in every size. */
static int print_attributes(void)
{
    static const size_t sizes[] = {0, 1, 2, 4, 8, 16, 32};
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 8, 4, 8);
    cublasLtMatmulPreferenceCreate(&preference);
    for (int object = 0; object < 3; object++)
        for (int i = 0; i < (object == 0 ? 40 : object == 1 ? 10 : 14); i++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                uint64_t value[8] = {0};
                size_t n = sizes[s], written = 0;
                int got = object == 0   ? cublasLtMatmulDescGetAttribute(desc, i, value, n, &written)
                          : object == 1 ? cublasLtMatrixLayoutGetAttribute(a, i, value, n, &written)
                                        : cublasLtMatmulPreferenceGetAttribute(preference, i, value, n, &written);
                int set = object == 0   ? cublasLtMatmulDescSetAttribute(desc, i, value, n)
                          : object == 1 ? cublasLtMatrixLayoutSetAttribute(a, i, value, n)
                                        : cublasLtMatmulPreferenceSetAttribute(preference, i, value, n);
                printf("object %d, attribute %d, %zu bytes: read %d, %zu bytes, %lx; written %d\n", object, i, n, got,
                       got ? 0 : written, value[0], set);
            }
    return 0;
}

/* The whole output of this program with the argument "attributes", under a library path. */
static char *attributes_under(const char *path)
{
    char self[512] = "", command[1024];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "LD_LIBRARY_PATH='%s' SOFTGPU_LOG=/dev/null '%s' attributes", path, self);
    FILE *pipe = popen(command, "r");
    char *text = calloc(1, 1 << 17);
    assert_non_null(pipe);
    size_t n = fread(text, 1, (1 << 17) - 1, pipe);
    assert_int_equal(pclose(pipe), 0);
    assert_in_range(n, 10000, (1 << 17) - 2);
    return text;
}

static void test_attributes(void **state)
{
    (void)state;
    char *ours = attributes_under(getenv("LD_LIBRARY_PATH")), *real = attributes_under(""), *x, *y;
    char *a_line = strtok_r(ours, "\n", &x), *b_line = strtok_r(real, "\n", &y);
    for (; a_line && b_line; a_line = strtok_r(NULL, "\n", &x), b_line = strtok_r(NULL, "\n", &y))
        assert_string_equal(a_line, b_line);
    assert_true(!a_line && !b_line);
    free(ours);
    free(real);
}

static int group_setup(void **state)
{
    return rig_setup(state) || cublasLtCreate(&handle);
}

#define with_setup(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "attributes") == 0)
        return print_attributes();
    const struct CMUnitTest tests[] = {
        with_setup(test_good),      with_setup(test_attribute_sizes),  with_setup(test_layouts),   with_setup(test_types),
        with_setup(test_alignment), with_setup(test_algorithms),       with_setup(test_epilogues), with_setup(test_bounds),
        with_setup(test_unwritten), cmocka_unit_test(test_attributes),
    };
    return cmocka_run_group_tests(tests, group_setup, rig_teardown);
}
