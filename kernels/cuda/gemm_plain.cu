/* C = A B + bias or C += A B without the library: for the product of a shape or an alignment that it has no algorithm for, and to
 * compare it with. Any types and strides; operands are widened, sums are FP32 and in the order of K.
 *
 * A block makes a tile of 32 x 32 of C from tiles of A and B of that size in shared memory; a thread has four rows of one column.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"

enum { TILE = 32, THREADS = 256, STRIPS = THREADS / TILE, ROWS = TILE / STRIPS };

/* An operand as a kernel sees it: element (row, column), of the transpose where that is used. */
struct Operand {
    Elements elements;
    int64_t rows, columns, stride;
    bool transposed;
};

static Operand operand(Matrix m)
{
    return Operand{Elements{m.data, m.dtype}, m.transposed ? m.columns : m.rows, m.transposed ? m.rows : m.columns, m.stride,
                   m.transposed};
}

/* tile = the elements from (row, column) on, 0 outside. Neighbouring threads read neighbours in memory: the column for a matrix,
 * the row for a transpose. */
static __device__ void tile_load(float tile[TILE][TILE + 1], const Operand &m, int64_t row, int64_t column)
{
    for (int i = threadIdx.x / TILE; i < TILE; i += STRIPS) {
        int r = m.transposed ? threadIdx.x % TILE : i, c = m.transposed ? i : threadIdx.x % TILE;
        bool inside = row + r < m.rows && column + c < m.columns;
        int64_t at = m.transposed ? (column + c) * m.stride + row + r : (row + r) * m.stride + column + c;
        tile[r][c] = inside ? load_one(m.elements, at) : 0;
    }
}

static __global__ void __launch_bounds__(THREADS)
    gemm_plain_kernel(Operand C, Operand A, Operand B, Elements bias, bool accumulate)
{
    __shared__ float a[TILE][TILE + 1], b[TILE][TILE + 1];
    int64_t across = blocks_of(C.columns, TILE), row = blockIdx.x / across * TILE, column = blockIdx.x % across * TILE;
    int lane = threadIdx.x % TILE, strip = threadIdx.x / TILE;
    float sum[ROWS] = {};
    for (int64_t k = 0; k < A.columns; k += TILE) {
        tile_load(a, A, row, k);
        tile_load(b, B, k, column);
        __syncthreads();
        for (int i = 0; i < TILE; i++)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                sum[r] += a[strip + r * STRIPS][i] * b[i][lane];
        __syncthreads();
    }
    int64_t j = column + lane;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int64_t i = row + strip + r * STRIPS, at = i * C.stride + j;
        if (i >= C.rows || j >= C.columns)
            continue;
        float before = accumulate ? load_one(C.elements, at) : bias.data ? load_one(bias, j) : 0;
        store_one(C.elements, at, before + sum[r]);
    }
}

extern "C" void cuda_gemm_plain(Ctx *c, OpId op, Matrix C, Matrix A, Matrix B, Tensor bias, bool accumulate)
{
    int64_t tiles = blocks_of(C.rows, TILE) * blocks_of(C.columns, TILE);
    gemm_plain_kernel<<<(unsigned)tiles, THREADS, 0, stream_of(c)>>>(operand(C), operand(A), operand(B), elements(bias),
                                                                     accumulate);
    launch_check(c, op);
}
