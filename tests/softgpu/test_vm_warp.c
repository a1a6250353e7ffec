/* What lanes do together: shuffles, votes, parting and meeting, barriers of some warps, bar.red; tensor cores and ldmatrix by the
 * tables of their fragments. */
#include "tests/softgpu/vm_rig.h"

#include <math.h>

#define HEAD                                                                                                                     \
    ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 data)\n{\n"                                    \
    ".reg .b64 %rd<8>; .reg .b32 %r<40>; .reg .f32 %f<16>; .reg .pred %p<4>;\n"                                                  \
    "ld.param.u64 %rd0, [data];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd1, %rd0, %rd1;\n"
#define TAIL "st.global.u32 [%rd1], %r1;\nret;\n}\n"

/* Runs the body, which leaves a result in %r1, and hands the results of all threads back. */
static void run(const char *body, uint32_t threads, uint32_t *out)
{
    char ptx[8192];
    snprintf(ptx, sizeof ptx, "%s%s%s", HEAD, body, TAIL);
    Rig *r = rig_open(rig_options(), RIG_BYTES);
    VmModule *m = rig_load(r, ptx);
    rig_run(r, vm_kernel_at(m, 0), 1, threads);
    memcpy(out, r->data, threads * sizeof *out);
    rig_close(r);
}

/* ---- Exchange ------------------------------------------------------------------------------------------------------ */

/* The lane a shuffle reads, in the words of CUDA's intrinsics: width is a power of two; a lane that would leave its segment reads
 * itself. */
static int shuffle_lane(const char *mode, int lane, int n, int width)
{
    int first = lane / width * width, j = lane;
    if (strcmp(mode, "up") == 0)
        j = lane - n < first ? lane : lane - n;
    else if (strcmp(mode, "down") == 0)
        j = lane + n >= first + width ? lane : lane + n;
    else if (strcmp(mode, "bfly") == 0)
        j = (lane ^ n) >= first + width ? lane : lane ^ n;
    else
        j = first + n % width;
    return j;
}

static void test_shuffle(void **state)
{
    (void)state;
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    for (int mode = 0; mode < 4; mode++)
        for (int width = 1; width <= 32; width *= 2)
            for (int n = 0; n < 32; n += 3) {
                char body[512];
                uint32_t out[32];
                int c = (32 - width) << 8 | (mode == 0 ? 0 : 31);
                snprintf(body, sizeof body, "add.u32 %%r2, %%r0, 100;\nshfl.sync.%s.b32 %%r1|%%p0, %%r2, %d, %d, -1;\n",
                         modes[mode], n, c);
                run(body, 32, out);
                for (int l = 0; l < 32; l++)
                    assert_int_equal(out[l], 100 + shuffle_lane(modes[mode], l, n, width));
            }
}

static void test_shuffle_predicate(void **state)
{
    (void)state;
    uint32_t out[32];
    run("shfl.sync.down.b32 %r2|%p0, %r0, 3, 0x181f, -1;\nselp.b32 %r1, 1, 0, %p0;\n", 32, out); /* segments of 8 */
    for (int l = 0; l < 32; l++)
        assert_int_equal(out[l], l % 8 < 5);
}

static void test_vote(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        uint32_t even, odd; /* what even and odd lanes get */
    } rows[] = {
        {"setp.lt.u32 %p0, %r0, 5;\nvote.sync.ballot.b32 %r1, %p0, -1;\n", 0x1f, 0x1f},
        {"setp.lt.u32 %p0, %r0, 5;\nvote.sync.ballot.b32 %r1, !%p0, -1;\n", 0xffffffe0, 0xffffffe0},
        {"setp.lt.u32 %p0, %r0, 32;\nvote.sync.all.pred %p1, %p0, -1;\nselp.b32 %r1, 1, 0, %p1;\n", 1, 1},
        {"setp.lt.u32 %p0, %r0, 31;\nvote.sync.all.pred %p1, %p0, -1;\nselp.b32 %r1, 1, 0, %p1;\n", 0, 0},
        {"setp.eq.u32 %p0, %r0, 31;\nvote.sync.any.pred %p1, %p0, -1;\nselp.b32 %r1, 1, 0, %p1;\n", 1, 1},
        {"setp.eq.u32 %p0, %r0, 99;\nvote.sync.uni.pred %p1, %p0, -1;\nselp.b32 %r1, 1, 0, %p1;\n", 1, 1},
        {"and.b32 %r2, %r0, 1;\nmatch.any.sync.b32 %r1, %r2, -1;\n", 0x55555555, 0xaaaaaaaa},
        {"redux.sync.add.s32 %r1, %r0, -1;\n", 496, 496},
        {"redux.sync.max.u32 %r1, %r0, -1;\n", 31, 31},
        {"sub.s32 %r2, 5, %r0;\nredux.sync.min.s32 %r1, %r2, -1;\n", (uint32_t)-26, (uint32_t)-26},
        {"redux.sync.xor.b32 %r1, %r0, -1;\n", 0, 0},
        {"mov.u32 %r1, 7;\nand.b32 %r2, %r0, 1;\nsetp.eq.u32 %p0, %r2, 0;\n@%p0 activemask.b32 %r1;\n", 0x55555555, 7},
        {"mov.u32 %r1, %lanemask_lt;\npopc.b32 %r1, %r1;\nsub.s32 %r1, %r1, %r0;\n", 0, 0},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        uint32_t out[32];
        run(rows[n].body, 32, out);
        for (int l = 0; l < 32; l++)
            if (out[l] != (l % 2 ? rows[n].odd : rows[n].even))
                fail_msg("%s lane %d: %x", rows[n].body, l, out[l]);
    }
}

