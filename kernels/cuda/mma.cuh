/* The three instructions that tensor-core kernels are made of, each by one function, for sm_75 and later.
 *
 *   copy_async    16 or 4 bytes from global to shared memory without a detour through registers, to be waited for (cp.async,
 *                 sm_80); before sm_80 an ordinary copy
 *   matrix_load   four 8 x 8 matrices of 16-bit numbers from shared memory: lane l gives the address of row l % 8 of matrix l / 8
 *                 and gets of matrix m, in word m, row l / 4, columns 2 (l % 4) and the next (ldmatrix); the transposed form
 *                 gets column l / 4, rows 2 (l % 4) and the next
 *   mma           C [16, 16] += A [16, 16] B [16, 16], by a warp, FP32 sums of products of 16-bit numbers
 *
 * Who holds what, with lane = 4 g + t:
 *   A   word r: row g + 8 (r & 1), columns 2t + 8 (r >> 1) and the next
 *   B   words 0, 1: rows 2t + 8r and the next, column g; words 2, 3: the same of column 8 + g
 *   C   v[half][e]: row g + 8 half, column 2t + (e & 1) + 8 (e >> 1) */
#ifndef TALLY_KERNELS_CUDA_MMA_CUH
#define TALLY_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/common.cuh"

/* A 16 x 16 piece of a matrix of sums, as a warp holds it: see C above. */
struct Piece {
    float v[2][4];
};

/* A or B operand of a warp: two 16-bit numbers a word. */
struct Operand {
    uint32_t word[4];
};

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* sizeof(T) bytes, 16 or 4, from `from` to `to`, both aligned; zeros when not `present`. */
template <class T> static __device__ __forceinline__ void copy_async(void *to, const void *from, bool present)
{
#if __CUDA_ARCH__ >= 800
    constexpr int BYTES = sizeof(T);
    if constexpr (BYTES == 16) /* around the first-level cache; fewer bytes go through it */
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                     "r"(present ? BYTES : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(present ? BYTES : 0)
                     : "memory");
#else
    *(T *)to = present ? *(const T *)from : T{};
#endif
}

/* Waits for this thread's copies; a barrier must follow before other threads read them. */
static __device__ __forceinline__ void copies_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

static __device__ __forceinline__ Operand matrix_load(const void *row)
{
    Operand m;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m.word[0]), "=r"(m.word[1]), "=r"(m.word[2]), "=r"(m.word[3])
                 : "r"(shared_address(row))
                 : "memory");
    return m;
}

static __device__ __forceinline__ Operand matrix_load_transposed(const void *row)
{
    Operand m;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m.word[0]), "=r"(m.word[1]), "=r"(m.word[2]), "=r"(m.word[3])
                 : "r"(shared_address(row))
                 : "memory");
    return m;
}

/* Columns 8 n .. 8 n + 7 of the piece c += a b. */
template <class T> static __device__ __forceinline__ void mma_half(Piece &c, const Operand &a, const Operand &b, int n);

template <> __device__ __forceinline__ void mma_half<__nv_bfloat16>(Piece &c, const Operand &a, const Operand &b, int n)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c.v[0][2 * n]), "+f"(c.v[0][2 * n + 1]), "+f"(c.v[1][2 * n]), "+f"(c.v[1][2 * n + 1])
                 : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[2 * n]), "r"(b.word[2 * n + 1]));
#else
    __trap(); /* sm_75 multiplies no BF16: such calls take the plain path (attention.cu) */
#endif
}

template <> __device__ __forceinline__ void mma_half<__half>(Piece &c, const Operand &a, const Operand &b, int n)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c.v[0][2 * n]), "+f"(c.v[0][2 * n + 1]), "+f"(c.v[1][2 * n]), "+f"(c.v[1][2 * n + 1])
                 : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[2 * n]), "r"(b.word[2 * n + 1]));
#else
#pragma unroll
    for (int k = 0; k < 2; k++)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                     : "+f"(c.v[0][2 * n]), "+f"(c.v[0][2 * n + 1]), "+f"(c.v[1][2 * n]), "+f"(c.v[1][2 * n + 1])
                     : "r"(a.word[2 * k]), "r"(a.word[2 * k + 1]), "r"(b.word[2 * n + k]));
#endif
}

template <class T> static __device__ __forceinline__ void mma(Piece &c, const Operand &a, const Operand &b)
{
    mma_half<T>(c, a, b, 0);
    mma_half<T>(c, a, b, 1);
}

/* Two numbers rounded to a word, the first in its low half. */
static __device__ __forceinline__ uint32_t pair_round(float low, float high, __nv_bfloat16)
{
    return pair_narrow(low, high, DTYPE_BF16);
}
static __device__ __forceinline__ uint32_t pair_round(float low, float high, __half)
{
    return pair_narrow(low, high, DTYPE_F16);
}

/* Sums of one product, rounded, as the left factor of the next: who holds what is the same in C and A. */
template <class T> static __device__ __forceinline__ Operand left_factor(const Piece &c)
{
    return Operand{{pair_round(c.v[0][0], c.v[0][1], T()), pair_round(c.v[1][0], c.v[1][1], T()),
                    pair_round(c.v[0][2], c.v[0][3], T()), pair_round(c.v[1][2], c.v[1][3], T())}};
}

#endif
