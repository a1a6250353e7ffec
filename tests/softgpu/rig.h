/* What the tests of the software GPU's runtime share. They run with LD_LIBRARY_PATH set to the stand-ins; each test begins with
 * a context of its own, under settings of its own. */
#ifndef SOFTGPU_RIG_H
#define SOFTGPU_RIG_H

#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/softgpu/kernels.h"

#define ok(call) assert_int_equal(call, cudaSuccess)

/* The file that the software GPU's messages go to. */
static char rig_log[64];

static inline int rig_setup(void **state)
{
    (void)state;
    snprintf(rig_log, sizeof rig_log, "/tmp/softgpu-log-%d", (int)getpid());
    return setenv("SOFTGPU_LOG", rig_log, 1);
}

static inline int rig_teardown(void **state)
{
    (void)state;
    return unlink(rig_log) && 0;
}

/* A new context without messages, with the default settings but for "NAME=value NAME=value", names without SOFTGPU_. */
static inline void fresh(const char *settings)
{
    static const char *const names[] = {"CARD",  "NAME",      "MEMORY_MIB", "SMS",        "CAPABILITY",
                                        "SEED",  "RACE",      "CHECK",      "DROP_WAITS", "POISON",
                                        "ORDER", "MAX_STEPS", "SKIP",       "SYNCS",      "PROFILE"};
    char copy[512], variable[64], *save;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(variable, sizeof variable, "SOFTGPU_%s", names[i]);
        unsetenv(variable);
    }
    snprintf(copy, sizeof copy, "%s", settings);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *equal = strchr(word, '=');
        assert_non_null(equal);
        *equal = 0;
        snprintf(variable, sizeof variable, "SOFTGPU_%s", word);
        setenv(variable, equal + 1, 1);
    }
    cudaDeviceReset();
    assert_int_equal(truncate(rig_log, 0) && 0, 0);
}

/* True when the messages since fresh() contain the text. */
static inline int said(const char *text)
{
    static char all[1 << 16];
    FILE *file = fopen(rig_log, "r");
    size_t n = file ? fread(all, 1, sizeof all - 1, file) : 0;
    all[n] = 0;
    if (file)
        fclose(file);
    return strstr(all, text) != NULL;
}

/* kernel<<<grid, block, shared, stream>>>(args...): up to three arguments, by address. */
static inline cudaError_t launch(const void *kernel, unsigned grid, unsigned block, size_t shared, cudaStream_t stream, void *a,
                                 void *b, void *c)
{
    void *args[] = {a, b, c};
    return cudaLaunchKernel(kernel, (dim3){grid, 1, 1}, (dim3){block, 1, 1}, args, shared, stream);
}

static inline cudaError_t fill(float *p, float value, int n, cudaStream_t stream)
{
    return launch(kernel_fill, (unsigned)(n + 255) / 256, 256, 0, stream, &p, &value, &n);
}

/* y += 5 factor x, of kernels.cu; x *= factor, of kernels_other.cu. */
static inline cudaError_t add(float *y, float *x, int n, cudaStream_t stream)
{
    return launch(kernel_add, (unsigned)(n + 255) / 256, 256, 0, stream, &y, &x, &n);
}

static inline cudaError_t scale(float *x, int n, cudaStream_t stream)
{
    return launch(other_scale, (unsigned)(n + 127) / 128, 128, 0, stream, &x, &n, NULL);
}

static inline float *device_floats(int n)
{
    float *p;
    ok(cudaMalloc((void **)&p, (size_t)n * sizeof *p));
    return p;
}

static inline float value_at(const float *p)
{
    float value;
    ok(cudaMemcpy(&value, p, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

#endif
