/* Events: a point in a stream that others can wait for, that the host can wait for, and that has a time. */
#include <stdlib.h>

#include "tests/softgpu/runtime/runtime.h"

typedef struct Event {
    unsigned flags;
    Point point;          /* where it was recorded, */
    Work *stamp;          /* the work that notes when it was passed (arg: double *), NULL: never recorded; */
    CapturePoint capture; /* or where in a capture */
    struct Event *next;
} Event;

static Event *events;

static cudaError_t event_find(cudaEvent_t handle, Event **event)
{
    Event *v = events;
    while (v && v != (Event *)handle)
        v = v->next;
    *event = v;
    return v ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    cudaError_t e = enter();
    bool shared_alone = flags & cudaEventInterprocess && !(flags & cudaEventDisableTiming);
    if (!e && (!event || flags > 7 || shared_alone))
        e = cudaErrorInvalidValue;
    if (!e) {
        Event *v = get(1, sizeof *v);
        *v = (Event){.flags = flags, .next = events};
        events = v;
        *event = (cudaEvent_t)v;
    }
    return leave(e);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

static void event_free(Event *v)
{
    work_drop(v->stamp);
    free(v->capture.front);
    free(v);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    Event *v, **link = &events;
    cudaError_t e = enter();
    if (!e)
        e = event_find(event, &v);
    if (!e) {
        while (*link != v)
            link = &(*link)->next;
        *link = v->next;
        event_free(v);
    }
    return leave(e);
}

void event_reset(void)
{
    for (Event *v = events, *next; v; v = next) {
        next = v->next;
        event_free(v);
    }
    events = NULL;
}

static void note_time(void *arg)
{
    *(double *)arg = clock_ms();
}

static cudaError_t record(Event *v, Stream *s)
{
    if (s->capture)
        return capture_mark(s, &v->capture);
    v->capture.id = 0;
    work_drop(v->stamp);
    v->stamp = work_keep(work_new(WORK_EMPTY, note_time, free, get(1, sizeof(double)), "record of an event"));
    cudaError_t e = stream_submit(s, v->stamp);
    v->point = s->tail;
    return e;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    Event *v;
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e)
        e = event_find(event, &v);
    if (!e)
        e = record(v, s);
    return leave(e);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    (void)flags; /* they matter to graphs of several processes */
    return cudaEventRecord(event, stream);
}

static cudaError_t wait(Stream *s, const Event *v)
{
    if (capture_active(&v->capture))
        return capture_wait(s, &v->capture);
    if (s->capture) { /* an event from outside the capture */
        capture_forbids(s);
        return cudaErrorStreamCaptureIsolation;
    }
    if (!v->stamp)
        return cudaSuccess;
    Op *op = op_new(s, s->chain, work_new(WORK_EMPTY, NULL, NULL, NULL, "wait for an event"));
    op_follow_stream(op);
    op_follow(op, &v->point);
    s->tail = op_submit(op);
    return cudaSuccess;
}

/* SOFTGPU_DROP_WAITS=1 leaves every wait out, SOFTGPU_DROP_WAIT=N the N-th: a test of the tests, which must notice. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    Event *v = NULL;
    Stream *s = NULL;
    static uint64_t calls;
    (void)flags;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e)
        e = event_find(event, &v);
    bool dropped = settings.drop_waits || ++calls == settings.drop_wait;
    if (!e && !dropped)
        e = wait(s, v);
    return leave(e);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    Event *v;
    cudaError_t e = enter();
    if (!e)
        e = event_find(event, &v);
    if (!e && capture_active(&v->capture))
        e = capture_spoil(&v->capture, cudaErrorCapturedEvent);
    if (!e) {
        queue_run_until(&v->point);
        e = fault_get();
    }
    return leave(e);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    Event *v;
    cudaError_t e = enter();
    if (!e)
        e = event_find(event, &v);
    if (!e && capture_active(&v->capture))
        e = capture_spoil(&v->capture, cudaErrorCapturedEvent);
    if (!e)
        e = point_query(&v->point);
    return leave(e);
}

/* Times are those of the host at which this library got there: no card's, but in order. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    Event *a, *b = NULL;
    cudaError_t e = enter();
    if (!e)
        e = event_find(begin, &a);
    if (!e)
        e = event_find(end, &b);
    if (!e && ((a->flags | b->flags) & cudaEventDisableTiming || !a->stamp || !b->stamp))
        e = cudaErrorInvalidResourceHandle;
    if (!e && (!point_passed(&a->point) || !point_passed(&b->point)))
        e = cudaErrorNotReady;
    if (!e)
        *ms = (float)(*(const double *)b->stamp->arg - *(const double *)a->stamp->arg);
    return leave(e);
}