/* ---- Parting and meeting ------------------------------------------------------------------------------------------- */

/* Each lane goes round a loop as often as its number says, and all meet behind it. */
static void test_loop(void **state)
{
    (void)state;
    uint32_t out[32];
    run("mov.u32 %r1, 0;\nmov.u32 %r2, 0;\n"
        "LOOP:\nsetp.ge.u32 %p0, %r2, %r0;\n@%p0 bra DONE;\nadd.u32 %r1, %r1, %r2;\nadd.u32 %r2, %r2, 1;\nbra LOOP;\n"
        "DONE:\nactivemask.b32 %r3;\nsetp.ne.u32 %p1, %r3, -1;\n@%p1 trap;\n",
        32, out);
    for (uint32_t l = 0; l < 32; l++)
        assert_int_equal(out[l], l * (l - 1) / 2);
}

/* Half of the warp exits; the others still shuffle among themselves, and a barrier of one warp does not wait for the other. */
static void test_exit_and_named_barrier(void **state)
{
    (void)state;
    uint32_t out[64];
    run("setp.lt.u32 %p0, %r0, 32;\n@%p0 bra FIRST;\nbar.sync 1, 32;\nmov.u32 %r1, 5;\nbra END;\n"
        "FIRST:\nand.b32 %r2, %r0, 16;\nsetp.ne.u32 %p1, %r2, 0;\n@%p1 exit;\nshfl.sync.bfly.b32 %r1, %r0, 1, 31, "
        "0xffff;\nEND:\n",
        64, out);
    for (uint32_t t = 0; t < 64; t++)
        assert_int_equal(out[t], t >= 32 ? 5 : t < 16 ? (t ^ 1) : 0);
}

static void test_barrier_reduction(void **state)
{
    (void)state;
    uint32_t out[96];
    run("and.b32 %r2, %r0, 3;\nsetp.eq.u32 %p0, %r2, 0;\nbar.red.popc.u32 %r1, 0, %p0;\n"
        "bar.red.and.pred %p1, 0, %p0;\n@%p1 add.u32 %r1, %r1, 1000;\nbar.red.or.pred %p2, 0, !%p0;\n@%p2 add.u32 %r1, %r1, "
        "100;\n",
        96, out);
    for (int t = 0; t < 96; t++)
        assert_int_equal(out[t], 124);
}

