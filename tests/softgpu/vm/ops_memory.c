/* Loads, stores, atomics, ldmatrix, cp.async and fences.
 *
 * Every access goes through resolve(): it turns the lanes' addresses into pointers after it has checked and counted them. The
 * usual case is fast: all lanes in one allocation or one shared variable, the same as last time. */
#include "tests/softgpu/vm/checks.h"
#include "tests/softgpu/vm/ops.h"
#include "tests/softgpu/vm/profile.h"

/* ---- From addresses to pointers ------------------------------------------------------------------------------------ */

/* The lowest and highest address of the lanes that take part, and all their bits, for the alignment. */
typedef struct Span {
    u64 low, high, bits;
} Span;

static inline Span span_of(const u64 *address, u32 mask)
{
    u64 low = UINT64_MAX, high = 0, bits = 0;
    EACH (l) {
        bool on = mask >> l & 1;
        u64 x = on ? address[l] : UINT64_MAX, y = on ? address[l] : 0;
        low = x < low ? x : low;
        high = y > high ? y : high;
        bits |= y;
    }
    return (Span){low, high, bits};
}

static inline bool span_within(const Span *s, int bytes, u64 begin, u64 end)
{
    return s->low >= begin && s->high < end && (u64)bytes <= end - s->high && (s->bits & ((u64)bytes - 1)) == 0;
}

static inline void addresses_move(u64 *address, u64 distance)
{
    EACH (l)
        address[l] += distance;
}

static bool resolve_global(Warp *w, const Insn *i, u64 *address, int bytes, Access access)
{
    Block *b = w->block;
    const VmOptions *o = &b->launch->vm->options;
    Span s = span_of(address, w->mask);
    if (b->last == NULL || !span_within(&s, bytes, b->last->begin, b->last->end))
        b->last = allocation_find(b->launch->vm, s.low);
    bool together = b->last != NULL && span_within(&s, bytes, b->last->begin, b->last->end);
    if (!together && !global_bounds(w, i, address, bytes, access))
        return false;
    if (o->check && !global_race(w, i, address, bytes, access))
        return false;
    if (o->profile)
        count_global(w, i, address, bytes, access == ACCESS_WRITE);
    if (together) {
        addresses_move(address, (u64)b->last->host - b->last->begin);
        return true;
    }
    EACH_ON (l) {
        const Allocation *a = allocation_find(b->launch->vm, address[l]);
        address[l] += (u64)a->host - a->begin;
    }
    return true;
}

static bool resolve_shared(Warp *w, const Insn *i, u64 *offset, int bytes, SharedUse use)
{
    Block *b = w->block;
    const VmOptions *o = &b->launch->vm->options;
    Span s = span_of(offset, w->mask);
    const SharedVariable *v = b->last_shared;
    if (!span_within(&s, bytes, v->offset, v->offset + v->bytes) && !shared_bounds(w, i, offset, bytes))
        return false;
    if (o->check && !shared_race(w, i, offset, bytes, use))
        return false;
    if (o->profile && use == SHARED_COPY_ISSUED)
        count_banks(w, i, offset, bytes); /* the request is counted at its source */
    else if (o->profile)
        count_shared(w, i, offset, bytes);
    addresses_move(offset, (u64)b->shared);
    return true;
}

static bool resolve_local(Warp *w, const Insn *i, u64 *offset, int bytes)
{
    if (!local_bounds(w, i, offset, bytes))
        return false;
    EACH (l)
        offset[l] += (u64)w->local + (u64)l * w->block->kernel->info.local_bytes;
    return true;
}

static bool resolve(Warp *w, const Insn *i, Space space, u64 *address, int bytes, Access access);

