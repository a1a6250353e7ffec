/* A tensor is a pointer, a type and a shape: contiguous, row-major, passed by value. It owns nothing: memory belongs to
 * the two arenas that the plan has sized (model/plan.h). */
#ifndef TALLY_KERNELS_TENSOR_H
#define TALLY_KERNELS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum DType { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I32, DTYPE_COUNT } DType;

enum { TENSOR_MAX_DIMS = 4 };

typedef struct Tensor {
    void *data; /* NULL means: there is no such tensor (an absent bias, a gradient nobody wants) */
    DType dtype;
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
} Tensor;

#define TENSOR_NONE ((Tensor){0})

/* Bytes of one element, and the type's name as in the plan ("f32", "bf16", ...). */
static inline size_t dtype_size(DType t)
{
    return t == DTYPE_BF16 || t == DTYPE_F16 ? 2 : 4;
}

static inline const char *dtype_name(DType t)
{
    static const char *const names[DTYPE_COUNT] = {"f32", "bf16", "f16", "i32"};
    return names[t];
}

/* "[3, 4]" into text, which is returned; of 8 dimensions at most. In ops.c. */
typedef char ShapeText[192];
const char *shape_text(ShapeText text, int ndim, const int64_t *shape);

static inline bool tensor_present(Tensor t)
{
    return t.data != NULL;
}

/* Product of the dimensions. The plan has refused shapes whose product overflows (plan_tensor). */
static inline int64_t tensor_count(Tensor t)
{
    int64_t n = 1;
    for (int i = 0; i < t.ndim; i++)
        n *= t.shape[i];
    return n;
}

static inline size_t tensor_bytes(Tensor t)
{
    return (size_t)tensor_count(t) * dtype_size(t.dtype);
}

/* The last dimension. */
static inline int64_t tensor_width(Tensor t)
{
    return t.ndim ? t.shape[t.ndim - 1] : 1;
}

/* Rows first .. first+count-1 of a 2-D tensor [R, W], as a tensor [count, W]. */
static inline Tensor tensor_slice_rows(Tensor t, int64_t first, int64_t count)
{
    t.data = (char *)t.data + (size_t)(first * t.shape[1]) * dtype_size(t.dtype);
    t.shape[0] = count;
    return t;
}

static inline Tensor tensor_1d(void *data, DType dtype, int64_t n)
{
    return (Tensor){data, dtype, 1, {n}};
}

/* Elements first .. first+n-1 of the flattened tensor. */
static inline Tensor tensor_part(Tensor t, int64_t first, int64_t n)
{
    return tensor_1d((char *)t.data + (size_t)first * dtype_size(t.dtype), t.dtype, n);
}

static inline Tensor tensor_2d(void *data, DType dtype, int64_t rows, int64_t width)
{
    return (Tensor){data, dtype, 2, {rows, width}};
}

#endif
