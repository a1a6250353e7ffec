/* The language-model head, softmax, cross-entropy and their gradients, in chunks of rows: the logits of all N rows never
 * exist at once. For a row with logits z, target t and p = softmax(z) over the first V columns:
 *
 *   loss = logsumexp(z) - z[t] = log(sum exp(z - max)) + (max - z[t])        dz = (p - onehot(t)) * scale
 *
 * with scale = loss scale / counted targets of the optimizer step. The gradient is written over the logits, and from it
 * come dx = dz wte and dwte += dz' x. A row whose target is -1 has loss 0 and gradient 0. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

#include <math.h>
#include <string.h>

/* The loss of one row z [V]; leaves exp(z - max) in z when `keep`, and their sum in *sum. */
static float row_loss(float *z, int64_t V, int32_t target, bool keep, float *sum)
{
    float max = -INFINITY, total = 0, at_target = z[target];
#pragma omp simd reduction(max : max)
    for (int64_t i = 0; i < V; i++)
        max = z[i] > max ? z[i] : max;
    if (keep)
#pragma omp simd reduction(+ : total)
        for (int64_t i = 0; i < V; i++) {
            z[i] = exp_approx(z[i] - max);
            total += z[i];
        }
    else
#pragma omp simd reduction(+ : total)
        for (int64_t i = 0; i < V; i++)
            total += exp_approx(z[i] - max);
    *sum = total;
    return logf(total) + (max - at_target);
}

/* z [n] rounded to `type` in place: the numbers move to the front half of their memory. */
static void row_narrow(float *z, int64_t n, DType type)
{
    float piece[ROW_PIECE];
    for (int64_t at = 0; at < n && type != DTYPE_F32; at += ROW_PIECE) {
        int64_t count = min_of(n - at, ROW_PIECE);
        memcpy(piece, z + at, (size_t)count * sizeof(float));
        narrow((uint16_t *)(void *)z + at, piece, type, count);
    }
}

/* Returns the loss of a row z [Vp] and writes its gradient, times scale, over it, as numbers of `type`. */
static float row_loss_backward(float *z, int64_t V, int64_t Vp, int32_t target, float scale, DType type)
{
    if (target < 0) {
        memset(z, 0, (size_t)Vp * sizeof(float));
        return 0;
    }
    float sum, loss = row_loss(z, V, target, true, &sum), factor = scale / sum;
#pragma omp simd
    for (int64_t i = 0; i < V; i++)
        z[i] *= factor;
    z[target] -= scale;
    memset(z + V, 0, (size_t)(Vp - V) * sizeof(float));
    row_narrow(z, Vp, type);
    return loss;
}

/* Is every target an id in [0, V) or -1? */
static bool targets_check(Ctx *c, OpId op, Tensor targets, int64_t V)
{
    const int32_t *t = targets.data;
    for (int64_t n = 0; n < tensor_count(targets); n++)
        if (t[n] < -1 || t[n] >= V)
            return error_set(c->error, "%s: target %d at position %lld is neither -1 nor in the vocabulary of %lld", op_name(op),
                             t[n], (long long)n, (long long)V);
    return true;
}

/* state->loss_sum += the losses, in row order: the same for any number of threads. */
static void losses_add(Ctx *c, Tensor losses)
{
    double sum = 0;
    for (int64_t n = 0; n < losses.shape[0]; n++)
        sum += ((const float *)losses.data)[n];
    c->state->loss_sum += sum;
}

void CPU(head_logits)(Ctx *c, Tensor logits, Tensor x, Tensor wte)
{
    CPU(gemm)(c, matrix_of(logits, false), matrix_of(x, false), matrix_of(wte, true), TENSOR_NONE, false);
}

void CPU(head_loss_forward)(Ctx *c, Tensor losses, Tensor x, Tensor wte, Tensor targets, Tensor logits, int64_t V)
{
    int64_t N = x.shape[0], R = logits.shape[0], Vp = wte.shape[0];
    float *loss = losses.data, *z = logits.data;
    const int32_t *target = targets.data;
    if (!targets_check(c, OP_head_loss_forward, targets, V))
        return;
    for (int64_t first = 0; first < N && !c->error->set; first += R) {
        int64_t rows = min_of(N - first, R);
        CPU(head_logits)(c, tensor_slice_rows(logits, 0, rows), tensor_slice_rows(x, first, rows), wte);
#pragma omp parallel for num_threads(cpu_threads(c, rows *V)) schedule(static)
        for (int64_t n = 0; n < rows; n++) {
            float sum;
            loss[first + n] = target[first + n] < 0 ? 0 : row_loss(z + n * Vp, V, target[first + n], false, &sum);
        }
    }
    losses_add(c, losses);
}

void CPU(head_loss_backward)(Ctx *c, Tensor dx, Tensor dwte, Tensor losses, Tensor x, Tensor wte, Tensor targets, Tensor logits,
                             int64_t V)
{
    int64_t N = x.shape[0], R = logits.shape[0], Vp = wte.shape[0];
    float *loss = losses.data, *z = logits.data, scale = c->state->inverse_count * c->state->scaler.scale;
    const int32_t *target = targets.data;
    if (!targets_check(c, OP_head_loss_backward, targets, V))
        return;
    for (int64_t first = 0; first < N && !c->error->set; first += R) {
        int64_t rows = min_of(N - first, R);
        Tensor x_rows = tensor_slice_rows(x, first, rows), dx_rows = tensor_slice_rows(dx, first, rows);
        Tensor logits_rows = tensor_slice_rows(logits, 0, rows);
        CPU(head_logits)(c, logits_rows, x_rows, wte);
#pragma omp parallel for num_threads(cpu_threads(c, rows *V)) schedule(static)
        for (int64_t n = 0; n < rows; n++)
            loss[first + n] = row_loss_backward(z + n * Vp, V, Vp, target[first + n], scale, x.dtype);
        CPU(gemm)
        (c, matrix_of(dx_rows, false), matrix_of_dlogits(logits_rows, x.dtype, false), matrix_of(wte, false), TENSOR_NONE, false);
        if (tensor_present(dwte))
            CPU(gemm)
        (c, matrix_of(dwte, false), matrix_of_dlogits(logits_rows, x.dtype, true), matrix_of(x_rows, false), TENSOR_NONE, true);
    }
    losses_add(c, losses);
}