/* Generic addresses: the lanes of each window on their own. */
static bool resolve_generic(Warp *w, const Insn *i, u64 *address, int bytes, Access access)
{
    static const Space windows[] = {SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL};
    const u32 mask = w->mask;
    u32 lanes[3] = {0};
    EACH_ON (l) {
        u64 window = address[l] >> WINDOW_SHIFT;
        lanes[window < 3 ? window : 0] |= 1u << l;
        if (window < 3)
            address[l] &= ~WINDOW_MASK;
    }
    bool well = true;
    u64 moved[LANES];
    for (int k = 0; k < 3 && well; k++) {
        w->mask = lanes[k];
        if (lanes[k] == 0)
            continue;
        memcpy(moved, address, sizeof moved);
        well = resolve(w, i, windows[k], moved, bytes, access);
        EACH_ON (l)
            address[l] = moved[l];
    }
    w->mask = mask;
    return well;
}

/* Addresses of `bytes` bytes in the space become pointers. False after a fault. Lanes that take no part get anything. */
static bool resolve(Warp *w, const Insn *i, Space space, u64 *address, int bytes, Access access)
{
    static const SharedUse uses[] = {SHARED_READ, SHARED_WRITE, SHARED_ATOMIC};
    switch (space) {
    case SPACE_GLOBAL:
        return resolve_global(w, i, address, bytes, access);
    case SPACE_SHARED:
        return resolve_shared(w, i, address, bytes, uses[access]);
    case SPACE_LOCAL:
        return resolve_local(w, i, address, bytes);
    default:
        return resolve_generic(w, i, address, bytes, access);
    }
}

/* The lanes' addresses: register and constant part. A 32-bit register is an address in shared or local memory. */
static inline void addresses_read(Warp *w, const Insn *i, int operand, int width, s64 offset, u64 *address)
{
    if (width == 8) {
        const u64 *base = REG(u64, operand);
        EACH (l)
            address[l] = base[l] + (u64)offset;
    } else {
        const u32 *base = REG(u32, operand);
        EACH (l)
            address[l] = base[l] + (u32)offset;
    }
}

/* ---- Load and store ------------------------------------------------------------------------------------------------ */

/* Do all 32 lanes take part, with addresses side by side? Then a load of 32-bit elements is a copy. */
static inline bool contiguous(const Warp *w, const u64 *address, u64 stride)
{
    u64 apart = 0;
    EACH (l)
        apart |= address[l] ^ (address[0] + (u64)l * stride);
    return w->mask == UINT32_MAX && apart == 0;
}

/* One element of each lane into a register, extended by zeros or its sign. */
#define LOAD_ELEMENT(R, E)                                                                                                       \
    do {                                                                                                                         \
        R *out = REG(R, v);                                                                                                      \
        EACH_ON (l) {                                                                                                            \
            E e;                                                                                                                 \
            memcpy(&e, (const u8 *)address[l] + (size_t)v * sizeof e, sizeof e);                                                 \
            out[l] = (R)e;                                                                                                       \
        }                                                                                                                        \
    } while (0)

/* width, sign, register's width */
#define LOAD_FORM(width, is_signed, reg_width) ((width) << 8 | (is_signed) << 4 | (reg_width))

static void load_element(Warp *w, const Insn *i, int v, const u64 *address)
{
    switch (LOAD_FORM(i->width, i->variant, i->reg_width)) {
    case LOAD_FORM(1, 0, 4):
        LOAD_ELEMENT(u32, u8);
        break;
    case LOAD_FORM(1, 1, 4):
        LOAD_ELEMENT(u32, s8);
        break;
    case LOAD_FORM(2, 0, 4):
        LOAD_ELEMENT(u32, u16);
        break;
    case LOAD_FORM(2, 1, 4):
        LOAD_ELEMENT(u32, s16);
        break;
    case LOAD_FORM(4, 0, 4):
    case LOAD_FORM(4, 1, 4):
        LOAD_ELEMENT(u32, u32);
        break;
    case LOAD_FORM(1, 0, 8):
        LOAD_ELEMENT(u64, u8);
        break;
    case LOAD_FORM(1, 1, 8):
        LOAD_ELEMENT(u64, s8);
        break;
    case LOAD_FORM(2, 0, 8):
        LOAD_ELEMENT(u64, u16);
        break;
    case LOAD_FORM(2, 1, 8):
        LOAD_ELEMENT(u64, s16);
        break;
    case LOAD_FORM(4, 0, 8):
        LOAD_ELEMENT(u64, u32);
        break;
    case LOAD_FORM(4, 1, 8):
        LOAD_ELEMENT(u64, s32);
        break;
    default:
        LOAD_ELEMENT(u64, u64);
    }
}

