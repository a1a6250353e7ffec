/* Comparisons, predicates and selection.
 *
 * setp: operands p, q, a, b (, c): p = (a ? b) op c, q = !(a ? b) op c. variant: op none, 1 and, 2 or, 3 xor; negate: c is
 * negated. */
#include "tests/softgpu/vm/ops.h"

static void compare_finish(Warp *w, const Insn *i, u32 holds)
{
    u32 p = holds, q = ~holds;
    if (i->variant != 0) {
        u32 c = *REG(u32, 4) ^ (i->negate ? UINT32_MAX : 0);
        p = i->variant == 1 ? p & c : i->variant == 2 ? p | c : p ^ c;
        q = i->variant == 1 ? q & c : i->variant == 2 ? q | c : q ^ c;
    }
    predicate_set(REG(u32, 0), p, w->mask);
    predicate_set(REG(u32, 1), q, w->mask);
}

/* Name, type t as registers R hold it, a and b from it by READ, and the comparison. */
#define COMPARE_FUNCTION(name, t, R, V, READ, class, expression)                                                                 \
    static void setp_##name##_##t(Warp *w, const Insn *i)                                                                        \
    {                                                                                                                            \
        const R *in_a = REG(R, 2), *in_b = REG(R, 3);                                                                            \
        u32 holds = 0;                                                                                                           \
        EACH (l) {                                                                                                               \
            const V a = READ(in_a[l]), b = READ(in_b[l]);                                                                        \
            holds |= (u32)(expression) << l;                                                                                     \
        }                                                                                                                        \
        compare_finish(w, i, holds);                                                                                             \
    }