static void test_atomics(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t before, after;
    } rows[] = {{"atom.global.add.u32 %r1, [%rd0+512], %r0;", 5, 501},
                {"atom.global.min.s32 %r1, [%rd0+512], %r2;", 5, (uint32_t)-21}, /* r2 = 10 - r0 */
                {"atom.global.max.u32 %r1, [%rd0+512], %r0;", 5, 31},
                {"atom.global.or.b32 %r1, [%rd0+512], %r0;", 0, 31},
                {"atom.global.and.b32 %r1, [%rd0+512], %r0;", ~0u, 0},
                {"atom.global.inc.u32 %r1, [%rd0+512], 9;", 0, 2},
                {"atom.global.cas.b32 %r1, [%rd0+512], %r0, %r3;", 0, 32}, /* r3 = r0 + 1: each lane in turn */
                {"red.global.add.f32 [%rd0+512], %f0;", 0, 0x42000000}};   /* f0 = 1 */
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        char body[1024];
        uint32_t out[129];
        snprintf(
            body, sizeof body,
            "mov.u32 %%r1, 0;\nsub.s32 %%r2, 10, %%r0;\nadd.u32 %%r3, %%r0, 1;\nmov.f32 %%f0, 0f3F800000;\nmov.u32 %%r4, %u;\n"
            "setp.eq.u32 %%p0, %%r0, 0;\n@%%p0 st.global.u32 [%%rd0+512], %%r4;\n%s\n"
            "bar.sync 0;\nld.global.u32 %%r1, [%%rd0+512];\n",
            rows[n].before, rows[n].text);
        run(body, 32, out);
        for (int l = 0; l < 32; l++)
            if (out[l] != rows[n].after)
                fail_msg("%s: %u", rows[n].text, out[l]);
    }
}

/* Half of the warp waits for what the other half does after a shuffle among itself: the shuffle must not wait for them. */
static void test_mask_is_enough(void **state)
{
    (void)state;
    uint32_t out[32];
    run(".shared .align 4 .u32 flag;\nmov.u32 %r2, 0;\nst.shared.u32 [flag], %r2;\nbar.warp.sync -1;\n"
        "and.b32 %r3, %r0, 16;\nsetp.ne.u32 %p0, %r3, 0;\n@!%p0 bra FIRST;\n"
        "WAIT:\nld.volatile.shared.u32 %r1, [flag];\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra WAIT;\nbra END;\n"
        "FIRST:\nshfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffff;\nmov.u32 %r2, 9;\nst.shared.u32 [flag], %r2;\nEND:\n",
        32, out);
    for (uint32_t l = 0; l < 32; l++)
        assert_int_equal(out[l], l < 16 ? l ^ 1 : 9);
}

/* Registers that live around a loop keep their value, though others come and go: one is written under a guard only, one is not
 * used after the loop's middle. */
static void test_lives(void **state)
{
    (void)state;
    uint32_t out[32];
    run("mov.u32 %r10, 5;\nmov.u32 %r11, 1000;\nmov.u32 %r1, 0;\nmov.u32 %r2, 0;\nand.b32 %r3, %r0, 1;\nsetp.ne.u32 %p1, %r3, "
        "0;\n"
        "LOOP:\nsetp.ge.u32 %p0, %r2, 3;\n@%p0 bra END;\n@%p1 mov.u32 %r10, 7;\nadd.u32 %r1, %r1, %r10;\nadd.u32 %r1, %r1, "
        "%r11;\n"
        "add.u32 %r20, %r2, 100;\nadd.u32 %r21, %r20, 200;\nadd.u32 %r22, %r20, %r21;\nadd.u32 %r23, %r22, %r21;\n"
        "add.u32 %r24, %r23, %r22;\nxor.b32 %r25, %r24, %r24;\nadd.u32 %r1, %r1, %r25;\nadd.u32 %r2, %r2, 1;\nbra LOOP;\nEND:\n",
        32, out);
    for (int l = 0; l < 32; l++)
        assert_int_equal(out[l], 3000 + 3 * (l % 2 ? 7 : 5));
}