/* 32 lanes times count elements of 4 bytes, side by side, to count registers */
static void load_contiguous(Warp *w, const Insn *i, const u32 *from)
{
    u32 *a = REG(u32, 0), *b = REG(u32, 1), *c = REG(u32, 2), *d = REG(u32, 3);
    if (i->count == 1) {
        memcpy(a, from, LANES * sizeof *a);
    } else if (i->count == 2) {
        _Pragma("GCC ivdep") EACH (l)
        {
            a[l] = from[2 * l];
            b[l] = from[2 * l + 1];
        }
    } else {
        _Pragma("GCC ivdep") EACH (l)
        {
            a[l] = from[4 * l];
            b[l] = from[4 * l + 1];
            c[l] = from[4 * l + 2];
            d[l] = from[4 * l + 3];
        }
    }
}

static void load(Warp *w, const Insn *i)
{
    u64 address[LANES];
    int bytes = i->width * i->count;
    addresses_read(w, i, i->base, i->base_width, i->imm, address);
    if (!resolve(w, i, (Space)i->space, address, bytes, ACCESS_READ))
        return;
    if (i->width == 4 && i->reg_width == 4 && contiguous(w, address, (u64)bytes)) {
        load_contiguous(w, i, (const u32 *)address[0]);
        return;
    }
    for (int v = 0; v < i->count; v++)
        load_element(w, i, v, address);
}

#define STORE_ELEMENT(R, E)                                                                                                      \
    do {                                                                                                                         \
        const R *in = REG(R, 1 + v);                                                                                             \
        EACH_ON (l) {                                                                                                            \
            E e = (E)in[l];                                                                                                      \
            memcpy((u8 *)address[l] + (size_t)v * sizeof e, &e, sizeof e);                                                       \
        }                                                                                                                        \
    } while (0)

static void store_element(Warp *w, const Insn *i, int v, const u64 *address)
{
    switch (LOAD_FORM(i->width, 0, i->reg_width)) {
    case LOAD_FORM(1, 0, 4):
        STORE_ELEMENT(u32, u8);
        break;
    case LOAD_FORM(2, 0, 4):
        STORE_ELEMENT(u32, u16);
        break;
    case LOAD_FORM(4, 0, 4):
        STORE_ELEMENT(u32, u32);
        break;
    case LOAD_FORM(1, 0, 8):
        STORE_ELEMENT(u64, u8);
        break;
    case LOAD_FORM(2, 0, 8):
        STORE_ELEMENT(u64, u16);
        break;
    case LOAD_FORM(4, 0, 8):
        STORE_ELEMENT(u64, u32);
        break;
    default:
        STORE_ELEMENT(u64, u64);
    }
}

static void store_contiguous(Warp *w, const Insn *i, u32 *to)
{
    const u32 *a = REG(u32, 1), *b = REG(u32, 2), *c = REG(u32, 3), *d = REG(u32, 4);
    if (i->count == 1) {
        memcpy(to, a, LANES * sizeof *a);
    } else if (i->count == 2) {
        _Pragma("GCC ivdep") EACH (l)
        {
            to[2 * l] = a[l];
            to[2 * l + 1] = b[l];
        }
    } else {
        _Pragma("GCC ivdep") EACH (l)
        {
            to[4 * l] = a[l];
            to[4 * l + 1] = b[l];
            to[4 * l + 2] = c[l];
            to[4 * l + 3] = d[l];
        }
    }
}

