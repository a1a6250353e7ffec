/* Integer arithmetic, bits, and moves. */
#include "tests/softgpu/vm/ops.h"

/* ---- Helpers ------------------------------------------------------------------------------------------------------- */

/* Each byte of the result is one of the 8 bytes of y:x, or its sign repeated. */
static inline u32 byte_permute(u32 x, u32 y, u32 selector)
{
    u64 bytes = (u64)y << 32 | x;
    u32 r = 0;
    for (int k = 0; k < 4; k++) {
        u32 s = selector >> 4 * k & 15, byte = (u32)(bytes >> 8 * (s & 7)) & 255;
        r |= (s & 8 ? (byte & 128 ? 255u : 0) : byte) << 8 * k;
    }
    return r;
}

/* length bits from position on, the highest of them (or of v) repeated above when it is a sign */
static inline u64 field_extract(u64 v, u32 position, u32 length, u32 bits, bool is_signed)
{
    position &= 255;
    length &= 255;
    if (length == 0)
        return 0;
    u32 top = position + length - 1 < bits - 1 ? position + length - 1 : bits - 1;
    bool sign = is_signed && (v >> top & 1);
    u32 kept = position >= bits ? 0 : length < bits - position ? length : bits - position;
    u64 r = position >= bits ? 0 : v >> position;
    if (kept < 64) {
        r &= (1ull << kept) - 1;
        r |= sign ? ~0ull << kept : 0;
    }
    return r;
}

/* the low `length` bits of a put into b at position */
static inline u64 field_insert(u64 a, u64 b, u32 position, u32 length, u32 bits)
{
    position &= 255;
    length &= 255;
    if (position >= bits)
        return b;
    u64 mask = (length >= 64 ? ~0ull : (1ull << length) - 1) << position;
    return (b & ~mask) | (a << position & mask);
}

static inline u64 reverse(u64 x)
{
    x = (x & 0x5555555555555555ull) << 1 | (x >> 1 & 0x5555555555555555ull);
    x = (x & 0x3333333333333333ull) << 2 | (x >> 2 & 0x3333333333333333ull);
    x = (x & 0x0f0f0f0f0f0f0f0full) << 4 | (x >> 4 & 0x0f0f0f0f0f0f0f0full);
    return __builtin_bswap64(x);
}

/* Bit k of the table is the result where the bits of x, y, z make the number k. */
static inline u32 logic3(u32 x, u32 y, u32 z, u32 table)
{
    u32 r = 0;
    for (u32 k = 0; k < 8; k++)
        r |= table >> k & 1 ? (k & 4 ? x : ~x) & (k & 2 ? y : ~y) & (k & 1 ? z : ~z) : 0;
    return r;
}

static inline u32 dot4_signed(u32 x, u32 y, u32 sum)
{
    for (int k = 0; k < 4; k++)
        sum += (u32)((s8)(x >> 8 * k) * (s8)(y >> 8 * k));
    return sum;
}

static inline u32 dot4_unsigned(u32 x, u32 y, u32 sum)
{
    for (int k = 0; k < 4; k++)
        sum += (u32)(u8)(x >> 8 * k) * (u8)(y >> 8 * k);
    return sum;
}

#define IS_SIGNED(T) ((T)-1 < (T)1)

/* ---- The list ------------------------------------------------------------------------------------------------------ */

/* Type t, as C's T and, without a sign, U, in registers R. Sums and products wrap around: they are made without a sign. A
 * division by zero gives all ones; that of the smallest number by -1 wraps around, which C does not know. */
