/* The software GPU's launches: what is refused at the call, what fails in the kernel and stays, fat binaries, cards. */
#include "tests/softgpu/rig.h"

static cudaError_t last(void)
{
    return cudaGetLastError();
}

static void test_configuration(void **state)
{
    (void)state;
    fresh("");
    float *p = device_floats(1024), one = 1;
    int n = 1;
    void *args[] = {&p, &one, &n};
    const struct {
        dim3 grid, block;
        cudaError_t wanted;
    } cases[] = {
        {{1, 1, 1}, {1025, 1, 1}, cudaErrorInvalidConfiguration},
        {{0, 1, 1}, {32, 1, 1}, cudaErrorInvalidConfiguration},
        {{1, 1, 1}, {32, 33, 1}, cudaErrorInvalidConfiguration},
        {{1, 1, 1}, {1, 1, 65}, cudaErrorInvalidConfiguration},
        {{1, 65536, 1}, {32, 1, 1}, cudaErrorInvalidConfiguration},
        {{1, 1, 1}, {0, 1, 1}, cudaErrorInvalidConfiguration},
        {{1, 65535, 1}, {1, 1, 64}, cudaSuccess},
        {{1, 1, 1}, {32, 32, 1}, cudaSuccess},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(cudaLaunchKernel(kernel_fill, cases[i].grid, cases[i].block, args, 0, NULL), cases[i].wanted);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    assert_int_equal(last(), cudaErrorInvalidConfiguration);
    assert_int_equal(last(), cudaSuccess);
    assert_int_equal(launch(kernel_bounded, 1, 256, 0, NULL, &p, NULL, NULL), cudaErrorInvalidValue);
    ok(launch(kernel_bounded, 1, 128, 0, NULL, &p, NULL, NULL));
    assert_int_equal(launch((const void *)cudaMalloc, 1, 1, 0, NULL, NULL, NULL, NULL), cudaErrorInvalidDeviceFunction);
    assert_int_equal(cudaLaunchKernel(kernel_fill, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL), cudaErrorInvalidValue);
    assert_int_equal(fill(p, 1, 1, (cudaStream_t)&n), cudaErrorInvalidResourceHandle);
    ok(cudaDeviceSynchronize());
}

static void test_shared_memory(void **state)
{
    (void)state;
    fresh("");
    const enum cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    float values[64], *p = device_floats(64);
    struct cudaFuncAttributes a;
    for (int i = 0; i < 64; i++)
        values[i] = (float)i;
    ok(cudaMemcpy(p, values, sizeof values, cudaMemcpyHostToDevice));
    assert_int_equal(launch(kernel_dynamic, 1, 64, 49153, NULL, &p, NULL, NULL), cudaErrorInvalidValue);
    ok(cudaFuncSetAttribute(kernel_dynamic, most, 163 << 10));
    ok(launch(kernel_dynamic, 1, 64, 163 << 10, NULL, &p, NULL, NULL));
    assert_float_equal(value_at(p + 1), 62, 0);
    assert_int_equal(cudaFuncSetAttribute(kernel_dynamic, most, 164 << 10), cudaErrorInvalidValue);
    ok(launch(kernel_static, 1, 64, 16384, NULL, &p, NULL, NULL));
    assert_float_equal(value_at(p + 1), 1, 0);
    assert_int_equal(launch(kernel_static, 1, 64, 16385, NULL, &p, NULL, NULL), cudaErrorInvalidValue);
    ok(cudaFuncGetAttributes(&a, kernel_static));
    assert_int_equal(a.sharedSizeBytes, 32768);
    ok(cudaFuncGetAttributes(&a, kernel_bounded));
    assert_int_equal(a.maxThreadsPerBlock, 128);
}

/* A fault shows at the synchronisation, and from then on everywhere. */
static void test_out_of_bounds(void **state)
{
    (void)state;
    fresh("");
    float *p = device_floats(1024), *q;
    ok(fill(p, 1, 1025, NULL));
    ok(last());
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_int_equal(cudaMalloc((void **)&q, 4), cudaErrorIllegalAddress);
    assert_int_equal(last(), cudaErrorIllegalAddress);
    assert_int_equal(last(), cudaErrorIllegalAddress);
    assert_string_equal(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
    assert_true(said("kernel fill(float*, float, int) <<<(5, 1, 1), (256, 1, 1), 0>>>"));
    assert_true(said("0 bytes past the end of the live device allocation"));
    assert_true(said("kernels.cu:11"));
}

static void test_faults(void **state)
{
    (void)state;
    float host[4], *p = host;
    char *c;
    fresh("");
    ok(launch(kernel_trap, 1, 1, 0, NULL, NULL, NULL, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    fresh("");
    ok(cudaMalloc((void **)&c, 64));
    ok(launch(kernel_misaligned, 1, 1, 0, NULL, &c, NULL, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorMisalignedAddress);
    fresh("");
    ok(fill(p, 1, 4, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_true(said("HOST memory"));
    fresh("");
    p = device_floats(4);
    ok(cudaFree(p));
    ok(fill(p, 1, 4, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_true(said("freed"));
    fresh("MAX_STEPS=10000");
    p = device_floats(1);
    ok(cudaMemset(p, 0, 4));
    ok(launch(kernel_forever, 1, 1, 0, NULL, &p, NULL, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchTimeout);
}

/* With SOFTGPU_CHECK=1 a missing barrier and a read of memory that nobody wrote are faults too. */
static void test_checks(void **state)
{
    (void)state;
    fresh("CHECK=1");
    float *p = device_floats(64);
    ok(cudaMemset(p, 0, 256));
    ok(launch(kernel_static, 1, 64, 0, NULL, &p, NULL, NULL));
    ok(cudaDeviceSynchronize());
    ok(launch(kernel_no_barrier, 1, 64, 0, NULL, &p, NULL, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    fresh("CHECK=1");
    p = device_floats(64);
    ok(launch(kernel_static, 1, 64, 0, NULL, &p, NULL, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
}

/* A barrier left out from outside: what the tests of kernels do to each of them. */
static void test_mutation(void **state)
{
    (void)state;
    char path[80], line[512] = "", skip[300];
    fresh("");
    snprintf(path, sizeof path, "%s-syncs", rig_log);
    setenv("SOFTGPU_SYNCS", path, 1);
    float *p = device_floats(64);
    ok(cudaMemset(p, 0, 256));
    ok(launch(kernel_static, 1, 64, 0, NULL, &p, NULL, NULL));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    unlink(path);
    char *tab = strchr(line, '\t');
    assert_non_null(tab);
    assert_int_equal(strncmp(tab, "\t0\t", 3), 0);
    assert_non_null(strstr(line, "kernels.cu"));
    snprintf(skip, sizeof skip, "CHECK=1 SKIP=%.*s:0", (int)(tab - line), line);
    fresh(skip);
    p = device_floats(64);
    ok(cudaMemset(p, 0, 256));
    ok(launch(kernel_static, 1, 64, 0, NULL, &p, NULL, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
}

/* The counters of a launch, in a file: 4 warps of 32 lanes store 4 bytes each, in 4 sectors a request. */
static void test_profile(void **state)
{
    (void)state;
    char path[80], settings[100], text[4096] = "";
    snprintf(path, sizeof path, "%s-profile", rig_log);
    snprintf(settings, sizeof settings, "PROFILE=%s", path);
    fresh(settings);
    ok(fill(device_floats(128), 1, 128, NULL));
    ok(cudaDeviceSynchronize());
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    unlink(path);
    assert_non_null(strstr(text, "== fill(float*, float, int)"));
    assert_non_null(strstr(text, "4 requests, 512 bytes, 4.00 sectors a request"));
}

static void test_forms(void **state)
{
    (void)state;
    fresh("");
    const void *const forms[] = {form_none, form_speed, form_size};
    for (int i = 0; i < 3; i++) {
        int *p, back[32];
        ok(cudaMalloc((void **)&p, sizeof back));
        ok(launch(forms[i], 1, 32, 0, NULL, &p, NULL, NULL));
        ok(cudaMemcpy(back, p, sizeof back, cudaMemcpyDeviceToHost));
        assert_int_equal(back[31], 62);
    }
    int *p = NULL;
    assert_int_equal(launch(form_sass, 1, 32, 0, NULL, &p, NULL, NULL), cudaErrorNoKernelImageForDevice);
    assert_true(said("no PTX for compute capability 8.0"));
    ok(cudaDeviceSynchronize());
    fresh("CARD=t4");
    assert_int_equal(launch(form_none, 1, 32, 0, NULL, &p, NULL, NULL), cudaErrorNoKernelImageForDevice);
}

/* f<<<...>>>(...) as nvcc compiles it. */
static void test_chevrons(void **state)
{
    (void)state;
    fresh("");
    float *p = device_floats(1000);
    ok(kernel_fill_launch(p, 3, 1000, NULL));
    assert_float_equal(value_at(p + 999), 3, 0);
    assert_int_equal(kernel_fill_launch(p, 3, 0, NULL), cudaErrorInvalidConfiguration);
}

static void test_cards(void **state)
{
    (void)state;
    struct cudaDeviceProp a;
    int value;
    fresh("CARD=rtx4060");
    ok(cudaGetDeviceProperties(&a, 0));
    assert_string_equal(a.name, "Software RTX 4060");
    assert_int_equal(a.major * 10 + a.minor, 89);
    assert_int_equal(a.totalGlobalMem, 8ull << 30);
    assert_int_equal(a.maxThreadsPerMultiProcessor, 1536);
    fresh("NAME=Mine MEMORY_MIB=1024 SMS=4 CAPABILITY=90");
    ok(cudaGetDeviceProperties(&a, 0));
    assert_string_equal(a.name, "Mine");
    assert_int_equal(a.multiProcessorCount, 4);
    assert_int_equal(a.totalGlobalMem, 1 << 30);
    ok(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    assert_int_equal(value, 9);
    ok(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    assert_int_equal(value, 163 << 10);
    ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, kernel_fill, 256, 0));
    assert_int_equal(value, 8);
    assert_int_equal(cudaSetDevice(1), cudaErrorInvalidDevice);
    fresh("CARD=none");
    assert_int_equal(cudaGetDeviceCount(&value), cudaErrorNoDevice);
    assert_int_equal(value, 0);
}

static void test_unimplemented(void **state)
{
    (void)state;
    fresh("");
    void *p;
    assert_int_equal(cudaMallocManaged(&p, 4, cudaMemAttachGlobal), cudaErrorNotSupported);
    assert_true(said("cudaMallocManaged is not implemented"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_configuration), cmocka_unit_test(test_shared_memory), cmocka_unit_test(test_out_of_bounds),
        cmocka_unit_test(test_faults),        cmocka_unit_test(test_checks),        cmocka_unit_test(test_mutation),
        cmocka_unit_test(test_profile),       cmocka_unit_test(test_forms),         cmocka_unit_test(test_chevrons),
        cmocka_unit_test(test_cards),         cmocka_unit_test(test_unimplemented),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