static void store(Warp *w, const Insn *i)
{
    u64 address[LANES];
    int bytes = i->width * i->count;
    addresses_read(w, i, i->base, i->base_width, i->imm, address);
    if (!resolve(w, i, (Space)i->space, address, bytes, ACCESS_WRITE))
        return;
    if (i->width == 4 && i->reg_width == 4 && contiguous(w, address, (u64)bytes)) {
        store_contiguous(w, i, (u32 *)address[0]);
        return;
    }
    for (int v = 0; v < i->count; v++)
        store_element(w, i, v, address);
}

/* ---- Parameters ---------------------------------------------------------------------------------------------------- */

/* All lanes read the same place. */
static void load_param(Warp *w, const Insn *i)
{
    u64 address[LANES];
    EACH (l)
        address[l] = (u64)(w->block->launch->params + i->imm);
    for (int v = 0; v < i->count; v++)
        load_element(w, i, v, address);
}

static void load_param_indexed(Warp *w, const Insn *i)
{
    u64 address[LANES];
    u32 size = w->block->kernel->info.param_bytes, bytes = (u32)i->width * i->count;
    addresses_read(w, i, i->base, i->base_width, i->imm, address);
    EACH_ON (l)
        if (address[l] > size || bytes > size - address[l]) {
            fault(w, i, l, VM_OUT_OF_BOUNDS, address[l], "read of byte %llu of %u bytes of parameters",
                  (unsigned long long)address[l], size);
            return;
        }
    addresses_move(address, (u64)w->block->launch->params);
    for (int v = 0; v < i->count; v++)
        load_element(w, i, v, address);
}

/* ---- Atomics ------------------------------------------------------------------------------------------------------- */

typedef enum AtomicOp { ADD, MIN, MAX, AND, OR, XOR, EXCH, CAS, INC, DEC } AtomicOp;

/* What the word becomes; b, c are the instruction's inputs. Signed: words are sign-extended, so that one comparison serves both
 * sizes. */
static inline u64 atomic_result(AtomicOp op, bool is_signed, u64 old, u64 b, u64 c)
{
    bool less = is_signed ? (s64)old < (s64)b : old < b;
    switch (op) {
    case ADD:
        return old + b;
    case MIN:
        return less ? old : b;
    case MAX:
        return less ? b : old;
    case AND:
        return old & b;
    case OR:
        return old | b;
    case XOR:
        return old ^ b;
    case EXCH:
        return b;
    case CAS:
        return old == b ? c : old;
    case INC:
        return old >= b ? 0 : old + 1;
    default:
        return old == 0 || old > b ? b : old - 1;
    }
}

static inline u64 add_floats(u64 old, u64 b)
{
    return float_bits(bits_float((u32)old) + bits_float((u32)b));
}

static inline u64 add_doubles(u64 old, u64 b)
{
    f64 x, y;
    memcpy(&x, &old, sizeof x);
    memcpy(&y, &b, sizeof y);
    x += y;
    memcpy(&old, &x, sizeof old);
    return old;
}

typedef enum AtomicType { TYPE_UNSIGNED, TYPE_SIGNED, TYPE_FLOAT } AtomicType;

static inline u64 atomic_next(const Insn *i, AtomicType type, u64 old, u64 b, u64 c)
{
    if (type == TYPE_FLOAT)
        return i->width == 4 ? add_floats(old, b) : add_doubles(old, b);
    if (type == TYPE_SIGNED && i->width == 4) {
        old = (u64)(s64)(s32)old;
        b = (u64)(s64)(s32)b;
    }
    return atomic_result((AtomicOp)i->variant, type == TYPE_SIGNED, old, b, c);
}

