/* Instructions by which the lanes of a warp exchange values, moves that pack and unpack, and the odd ones. */
#include "tests/softgpu/vm/ops.h"

/* ---- Exchange ------------------------------------------------------------------------------------------------------ */

/* The lane that a shuffle by b reads, or would read if it were not outside. c = clamp | segments << 8. variant: 0 up, 1 down, 2
 * bfly, 3 idx. No branches: the loop over the lanes vectorises. */
static inline s32 shuffle_source(int variant, s32 lane, u32 b, u32 c, s32 *inside)
{
    s32 n = (s32)(b & 31), clamp = (s32)(c & 31), segment = (s32)(c >> 8 & 31), first = lane & segment;
    s32 last = first | (clamp & ~segment);
    s32 j = variant == 0 ? lane - n : variant == 1 ? lane + n : variant == 2 ? lane ^ n : first | (n & ~segment);
    *inside = variant == 0 ? j >= last : j <= last;
    return *inside ? j : lane;
}

/* shfl d|p, a, b, c, mask: operands in this order */
static void shuffle(Warp *w, const Insn *i)
{
    const u32 *b = REG(u32, 3), *c = REG(u32, 4), *members = REG(u32, 5), mask = w->mask;
    u32 *out = REG(u32, 0), a[LANES], missing = 0, inside = 0;
    s32 source[LANES], in[LANES];
    memcpy(a, REG(u32, 2), sizeof a);
    EACH (l) {
        source[l] = shuffle_source(i->variant, l, b[l], c[l], &in[l]);
        missing |= mask >> l & ~members[l] >> source[l] & 1;
    }
    for (int l = 0; missing && l < LANES; l++)
        if (mask >> l & ~members[l] >> source[l] & 1) {
            fault(w, i, l, VM_BAD_SYNC, 0, "shfl reads lane %d, which is not in its mask %08x", source[l], members[l]);
            return;
        }
    EACH (l) {
        u32 value = a[source[l]];
        out[l] = mask >> l & 1 ? value : out[l];
        inside |= (u32)in[l] << l;
    }
    predicate_set(REG(u32, 1), inside, mask);
}

/* variant: 0 all, 1 any, 2 uniform */
static void vote(Warp *w, const Insn *i)
{
    u32 yes = (*REG(u32, 1) ^ (i->negate ? UINT32_MAX : 0)) & w->mask;
    bool all = yes == w->mask, any = yes != 0;
    bool holds = i->variant == 0 ? all : i->variant == 1 ? any : all || !any;
    predicate_set(REG(u32, 0), holds ? UINT32_MAX : 0, w->mask);
}

static void ballot(Warp *w, const Insn *i)
{
    u32 yes = (*REG(u32, 1) ^ (i->negate ? UINT32_MAX : 0)) & w->mask, *out = REG(u32, 0);
    EACH_ON (l)
        out[l] = yes;
}

static void match_any(Warp *w, const Insn *i)
{
    u32 *out = REG(u32, 0), a[LANES];
    memcpy(a, REG(u32, 1), sizeof a);
    EACH_ON (l) {
        u32 same = 0;
        for (int j = 0; j < LANES; j++)
            same |= (u32)(a[j] == a[l]) << j;
        out[l] = same & w->mask;
    }
}

static u32 reduce(int variant, bool is_signed, u32 x, u32 y)
{
    bool less = is_signed ? (s32)x < (s32)y : x < y;
    switch (variant) {
    case 0:
        return x + y;
    case 1:
        return x & y;
    case 2:
        return x | y;
    case 3:
        return x ^ y;
    case 4:
        return less ? x : y;
    default:
        return less ? y : x;
    }
}

/* variant: add, and, or, xor, min, max; negate: signed */
static void reduction(Warp *w, const Insn *i)
{
    const u32 *a = REG(u32, 1);
    u32 *out = REG(u32, 0), r = a[first_lane(w->mask)];
    for (u32 rest = w->mask & (w->mask - 1); rest != 0; rest &= rest - 1)
        r = reduce(i->variant, i->negate, r, a[first_lane(rest)]);
    EACH_ON (l)
        out[l] = r;
}

/* The lowest lane of the mask is elected. */
static void elect(Warp *w, const Insn *i)
{
    u32 *out = REG(u32, 0);
    EACH_ON (l)
        out[l] = (u32)first_lane(w->mask);
    predicate_set(REG(u32, 1), w->mask & (0 - w->mask), w->mask);
}

static void active_mask(Warp *w, const Insn *i)
{
    u32 *out = REG(u32, 0);
    EACH_ON (l)
        out[l] = w->mask;
}

/* What lanes wrote before is ordered before what others read after. */
static void warp_sync(Warp *w, const Insn *i)
{
    (void)i;
    w->time++;
}

/* ---- Packing ------------------------------------------------------------------------------------------------------- */

