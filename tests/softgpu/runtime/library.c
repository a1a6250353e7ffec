/* The services of library.h, exported under a version of their own. */
#include <stdarg.h>
#include <stdio.h>

#include "tests/softgpu/runtime/library.h"
#include "tests/softgpu/runtime/runtime.h"

int softgpu_submit(void *stream, const char *name, void (*run)(void *), void (*destroy)(void *), void *arg)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e)
        e = stream_submit(s, work_new(WORK_KERNEL, run, destroy, arg, "%s", name));
    else
        destroy(arg);
    return leave(e);
}

static bool held(const void *p, size_t bytes, const char *what)
{
    if (memory_holds(p, bytes))
        return true;
    char text[256];
    const Allocation *a = memory_find(p);
    memory_describe(a && a->live ? (const char *)p + bytes - 1 : p, text, sizeof text);
    device_fault(cudaErrorIllegalAddress, "%s, %s: %zu bytes at %p end %s", op_running()->work->name, what, bytes, p, text);
    return false;
}

bool softgpu_read(const void *p, size_t bytes, const char *what)
{
    uint64_t first;
    if (!held(p, bytes, what))
        return false;
    race_touch(op_running(), p, bytes, false);
    if (!vm_memory_unwritten(machine(), (uint64_t)p, bytes, &first))
        return !fault_get();
    device_fault(cudaErrorLaunchFailure, "%s, %s: byte %lu of %zu at %p was never written", op_running()->work->name, what,
                 first - (uint64_t)p, bytes, p);
    return false;
}

bool softgpu_write(const void *p, size_t bytes, const char *what)
{
    if (!held(p, bytes, what))
        return false;
    race_touch(op_running(), p, bytes, true);
    vm_memory_written(machine(), (uint64_t)p, bytes);
    return !fault_get();
}

void *softgpu_host(const void *p)
{
    return memory_host(p);
}

int softgpu_capability(void)
{
    enter_anyway();
    leave(cudaSuccess);
    return settings.card.capability;
}

void softgpu_say(const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    say("%s", text);
}
