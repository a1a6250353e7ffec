/* The software GPU's memory: what the runtime answers to right and wrong uses of it. The numbers of errors are the real
 * runtime's. */
#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/softgpu/rig.h"

static void test_allocate(void **state)
{
    (void)state;
    fresh("");
    void *p = (void *)1;
    ok(cudaMalloc(&p, 0));
    assert_null(p);
    ok(cudaMalloc(&p, 100));
    assert_int_equal((uintptr_t)p % 256, 0);
    assert_int_equal(cudaFree((char *)p + 1), cudaErrorInvalidValue);
    assert_true(said("1 bytes into the live device allocation"));
    ok(cudaFree(p));
    assert_int_equal(cudaFree(p), cudaErrorInvalidValue);
    assert_true(said("into the freed device allocation"));
    ok(cudaFree(NULL));
    float host;
    assert_int_equal(cudaFree(&host), cudaErrorInvalidValue);
    assert_true(said("HOST memory"));
    assert_int_equal(cudaMalloc(NULL, 4), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    fresh("CARD=rtx4060");
    size_t before, after, total;
    void *p, *q;
    ok(cudaMemGetInfo(&before, &total));
    assert_int_equal(total, 8ull << 30);
    ok(cudaMalloc(&p, 10 << 20));
    ok(cudaMemGetInfo(&after, &total));
    assert_int_equal(before - after, 10 << 20);
    assert_int_equal(cudaMalloc(&q, after + 1), cudaErrorMemoryAllocation);
    assert_null(q);
    ok(cudaDeviceSynchronize()); /* not fatal */
    ok(cudaMalloc(&q, after));
    assert_int_equal(cudaMalloc(&p, 1), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMalloc(&p, SIZE_MAX), cudaErrorMemoryAllocation);
    ok(cudaFree(q));
    ok(cudaMemGetInfo(&before, &total));
    assert_int_equal(before, after);
}

static void test_fresh_is_nan(void **state)
{
    (void)state;
    fresh("");
    assert_true(isnan(value_at(device_floats(16) + 15)));
    fresh("POISON=0");
    assert_float_equal(value_at(device_floats(16) + 15), 0, 0);
}

static void test_copy_checks(void **state)
{
    (void)state;
    fresh("");
    float host[1024] = {0}, *p = device_floats(1024);
    assert_int_equal(cudaMemcpy(host, p, 4096, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(host, p, 4097, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(p + 1, host, 4096, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(host, p, 4, (enum cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    assert_int_equal(cudaMemcpy(NULL, p, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    ok(cudaMemcpy(NULL, p, 0, cudaMemcpyDeviceToHost));
    assert_int_equal(cudaMemset(p, 0, 4097), cudaErrorInvalidValue);
    assert_int_equal(cudaMemset(host, 0, 4), cudaErrorInvalidValue);
    host[1023] = 7;
    ok(cudaMemcpy(p, host, 4096, cudaMemcpyDefault));
    assert_float_equal(value_at(p + 1023), 7, 0);
    ok(cudaMemset(p + 1, 0, 4092));
    assert_float_equal(value_at(p + 1023), 0, 0);
    float *q = device_floats(1024);
    ok(cudaFree(q));
    assert_int_equal(cudaMemcpy(host, q, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    assert_true(said("freed"));
}

static void test_copy_rows(void **state)
{
    (void)state;
    fresh("");
    float host[12], *p = device_floats(12), back[6] = {0};
    for (int i = 0; i < 12; i++)
        host[i] = (float)i;
    ok(cudaMemcpy(p, host, sizeof host, cudaMemcpyHostToDevice));
    ok(cudaMemcpy2D(back, 8, p + 1, 16, 8, 3, cudaMemcpyDeviceToHost));
    const float wanted[] = {1, 2, 5, 6, 9, 10};
    assert_memory_equal(back, wanted, sizeof wanted);
    assert_int_equal(cudaMemcpy2D(back, 4, p, 16, 8, 3, cudaMemcpyDeviceToHost), cudaErrorInvalidPitchValue);
}

/* A pageable source may change after the call, a pinned one may not: at the latest moment, seed 0, the copy sees the change. */
static void test_pinned_and_pageable(void **state)
{
    (void)state;
    fresh("");
    float pageable[16] = {1}, *pinned, *p = device_floats(16);
    cudaStream_t s;
    ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    ok(cudaMemcpyAsync(p, pageable, sizeof pageable, cudaMemcpyHostToDevice, s));
    pageable[0] = 2;
    ok(cudaStreamSynchronize(s));
    assert_float_equal(value_at(p), 1, 0);
    ok(cudaMallocHost((void **)&pinned, sizeof pageable));
    pinned[0] = 3;
    ok(cudaMemcpyAsync(p, pinned, sizeof pageable, cudaMemcpyHostToDevice, s));
    pinned[0] = 4;
    ok(cudaStreamSynchronize(s));
    assert_float_equal(value_at(p), 4, 0);
    ok(cudaMemcpyAsync(pageable, p, 4, cudaMemcpyDeviceToHost, s)); /* waits */
    assert_float_equal(pageable[0], 4, 0);
    ok(fill(pinned, 5, 16, s)); /* a kernel may use it */
    ok(cudaStreamSynchronize(s));
    assert_float_equal(pinned[15], 5, 0);
    ok(cudaFreeHost(pinned));
    assert_int_equal(cudaFree(p + 1), cudaErrorInvalidValue);
    assert_int_equal(cudaFreeHost(p), cudaErrorInvalidValue);
}

static void test_registered(void **state)
{
    (void)state;
    fresh("");
    static float mine[64];
    float *seen;
    assert_int_equal(cudaHostUnregister(mine), cudaErrorHostMemoryNotRegistered);
    ok(cudaHostRegister(mine, sizeof mine, cudaHostRegisterDefault));
    assert_int_equal(cudaHostRegister(mine + 1, 4, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
    ok(cudaHostGetDevicePointer((void **)&seen, mine, 0));
    ok(fill(seen, 6, 64, NULL));
    ok(cudaHostUnregister(mine)); /* waits for the device */
    assert_float_equal(mine[63], 6, 0);
    assert_int_equal(cudaHostGetDevicePointer((void **)&seen, mine, 0), cudaErrorInvalidValue);
}

static void test_pointer_attributes(void **state)
{
    (void)state;
    fresh("");
    struct cudaPointerAttributes a;
    float *p = device_floats(4), *pinned;
    ok(cudaMallocHost((void **)&pinned, 16));
    ok(cudaPointerGetAttributes(&a, p + 3));
    assert_int_equal(a.type, cudaMemoryTypeDevice);
    ok(cudaPointerGetAttributes(&a, pinned));
    assert_int_equal(a.type, cudaMemoryTypeHost);
    ok(cudaPointerGetAttributes(&a, &a));
    assert_int_equal(a.type, cudaMemoryTypeUnregistered);
}

static void test_variables(void **state)
{
    (void)state;
    fresh("");
    float two = 2, three = 3, seen = 0, x = 1, *p = device_floats(1), *q = device_floats(1);
    int count = -1;
    size_t bytes;
    void *address;
    ok(cudaMemcpyToSymbol(variable_factor, &two, 4, 0, cudaMemcpyHostToDevice));
    ok(cudaMemcpyToSymbol(other_factor, &three, 4, 0, cudaMemcpyHostToDevice));
    ok(cudaMemcpyFromSymbol(&seen, variable_factor, 4, 0, cudaMemcpyDeviceToHost));
    assert_float_equal(seen, 2, 0);
    ok(cudaGetSymbolSize(&bytes, variable_factor));
    assert_int_equal(bytes, 4);
    ok(cudaGetSymbolAddress(&address, other_factor));
    assert_float_equal(value_at(address), 3, 0);
    assert_int_equal(cudaMemcpyToSymbol(variable_factor, &two, 4, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyToSymbol(&two, &two, 4, 0, cudaMemcpyHostToDevice), cudaErrorInvalidSymbol);
    /* two files, each with its own factor and count */
    ok(cudaMemcpy(p, &x, 4, cudaMemcpyHostToDevice));
    ok(cudaMemset(q, 0, 4));
    ok(scale(p, 1, NULL));
    ok(scale(p, 1, NULL));
    ok(add(q, p, 1, NULL));
    assert_float_equal(value_at(q), 5 * 2 * 9, 0);
    ok(cudaMemcpyFromSymbol(&count, variable_count, 4, 0, cudaMemcpyDeviceToHost));
    assert_int_equal(count, 1);
    ok(cudaMemcpyFromSymbol(&count, other_count, 4, 0, cudaMemcpyDeviceToHost));
    assert_int_equal(count, 2);
}

/* Host code that follows a device pointer is stopped, with words. */
static void test_host_access(void **state)
{
    (void)state;
    fresh("");
    volatile float *p = device_floats(4);
    int status;
    pid_t child = fork();
    if (!child) {
        float x = p[1];
        _exit(x == 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    assert_true(said("HOST code touched device memory"));
    assert_true(said("4 bytes into the live device allocation"));
}

static void test_reset(void **state)
{
    (void)state;
    fresh("");
    size_t before, after, total;
    ok(cudaMemGetInfo(&before, &total));
    float *p = device_floats(1 << 20);
    fresh("");
    ok(cudaMemGetInfo(&after, &total));
    assert_int_equal(before, after);
    assert_int_equal(cudaFree(p), cudaErrorInvalidValue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocate),    cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_fresh_is_nan),
        cmocka_unit_test(test_copy_checks), cmocka_unit_test(test_copy_rows),     cmocka_unit_test(test_pinned_and_pageable),
        cmocka_unit_test(test_registered),  cmocka_unit_test(test_variables),     cmocka_unit_test(test_pointer_attributes),
        cmocka_unit_test(test_host_access), cmocka_unit_test(test_reset),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
