/* What the files of the CUDA device share with C: the ops and what else is in its table, and the errors of the runtime.
 *
 * cuda_device.c     the device: its memory, its name, the op table
 * cuda_queue.c      its streams, events and graphs
 * NAME.cu           one op of the table each; common.cuh is what they share among themselves
 *
 * Nothing here needs CUDA's own headers: kernels/workspace.c plans for a GPU in a build without nvcc too. */
#ifndef TALLY_KERNELS_CUDA_CUDA_H
#define TALLY_KERNELS_CUDA_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/device.h"

/* Every row of the op table has one function with the row's own signature: cuda_embedding_forward, ... */
#define X(op) extern op##_function cuda_##op;
TALLY_OPS(X)
#undef X

/* Did the runtime do `what` for the op? `status` is a cudaError_t. Returns false after recording in c->error the op, the layer
 * and the runtime's own words. */
bool cuda_check(Ctx *c, OpId op, int status, const char *what);

/* Column sums are made by groups of rows, each a block for every 128 columns: as many groups as multiprocessors, but none for
 * less than 64 rows. */
static inline int64_t cuda_column_groups(int64_t rows, const Target *t)
{
    int64_t most = t->sm_count > 0 ? t->sm_count : 64, useful = (rows + 63) / 64;
    return useful < most ? useful : most;
}

/* sums [width] += the groups' partial sums, partial [groups][width] with rows `stride` apart; sums may be absent. */
void cuda_column_groups_add(Ctx *c, OpId op, Tensor sums, const float *partial, int64_t groups, int64_t stride);

/* db [width] += column sums of x [rows, width]. Scratch: linear_bias_workspace. */
void cuda_column_sums(Ctx *c, OpId op, Tensor db, Tensor x);

/* The three functions of the same names in Device. Choices are of matrix products: gemm.c, gemm_choice.c. */
void cuda_tune(bool on);
struct json_t *cuda_tuning_write(const Target *t);
bool cuda_tuning_read(const struct json_t *file, const Target *t, char note[TUNING_NOTE], Error *e);

/* The functions of the same names in Device, of one that works behind the host's back: cuda_queue.c. cuda_queues_open makes
 * streams and events on the present GPU, the first time, and returns a cudaError_t. */
int cuda_queues_open(void);
void *cuda_queue(QueueKind kind);
void cuda_follow(Ctx *after, Ctx *before);
void cuda_mark(Ctx *c, int number);
void cuda_wait(Ctx *c, int number);
void cuda_record_begin(Ctx *c);
void *cuda_record_end(Ctx *c);
void cuda_replay(Ctx *c, void *recording);
void cuda_record_free(void *recording);

/* cudaSuccess, or why the kernels of this build cannot run on the present GPU: no code for it. */
int cuda_code_status(void);

/* Rows that embedding_backward sorts at a time. */
enum { CUDA_EMBEDDING_PIECE = 1024 };

#ifdef __cplusplus
}
#endif

#endif