/* Lane after lane, as any order is allowed; other threads' blocks may work on the same word. Operands: old, address, b, c. */
#define ATOMIC_LANES(T)                                                                                                          \
    do {                                                                                                                         \
        T *out = REG(T, 0), b[LANES], c[LANES];                                                                                  \
        memcpy(b, REG(T, 2), sizeof b);                                                                                          \
        memcpy(c, REG(T, 3), sizeof c);                                                                                          \
        EACH_ON (l) {                                                                                                            \
            T *word = (T *)address[l], old = __atomic_load_n(word, __ATOMIC_RELAXED), next;                                      \
            do                                                                                                                   \
                next = (T)atomic_next(i, type, old, b[l], c[l]);                                                                 \
            while (!__atomic_compare_exchange_n(word, &old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));                   \
            out[l] = old;                                                                                                        \
        }                                                                                                                        \
    } while (0)

static inline void atomic(Warp *w, const Insn *i, AtomicType type)
{
    u64 address[LANES], device[LANES];
    addresses_read(w, i, i->base, i->base_width, i->imm, address);
    memcpy(device, address, sizeof device);
    if (!resolve(w, i, (Space)i->space, address, i->width, ACCESS_ATOMIC))
        return;
    if (w->block->launch->vm->options.check && i->space != SPACE_SHARED) {
        if (i->negate)
            global_fence(w->block);
        global_release(w, device);
    }
    if (i->width == 4)
        ATOMIC_LANES(u32);
    else
        ATOMIC_LANES(u64);
}

static void atomic_unsigned(Warp *w, const Insn *i)
{
    atomic(w, i, TYPE_UNSIGNED);
}

static void atomic_signed(Warp *w, const Insn *i)
{
    atomic(w, i, TYPE_SIGNED);
}

static void atomic_float(Warp *w, const Insn *i)
{
    atomic(w, i, TYPE_FLOAT);
}

static void fence(Warp *w, const Insn *i)
{
    if (i->variant)
        global_fence(w->block);
}

/* ---- ldmatrix ------------------------------------------------------------------------------------------------------ */

/* count matrices of 8 x 8 16-bit elements. Lane 8v + r has the address of row r of matrix v. Of each, lane 4g + t gets elements
 * (g, 2t) and (g, 2t + 1), so that four lanes hold a row as it lies in memory; transposed, (2t, g) and (2t + 1, g). */
static void load_matrix(Warp *w, const Insn *i)
{
    u64 address[LANES];
    u32 mask = w->mask;
    addresses_read(w, i, i->base, i->base_width, i->imm, address);
    w->mask = i->count == 4 ? UINT32_MAX : (1u << 8 * i->count) - 1;
    bool well = resolve(w, i, (Space)i->space, address, i->width, ACCESS_READ);
    w->mask = mask;
    for (int v = 0; v < i->count && well; v++) {
        u32 *out = REG(u32, v);
        u16 m[8][8];
        for (int r = 0; r < 8; r++)
            memcpy(i->variant ? (void *)m[r] : out + 4 * r, (const u8 *)address[8 * v + r], sizeof m[r]);
        for (int l = 0; l < LANES && i->variant; l++)
            out[l] = m[2 * (l % 4)][l / 4] | (u32)m[2 * (l % 4) + 1][l / 4] << 16;
    }
}

/* ---- cp.async ------------------------------------------------------------------------------------------------------
 * A copy from global to shared memory that is under way until its wait. By setting it happens at once, or at the wait: who reads
 * too early finds old bytes with the one, who overwrites the source too early with the other. Bytes beyond the source's are zero.
 */

static void copy_do(Warp *w, const PendingCopy *c)
{
    u8 *to = w->block->shared + c->shared;
    if (c->source_bytes == 16) { /* the usual size as a constant: one vector move */
        memcpy(to, c->source, 16);
        return;
    }
    memset(to, 0, c->bytes);
    memcpy(to, c->source, c->source_bytes);
}

static void copy_add(Warp *w, PendingCopy c)
{
    const VmOptions *o = &w->block->launch->vm->options;
    if (w->n_copies == w->max_copies) {
        w->max_copies = w->max_copies ? 2 * w->max_copies : 256;
        w->copies = host_resize(w->copies, (size_t)w->max_copies, sizeof c);
    }
    c.done = o->copy == VM_COPY_EARLY || (o->copy == VM_COPY_RANDOM && (block_random(w->block) >> 7 & 1));
    if (c.done)
        copy_do(w, &c);
    w->copies[w->n_copies++] = c;
}

