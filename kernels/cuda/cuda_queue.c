/* How work reaches the GPU without the host waiting for it: two streams, events between them, and recordings, which are CUDA
 * graphs.
 *
 * A process uses one GPU and one thread launches (kernels/device.h), so streams and events are the process's, made once. Neither
 * stream waits for the default one, on which memory is zeroed: memory_take waits itself. */
#include "kernels/cuda/cuda.h"

#include <cuda_runtime_api.h>

static cudaStream_t stream[QUEUE_COUNT];
static cudaEvent_t between; /* of follow: a wait takes the event as it is when it is asked for, so one is enough */
static cudaEvent_t mark[2];

int cuda_queues_open(void)
{
    cudaError_t status = cudaSuccess;
    for (int i = 0; i < QUEUE_COUNT && !status && !stream[i]; i++)
        status = cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking);
    if (!status && !between)
        status = cudaEventCreateWithFlags(&between, cudaEventDisableTiming);
    for (int i = 0; i < 2 && !status && !mark[i]; i++) /* who waits for these sleeps rather than spins */
        status = cudaEventCreateWithFlags(&mark[i], cudaEventDisableTiming | cudaEventBlockingSync);
    return status;
}

void *cuda_queue(QueueKind kind)
{
    return stream[kind];
}

/* Records why `what` failed, unless it did not. */
static bool check(Ctx *c, cudaError_t status, const char *what)
{
    return status == cudaSuccess || error_set(c->error, "CUDA: %s: %s", what, cudaGetErrorString(status));
}

void cuda_follow(Ctx *after, Ctx *before)
{
    if (check(before, cudaEventRecord(between, before->stream), "an event"))
        check(after, cudaStreamWaitEvent(after->stream, between, 0), "a wait between streams");
}

void cuda_mark(Ctx *c, int number)
{
    check(c, cudaEventRecord(mark[number], c->stream), "an event");
}

void cuda_wait(Ctx *c, int number)
{
    check(c, cudaEventSynchronize(mark[number]), "found while waiting");
}

/* ---- Recordings ---------------------------------------------------------------------------------------------------- */

void cuda_record_begin(Ctx *c)
{
    check(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal), "begin of a recording");
}

void *cuda_record_end(Ctx *c)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t recording = NULL;
    bool ok = check(c, cudaStreamEndCapture(c->stream, &graph), "end of a recording");
    if (ok && !c->error->set)
        check(c, cudaGraphInstantiate(&recording, graph, 0), "making a graph of a recording");
    if (graph)
        cudaGraphDestroy(graph);
    return recording;
}

void cuda_replay(Ctx *c, void *recording)
{
    check(c, cudaGraphLaunch(recording, c->stream), "replay of a recording");
}

void cuda_record_free(void *recording)
{
    cudaGraphExecDestroy(recording);
}
