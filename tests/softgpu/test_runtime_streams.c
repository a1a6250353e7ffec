/* The software GPU's streams, events and graphs: the order that a program asks for holds under every seed, and what it forgot
 * to ask for is noticed. */
#include "tests/softgpu/rig.h"

enum { N = 1000, SEEDS = 40 };

static cudaStream_t stream_new(unsigned flags)
{
    cudaStream_t s;
    ok(cudaStreamCreateWithFlags(&s, flags));
    return s;
}

static cudaEvent_t event_new(void)
{
    cudaEvent_t e;
    ok(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    return e;
}

static void factors_set(float a, float b)
{
    ok(cudaMemcpyToSymbol(variable_factor, &a, 4, 0, cudaMemcpyHostToDevice));
    ok(cudaMemcpyToSymbol(other_factor, &b, 4, 0, cudaMemcpyHostToDevice));
}

/* s1: x = 7, x *= 3. s2: y += 5 * 2 * x, after s1 when `wait`. Returns y, or -1 when the software GPU found a race. */
static float two_streams(int wait)
{
    float *x = device_floats(N), *y = device_floats(N), result = -1;
    cudaStream_t s1 = stream_new(cudaStreamNonBlocking), s2 = stream_new(cudaStreamNonBlocking);
    cudaEvent_t e = event_new();
    factors_set(2, 3);
    ok(cudaMemset(y, 0, N * 4));
    ok(cudaMemset(x, 0, N * 4));
    ok(cudaDeviceSynchronize());
    ok(fill(x, 7, N, s1));
    ok(scale(x, N, s1));
    ok(cudaEventRecord(e, s1));
    if (wait)
        ok(cudaStreamWaitEvent(s2, e, 0));
    add(y, x, N, s2);
    cudaMemcpyAsync(&result, y + N - 1, 4, cudaMemcpyDeviceToHost, s2);
    return cudaDeviceSynchronize() == cudaErrorLaunchFailure ? -1 : result;
}

static void seed_set(int seed, const char *more)
{
    char settings[64];
    snprintf(settings, sizeof settings, "SEED=%d %s", seed, more);
    fresh(settings);
}

static void test_event_orders(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) {
        seed_set(seed, "RACE=1");
        assert_float_equal(two_streams(1), 210, 0);
    }
}

/* Without the wait some seeds give a wrong result; with the detector of races, every seed is caught. */
static void test_missing_wait(void **state)
{
    (void)state;
    int wrong = 0, dropped = 0;
    for (int seed = 1; seed <= SEEDS; seed++) {
        seed_set(seed, "");
        wrong += two_streams(0) != 210;
        seed_set(seed, "DROP_WAITS=1");
        dropped += two_streams(1) != 210;
        seed_set(seed, "DROP_WAITS=1 RACE=1");
        assert_float_equal(two_streams(1), -1, 0);
    }
    assert_in_range(wrong, SEEDS / 8, SEEDS - 1);
    assert_int_equal(wrong, dropped);
}

static void test_race_is_a_fault(void **state)
{
    (void)state;
    for (int seed = 0; seed < 4; seed++) {
        seed_set(seed, "RACE=1");
        float *x = device_floats(N), *y = device_floats(N);
        cudaStream_t s1 = stream_new(cudaStreamNonBlocking), s2 = stream_new(cudaStreamNonBlocking);
        ok(cudaMemset(x, 0, N * 4));
        ok(cudaMemset(y, 0, N * 4));
        ok(cudaDeviceSynchronize());
        scale(x, N, s1);
        add(y, x, N, s2);
        assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
        assert_true(said("race between streams at byte 0 of"));
    }
}

/* Not races: the host waits between the two; different bytes; both only read. */
static void test_no_race(void **state)
{
    (void)state;
    fresh("RACE=1");
    float *x = device_floats(N), *y = device_floats(N), *z = device_floats(N);
    cudaStream_t s1 = stream_new(cudaStreamNonBlocking), s2 = stream_new(cudaStreamNonBlocking);
    ok(fill(x, 1, N, s1));
    ok(fill(y, 1, N, s1));
    ok(fill(z, 1, N, s1));
    ok(cudaStreamSynchronize(s1));
    ok(cudaMemcpyAsync(y, x, N * 4, cudaMemcpyDeviceToDevice, s1));
    ok(cudaMemcpyAsync(z, x, N * 4, cudaMemcpyDeviceToDevice, s2));
    ok(cudaStreamSynchronize(s1));
    ok(fill(y, 2, N, s2));
    ok(cudaStreamSynchronize(s2));
    fresh("RACE=1");
    x = device_floats(N);
    s1 = stream_new(cudaStreamNonBlocking), s2 = stream_new(cudaStreamNonBlocking);
    ok(fill(x, 1, 8, s1));
    ok(fill(x + 8, 2, 8, s2));
    ok(cudaStreamSynchronize(s1));
    ok(fill(x, 3, 8, s2));
    ok(cudaDeviceSynchronize());
}