#define ARITHMETIC(X, t, T, U, R)                                                                                                \
    X(add_##t, "add." #t, R, R, R, NONE, 2, VM_INTEGER, 0, (U)(a + b))                                                           \
    X(sub_##t, "sub." #t, R, R, R, NONE, 2, VM_INTEGER, 0, (U)(a - b))                                                           \
    X(mul_##t, "mul.lo." #t, R, R, R, NONE, 2, VM_INTEGER, 0, (U)(a * b))                                                        \
    X(mad_##t, "mad.lo." #t, R, R, R, R, 3, VM_INTEGER, 0, (U)(a * b + c))                                                       \
    X(min_##t, "min." #t, R, R, R, NONE, 2, VM_INTEGER, 0, (U)((T)a < (T)b ? (T)a : (T)b))                                       \
    X(max_##t, "max." #t, R, R, R, NONE, 2, VM_INTEGER, 0, (U)((T)a > (T)b ? (T)a : (T)b))                                       \
    X(div_##t, "div." #t, R, R, R, NONE, 2, VM_INTEGER, 0,                                                                       \
      (U)((T)b == 0                       ? (T)-1                                                                                \
          : IS_SIGNED(T) && (T)b == (T)-1 ? (T)(0 - a)                                                                           \
                                          : (T)((T)a / (T)b)))                                                                   \
    X(rem_##t, "rem." #t, R, R, R, NONE, 2, VM_INTEGER, 0,                                                                       \
      (U)((T)b == 0                       ? (T)a                                                                                 \
          : IS_SIGNED(T) && (T)b == (T)-1 ? (T)0                                                                                 \
                                          : (T)((T)a % (T)b)))                                                                   \
    X(neg_##t, "neg." #t, R, R, NONE, NONE, 1, VM_INTEGER, 0, (U)(0 - a))

#define ABSOLUTE(X, t, T, U, R) X(abs_##t, "abs." #t, R, R, NONE, NONE, 1, VM_INTEGER, 0, (U)((T)a < 0 ? 0 - a : a))

/* A shift by more than the width gives what a shift by the width would: zero, or the sign everywhere. */
#define SHIFT_RIGHT(X, t, T, U, R)                                                                                               \
    X(shr_##t, "shr." #t, R, R, u32, NONE, 2, VM_INTEGER, 0,                                                                     \
      b < 8 * sizeof(T) ? (U)((T)a >> b) : (U)(IS_SIGNED(T) ? (T)a >> (8 * sizeof(T) - 1) : 0))

#define BITWISE(X, t, U, R)                                                                                                      \
    X(and_##t, "and." #t, R, R, R, NONE, 2, VM_INTEGER, 0, (a & b))                                                              \
    X(or_##t, "or." #t, R, R, R, NONE, 2, VM_INTEGER, 0, a | b)                                                                  \
    X(xor_##t, "xor." #t, R, R, R, NONE, 2, VM_INTEGER, 0, a ^ b)                                                                \
    X(not_##t, "not." #t, R, R, NONE, NONE, 1, VM_INTEGER, 0, (U)~a)                                                             \
    X(cnot_##t, "cnot." #t, R, R, NONE, NONE, 1, VM_INTEGER, 0, (U)a == 0)                                                       \
    X(shl_##t, "shl." #t, R, R, u32, NONE, 2, VM_INTEGER, 0, b < 8 * sizeof(U) ? (U)(a << b) : 0)

#define WIDE(X)                                                                                                                  \
    X(mul_hi_u16, "mul.hi.u16", u32, u32, u32, NONE, 2, VM_INTEGER, 0, (u32)(u16)a *(u16)b >> 16)                                \
    X(mul_hi_s16, "mul.hi.s16", u32, u32, u32, NONE, 2, VM_INTEGER, 0, (u16)((s32)(s16)a * (s16)b >> 16))                        \
    X(mul_hi_u32, "mul.hi.u32", u32, u32, u32, NONE, 2, VM_INTEGER, 0, ((u64)a * b >> 32))                                       \
    X(mul_hi_s32, "mul.hi.s32", u32, u32, u32, NONE, 2, VM_INTEGER, 0, ((s64)(s32)a * (s32)b >> 32))                             \
    X(mul_hi_u64, "mul.hi.u64", u64, u64, u64, NONE, 2, VM_INTEGER, 0, ((unsigned __int128)a * b >> 64))                         \
    X(mul_hi_s64, "mul.hi.s64", u64, u64, u64, NONE, 2, VM_INTEGER, 0, ((__int128)(s64)a * (s64)b >> 64))                        \
    X(mad_hi_u32, "mad.hi.u32", u32, u32, u32, u32, 3, VM_INTEGER, 0, (u32)((u64)a * b >> 32) + c)                               \
    X(mad_hi_s32, "mad.hi.s32", u32, u32, u32, u32, 3, VM_INTEGER, 0, (u32)((s64)(s32)a * (s32)b >> 32) + c)                     \
    X(mul_wide_u16, "mul.wide.u16", u32, u32, u32, NONE, 2, VM_INTEGER, 0, ((u32)(u16)a * (u16)b))                               \
    X(mul_wide_s16, "mul.wide.s16", u32, u32, u32, NONE, 2, VM_INTEGER, 0, ((s32)(s16)a * (s16)b))                               \
    X(mul_wide_u32, "mul.wide.u32", u64, u32, u32, NONE, 2, VM_INTEGER, 0, ((u64)a * b))                                         \
    X(mul_wide_s32, "mul.wide.s32", u64, u32, u32, NONE, 2, VM_INTEGER, 0, ((s64)(s32)a * (s32)b))                               \
    X(mad_wide_u16, "mad.wide.u16", u32, u32, u32, u32, 3, VM_INTEGER, 0, ((u32)(u16)a * (u16)b + c))                            \
    X(mad_wide_s16, "mad.wide.s16", u32, u32, u32, u32, 3, VM_INTEGER, 0, (u32)((s32)(s16)a * (s16)b) + c)                       \
    X(mad_wide_u32, "mad.wide.u32", u64, u32, u32, u64, 3, VM_INTEGER, 0, ((u64)a * b + c))                                      \
    X(mad_wide_s32, "mad.wide.s32", u64, u32, u32, u64, 3, VM_INTEGER, 0, (u64)((s64)(s32)a * (s32)b) + c)

#define COUNTING(X)                                                                                                              \
    X(popc_b32, "popc.b32", u32, u32, NONE, NONE, 1, VM_INTEGER, 0, __builtin_popcount(a))                                       \
    X(popc_b64, "popc.b64", u32, u64, NONE, NONE, 1, VM_INTEGER, 0, __builtin_popcountll(a))                                     \
    X(clz_b32, "clz.b32", u32, u32, NONE, NONE, 1, VM_INTEGER, 0, a ? __builtin_clz(a) : 32)                                     \
    X(clz_b64, "clz.b64", u32, u64, NONE, NONE, 1, VM_INTEGER, 0, a ? __builtin_clzll(a) : 64)                                   \
    X(bfind_u32, "bfind.u32", u32, u32, NONE, NONE, 1, VM_INTEGER, 0, a ? 31 - __builtin_clz(a) : -1)                            \
    X(bfind_s32, "bfind.s32", u32, u32, NONE, NONE, 1, VM_INTEGER, 0,                                                            \
      a == 0 || ~a == 0 ? -1 : 31 - __builtin_clz((s32)a < 0 ? ~a : a))                                                          \
    X(bfind_u64, "bfind.u64", u32, u64, NONE, NONE, 1, VM_INTEGER, 0, a ? 63 - __builtin_clzll(a) : -1)                          \
    X(bfind_shift_u32, "bfind.shiftamt.u32", u32, u32, NONE, NONE, 1, VM_INTEGER, 0, a ? __builtin_clz(a) : -1)                  \
    X(bfind_shift_u64, "bfind.shiftamt.u64", u32, u64, NONE, NONE, 1, VM_INTEGER, 0, a ? __builtin_clzll(a) : -1)                \
    X(brev_b32, "brev.b32", u32, u32, NONE, NONE, 1, VM_INTEGER, 0, reverse((u64)a << 32))                                       \
    X(brev_b64, "brev.b64", u64, u64, NONE, NONE, 1, VM_INTEGER, 0, reverse(a))

/* bfi and lop3 have a fourth input: d's registers are read by the position of the operand. */
#define FIELDS(X)                                                                                                                \
    X(prmt_b32, "prmt.b32", u32, u32, u32, u32, 3, VM_INTEGER, 0, byte_permute(a, b, c))                                         \
    X(bfe_u32, "bfe.u32", u32, u32, u32, u32, 3, VM_INTEGER, 0, field_extract(a, b, c, 32, false))                               \
    X(bfe_s32, "bfe.s32", u32, u32, u32, u32, 3, VM_INTEGER, 0, field_extract(a, b, c, 32, true))                                \
    X(bfe_u64, "bfe.u64", u64, u64, u32, u32, 3, VM_INTEGER, 0, field_extract(a, b, c, 64, false))                               \
    X(bfe_s64, "bfe.s64", u64, u64, u32, u32, 3, VM_INTEGER, 0, field_extract(a, b, c, 64, true))                                \
    X(bfi_b32, "bfi.b32", u32, u32, u32, u32, 4, VM_INTEGER, 0, field_insert(a, b, c, REG(u32, 4)[l], 32))                       \
    X(bfi_b64, "bfi.b64", u64, u64, u64, u32, 4, VM_INTEGER, 0, field_insert(a, b, c, REG(u32, 4)[l], 64))                       \
    X(lop3_b32, "lop3.b32", u32, u32, u32, u32, 4, VM_INTEGER, 0, logic3(a, b, c, REG(u32, 4)[0]))                               \
    X(shf_l_wrap, "shf.l.wrap.b32", u32, u32, u32, u32, 3, VM_INTEGER, 0, ((u64)b << 32 | a) << (c & 31) >> 32)                  \
    X(shf_r_wrap, "shf.r.wrap.b32", u32, u32, u32, u32, 3, VM_INTEGER, 0, ((u64)b << 32 | a) >> (c & 31))                        \
    X(shf_l_clamp, "shf.l.clamp.b32", u32, u32, u32, u32, 3, VM_INTEGER, 0, c > 31 ? a : ((u64)b << 32 | a) << c >> 32)          \
    X(shf_r_clamp, "shf.r.clamp.b32", u32, u32, u32, u32, 3, VM_INTEGER, 0, c > 31 ? b : ((u64)b << 32 | a) >> c)                \
    X(sad_s32, "sad.s32", u32, u32, u32, u32, 3, VM_INTEGER, 0, ((s32)a > (s32)b ? a - b : b - a) + c)                           \
    X(sad_u32, "sad.u32", u32, u32, u32, u32, 3, VM_INTEGER, 0, (a > b ? a - b : b - a) + c)                                     \
    X(dp4a_ss, "dp4a.s32.s32", u32, u32, u32, u32, 3, VM_INTEGER, 0, dot4_signed(a, b, c))                                       \
    X(dp4a_uu, "dp4a.u32.u32", u32, u32, u32, u32, 3, VM_INTEGER, 0, dot4_unsigned(a, b, c))                                     \
    X(mov_b32, "mov.b32", u32, u32, NONE, NONE, 1, VM_MOVE, 0, a)                                                                \
    X(mov_b64, "mov.b64", u64, u64, NONE, NONE, 1, VM_MOVE, 0, a)

#define TYPES(LIST, X)                                                                                                           \
    LIST(X, u16, u16, u16, u32)                                                                                                  \
    LIST(X, s16, s16, u16, u32)                                                                                                  \
    LIST(X, u32, u32, u32, u32)                                                                                                  \
    LIST(X, s32, s32, u32, u32)                                                                                                  \
    LIST(X, u64, u64, u64, u64)                                                                                                  \
    LIST(X, s64, s64, u64, u64)

#define INTEGER_OPS(X)                                                                                                           \
    TYPES(ARITHMETIC, X)                                                                                                         \
    ABSOLUTE(X, s16, s16, u16, u32)                                                                                              \
    ABSOLUTE(X, s32, s32, u32, u32)                                                                                              \
    ABSOLUTE(X, s64, s64, u64, u64)                                                                                              \
    TYPES(SHIFT_RIGHT, X)                                                                                                        \
    BITWISE(X, b16, u16, u32) BITWISE(X, b32, u32, u32) BITWISE(X, b64, u64, u64) WIDE(X) COUNTING(X) FIELDS(X)

INTEGER_OPS(OP_FUNCTION)

const OpDef integer_ops[] = {INTEGER_OPS(OP_ENTRY) OP_END};