/* The source's addresses become pointers, for the lanes that read anything. */
static bool copy_sources(Warp *w, const Insn *i, const u32 *size, u64 *source)
{
    u32 mask = w->mask, reading = 0;
    EACH_ON (l) {
        if (size[l] > i->width) {
            fault(w, i, l, VM_OUT_OF_BOUNDS, 0, "cp.async reads %u of %u bytes", size[l], i->width);
            return false;
        }
        reading |= (u32)(size[l] > 0) << l;
    }
    w->mask = reading;
    bool well = reading == 0 || resolve(w, i, SPACE_GLOBAL, source, i->width, ACCESS_READ);
    w->mask = mask;
    return well;
}

/* Operands: to, from, bytes of the source, from's constant part */
static void copy_async(Warp *w, const Insn *i)
{
    u64 to[LANES], from[LANES];
    u32 size[LANES];
    memcpy(size, REG(u32, 2), sizeof size);
    addresses_read(w, i, 0, i->base_width, i->imm, to);
    addresses_read(w, i, 1, 8, (s64)REG(u64, 3)[0], from);
    EACH (l)
        to[l] &= ~WINDOW_MASK;
    if (!copy_sources(w, i, size, from) || !resolve_shared(w, i, to, i->width, SHARED_COPY_ISSUED))
        return;
    EACH_ON (l)
        copy_add(w, (PendingCopy){.shared = (u32)(to[l] - (u64)w->block->shared),
                                  .bytes = i->width,
                                  .source_bytes = (u8)size[l],
                                  .lane = (u8)l,
                                  .group = w->copy_group[l],
                                  .source = (const u8 *)from[l],
                                  .insn = i});
}

static void copy_commit(Warp *w, const Insn *i)
{
    (void)i;
    EACH_ON (l)
        w->copy_group[l]++;
}

static bool copy_finish(Warp *w, const PendingCopy *c)
{
    if (!c->done)
        copy_do(w, c);
    if (!w->block->launch->vm->options.check)
        return true;
    u64 offset[LANES] = {0};
    u32 mask = w->mask;
    offset[c->lane] = c->shared;
    w->mask = 1u << c->lane;
    bool well = shared_race(w, c->insn, offset, c->bytes, SHARED_COPY_DONE);
    w->mask = mask;
    return well;
}

/* imm: how many of the newest groups may stay under way; variant 1: none, committed or not */
static void copy_wait(Warp *w, const Insn *i)
{
    int kept = 0;
    for (int n = 0; n < w->n_copies; n++) {
        PendingCopy *c = &w->copies[n];
        bool over = (w->mask >> c->lane & 1) && (i->variant || c->group < w->copy_group[c->lane] - (int)i->imm);
        if (!over)
            w->copies[kept++] = *c;
        else if (!copy_finish(w, c))
            return;
    }
    w->n_copies = kept;
}

#define NAMED(name, run)                                                                                                         \
    {                                                                                                                            \
        name, run, 0, 0, {0}, VM_LOAD_GLOBAL, 0                                                                                  \
    }
const OpDef memory_ops[] = {NAMED("ld", load),
                            NAMED("st", store),
                            NAMED("ld.param", load_param),
                            NAMED("ld.param.indexed", load_param_indexed),
                            NAMED("atom.unsigned", atomic_unsigned),
                            NAMED("atom.signed", atomic_signed),
                            NAMED("atom.float", atomic_float),
                            NAMED("fence", fence),
                            NAMED("ldmatrix", load_matrix),
                            NAMED("cp.async", copy_async),
                            NAMED("cp.async.commit", copy_commit),
                            NAMED("cp.async.wait", copy_wait),
                            OP_END};
