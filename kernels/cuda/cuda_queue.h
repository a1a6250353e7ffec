/* The functions of a Device that works behind the host's back (kernels/device.h), for the GPU. See cuda_queue.c. */
#ifndef TALLY_KERNELS_CUDA_CUDA_QUEUE_H
#define TALLY_KERNELS_CUDA_CUDA_QUEUE_H

#include "kernels/device.h"

/* Makes streams and events on the present GPU, the first time. Returns a cudaError_t. */
int cuda_queues_open(void);

void *cuda_queue(QueueKind kind);
void cuda_follow(Ctx *after, Ctx *before);
void cuda_mark(Ctx *c, int number);
void cuda_wait(Ctx *c, int number);
void cuda_record_begin(Ctx *c);
void *cuda_record_end(Ctx *c);
void cuda_replay(Ctx *c, void *recording);
void cuda_record_free(void *recording);

#endif