/* The legacy stream waits for blocking streams, and they for it; not so non-blocking ones. */
static void test_legacy_stream(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) {
        seed_set(seed, "RACE=1");
        float *x = device_floats(N);
        cudaStream_t s1 = stream_new(cudaStreamDefault), s2 = stream_new(cudaStreamDefault);
        ok(fill(x, 1, N, s1));
        ok(fill(x, 2, N, NULL));
        ok(fill(x, 3, N / 2, s2));
        assert_float_equal(value_at(x), 3, 0);
        assert_float_equal(value_at(x + N - 1), 2, 0);
    }
    fresh("RACE=1");
    float *x = device_floats(N);
    ok(fill(x, 1, N, stream_new(cudaStreamNonBlocking)));
    ok(fill(x, 2, N, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
}

static void test_events(void **state)
{
    (void)state;
    fresh("");
    float ms, *x = device_floats(N);
    cudaEvent_t a, b, untimed = event_new();
    ok(cudaEventCreate(&a));
    ok(cudaEventCreate(&b));
    assert_int_equal(cudaEventElapsedTime(&ms, a, b), cudaErrorInvalidResourceHandle);
    ok(cudaEventQuery(a)); /* never recorded */
    ok(cudaEventRecord(a, NULL));
    ok(fill(x, 1, N, NULL));
    ok(cudaEventRecord(b, NULL));
    assert_int_equal(cudaEventElapsedTime(&ms, a, b), cudaErrorNotReady);
    assert_int_equal(cudaEventQuery(b), cudaErrorNotReady);
    assert_int_equal(cudaGetLastError() == cudaErrorNotReady, 0);
    ok(cudaEventSynchronize(b));
    ok(cudaEventElapsedTime(&ms, a, b));
    assert_true(ms > 0 && ms < 10000);
    ok(cudaEventRecord(untimed, NULL));
    assert_int_equal(cudaEventElapsedTime(&ms, a, untimed), cudaErrorInvalidResourceHandle);
    ok(cudaEventDestroy(a));
    assert_int_equal(cudaEventRecord(a, NULL), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaStreamSynchronize((cudaStream_t)0x1234), cudaErrorInvalidResourceHandle);
    int turns = 0;
    while (cudaStreamQuery(NULL) == cudaErrorNotReady)
        turns++;
    assert_in_range(turns, 0, 10);
}

static int host_saw;

static void host_function(void *p)
{
    host_saw = cudaFree(p) == cudaErrorNotPermitted ? 2 : 1;
}

static void test_host_function(void **state)
{
    (void)state;
    fresh("");
    cudaStream_t s = stream_new(cudaStreamNonBlocking);
    host_saw = 0;
    ok(cudaLaunchHostFunc(s, host_function, NULL));
    assert_int_equal(host_saw, 0);
    ok(cudaStreamSynchronize(s));
    assert_int_equal(host_saw, 2);
}

/* Captured on s1, forked to s2 and back: x = host; y += 5 f x, z = 4 on s2; then z += 5 f y. Replayed three times. */
static void test_graph(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) {
        seed_set(seed, "RACE=1");
        float *x = device_floats(N), *y = device_floats(N), *z = device_floats(N), *host;
        cudaStream_t s1 = stream_new(cudaStreamNonBlocking), s2 = stream_new(cudaStreamNonBlocking);
        cudaEvent_t fork = event_new(), join = event_new();
        cudaGraph_t g;
        cudaGraphExec_t x3;
        size_t nodes = 0;
        ok(cudaMallocHost((void **)&host, N * 4));
        for (int i = 0; i < N; i++)
            host[i] = 1;
        factors_set(2, 3);
        ok(cudaMemset(y, 0, N * 4));
        ok(cudaDeviceSynchronize());
        ok(cudaStreamBeginCapture(s1, cudaStreamCaptureModeGlobal));
        ok(cudaMemcpyAsync(x, host, N * 4, cudaMemcpyHostToDevice, s1));
        ok(cudaEventRecord(fork, s1));
        ok(cudaStreamWaitEvent(s2, fork, 0));
        ok(fill(z, 4, N, s2));
        ok(cudaEventRecord(join, s2));
        ok(add(y, x, N, s1));
        ok(cudaStreamWaitEvent(s1, join, 0));
        ok(add(z, y, N, s1));
        ok(cudaStreamEndCapture(s1, &g));
        ok(cudaGraphGetNodes(g, NULL, &nodes));
        assert_int_equal(nodes, 4);
        ok(cudaGraphInstantiate(&x3, g, 0));
        ok(cudaGraphDestroy(g));
        for (int i = 0; i < 3; i++)
            ok(cudaGraphLaunch(x3, s1));
        ok(cudaStreamSynchronize(s1));
        assert_float_equal(value_at(y + 9), 30, 0);
        assert_float_equal(value_at(z + 9), 4 + 10 * 30, 0);
        ok(cudaGraphExecDestroy(x3));
    }
}

