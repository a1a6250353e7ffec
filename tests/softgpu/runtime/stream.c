/* Streams, as a program sees them: made, waited for, asked; and host functions put on them. */
#include <stdlib.h>

#include "tests/softgpu/runtime/runtime.h"

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    cudaError_t e = enter();
    if (!e && (!stream || flags > cudaStreamNonBlocking))
        e = cudaErrorInvalidValue;
    if (!e)
        *stream = (cudaStream_t)stream_new(flags == cudaStreamDefault, priority > 0 ? 0 : priority < -5 ? -5 : priority);
    return leave(e);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

/* What is queued still runs. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e && (s == &stream_legacy || s == &stream_thread))
        e = cudaErrorInvalidResourceHandle;
    if (!e)
        s->destroyed = true;
    return leave(e);
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e)
        *flags = s->blocking ? cudaStreamDefault : cudaStreamNonBlocking;
    return leave(e);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e)
        *priority = s->priority;
    return leave(e);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    cudaError_t e = enter();
    if (!e && least)
        *least = 0;
    if (!e && greatest)
        *greatest = -5;
    return leave(e);
}

/* The legacy stream has to wait for all blocking ones. */
static void synchronize(Stream *s)
{
    for (const Stream *other = stream_legacy.next; s == &stream_legacy && other; other = other->next)
        if (other->blocking)
            queue_run_until(&other->tail);
    queue_run_until(&s->tail);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e && (s->capture || s == &stream_legacy))
        e = capture_forbids(s->capture ? s : NULL);
    if (!e) {
        synchronize(s);
        e = fault_get();
    }
    return leave(e);
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t e = enter();
    if (!e)
        e = capture_forbids(NULL);
    if (!e) {
        queue_run_all();
        e = fault_get();
    }
    return leave(e);
}

cudaError_t point_query(const Point *point)
{
    if (!point_passed(point))
        queue_progress();
    if (fault_get())
        return fault_get();
    if (!point_passed(point))
        return cudaErrorNotReady;
    queue_run_until(point);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e && s->capture)
        e = capture_forbids(s);
    if (!e)
        e = point_query(&s->tail);
    return leave(e);
}

/* ---- Host functions -------------------------------------------------------------------------------------------------- */

typedef struct HostCall {
    cudaHostFn_t function;
    void *arg;
} HostCall;

static void host_call(void *arg)
{
    const HostCall *call = arg;
    call->function(call->arg);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *arg)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e && !function)
        e = cudaErrorInvalidValue;
    if (!e) {
        HostCall *call = get(1, sizeof *call);
        *call = (HostCall){function, arg};
        e = stream_submit(s, work_new(WORK_HOST, host_call, free, call, "host function"));
    }
    return leave(e);
}
