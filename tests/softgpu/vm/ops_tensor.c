/* Tensor cores: D [16, 8] = A [16, K] B [K, 8] + C, with A and B in fp16, bf16 or tf32 and sums in fp32.
 *
 * A warp holds each matrix spread over its lanes. With lane = 4 g + t, for 16-bit numbers, two in a register:
 *   A register r: row g + 8 (r & 1), columns 2t + 8 (r >> 1) and the next
 *   B register r: rows 2t + 8r and the next, column g
 *   C element  e: row g + 8 (e >> 1), column 2t + (e & 1)
 * For tf32, one in a register: A register r: row g + 8 (r & 1), column t + 4 (r >> 1); B register r: row t + 4r, column g.
 *
 * Products of such short numbers are exact in fp32; they are added one after another in the order of k, each sum rounded to
 * nearest. What the hardware's order and rounding are is not published. (This file is compiled with contraction: a fused
 * multiply-add gives the same bits here, and is faster.) */
#include "tests/softgpu/vm/ops.h"

enum { ROWS = 16, COLUMNS = 8, MAX_K = 16 };

/* A row of B or C: its 8 columns, the even ones first, since that is how the lanes of a C register hold them. */
typedef f32 Row __attribute__((vector_size(32)));

static inline int column_place(int column)
{
    return column / 2 + (column & 1) * COLUMNS / 2;
}

typedef enum Element { F16, BF16, TF32 } Element;

static inline f32 element_low(u32 pair, Element type)
{
    return type == F16 ? f16_widen(pair & 0xffffu) : bits_float(pair << 16);
}

static inline f32 element_high(u32 pair, Element type)
{
    return type == F16 ? f16_widen(pair >> 16) : bits_float(pair & 0xffff0000u);
}

/* What tensor cores read of a register: the upper 19 bits. */
static inline f32 element_tf32(u32 bits)
{
    return bits_float(bits & 0xffffe000u);
}

/* a [ROWS][k] from A's registers, operands first..: four lanes 4g.. of a register lie side by side, and so do their elements in a
 * row. */
static inline void a_read(Warp *w, const Insn *i, int first, int k, Element type, f32 a[ROWS][MAX_K])
{
    int registers = type == TF32 ? k / 2 : k / 4;
    for (int r = 0; r < registers; r++) {
        const u32 *in = REG(u32, first + r);
        EACH
        {
            f32 *row = a[l / 4 + 8 * (r & 1)];
            int t = l % 4;
            if (type == TF32) {
                row[t + 4 * (r >> 1)] = element_tf32(in[l]);
            } else {
                row[2 * t + 8 * (r >> 1)] = element_low(in[l], type);
                row[2 * t + 8 * (r >> 1) + 1] = element_high(in[l], type);
            }
        }
    }
}

/* b [k] rows from B's registers */
static inline void b_read(Warp *w, const Insn *i, int first, int k, Element type, f32 b[MAX_K][COLUMNS])
{
    int registers = type == TF32 ? k / 4 : k / 8;
    for (int r = 0; r < registers; r++) {
        const u32 *in = REG(u32, first + r);
        EACH
        {
            int t = l % 4, column = column_place(l / 4);
            if (type == TF32) {
                b[t + 4 * r][column] = element_tf32(in[l]);
            } else {
                b[2 * t + 8 * r][column] = element_low(in[l], type);
                b[2 * t + 8 * r + 1][column] = element_high(in[l], type);
            }
        }
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

/* c += a b: eight rows of c stay in vector registers while k runs. */
static inline void multiply(int k, f32 a[ROWS][MAX_K], Row b[MAX_K], Row c[ROWS])
{
    for (int h = 0; h < ROWS; h += 8) {
        Row s[8];
        for (int r = 0; r < 8; r++)
            s[r] = c[h + r];
        for (int q = 0; q < k; q++)
            for (int r = 0; r < 8; r++)
                s[r] += a[h + r][q] * b[q];
        for (int r = 0; r < 8; r++)
            c[h + r] = s[r];
    }
}

/* Operands: D (4 registers), A, B, C (4). k and type are constants of each caller, so that the loops are unrolled. */
static inline __attribute__((always_inline)) void mma(Warp *w, const Insn *i, int k, Element type)
{
    int a_registers = type == TF32 ? k / 2 : k / 4, b_registers = a_registers / 2;
    f32 a[ROWS][MAX_K];
    union {
        Row rows[ROWS];
        f32 at[ROWS][COLUMNS];
    } b, c;
    a_read(w, i, 4, k, type, a);
    b_read(w, i, 4 + a_registers, k, type, b.at);
    c_read(w, i, 4 + a_registers + b_registers, c.at);
    multiply(k, a, b.rows, c.rows);
    c_write(w, i, c.at);
}

#define MMA(name, k, type)                                                                                                       \
    static void name(Warp *w, const Insn *i)                                                                                     \
    {                                                                                                                            \
        mma(w, i, k, type);                                                                                                      \
    }
MMA(mma_k16_f16, 16, F16)
MMA(mma_k16_bf16, 16, BF16)
MMA(mma_k8_f16, 8, F16)
MMA(mma_k8_bf16, 8, BF16)
MMA(mma_k8_tf32, 8, TF32)
MMA(mma_k4_tf32, 4, TF32)

#define TENSOR(name, run)                                                                                                        \
    {                                                                                                                            \
        name, run, 0, 0, {0}, VM_TENSOR, 0                                                                                       \
    }
const OpDef OPS(tensor_ops)[] = {TENSOR("mma.k16.f16", mma_k16_f16),
                                 TENSOR("mma.k16.bf16", mma_k16_bf16),
                                 TENSOR("mma.k8.f16", mma_k8_f16),
                                 TENSOR("mma.k8.bf16", mma_k8_bf16),
                                 TENSOR("mma.k8.tf32", mma_k8_tf32),
                                 TENSOR("mma.k4.tf32", mma_k4_tf32),
                                 OP_END};