/* Two branches of a graph that nothing orders: found although launches run them one after the other. */
static void test_graph_race(void **state)
{
    (void)state;
    fresh("RACE=1");
    float *x = device_floats(N);
    cudaStream_t s1 = stream_new(cudaStreamNonBlocking), s2 = stream_new(cudaStreamNonBlocking);
    cudaEvent_t fork = event_new(), join = event_new();
    cudaGraph_t g;
    cudaGraphExec_t exec;
    ok(cudaStreamBeginCapture(s1, cudaStreamCaptureModeGlobal));
    ok(cudaEventRecord(fork, s1));
    ok(cudaStreamWaitEvent(s2, fork, 0));
    ok(fill(x, 4, N, s2));
    ok(cudaEventRecord(join, s2));
    ok(scale(x, N, s1));
    ok(cudaStreamWaitEvent(s1, join, 0));
    ok(cudaStreamEndCapture(s1, &g));
    ok(cudaGraphInstantiate(&exec, g, 0));
    ok(cudaGraphLaunch(exec, s1));
    assert_int_equal(cudaStreamSynchronize(s1), cudaErrorLaunchFailure);
    assert_true(said("race between streams at byte 0 of"));
}

static void test_capture_rules(void **state)
{
    (void)state;
    fresh("");
    float *p = device_floats(N);
    cudaStream_t s = stream_new(cudaStreamDefault), s2 = stream_new(cudaStreamDefault);
    cudaEvent_t e = event_new();
    cudaGraph_t g;
    const enum cudaStreamCaptureMode global = cudaStreamCaptureModeGlobal;
    ok(cudaStreamBeginCapture(s, global));
    assert_int_equal(cudaMalloc((void **)&p, 4), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureInvalidated);
    ok(cudaStreamBeginCapture(s, global));
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureInvalidated);
    ok(cudaStreamBeginCapture(s, global));
    assert_int_equal(cudaMemset(p, 0, 4), cudaErrorStreamCaptureImplicit);
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureInvalidated);
    ok(cudaStreamBeginCapture(s, global));
    ok(cudaEventRecord(e, s));
    ok(cudaStreamWaitEvent(s2, e, 0));
    ok(fill(p, 1, 32, s2));
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureUnjoined);
    ok(cudaEventRecord(e, s2));
    ok(cudaStreamBeginCapture(s, global));
    assert_int_equal(cudaStreamWaitEvent(s, e, 0), cudaErrorStreamCaptureIsolation);
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureInvalidated);
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaErrorIllegalState);
    ok(cudaStreamBeginCapture(s, global));
    ok(cudaEventRecord(e, s));
    assert_int_equal(cudaEventQuery(e), cudaErrorCapturedEvent);
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureInvalidated);
    assert_int_equal(cudaStreamBeginCapture(NULL, global), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaGraphDestroy(NULL), cudaErrorInvalidValue);
    ok(cudaDeviceSynchronize());
}

/* After a fault nothing that is queued runs any more. */
static void test_fault_stops_the_queue(void **state)
{
    (void)state;
    fresh("");
    float *p = device_floats(4);
    cudaStream_t s = stream_new(cudaStreamNonBlocking);
    host_saw = 0;
    ok(launch(kernel_trap, 1, 1, 0, s, NULL, NULL, NULL));
    ok(fill(p, 1, 4, s));
    ok(cudaLaunchHostFunc(s, host_function, NULL));
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorLaunchFailure);
    assert_int_equal(host_saw, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_event_orders),          cmocka_unit_test(test_missing_wait),
        cmocka_unit_test(test_race_is_a_fault),       cmocka_unit_test(test_no_race),
        cmocka_unit_test(test_legacy_stream),         cmocka_unit_test(test_events),
        cmocka_unit_test(test_host_function),         cmocka_unit_test(test_graph),
        cmocka_unit_test(test_capture_rules),         cmocka_unit_test(test_graph_race),
        cmocka_unit_test(test_fault_stops_the_queue),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
