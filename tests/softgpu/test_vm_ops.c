/* Every kind of operation on registers: given inputs, the bits that must come out, from the PTX manual and by hand.
 *
 * A row is an instruction on registers d, a, b, c, each of 32 ('w') or 64 ('l') bits, or predicates p, q. It runs twice on 64
 * threads: by all of them, and guarded, by the odd ones, when the others must keep what d was. */
#include "tests/softgpu/vm_rig.h"

#include <math.h>

typedef struct Row {
    const char *sizes; /* of d, a, b, c */
    const char *text;
    uint64_t a, b, c, d;
} Row;

static const char kernel[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                             ".visible .entry k(.param .u64 data)\n{\n"
                             ".reg .b64 %%rd<4>; .reg .b32 %%r<4>; .reg .pred p, q, guard;\n"
                             ".reg %s d; .reg %s a; .reg %s b; .reg %s c;\n"
                             "ld.param.u64 %%rd0, [data];\n"
                             "ld.global%s a, [%%rd0];\nld.global%s b, [%%rd0+8];\nld.global%s c, [%%rd0+16];\n"
                             "ld.global%s d, [%%rd0+24];\n"
                             "mov.u32 %%r0, %%tid.x;\nand.b32 %%r1, %%r0, 1;\nsetp.ne.u32 guard, %%r1, 0;\n"
                             "setp.eq.u32 p, %%r0, %%r0;\nsetp.ne.u32 q, %%r0, %%r0;\n"
                             "%s\n"
                             "mul.wide.u32 %%rd1, %%r0, 8;\nadd.s64 %%rd1, %%rd0, %%rd1;\n"
                             "st.global%s [%%rd1+256], d;\nret;\n}\n";

static const char *type_of(const char *sizes, int k)
{
    return sizes[k] == 'l' ? ".b64" : ".b32";
}

/* Each instruction of a row's text with the guard in front. */
static void guard_all(const char *text, char *out)
{
    for (bool begins = true; *text != 0; text++) {
        if (begins && *text != ' ') {
            out += sprintf(out, "@guard ");
            begins = false;
        }
        *out++ = *text;
        begins |= *text == ';';
    }
    *out = 0;
}

static const uint64_t KEPT = 0x5a5a5a5a5a5a5a5aull;

static VmApprox approximation = VM_NEAREST; /* under which rows run */

static void run(const Row *row, const char *text, bool guarded)
{
    char ptx[4096];
    const char *d = type_of(row->sizes, 0), *a = type_of(row->sizes, 1), *b = type_of(row->sizes, 2), *c = type_of(row->sizes, 3);
    snprintf(ptx, sizeof ptx, kernel, d, a, b, c, a, b, c, d, text, d);
    VmOptions o = rig_options();
    o.approx = approximation;
    Rig *r = rig_open(o, RIG_BYTES);
    const uint64_t in[4] = {row->a, row->b, row->c, KEPT};
    memcpy(r->data, in, sizeof in);
    VmModule *m = vm_module_load(r->vm, ptx, row->text, &r->error);
    assert_non_null(m);
    if (!rig_launch(r, vm_kernel_at(m, 0), 1, 64, 0))
        fail_msg("%s: %s", row->text, r->error.text);
    for (int t = 0; t < 64; t++) {
        uint64_t out = 0, want = guarded && t % 2 == 0 ? KEPT : row->d;
        memcpy(&out, r->data + 256 + 8 * t, row->sizes[0] == 'l' ? 8 : 4);
        if (row->sizes[0] == 'w')
            want = (uint32_t)want;
        if (out != want)
            fail_msg("%s, thread %d%s: %#llx, not %#llx", row->text, t, guarded ? " guarded" : "", (unsigned long long)out,
                     (unsigned long long)want);
    }
    rig_close(r);
}

static void run_all(const Row *rows, size_t n)
{
    for (const Row *row = rows; row < rows + n; row++) {
        char guarded[1024];
        guard_all(row->text, guarded);
        run(row, row->text, false);
        run(row, guarded, true);
    }
}

#define RUN(rows) run_all(rows, sizeof rows / sizeof *rows)
#define M1        0xffffffffffffffffull

static void test_integer(void **state)
{
    (void)state;
    static const Row rows[] = {
        {"wwww", "add.s32 d, a, b;", 0x7fffffff, 1, 0, 0x80000000},
        {"wwww", "sub.u32 d, a, b;", 0, 1, 0, 0xffffffff},
        {"wwww", "mul.lo.s32 d, a, b;", 0xfffffffe, 3, 0, 0xfffffffa},
        {"wwww", "mad.lo.s32 d, a, b, c;", 7, 0xffffffff, 10, 3},
        {"wwww", "add.s16 d, a, b;", 0xffff, 2, 0, 1},
        {"wwww", "mul.lo.s16 d, a, b;", 0xffff, 0xffff, 0, 1},
        {"wwww", "min.s32 d, a, b;", 0xffffffff, 1, 0, 0xffffffff},
        {"wwww", "min.u32 d, a, b;", 0xffffffff, 1, 0, 1},
        {"wwww", "max.s16 d, a, b;", 0xffff, 1, 0, 1},
        {"wwww", "max.u16 d, a, b;", 0xffff, 1, 0, 0xffff},
        {"wwww", "div.s32 d, a, b;", 0xfffffff9, 2, 0, 0xfffffffd},
        {"wwww", "div.s32 d, a, b;", 0x80000000, 0xffffffff, 0, 0x80000000},
        {"wwww", "div.u32 d, a, b;", 7, 0, 0, 0xffffffff},
        {"wwww", "rem.s32 d, a, b;", 0xfffffff9, 2, 0, 0xffffffff},
        {"wwww", "rem.u32 d, a, b;", 100, 7, 0, 2},
        {"llll", "div.s64 d, a, b;", 0x8000000000000000ull, M1, 0, 0x8000000000000000ull},
        {"llll", "rem.s64 d, a, b;", 0x8000000000000000ull, M1, 0, 0},
        {"llll", "div.u64 d, a, b;", M1, 10, 0, 1844674407370955161ull},
        {"llll", "add.s64 d, a, b;", M1, 1, 0, 0},
        {"llll", "mul.lo.s64 d, a, b;", 0x100000001ull, 0x100000001ull, 0, 0x200000001ull},
        {"llll", "mad.lo.s64 d, a, b, c;", 3, M1, 5, 2},
        {"wwww", "neg.s32 d, a;", 5, 0, 0, 0xfffffffb},
        {"wwww", "abs.s32 d, a;", 0xfffffffb, 0, 0, 5},
        {"llll", "abs.s64 d, a;", M1, 0, 0, 1},
        {"wwww", "shl.b32 d, a, b;", 1, 31, 0, 0x80000000},
        {"wwww", "shl.b32 d, a, b;", 1, 32, 0, 0},
        {"wwww", "shr.u32 d, a, b;", 0x80000000, 32, 0, 0},
        {"wwww", "shr.s32 d, a, b;", 0x80000000, 40, 0, 0xffffffff},
        {"wwww", "shr.s16 d, a, b;", 0x8000, 3, 0, 0xf000},
        {"wwww", "shr.u16 d, a, b;", 0x8000, 3, 0, 0x1000},
        {"llww", "shl.b64 d, a, b;", 1, 63, 0, 0x8000000000000000ull},
        {"llww", "shr.s64 d, a, b;", 0x8000000000000000ull, 63, 0, M1},
        {"llww", "shr.u64 d, a, b;", 0x8000000000000000ull, 63, 0, 1},
        {"wwww", "and.b32 d, a, b;", 12, 10, 0, 8},
        {"wwww", "or.b32 d, a, b;", 12, 10, 0, 14},
        {"wwww", "xor.b32 d, a, b;", 12, 10, 0, 6},
        {"wwww", "not.b32 d, a;", 12, 0, 0, 0xfffffff3},
        {"wwww", "not.b16 d, a;", 12, 0, 0, 0xfff3},
        {"llll", "xor.b64 d, a, b;", M1, 1, 0, M1 - 1},
        {"wwww", "mul.hi.u32 d, a, b;", 0xffffffff, 0xffffffff, 0, 0xfffffffe},
        {"wwww", "mul.hi.s32 d, a, b;", 0xffffffff, 2, 0, 0xffffffff},
        {"wwww", "mul.hi.u16 d, a, b;", 0xffff, 0xffff, 0, 0xfffe},
        {"llll", "mul.hi.u64 d, a, b;", M1, M1, 0, M1 - 1},
        {"llll", "mul.hi.s64 d, a, b;", M1, M1, 0, 0},
        {"wwww", "mad.hi.u32 d, a, b, c;", 0x80000000, 4, 5, 7},
        {"lwww", "mul.wide.u32 d, a, b;", 0xffffffff, 0xffffffff, 0, 0xfffffffe00000001ull},
        {"lwww", "mul.wide.s32 d, a, b;", 0xffffffff, 5, 0, M1 - 4},
        {"wwww", "mul.wide.u16 d, a, b;", 0xffff, 0xffff, 0, 0xfffe0001},
        {"wwww", "mul.wide.s16 d, a, b;", 0xffff, 5, 0, 0xfffffffb},
        {"lwwl", "mad.wide.s32 d, a, b, c;", 0xffffffff, 5, 7, 2},
        {"lwwl", "mad.wide.u32 d, a, b, c;", 0xffffffff, 2, 2, 0x200000000ull},
    };
    RUN(rows);
}

static void test_bits(void **state)
{
    (void)state;
    static const Row rows[] = {
        {"wwww", "popc.b32 d, a;", 0xf0f0, 0, 0, 8},
        {"wlww", "popc.b64 d, a;", M1, 0, 0, 64},
        {"wwww", "clz.b32 d, a;", 1, 0, 0, 31},
        {"wwww", "clz.b32 d, a;", 0, 0, 0, 32},
        {"wlww", "clz.b64 d, a;", 1, 0, 0, 63},
        {"wwww", "bfind.u32 d, a;", 0x10, 0, 0, 4},
        {"wwww", "bfind.u32 d, a;", 0, 0, 0, 0xffffffff},
        {"wwww", "bfind.s32 d, a;", 0xffffffef, 0, 0, 4},
        {"wwww", "bfind.s32 d, a;", 0xffffffff, 0, 0, 0xffffffff},
        {"wwww", "bfind.shiftamt.u32 d, a;", 0x10, 0, 0, 27},
        {"wlww", "bfind.u64 d, a;", 0x1000000000ull, 0, 0, 36},
        {"wwww", "brev.b32 d, a;", 0x00000001, 0, 0, 0x80000000},
        {"wwww", "brev.b32 d, a;", 0x12345678, 0, 0, 0x1e6a2c48},
        {"llll", "brev.b64 d, a;", 1, 0, 0, 0x8000000000000000ull},
        {"wwww", "prmt.b32 d, a, b, c;", 0x03020100, 0x07060504, 0x7531, 0x07050301},
        {"wwww", "prmt.b32 d, a, b, c;", 0x00008000, 0, 0x9999, 0xffffffff},
        {"wwww", "bfe.u32 d, a, b, c;", 0x12345678, 8, 8, 0x56},
        {"wwww", "bfe.s32 d, a, b, c;", 0x0000f000, 12, 4, 0xffffffff},
        {"wwww", "bfe.s32 d, a, b, c;", 0x80000000, 31, 5, 0xffffffff},
        {"wwww", "bfe.u32 d, a, b, c;", 0x12345678, 8, 0, 0},
        {"llww", "bfe.u64 d, a, b, c;", 0x1234567890abcdefull, 32, 16, 0x5678},
        {"wwww", "bfi.b32 d, a, b, c, 8;", 0xab, 0xffffffff, 4, 0xfffffabf},
        {"wwww", "lop3.b32 d, a, b, c, 0x96;", 0xc, 0xa, 0x6, 0xc ^ 0xa ^ 0x6},
        {"wwww", "lop3.b32 d, a, b, c, 0xea;", 0xff00, 0xf0f0, 0x1, 0xf001},
        {"wwww", "shf.l.wrap.b32 d, a, b, c;", 0x80000000, 0x1, 1, 0x3},
        {"wwww", "shf.r.wrap.b32 d, a, b, c;", 0x80000000, 0x1, 33, 0xc0000000},
        {"wwww", "shf.r.clamp.b32 d, a, b, c;", 0x80000000, 0x1, 33, 0x1},
        {"wwww", "shf.l.clamp.b32 d, a, b, c;", 0x80000000, 0x1, 40, 0x80000000},
        {"wwww", "sad.s32 d, a, b, c;", 0xffffffff, 5, 10, 16},
        {"wwww", "sad.u32 d, a, b, c;", 3, 5, 10, 12},
        {"wwww", "dp4a.s32.s32 d, a, b, c;", 0x01ff0203, 0x01010101, 10, 15},
        {"wwww", "dp4a.u32.u32 d, a, b, c;", 0x01ff0203, 0x01010101, 10, 271},
        {"wwww", "cnot.b32 d, a;", 0, 0, 0, 1},
        {"wwww", "mov.b32 d, a;", 0x1234, 0, 0, 0x1234},
        {"lwww", "mov.b64 d, {a, b};", 1, 2, 0, 0x200000001ull},
        {"wlww", "{ .reg .b32 x; mov.b64 {x, d}, a; }", 0x500000001ull, 0, 0, 5},
        {"wwww", "{ .reg .b16 x, y; mov.b32 {x, y}, a; mov.b32 d, {y, x}; }", 0x00010002, 0, 0, 0x00020001},
        {"llww", "{ .reg .b16 x, y, z, w; mov.b64 {x, y, z, w}, a; mov.b64 d, {w, z, y, x}; }", 0x1111222233334444ull, 0, 0,
         0x4444333322221111ull},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        char guarded[1024];
        run(&rows[n], rows[n].text, false);
        if (rows[n].text[0] == '{')
            continue; /* a guard does not go with a brace */
        guard_all(rows[n].text, guarded);
        run(&rows[n], guarded, true);
    }
}

/* Bits of floats: 1 3f800000, 2 40000000, 3 40400000, -1 bf800000, inf 7f800000; the smallest number 1; 2^-126 00800000. */
static void test_float(void **state)
{
    (void)state;
    static const Row rows[] = {
        {"wwww", "add.f32 d, a, b;", 0x3f800000, 0x40000000, 0, 0x40400000},
        {"wwww", "add.rn.f32 d, a, b;", 0x3f800000, 0x33800000, 0, 0x3f800000}, /* 1 + 2^-24: a tie, to even */
        {"wwww", "add.rz.f32 d, a, b;", 0x3f800001, 0xb3800000, 0, 0x3f800000},
        {"wwww", "add.rp.f32 d, a, b;", 0x3f800000, 0x00000001, 0, 0x3f800001},
        {"wwww", "add.rm.f32 d, a, b;", 0x3f800000, 0x80000001, 0, 0x3f7fffff},
        {"wwww", "add.rm.f32 d, a, b;", 0x3f800000, 0x40000000, 0, 0x40400000}, /* nothing is lost: nothing is moved */
        {"wwww", "add.rp.f32 d, a, b;", 0x3f800000, 0x40000000, 0, 0x40400000},
        {"wwww", "add.rz.f32 d, a, b;", 0xbf800000, 0xc0000000, 0, 0xc0400000},
        {"wwww", "fma.rm.f32 d, a, b, c;", 0x3f800001, 0x3f800001, 0, 0x3f800002},
        {"wwww", "fma.rz.f32 d, a, b, c;", 0xbf800001, 0x3f800001, 0, 0xbf800002},
        {"wwww", "fma.rp.f32 d, a, b, c;", 0x3f800001, 0x3f800001, 0, 0x3f800003},
        {"wwww", "sub.f32 d, a, b;", 0x3f800000, 0x40000000, 0, 0xbf800000},
        {"wwww", "mul.f32 d, a, b;", 0x40400000, 0x40000000, 0, 0x40c00000},
        {"wwww", "mul.f32 d, a, b;", 0x00000001, 0x40000000, 0, 0x00000002},
        {"wwww", "mul.ftz.f32 d, a, b;", 0x00000001, 0x40000000, 0, 0},
        {"wwww", "mul.ftz.f32 d, a, b;", 0x80800000, 0x3f000000, 0, 0x80000000},
        {"wwww", "fma.rn.f32 d, a, b, c;", 0x3f800001, 0x3f800001, 0xbf800002, 0x28800000}, /* 2^-46 is not lost */
        {"wwww", "add.sat.f32 d, a, b;", 0x3f800000, 0x3f800000, 0, 0x3f800000},
        {"wwww", "fma.rn.sat.f32 d, a, b, c;", 0xbf800000, 0x3f800000, 0, 0},
        {"wwww", "neg.f32 d, a;", 0, 0, 0, 0x80000000},
        {"wwww", "abs.f32 d, a;", 0xbf800000, 0, 0, 0x3f800000},
        {"wwww", "abs.ftz.f32 d, a;", 0x80000001, 0, 0, 0},
        {"wwww", "min.f32 d, a, b;", 0x7fc00000, 0x3f800000, 0, 0x3f800000},
        {"wwww", "max.f32 d, a, b;", 0x80000000, 0, 0, 0},
        {"wwww", "min.f32 d, a, b;", 0x80000000, 0, 0, 0x80000000},
        {"wwww", "max.f32 d, a, b;", 0x7fc00000, 0x7fc00001, 0, 0x7fffffff},
        {"wwww", "div.rn.f32 d, a, b;", 0x3f800000, 0x40400000, 0, 0x3eaaaaab},
        {"wwww", "rcp.rn.f32 d, a;", 0x40400000, 0, 0, 0x3eaaaaab},
        {"wwww", "rcp.approx.ftz.f32 d, a;", 0x40000000, 0, 0, 0x3f000000},
        {"wwww", "rcp.approx.ftz.f32 d, a;", 0x00000001, 0, 0, 0x7f800000},
        {"wwww", "sqrt.rn.f32 d, a;", 0x40000000, 0, 0, 0x3fb504f3},
        {"wwww", "rsqrt.approx.f32 d, a;", 0x40800000, 0, 0, 0x3f000000},
        {"wwww", "ex2.approx.f32 d, a;", 0x40400000, 0, 0, 0x41000000},
        {"wwww", "ex2.approx.ftz.f32 d, a;", 0xff800000, 0, 0, 0},
        {"wwww", "ex2.approx.ftz.f32 d, a;", 0x43160000, 0, 0, 0x7f800000},
        {"wwww", "lg2.approx.f32 d, a;", 0x41000000, 0, 0, 0x40400000},
        {"wwww", "copysign.f32 d, a, b;", 0x80000000, 0x3f800000, 0, 0xbf800000},
        {"llll", "add.f64 d, a, b;", 0x3ff0000000000000ull, 0x3ff0000000000000ull, 0, 0x4000000000000000ull},
        {"llll", "fma.rn.f64 d, a, b, c;", 0x4000000000000000ull, 0x4000000000000000ull, 0xc010000000000000ull, 0},
        {"llll", "div.rn.f64 d, a, b;", 0x3ff0000000000000ull, 0x4000000000000000ull, 0, 0x3fe0000000000000ull},
        {"llll", "rcp.approx.ftz.f64 d, a;", 0x4008000000000000ull, 0, 0, 0x3fd5555500000000ull},
        {"llll", "sqrt.rn.f64 d, a;", 0x4010000000000000ull, 0, 0, 0x4000000000000000ull},
        {"llll", "max.f64 d, a, b;", 0x7ff8000000000000ull, 0, 0, 0},
    };
    RUN(rows);
}

/* fp16: 1 3c00, largest 7bff, smallest 0001. bf16: 1 3f80. */
static void test_half(void **state)
{
    (void)state;
    static const Row rows[] = {
        {"wwww", "add.f16 d, a, b;", 0x3c00, 0x3c00, 0, 0x4000},
        {"wwww", "add.f16 d, a, b;", 0x3c00, 0x1000, 0, 0x3c00}, /* 1 + 2^-11: a tie, to even */
        {"wwww", "mul.f16 d, a, b;", 0x7bff, 0x4000, 0, 0x7c00},
        {"wwww", "mul.f16 d, a, b;", 0x0001, 0x3800, 0, 0}, /* half of the smallest: a tie, to even */
        /* (1 + 2^-10)^2 - 2^-11 lies a little above the middle of two numbers, which is all that fp32 would say */
        {"wwww", "fma.rn.f16 d, a, b, c;", 0x3c01, 0x3c01, 0x9000, 0x3c02},
        {"wwww", "fma.rn.f16 d, a, b, c;", 0x054b, 0x27bf, 0x0ac7, 0x0adb}, /* just below the middle, which an fp32 sum hides */
        {"wwww", "fma.rn.f16 d, a, b, c;", 0x1548, 0x0ad1, 0x854f, 0x854b},
        {"wwww", "add.bf16 d, a, b;", 0x3f80, 0x3f80, 0, 0x4000},
        {"wwww", "fma.rn.bf16x2 d, a, b, c;", 0x3f804000, 0x40003f80, 0x00003f80, 0x40004040},
        {"wwww", "add.f16x2 d, a, b;", 0x3c004000, 0x3c003c00, 0, 0x40004200},
        {"wwww", "mul.bf16x2 d, a, b;", 0x3f80bf80, 0x40004000, 0, 0x4000c000},
        {"wwww", "max.f16x2 d, a, b;", 0x3c00bc00, 0x0000c000, 0, 0x3c00bc00},
        {"wwww", "neg.f16x2 d, a;", 0x3c00bc00, 0, 0, 0xbc003c00},
        {"wwww", "cvt.f32.f16 d, a;", 0x3c01, 0, 0, 0x3f802000},
        {"wwww", "cvt.f32.f16 d, a;", 0x8001, 0, 0, 0xb3800000},
        {"wwww", "cvt.f32.f16 d, a;", 0xfc00, 0, 0, 0xff800000},
        {"wwww", "cvt.rn.f16.f32 d, a;", 0x477fefff, 0, 0, 0x7bff}, /* just below 65520 */
        {"wwww", "cvt.rn.f16.f32 d, a;", 0x477ff000, 0, 0, 0x7c00},
        {"wwww", "cvt.rz.f16.f32 d, a;", 0x477ff000, 0, 0, 0x7bff},
        {"wwww", "cvt.rn.f16.f32 d, a;", 0x33000000, 0, 0, 0}, /* 2^-25: a tie, to even */
        {"wwww", "cvt.rn.f16.f32 d, a;", 0xb3000001, 0, 0, 0x8001},
        {"wwww", "cvt.rn.f16.f32 d, a;", 0x387fffff, 0, 0, 0x0400}, /* rounds up to the smallest normal number */
        {"wwww", "cvt.rn.bf16.f32 d, a;", 0x3f808000, 0, 0, 0x3f80},
        {"wwww", "cvt.rn.bf16.f32 d, a;", 0x3f818000, 0, 0, 0x3f82},
        {"wwww", "cvt.rn.bf16.f32 d, a;", 0x7f800001, 0, 0, 0x7fff},
        {"wwww", "cvt.rz.bf16.f32 d, a;", 0x3f81ffff, 0, 0, 0x3f81},
        {"wwww", "cvt.rn.bf16x2.f32 d, a, b;", 0x40000000, 0x3f800000, 0, 0x40003f80},
        {"wwww", "cvt.rn.f16x2.f32 d, a, b;", 0x40000000, 0x3f800000, 0, 0x40003c00},
        {"wwww", "cvt.rna.tf32.f32 d, a;", 0x3f801000, 0, 0, 0x3f802000},
    };
    RUN(rows);
}

static void test_convert(void **state)
{
    (void)state;
    static const Row rows[] = {
        {"wwww", "cvt.u32.u16 d, a;", 0xffff1234, 0, 0, 0x1234},
        {"wwww", "cvt.s32.s8 d, a;", 0xff, 0, 0, 0xffffffff},
        {"lwww", "cvt.s64.s32 d, a;", 0x80000000, 0, 0, 0xffffffff80000000ull},
        {"lwww", "cvt.u64.u32 d, a;", 0x80000000, 0, 0, 0x80000000},
        {"wlww", "cvt.u32.u64 d, a;", 0x1234567890abcdefull, 0, 0, 0x90abcdef},
        {"wlww", "cvt.u16.u32 d, a;", 0x1234567890abcdefull, 0, 0, 0xcdef},
        {"wwww", "cvt.u16.u32 d, a;", 0x12345678, 0, 0, 0x5678},
        {"wwww", "cvt.rzi.s32.f32 d, a;", 0xbfc00000, 0, 0, 0xffffffff}, /* -1.5 */
        {"wwww", "cvt.rni.s32.f32 d, a;", 0xbfc00000, 0, 0, 0xfffffffe},
        {"wwww", "cvt.rni.s32.f32 d, a;", 0x40200000, 0, 0, 2}, /* 2.5 */
        {"wwww", "cvt.rmi.s32.f32 d, a;", 0xbfc00000, 0, 0, 0xfffffffe},
        {"wwww", "cvt.rpi.s32.f32 d, a;", 0xbfc00000, 0, 0, 0xffffffff},
        {"wwww", "cvt.rzi.s32.f32 d, a;", 0x7fc00000, 0, 0, 0},
        {"wwww", "cvt.rzi.s32.f32 d, a;", 0x4f000000, 0, 0, 0x7fffffff}, /* 2^31 */
        {"wwww", "cvt.rzi.u32.f32 d, a;", 0xbf800000, 0, 0, 0},
        {"wwww", "cvt.rzi.u32.f32 d, a;", 0x4f800000, 0, 0, 0xffffffff},
        {"wwww", "cvt.rzi.u32.f32 d, a;", 0x4f7fffff, 0, 0, 0xffffff00},
        {"lwww", "cvt.rzi.s64.f32 d, a;", 0x5f000000, 0, 0, 0x7fffffffffffffffull},
        {"wlww", "cvt.rzi.s32.f64 d, a;", 0x41efffffffffffffull, 0, 0, 0x7fffffff},
        {"wwww", "cvt.rn.f32.s32 d, a;", 0x01000001, 0, 0, 0x4b800000}, /* 2^24 + 1: a tie */
        {"wwww", "cvt.rn.f32.u32 d, a;", 0xffffffff, 0, 0, 0x4f800000},
        {"wlww", "cvt.rn.f32.u64 d, a;", M1, 0, 0, 0x5f800000},
        {"lwww", "cvt.rn.f64.s32 d, a;", 0xffffffff, 0, 0, 0xbff0000000000000ull},
        {"wwww", "cvt.rn.f32.u16 d, a;", 0xffff0003, 0, 0, 0x40400000},
        {"wwww", "cvt.rmi.f32.f32 d, a;", 0xbfc00000, 0, 0, 0xc0000000},
        {"wwww", "cvt.rni.f32.f32 d, a;", 0x40200000, 0, 0, 0x40000000},
        {"wwww", "cvt.sat.f32.f32 d, a;", 0x40200000, 0, 0, 0x3f800000},
        {"wwww", "cvt.ftz.f32.f32 d, a;", 0x80000001, 0, 0, 0x80000000},
        {"lwww", "cvt.f64.f32 d, a;", 0x3f800000, 0, 0, 0x3ff0000000000000ull},
        {"wlww", "cvt.rn.f32.f64 d, a;", 0x3ff0000010000000ull, 0, 0, 0x3f800000}, /* a tie */
        {"wwww", "cvt.rni.s32.f16 d, a;", 0x4100, 0, 0, 2},
        {"llll", "cvt.rzi.f64.f64 d, a;", 0xbff8000000000000ull, 0, 0, 0xbff0000000000000ull},
        {"wwww", "cvt.rn.f16.s32 d, a;", 0xffffffff, 0, 0, 0xbc00},
    };
    RUN(rows);
}

/* p is true and q false before; d = 1 where the comparison says so, else 2. */
static void test_compare(void **state)
{
    (void)state;
    static const Row rows[] = {
        {"wwww", "setp.lt.s32 p, a, b; selp.b32 d, 1, 2, p;", 0xffffffff, 0, 0, 1},
        {"wwww", "setp.lt.u32 p, a, b; selp.b32 d, 1, 2, p;", 0xffffffff, 0, 0, 2},
        {"wwww", "setp.lo.u32 p, a, b; selp.b32 d, 1, 2, p;", 0, 1, 0, 1},
        {"wwww", "setp.ge.s16 p, a, b; selp.b32 d, 1, 2, p;", 0xffff, 0, 0, 2},
        {"wllw", "setp.gt.s64 p, a, b; selp.b32 d, 1, 2, p;", 1, M1, 0, 1},
        {"wwww", "setp.eq.f32 p, a, b; selp.b32 d, 1, 2, p;", 0, 0x80000000, 0, 1},
        {"wwww", "setp.ne.f32 p, a, b; selp.b32 d, 1, 2, p;", 0x7fc00000, 0, 0, 2},
        {"wwww", "setp.neu.f32 p, a, b; selp.b32 d, 1, 2, p;", 0x7fc00000, 0, 0, 1},
        {"wwww", "setp.ltu.f32 p, a, b; selp.b32 d, 1, 2, p;", 0x7fc00000, 0, 0, 1},
        {"wwww", "setp.lt.f32 p, a, b; selp.b32 d, 1, 2, p;", 0x7fc00000, 0, 0, 2},
        {"wwww", "setp.num.f32 p, a, b; selp.b32 d, 1, 2, p;", 0x7fc00000, 0, 0, 2},
        {"wwww", "setp.gt.ftz.f32 p, a, b; selp.b32 d, 1, 2, p;", 1, 0, 0, 2},
        {"wwww", "setp.gt.f32 p, a, b; selp.b32 d, 1, 2, p;", 1, 0, 0, 1},
        {"wwww", "setp.gt.f16 p, a, b; selp.b32 d, 1, 2, p;", 0x3c00, 0x3bff, 0, 1},
        {"wwww", "setp.eq.s32 p|q, a, b; selp.b32 d, 1, 2, q;", 1, 1, 0, 2},
        {"wwww", "setp.eq.and.s32 p, a, b, !q; selp.b32 d, 1, 2, p;", 1, 1, 0, 1},
        {"wwww", "setp.eq.and.s32 p, a, b, q; selp.b32 d, 1, 2, p;", 1, 1, 0, 2},
        {"wwww", "setp.eq.or.s32 p, a, b, p; selp.b32 d, 1, 2, p;", 1, 2, 0, 1},
        {"wwww", "setp.eq.xor.s32 p, a, b, p; selp.b32 d, 1, 2, p;", 1, 1, 0, 2},
        {"wwww", "and.pred p, p, !q; selp.b32 d, 1, 2, p;", 0, 0, 0, 1},
        {"wwww", "or.pred q, !p, q; selp.b32 d, 1, 2, q;", 0, 0, 0, 2},
        {"wwww", "xor.pred q, p, q; selp.b32 d, 1, 2, q;", 0, 0, 0, 1},
        {"wwww", "not.pred q, q; selp.b32 d, 1, 2, q;", 0, 0, 0, 1},
        {"wwww", "mov.pred q, p; selp.b32 d, 1, 2, q;", 0, 0, 0, 1},
        {"wwww", "mov.pred q, -1; selp.b32 d, 1, 2, q;", 0, 0, 0, 1},
        {"wwww", "mov.pred p, 0; selp.b32 d, 1, 2, p;", 0, 0, 0, 2},
        {"llll", "selp.b64 d, a, b, q;", 1, 2, 0, 2},
        {"wwww", "testp.finite.f32 p, a; selp.b32 d, 1, 2, p;", 0x7f800000, 0, 0, 2},
        {"wwww", "testp.notanumber.f32 p, a; selp.b32 d, 1, 2, p;", 0xffc00000, 0, 0, 1},
    };
    RUN(rows);
}

/* Approximations are right to within their settings: exact, or 2 ulp up and down. */
static void test_approximate(void **state)
{
    (void)state;
    static const int steps[][2] = {[VM_NEAREST] = {0, 0}, [VM_UP] = {2, 2}, [VM_DOWN] = {-4, -4}, [VM_UP_AND_DOWN] = {2, -4}};
    char ptx[4096];
    snprintf(ptx, sizeof ptx, kernel, ".b32", ".b32", ".b32", ".b32", ".b32", ".b32", ".b32", ".b32", "rcp.approx.f32 d, a;",
             ".b32");
    for (int approx = VM_NEAREST; approx <= VM_UP_AND_DOWN; approx++) {
        VmOptions o = rig_options();
        o.approx = (VmApprox)approx;
        Rig *r = rig_open(o, RIG_BYTES);
        const uint32_t half = 0x3f000000, two = 0x40000000;
        memcpy(r->data, &half, sizeof half);
        rig_run(r, vm_kernel_at(rig_load(r, ptx), 0), 1, 32);
        for (int l = 0; l < 32; l++) { /* below a power of two the numbers lie twice as close */
            uint32_t out;
            memcpy(&out, r->data + 256 + 8 * l, sizeof out);
            assert_int_equal((int)(out - two), steps[approx][l % 2]);
        }
        rig_close(r);
    }
}

/* 2^0 is 1 whatever the setting. */
static void test_exact_at_zero(void **state)
{
    (void)state;
    static const Row rows[] = {{"wwww", "ex2.approx.ftz.f32 d, a;", 0x80000001, 0, 0, 0x3f800000},
                               {"wwww", "cos.approx.f32 d, a;", 0, 0, 0, 0x3f800000}};
    approximation = VM_UP_AND_DOWN;
    RUN(rows);
    approximation = VM_NEAREST;
}

/* fp16 and bf16 there and back, all 65,536 of each, and 2^x against the C library. */
static void test_all_halves(void **state)
{
    (void)state;
    static const char text[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 data)\n{\n"
        ".reg .b64 %rd<3>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b16 %h<4>;\n"
        "ld.param.u64 %rd0, [data];\nmov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %tid.x;\n"
        "mad.lo.s32 %r2, %r0, 1024, %r1;\ncvt.u16.u32 %h0, %r2;\n"
        "cvt.f32.f16 %f0, %h0;\ncvt.rn.f16.f32 %h1, %f0;\nmov.b32 %r3, {0, %h0};\n"
        "mov.b32 %f1, %r3;\ncvt.rn.bf16.f32 %h2, %f1;\n"
        "mul.wide.u32 %rd1, %r1, 8;\nadd.s64 %rd1, %rd0, %rd1;\n"
        "st.global.u16 [%rd1], %h1;\nst.global.u16 [%rd1+2], %h2;\nst.global.f32 [%rd1+4], %f0;\nret;\n}\n";
    Rig *r = rig_open(rig_options(), RIG_BYTES);
    VmKernel *k = vm_kernel_at(rig_load(r, text), 0);
    for (uint32_t b = 0; b < 64; b++) {
        const uint32_t grid[3] = {b + 1, 1, 1}, block[3] = {1024, 1, 1}; /* the last block writes last */
        uint64_t params[1] = {RIG_ADDRESS};
        assert_true(vm_launch(k, grid, block, 0, params, &r->error));
        for (uint32_t t = 0; t < 1024; t++) {
            uint16_t halves[2], h = (uint16_t)(b * 1024 + t);
            float wide;
            memcpy(halves, r->data + 8 * t, 4);
            memcpy(&wide, r->data + 8 * t + 4, 4);
            int exponent = h >> 10 & 31, mantissa = h & 1023;
            float want = exponent == 31 ? (mantissa ? NAN : INFINITY)
                                        : ldexpf((float)(mantissa + (exponent ? 1024 : 0)), (exponent ? exponent : 1) - 25);
            bool is_nan = (h & 0x7fff) > 0x7c00, bf16_nan = (h & 0x7fff) > 0x7f80;
            assert_true(is_nan ? wide != wide : wide == (h & 0x8000 ? -want : want));
            assert_int_equal(halves[0] & (is_nan ? 0x7fff : 0xffff), is_nan ? 0x7fff : h);
            assert_int_equal(halves[1], bf16_nan ? 0x7fff : h);
        }
    }
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integer),     cmocka_unit_test(test_bits),          cmocka_unit_test(test_float),
        cmocka_unit_test(test_half),        cmocka_unit_test(test_convert),       cmocka_unit_test(test_compare),
        cmocka_unit_test(test_approximate), cmocka_unit_test(test_exact_at_zero), cmocka_unit_test(test_all_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