/* [register+4], [register+-4], [register-4], [symbol+4], with 4 and 8 bytes of address */
static void test_addresses(void **state)
{
    (void)state;
    uint32_t out[32];
    run(".shared .align 4 .b8 s[136];\nmov.u32 %r2, s;\nshl.b32 %r3, %r0, 2;\nadd.u32 %r2, %r2, %r3;\nst.shared.u32 [%r2+4], "
        "%r0;\n"
        "bar.sync 0;\nadd.u32 %r3, %r2, 8;\nld.shared.u32 %r4, [%r3+-4];\nld.shared.u32 %r5, [%r3-4];\nld.shared.u32 %r6, "
        "[s+4];\n"
        "cvt.u64.u32 %rd2, %r3;\nld.shared.u32 %r7, [%rd2+-4];\nadd.u32 %r1, %r4, %r5;\nadd.u32 %r1, %r1, %r6;\nadd.u32 %r1, "
        "%r1, %r7;\n",
        32, out);
    for (uint32_t l = 0; l < 32; l++)
        assert_int_equal(out[l], 3 * l);
}

/* cp.async of 16 bytes with fewer in the source: the rest is zero; with none the source may be anywhere. */
static void test_copy_zeros(void **state)
{
    (void)state;
    uint32_t out[32];
    run(".shared .align 16 .b8 s[512];\nmov.u32 %r2, s;\nshl.b32 %r3, %r0, 4;\nadd.u32 %r2, %r2, %r3;\nmov.u32 %r4, 77;\n"
        "st.shared.v4.u32 [%r2], {%r4, %r4, %r4, %r4};\nst.global.u32 [%rd1], %r0;\nmul.wide.u32 %rd2, %r0, 16;\nadd.s64 %rd3, "
        "%rd0, %rd2;\n"
        "bar.sync 0;\nand.b32 %r5, %r0, 3;\nshl.b32 %r5, %r5, 2;\nsetp.eq.u32 %p0, %r5, 0;\nselp.b64 %rd3, 8, %rd3, "
        "%p0;\ncp.async.cg.shared.global [%r2], [%rd3], 16, %r5;\n"
        "cp.async.wait_all;\nld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r2];\n"
        "add.u32 %r1, %r6, %r7;\nadd.u32 %r1, %r1, %r8;\nadd.u32 %r1, %r1, %r9;\nbar.sync 0;\n",
        32, out);
    for (uint32_t l = 0; l < 32; l++) { /* the source is the number of each word, 0 behind the first 32 */
        uint32_t sum = 0;
        for (uint32_t n = 0; n < l % 4; n++)
            sum += 4 * l + n < 32 ? 4 * l + n : 0;
        assert_int_equal(out[l], sum);
    }
}

/* ---- Tensor cores -------------------------------------------------------------------------------------------------- */

/* A form of mma with the layouts of its fragments as published: bits of a number, k, registers of A and B. */
typedef struct Form {
    const char *name;
    int bits, k, a, b;
    uint32_t (*encode)(int); /* a small whole number as the type */
} Form;