/* count parts of width bytes, the first lowest, in a register of reg_width bytes */
static void pack(Warp *w, const Insn *i)
{
    int bits = 8 * i->width;
    EACH_ON (l) {
        u64 v = 0;
        for (int k = 0; k < i->count; k++)
            v |= ((u64)REG(u32, 1 + k)[l] & ((1ull << bits) - 1)) << bits * k;
        if (i->reg_width == 8)
            REG(u64, 0)[l] = v;
        else
            REG(u32, 0)[l] = (u32)v;
    }
}

static void unpack(Warp *w, const Insn *i)
{
    int bits = 8 * i->width;
    EACH_ON (l) {
        u64 v = i->reg_width == 8 ? REG(u64, i->count)[l] : REG(u32, i->count)[l];
        for (int k = 0; k < i->count; k++)
            REG(u32, k)[l] = (u32)(v >> bits * k & ((1ull << bits) - 1));
    }
}

/* The same for the usual cases: two halves of a 32-bit or 64-bit register. */
#define UNPACK_TWO(name, T, bits)                                                                                                \
    static void name(Warp *w, const Insn *i)                                                                                     \
    {                                                                                                                            \
        u32 *low = REG(u32, 0), *high = REG(u32, 1);                                                                             \
        const T *in = REG(T, 2);                                                                                                 \
        const u32 mask = w->mask;                                                                                                \
        _Pragma("GCC ivdep") EACH (l)                                                                                            \
        {                                                                                                                        \
            const T v = in[l];                                                                                                   \
            const u32 a = (u32)(v & (((T)1 << bits) - 1)), b = (u32)(v >> bits);                                                 \
            low[l] = mask >> l & 1 ? a : low[l];                                                                                 \
            high[l] = mask >> l & 1 ? b : high[l];                                                                               \
        }                                                                                                                        \
    }
UNPACK_TWO(unpack_16, u32, 16)
UNPACK_TWO(unpack_32, u64, 32)

/* cvta: variant 1: generic to the window's own address; 0: the other way, into window `count` */
#define PACK_OPS(X)                                                                                                              \
    X(pack_16, "pack.16", u32, u32, u32, NONE, 2, VM_MOVE, 0, (a & 0xffffu) | b << 16)                                           \
    X(pack_32, "pack.32", u64, u32, u32, NONE, 2, VM_MOVE, 0, a | (u64)b << 32)                                                  \
    X(convert_address, "cvta", u64, u64, NONE, NONE, 1, VM_MOVE, 0,                                                              \
      i->variant ? a & ~WINDOW_MASK : a | (u64)i->count << WINDOW_SHIFT)
PACK_OPS(OP_FUNCTION)

/* ---- The odd ones -------------------------------------------------------------------------------------------------- */

static void is_space(Warp *w, const Insn *i)
{
    const u64 *in = REG(u64, 1);
    u32 holds = 0;
    EACH (l)
        holds |= (u32)(in[l] >> WINDOW_SHIFT == i->count) << l;
    predicate_set(REG(u32, 0), holds, w->mask);
}

/* Time is the number of instructions that the warp has executed. */
static void clock_32(Warp *w, const Insn *i)
{
    u32 *out = REG(u32, 0);
    EACH_ON (l)
        out[l] = (u32)w->steps;
}

static void clock_64(Warp *w, const Insn *i)
{
    u64 *out = REG(u64, 0);
    EACH_ON (l)
        out[l] = w->steps;
}

static void trap(Warp *w, const Insn *i)
{
    fault(w, i, first_lane(w->mask), VM_TRAP, 0, "the kernel executed a trap");
}

static void nothing(Warp *w, const Insn *i)
{
    (void)w;
    (void)i;
}

#define NAMED(name, run, class)                                                                                                  \
    {                                                                                                                            \
        name, run, 0, 0, {0}, class, 0                                                                                           \
    }
const OpDef warp_ops[] = {PACK_OPS(OP_ENTRY) NAMED("shfl", shuffle, VM_WARP),
                          NAMED("vote", vote, VM_WARP),
                          NAMED("vote.ballot", ballot, VM_WARP),
                          NAMED("match.any", match_any, VM_WARP),
                          NAMED("redux", reduction, VM_WARP),
                          NAMED("elect", elect, VM_WARP),
                          NAMED("activemask", active_mask, VM_WARP),
                          NAMED("warp.sync", warp_sync, VM_CONTROL),
                          NAMED("pack", pack, VM_MOVE),
                          NAMED("unpack", unpack, VM_MOVE),
                          NAMED("unpack.16", unpack_16, VM_MOVE),
                          NAMED("unpack.32", unpack_32, VM_MOVE),
                          NAMED("isspacep", is_space, VM_INTEGER),
                          NAMED("clock.32", clock_32, VM_MOVE),
                          NAMED("clock.64", clock_64, VM_MOVE),
                          NAMED("trap", trap, VM_CONTROL),
                          NAMED("nothing", nothing, VM_CONTROL),
                          OP_END};
