/* Tensor cores: D [16, 8] = A [16, K] B [K, 8] + C, with A and B in fp16, bf16 or tf32 and sums in fp32.
 *
 * A warp holds each matrix spread over its lanes. With lane = 4 g + t, for 16-bit numbers, two in a register:
 *   A register r: row g + 8 (r & 1), columns 2t + 8 (r >> 1) and the next
 *   B register r: rows 2t + 8r and the next, column g
 *   C element  e: row g + 8 (e >> 1), column 2t + (e & 1)
 * For tf32, one in a register: A register r: row g + 8 (r & 1), column t + 4 (r >> 1); B register r: row t + 4r, column g.
 *
 * Products of such short numbers are exact in fp32; they are added one after another in the order of k, each sum rounded to
 * nearest. What the hardware's order and rounding are is not published. */
#pragma GCC optimize("fp-contract=fast") /* a fused multiply-add gives the same bits here, and is faster */

#include "tests/softgpu/vm/ops.h"

enum { ROWS = 16, COLUMNS = 8, MAX_WORDS = 8 };

typedef enum Element { F16, BF16, TF32 } Element;

/* A row of B or C: its 8 columns, the even ones first, since that is how the lanes of a C register hold them. */
typedef f32 Row __attribute__((vector_size(32)));

static inline int column_place(int column)
{
    return column / 2 + (column & 1) * COLUMNS / 2;
}

/* The registers are 32-bit words whose places do not depend on the type: A register r holds word t + 4 (r >> 1) of row g + 8 (r &
 * 1), B register r word t + 4r of column g. A word is two numbers, low (the first k) and high, or for tf32 one: high stays
 * unused. */
static inline void words_split(int n, const u32 *words, Element type, f32 *low, f32 *high)
{
    for (int q = 0; q < n; q++) {
        u32 word = words[q];
        low[q] = type == TF32   ? bits_float(word & 0xffffe000u)
                 : type == BF16 ? bits_float(word << 16)
                                : f16_widen(word & 0xffffu);
        high[q] = type == TF32 ? 0 : type == BF16 ? bits_float(word & 0xffff0000u) : f16_widen(word >> 16);
    }
}

/* Four lanes 4g.. of a register lie side by side, and so do their words in a row. */
static inline void a_read(Warp *w, const Insn *i, int first, int n_words, u32 a[ROWS][MAX_WORDS])
{
    for (int r = 0; r < n_words / 2; r++)
        for (int g = 0; g < 8; g++)
            memcpy(&a[g + 8 * (r & 1)][4 * (r >> 1)], REG(u32, first + r) + 4 * g, 4 * sizeof(u32));
}

static inline void b_read(Warp *w, const Insn *i, int first, int n_words, u32 b[MAX_WORDS][COLUMNS])
{
    for (int r = 0; r < n_words / 4; r++) {
        const u32 *in = REG(u32, first + r);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
#pragma GCC unroll 4
            for (int t = 0; t < 4; t++)
                b[t + 4 * r][column_place(g)] = in[4 * g + t];
    }
}

/* Lanes 4g.. of register e hold half a row of c: its even or its odd columns. */
static inline void c_read(Warp *w, const Insn *i, int first, f32 c[ROWS][COLUMNS])
{
    for (int e = 0; e < 4; e++)
        for (int g = 0; g < 8; g++)
            memcpy(&c[g + 8 * (e >> 1)][4 * (e & 1)], REG(f32, first + e) + 4 * g, 4 * sizeof(f32));
}

static inline void c_write(Warp *w, const Insn *i, f32 c[ROWS][COLUMNS])
{
    for (int e = 0; e < 4; e++)
        for (int g = 0; g < 8; g++)
            memcpy(REG(f32, e) + 4 * g, &c[g + 8 * (e >> 1)][4 * (e & 1)], 4 * sizeof(f32));
}

/* Operands: D (4 registers), A, B, C (4). n_words and type are constants of each caller, so that the loops are unrolled. Eight
 * rows of c stay in vector registers while k runs. */
static inline __attribute__((always_inline)) void mma(Warp *w, const Insn *i, int n_words, Element type)
{
    u32 a[ROWS][MAX_WORDS], b[MAX_WORDS][COLUMNS];
    f32 a_low[ROWS][MAX_WORDS], a_high[ROWS][MAX_WORDS];
    Row b_low[MAX_WORDS], b_high[MAX_WORDS], c[ROWS];
    a_read(w, i, 4, n_words, a);
    b_read(w, i, 4 + n_words / 2, n_words, b);
    c_read(w, i, 4 + n_words / 2 + n_words / 4, (f32(*)[COLUMNS])c);
    for (int r = 0; r < ROWS; r++)
        words_split(n_words, a[r], type, a_low[r], a_high[r]);
    words_split(n_words * COLUMNS, b[0], type, (f32 *)b_low, (f32 *)b_high);
    for (int h = 0; h < ROWS; h += 8) {
        Row s[8];
        for (int r = 0; r < 8; r++)
            s[r] = c[h + r];
        for (int q = 0; q < n_words; q++) {
            for (int r = 0; r < 8; r++)
                s[r] += a_low[h + r][q] * b_low[q];
            for (int r = 0; r < 8 && type != TF32; r++)
                s[r] += a_high[h + r][q] * b_high[q];
        }
        for (int r = 0; r < 8; r++)
            c[h + r] = s[r];
    }
    c_write(w, i, (f32(*)[COLUMNS])c);
}

#define MMA(name, n_words, type)                                                                                                 \
    static void name(Warp *w, const Insn *i)                                                                                     \
    {                                                                                                                            \
        mma(w, i, n_words, type);                                                                                                \
    }
MMA(mma_k16_f16, 8, F16)
MMA(mma_k16_bf16, 8, BF16)
MMA(mma_k8_f16, 4, F16)
MMA(mma_k8_bf16, 4, BF16)
MMA(mma_k8_tf32, 8, TF32)
MMA(mma_k4_tf32, 4, TF32)

#define TENSOR(name, run)                                                                                                        \
    {                                                                                                                            \
        name, run, 0, 0, {0}, VM_TENSOR, 0                                                                                       \
    }
const OpDef tensor_ops[] = {TENSOR("mma.k16.f16", mma_k16_f16),
                            TENSOR("mma.k16.bf16", mma_k16_bf16),
                            TENSOR("mma.k8.f16", mma_k8_f16),
                            TENSOR("mma.k8.bf16", mma_k8_bf16),
                            TENSOR("mma.k8.tf32", mma_k8_tf32),
                            TENSOR("mma.k4.tf32", mma_k4_tf32),
                            OP_END};
