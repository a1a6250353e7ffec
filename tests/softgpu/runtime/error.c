/* The lock, messages, and errors as the real runtime has them: a thread remembers its last error until it asks; an operation
 * that fails on the device fails the context, and from then on every call answers with that error. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/softgpu/runtime/runtime.h"

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* recursive: host functions run inside it */
static __thread cudaError_t last;
static cudaError_t fatal;
static bool in_host_function, started;

void enter_anyway(void)
{
    pthread_mutex_lock(&lock);
    if (!started) {
        started = true;
        settings_read();
    }
}

cudaError_t enter(void)
{
    enter_anyway();
    return in_host_function ? cudaErrorNotPermitted : !settings.card.sm_count ? cudaErrorNoDevice : fatal;
}

cudaError_t leave(cudaError_t e)
{
    if (e != cudaSuccess && e != cudaErrorNotReady) {
        last = e;
        if (settings.trace)
            say("-> %s", cudaGetErrorName(e));
    }
    pthread_mutex_unlock(&lock);
    return e;
}

void device_fault(cudaError_t e, const char *format, ...)
{
    char text[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    say("%s: %s", cudaGetErrorName(e), text);
    if (!fatal)
        fatal = e;
    if (settings.stop)
        abort();
}

cudaError_t fault_get(void)
{
    return fatal;
}

void host_function_runs(bool runs)
{
    in_host_function = runs;
}

void say(const char *format, ...)
{
    static const char *path;
    static FILE *file;
    const char *wanted = getenv("SOFTGPU_LOG");
    if (wanted && (!path || strcmp(wanted, path) != 0)) {
        if (file)
            fclose(file);
        file = fopen(wanted, "a");
        path = file ? strdup(wanted) : NULL;
    }
    FILE *out = wanted && file ? file : stderr;
    va_list list;
    va_start(list, format);
    fputs("softgpu: ", out);
    vfprintf(out, format, list);
    fputc('\n', out);
    fflush(out);
    va_end(list);
}

void *get(size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size);
    if (!memory) {
        say("out of memory: %zu elements of %zu bytes", n, size);
        abort();
    }
    return memory;
}

void *array_grow(void *array, int n, int *room, size_t size)
{
    if (n < *room)
        return array;
    *room = *room ? 2 * *room : 4;
    array = realloc(array, (size_t)*room * size);
    if (!array) {
        say("out of memory: an array of %d elements of %zu bytes", *room, size);
        abort();
    }
    return array;
}

/* ---- The interface --------------------------------------------------------------------------------------------------- */

/* {number, "name", "text"} of every error: the build asks the toolkit's own library for them. */
static const struct {
    int number;
    const char *name, *text;
} errors[] = {
#include "errors.inc"
};

const char *cudaGetErrorName(cudaError_t e)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].number == (int)e)
            return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t e)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].number == (int)e)
            return errors[i].text;
    return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError(void)
{
    return fatal ? fatal : last;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = cudaPeekAtLastError();
    last = cudaSuccess;
    return e;
}

/* A new context: what was allocated, loaded and queued is gone, and the settings are read again. */
cudaError_t cudaDeviceReset(void)
{
    enter_anyway();
    queue_run_all();
    graph_reset();
    event_reset();
    queue_reset();
    race_reset();
    module_reset();
    memory_reset();
    fatal = last = cudaSuccess;
    settings_read();
    return leave(cudaSuccess);
}

/* Called by the generated stubs: the functions of the real library that are not written here. */
cudaError_t softgpu_unimplemented(const char *name);

cudaError_t softgpu_unimplemented(const char *name)
{
    enter_anyway();
    say("%s is not implemented in the software GPU", name);
    return leave(cudaErrorNotSupported);
}