static uint32_t encode_tf32(int x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static uint32_t encode_bf16(int x)
{
    return encode_tf32(x) >> 16;
}

static uint32_t encode_f16(int x)
{
    uint32_t u = encode_tf32(x);
    return x == 0 ? 0 : (u >> 16 & 0x8000) | ((u & 0x7fffffff) - 0x38000000) >> 13;
}

static const Form forms[] = {{"m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, 4, 2, encode_bf16},
                             {"m16n8k16.row.col.f32.f16.f16.f32", 16, 16, 4, 2, encode_f16},
                             {"m16n8k8.row.col.f32.bf16.bf16.f32", 16, 8, 2, 1, encode_bf16},
                             {"m16n8k8.row.col.f32.f16.f16.f32", 16, 8, 2, 1, encode_f16},
                             {"m16n8k8.row.col.f32.tf32.tf32.f32", 32, 8, 4, 2, encode_tf32},
                             {"m16n8k4.row.col.f32.tf32.tf32.f32", 32, 4, 2, 1, encode_tf32}};

/* Where number h of register r of lane l belongs, from the figures of the PTX manual: 8 x 8 or 8 x 4 blocks of A, block rows
 * first. */
static void place_of_a(const Form *f, int l, int r, int h, int *row, int *column)
{
    int per = 32 / f->bits, g = l / 4, t = l % 4;
    *row = r % 2 == 0 ? g : g + 8;
    *column = r < 2 ? t * per + h : t * per + h + 4 * per;
}

static void place_of_b(const Form *f, int l, int r, int h, int *row, int *column)
{
    int per = 32 / f->bits;
    *row = (l % 4) * per + h + (r == 0 ? 0 : 4 * per);
    *column = l / 4;
}

static int small(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return (int)(*seed >> 24) % 9 - 4;
}

/* data: 8 words of A and B, then 4 of C, for each lane; then D. */
static void mma_ptx(const Form *f, char *ptx, size_t size)
{
    snprintf(ptx, size,
             "%smul.wide.u32 %%rd2, %%r0, 64;\nadd.s64 %%rd2, %%rd0, %%rd2;\n"
             "ld.global.v4.u32 {%%r1, %%r2, %%r3, %%r4}, [%%rd2];\nld.global.v2.u32 {%%r5, %%r6}, [%%rd2+16];\n"
             "ld.global.v4.f32 {%%f0, %%f1, %%f2, %%f3}, [%%rd2+32];\n"
             "mma.sync.aligned.%s {%%f4, %%f5, %%f6, %%f7}, {%s}, {%s}, {%%f0, %%f1, %%f2, %%f3};\n"
             "st.global.v4.f32 [%%rd2+48], {%%f4, %%f5, %%f6, %%f7};\nret;\n}\n",
             HEAD, f->name, f->a == 4 ? "%r1, %r2, %r3, %r4" : "%r1, %r2", f->b == 2 ? "%r5, %r6" : "%r5");
}

static void test_mma(void **state)
{
    (void)state;
    for (const Form *f = forms; f < forms + sizeof forms / sizeof *forms; f++) {
        char ptx[4096];
        mma_ptx(f, ptx, sizeof ptx);
        Rig *r = rig_open(rig_options(), RIG_BYTES);
        VmKernel *k = vm_kernel_at(rig_load(r, ptx), 0);
        uint32_t seed = 1;
        for (int round = 0; round < 50; round++) {
            int a[16][16], b[16][8], c[16][8], row, column, per = 32 / f->bits;
            uint32_t(*words)[16] = (uint32_t(*)[16])r->data;
            memset(r->data, 0, 32 * sizeof *words);
            for (int l = 0; l < 32; l++) {
                for (int n = 0; n < f->a * per; n++) {
                    place_of_a(f, l, n / per, n % per, &row, &column);
                    a[row][column] = small(&seed);
                    words[l][n / per] |= f->encode(a[row][column]) << f->bits * (n % per);
                }
                for (int n = 0; n < f->b * per; n++) {
                    place_of_b(f, l, n / per, n % per, &row, &column);
                    b[row][column] = small(&seed);
                    words[l][4 + n / per] |= f->encode(b[row][column]) << f->bits * (n % per);
                }
                for (int e = 0; e < 4; e++) {
                    int value = small(&seed);
                    c[l / 4 + (e < 2 ? 0 : 8)][l % 4 * 2 + e % 2] = value;
                    words[l][8 + e] = encode_tf32(value);
                }
            }
            rig_run(r, k, 1, 32);
            for (int l = 0; l < 32; l++)
                for (int e = 0; e < 4; e++) {
                    row = l / 4 + (e < 2 ? 0 : 8);
                    column = l % 4 * 2 + e % 2;
                    int sum = c[row][column];
                    for (int q = 0; q < f->k; q++)
                        sum += a[row][q] * b[q][column];
                    float out;
                    memcpy(&out, &words[l][12 + e], sizeof out);
                    assert_float_equal(out, (float)sum, 0);
                }
        }
        rig_close(r);
    }
}

/* The sums are those of fp32, in the order of k. */
static void test_mma_sums(void **state)
{
    (void)state;
    char ptx[4096];
    mma_ptx(&forms[1], ptx, sizeof ptx);
    Rig *r = rig_open(rig_options(), RIG_BYTES);
    uint32_t(*words)[16] = (uint32_t(*)[16])r->data;
    words[0][0] = 0x3c003c00; /* A[0][0] = A[0][1] = 1 */
    words[0][4] = 0x3c003c00; /* B[0][0] = B[1][0] = 1 */
    words[0][8] = 0x4b800000; /* C[0][0] = 2^24 */
    rig_run(r, vm_kernel_at(rig_load(r, ptx), 0), 1, 32);
    assert_int_equal(words[0][12], 0x4b800000); /* 2^24 + 1 + 1, each sum a tie to even */
    rig_close(r);
}

/* Element (row, column) of matrix v is the number 64 v + 8 row + column, in shared memory. */
static void test_ldmatrix(void **state)
{
    (void)state;
    for (int transposed = 0; transposed < 2; transposed++)
        for (int n = 1; n <= 4; n *= 2) {
            char ptx[4096];
            const char *list = n == 4 ? "%r1, %r2, %r3, %r4" : n == 2 ? "%r1, %r2" : "%r1";
            snprintf(
                ptx, sizeof ptx,
                "%s.shared .align 16 .b8 tile[512];\nmov.u32 %%r5, tile;\nshl.b32 %%r6, %%r0, 4;\nadd.u32 %%r5, %%r5, %%r6;\n"
                "mul.lo.u32 %%r7, %%r0, 0x80008;\nadd.u32 %%r7, %%r7, 0x10000;\n"
                "st.shared.u32 [%%r5], %%r7;\nadd.u32 %%r8, %%r7, 0x20002;\nst.shared.u32 [%%r5+4], %%r8;\n"
                "add.u32 %%r8, %%r7, 0x40004;\nst.shared.u32 [%%r5+8], %%r8;\nadd.u32 %%r8, %%r7, 0x60006;\n"
                "st.shared.u32 [%%r5+12], %%r8;\nbar.sync 0;\nmov.u32 %%r2, 0;\nmov.u32 %%r3, 0;\nmov.u32 %%r4, 0;\n"
                "ldmatrix.sync.aligned.m8n8.x%d%s.shared.b16 {%s}, [%%r5];\n"
                "mul.wide.u32 %%rd2, %%r0, 16;\nadd.s64 %%rd2, %%rd0, %%rd2;\n"
                "st.global.v4.u32 [%%rd2], {%%r1, %%r2, %%r3, %%r4};\nret;\n}\n",
                HEAD, n, transposed ? ".trans" : "", list);
            Rig *r = rig_open(rig_options(), RIG_BYTES);
            rig_run(r, vm_kernel_at(rig_load(r, ptx), 0), 1, 32);
            for (int l = 0; l < 32; l++)
                for (int v = 0; v < n; v++)
                    for (int h = 0; h < 2; h++) {
                        uint16_t out;
                        memcpy(&out, r->data + 16 * l + 4 * v + 2 * h, sizeof out);
                        int row = transposed ? l % 4 * 2 + h : l / 4, column = transposed ? l / 4 : l % 4 * 2 + h;
                        assert_int_equal(out, 64 * v + 8 * row + column);
                    }
            rig_close(r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shuffle),
        cmocka_unit_test(test_shuffle_predicate),
        cmocka_unit_test(test_vote),
        cmocka_unit_test(test_loop),
        cmocka_unit_test(test_mask_is_enough),
        cmocka_unit_test(test_lives),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_copy_zeros),
        cmocka_unit_test(test_exit_and_named_barrier),
        cmocka_unit_test(test_barrier_reduction),
        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_mma),
        cmocka_unit_test(test_mma_sums),
        cmocka_unit_test(test_ldmatrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
