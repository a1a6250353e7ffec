/* What the files of the CUDA device share with C: the ops, their scratch, and the errors of the runtime.
 *
 * cuda_device.c     the device: its memory, its name, the op table
 * cuda_queue.c      its streams, events and graphs
 * NAME.cu           one op of the table each; common.cuh is what they share among themselves
 * cuda_workspace.c  scratch of every op as plain C: compiled without CUDA too, since a plan for a GPU needs none */
#ifndef TALLY_KERNELS_CUDA_CUDA_H
#define TALLY_KERNELS_CUDA_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/device.h"

/* Every row of the op table has one function with the row's own signature: cuda_embedding_forward, ... */
#define X(op) extern __typeof__(*((Device *)0)->op) cuda_##op;
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

/* The gradient of a row of logits is written over it, in the type of the activations: its rows stay as far apart, in elements of
 * that type, as the FP32 ones are. */
static inline int64_t cuda_dlogits_stride(int64_t Vp, DType act)
{
    return Vp * (int64_t)(sizeof(float) / dtype_size(act));
}

/* sums [width] += the groups' partial sums, partial [groups][width] with rows `stride` apart; sums may be absent. */
void cuda_column_groups_add(Ctx *c, OpId op, Tensor sums, const float *partial, int64_t groups, int64_t stride);

/* db [width] += column sums of x [rows, width]. Scratch: cuda_linear_bias_workspace. */
void cuda_column_sums(Ctx *c, OpId op, Tensor db, Tensor x);

/* The three functions of the same names in Device. Choices are of matrix products: gemm.c, gemm_choice.c. */
void cuda_tune(bool on);
struct json_t *cuda_tuning_write(const Target *t);
bool cuda_tuning_read(const struct json_t *file, const Target *t, char note[TUNING_NOTE], Error *e);

/* cudaSuccess, or why the kernels of this build cannot run on the present GPU: no code for it. */
int cuda_code_status(void);

/* Is the workspace at least `need` bytes? Records an error when the plan gave less. */
static inline bool cuda_workspace_check(Ctx *c, OpId op, size_t need)
{
    return c->workspace_bytes >= need || error_set(c->error, "%s (layer %d): needs %zu bytes of workspace, the plan gave %zu",
                                                   op_name(op), c->layer, need, c->workspace_bytes);
}

enum {
    CUDA_GRAD_NORM_PIECE = 65536, /* elements that a partial sum of grad_norm covers    */
    CUDA_EMBEDDING_PIECE = 1024   /* rows that embedding_backward sorts at a time       */
};

/* Bytes of scratch on a target of kind DEVICE_CUDA: what the functions of the same names in kernels/device.h return there. */
size_t cuda_embedding_backward_workspace(int64_t N, int64_t Vp, const Target *t);
size_t cuda_norm_workspace(int64_t C, const Target *t);
size_t cuda_linear_workspace(int64_t N, int64_t I, int64_t O, GemmTypes types, const Target *t);
size_t cuda_linear_bias_workspace(int64_t N, int64_t O, const Target *t);
size_t cuda_head_workspace(int64_t N, int64_t R, int64_t C, int64_t Vp, GemmTypes types, const Target *t);
size_t cuda_grad_norm_workspace(int64_t n, const Target *t);
size_t cuda_attention_workspace(AttentionShape s, const Target *t); /* these three: cuda_attention_workspace.c */
size_t cuda_attention_backward_workspace(AttentionShape s, const Target *t);
size_t cuda_attention_cached_workspace(AttentionShape s, int64_t P, const Target *t);

#ifdef __cplusplus
}
#endif

#endif