#define COMPARE_ENTRY(name, t, R, V, READ, class, expression)                                                                    \
    {"setp." #name "." #t, setp_##name##_##t, 0, 2, {sizeof(R), sizeof(R)}, class, 0},

#define COMPARE_ORDERED(X, t, R, V, READ, class)                                                                                 \
    X(eq, t, R, V, READ, class, a == b)                                                                                          \
    X(lt, t, R, V, READ, class, a < b)                                                                                           \
    X(le, t, R, V, READ, class, a <= b)                                                                                          \
    X(gt, t, R, V, READ, class, a > b)                                                                                           \
    X(ge, t, R, V, READ, class, a >= b)

#define COMPARE_INTEGER(X, t, R, V)                                                                                              \
    COMPARE_ORDERED(X, t, R, V, (V), VM_INTEGER)                                                                                 \
    X(ne, t, R, V, (V), VM_INTEGER, a != b)

/* Those that end in u hold for NaN too. */
#define COMPARE_FLOAT(X, t, R, V, READ, class)                                                                                   \
    COMPARE_ORDERED(X, t, R, V, READ, class)                                                                                     \
    X(ne, t, R, V, READ, class, a<b || a> b)                                                                                     \
    X(equ, t, R, V, READ, class, !(a < b || a > b))                                                                              \
    X(neu, t, R, V, READ, class, a != b)                                                                                         \
    X(ltu, t, R, V, READ, class, !(a >= b))                                                                                      \
    X(leu, t, R, V, READ, class, !(a > b))                                                                                       \
    X(gtu, t, R, V, READ, class, !(a <= b))                                                                                      \
    X(geu, t, R, V, READ, class, !(a < b))                                                                                       \
    X(num, t, R, V, READ, class, a == a && b == b)                                                                               \
    X(nan, t, R, V, READ, class, a != a || b != b)

#define COMPARES(X)                                                                                                              \
    COMPARE_INTEGER(X, u16, u32, u16)                                                                                            \
    COMPARE_INTEGER(X, s16, u32, s16)                                                                                            \
    COMPARE_INTEGER(X, b16, u32, u16)                                                                                            \
    COMPARE_INTEGER(X, u32, u32, u32)                                                                                            \
    COMPARE_INTEGER(X, s32, u32, s32)                                                                                            \
    COMPARE_INTEGER(X, b32, u32, u32)                                                                                            \
    COMPARE_INTEGER(X, u64, u64, u64)                                                                                            \
    COMPARE_INTEGER(X, s64, u64, s64)                                                                                            \
    COMPARE_INTEGER(X, b64, u64, u64)                                                                                            \
    COMPARE_FLOAT(X, f32, f32, f32, (f32), VM_FP32_OTHER)                                                                        \
    COMPARE_FLOAT(X, f64, f64, f64, (f64), VM_FP64)                                                                              \
    COMPARE_FLOAT(X, f16, u32, f32, f16_widen, VM_FP32_OTHER)                                                                    \
    COMPARE_FLOAT(X, bf16, u32, f32, bf16_widen, VM_FP32_OTHER)

COMPARES(COMPARE_FUNCTION)

/* ftz: the names differ by more than paste can tell */
#define COMPARE_FLUSHED(name, t, R, V, READ, class, expression)                                                                  \
    {"setp." #name ".ftz.f32", setp_##name##_##t, 0, 2, {sizeof(R), sizeof(R)}, class, 0},
#define FLUSHED(X) COMPARE_FLOAT(X, ftz_f32, f32, f32, flush, VM_FP32_OTHER)

FLUSHED(COMPARE_FUNCTION)

/* ---- Predicates and selection -------------------------------------------------------------------------------------- */

#define PREDICATE(name, expression)                                                                                              \
    static void name##_pred(Warp *w, const Insn *i)                                                                              \
    {                                                                                                                            \
        u32 a = *REG(u32, 1) ^ (i->negate & 1 ? UINT32_MAX : 0);                                                                 \
        UNUSED u32 b = *REG(u32, 2) ^ (i->negate & 2 ? UINT32_MAX : 0);                                                          \
        predicate_set(REG(u32, 0), expression, w->mask);                                                                         \
    }
PREDICATE(and, a &b)
PREDICATE(or, a | b)
PREDICATE(xor, a ^ b)
PREDICATE(not, ~a)
PREDICATE(mov, a)

#define SELECT(name, T)                                                                                                          \
    static void name(Warp *w, const Insn *i)                                                                                     \
    {                                                                                                                            \
        T *out = REG(T, 0);                                                                                                      \
        const T *a = REG(T, 1), *b = REG(T, 2);                                                                                  \
        const u32 p = *REG(u32, 3), mask = w->mask;                                                                              \
        _Pragma("GCC ivdep") EACH (l)                                                                                            \
        {                                                                                                                        \
            T result = p >> l & 1 ? a[l] : b[l];                                                                                 \
            out[l] = mask >> l & 1 ? result : out[l];                                                                            \
        }                                                                                                                        \
    }
SELECT(select_32, u32)
SELECT(select_64, u64)

/* testp.finite.f32 p, a */
#define TEST(name, expression)                                                                                                   \
    static void testp_##name(Warp *w, const Insn *i)                                                                             \
    {                                                                                                                            \
        const u32 *in = REG(u32, 1);                                                                                             \
        u32 holds = 0;                                                                                                           \
        EACH (l) {                                                                                                               \
            const u32 a = in[l] & 0x7fffffffu;                                                                                   \
            holds |= (u32)(expression) << l;                                                                                     \
        }                                                                                                                        \
        predicate_set(REG(u32, 0), holds, w->mask);                                                                              \
    }
TEST(finite, a < 0x7f800000u)
TEST(infinite, a == 0x7f800000u)
TEST(number, a <= 0x7f800000u)
TEST(notanumber, a > 0x7f800000u)

const OpDef compare_ops[] = {COMPARES(COMPARE_ENTRY) FLUSHED(COMPARE_FLUSHED){"and.pred", and_pred, 0, 2, {0}, VM_INTEGER, 0},
                             {"or.pred", or_pred, 0, 2, {0}, VM_INTEGER, 0},
                             {"xor.pred", xor_pred, 0, 2, {0}, VM_INTEGER, 0},
                             {"not.pred", not_pred, 0, 1, {0}, VM_INTEGER, 0},
                             {"mov.pred", mov_pred, 0, 1, {0}, VM_MOVE, 0},
                             {"selp.32", select_32, 4, 3, {4, 4, 0}, VM_INTEGER, 0},
                             {"selp.64", select_64, 8, 3, {8, 8, 0}, VM_INTEGER, 0},
                             {"testp.finite.f32", testp_finite, 0, 1, {4}, VM_FP32_OTHER, 0},
                             {"testp.infinite.f32", testp_infinite, 0, 1, {4}, VM_FP32_OTHER, 0},
                             {"testp.number.f32", testp_number, 0, 1, {4}, VM_FP32_OTHER, 0},
                             {"testp.notanumber.f32", testp_notanumber, 0, 1, {4}, VM_FP32_OTHER, 0},
                             OP_END};
