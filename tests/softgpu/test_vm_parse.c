/* PTX that is wrong: what the machine says of it, with line and text; and that no text, however broken, does harm. */
#include "tests/softgpu/vm_rig.h"

#define HEAD "//\n.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 data)\n{\n.reg .b32 %r<4>;\n"

/* Line 8 is the first of the body. */
static void test_kernel_errors(void **state)
{
    (void)state;
    static const struct {
        const char *body, *text;
    } rows[] = {
        {"frobnicate.f32 %r1, %r2;", "PTX line 8: instruction not known: frobnicate.f32 %r1, %r2;"},
        {"add.f17 %r1, %r2, %r3;", "instruction not known: add.f17"},
        {"\n\nadd.s32 %r1, %r2;", "PTX line 10: instruction not known: add.s32 %r1, %r2;"},
        {"add.s32 %r1, %r2, %r9;", "unknown register '%r9'"},
        {"add.s64 %r1, %r2, %r3;", "a register of 4 bytes where one of 8 is needed"},
        {"mov.u32 5, %r1;", "not a register that can be written"},
        {"mov.u32 %tid.x, %r1;", "not a register that can be written"},
        {"mov.u32 %r1, nowhere;", "unknown symbol 'nowhere'"},
        {"bra NOWHERE;", "no label 'NOWHERE'"},
        {"add.s32 %r1 %r2, %r3;", "unexpected '%r2'"},
        {"add.s32 %r1, %r2, %r3, %r1, %r1, %r1, %r1, %r1, %r1;", "more than 8 operands"},
        {".reg .b99 %x;", "registers of type '.b99' are not known"},
        {".frob 1;", "unknown directive '.frob'"},
        {"ld.global.u32 %r1, %r2;", "an [address] is needed"},
        {"ld.global.v4.u64 {%r1, %r1, %r1, %r1}, [%r2];", "instruction not known"},
        {"ld.param.u64 %r1, [data+8];", "instruction not known"},
        {"ld.param.u32 %r1, [data+8];", "beyond the parameters"},
        {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r0}, {%r0}, {%r0}, {%r0};", "a vector of 4 is needed"},
        {"mma.sync.aligned.m16n8k16.row.row.f32.bf16.bf16.f32 {%r0}, {%r0}, {%r0}, {%r0};", "instruction not known"},
        {"cp.async.bulk.shared.global [%r1], [%r2], 16;", "instruction not known"},
        {"@%r1 ret;", "a guard is a predicate"},
        {"call.uni f, (%r1);", "no function f to call"},
        {"call.uni f;", "no function f to call"},
        {".shared .b8 s[1000000];", "more than any card has"},
        {".local .b8 l[1000000];", "bytes of local memory"},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        char ptx[1024];
        snprintf(ptx, sizeof ptx, "%s%s\nret;\n}\n", HEAD, rows[n].body);
        Rig *r = rig_open(rig_options(), RIG_BYTES);
        VmModule *m = vm_module_load(r->vm, ptx, "test", &r->error);
        assert_non_null(m);
        VmKernel *k = vm_kernel_at(m, 0);
        const char *error = vm_kernel_info(k)->error;
        if (error == NULL || strstr(error, rows[n].text) == NULL)
            fail_msg("%s: %s", rows[n].body, error ? error : "no error");
        assert_false(rig_launch(r, k, 1, 1, 0));
        assert_int_equal(r->error.fault, VM_BAD_PTX);
        assert_non_null(strstr(r->error.text, rows[n].text));
        rig_close(r);
    }
}

static void test_module_errors(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"", "PTX begins with .version"},
        {"\x7f"
         "ELF",
         "PTX begins with .version"},
        {".version 8.0\n.frob", "line 2: unknown directive '.frob'"},
        {".version 8.0\n.entry k(.param .b99 x) { ret; }", "parameters of type '.b99'"},
        {".version 8.0\n.entry k(.param .u64 x[99999999]) { ret; }", "parameter x is too large"},
        {".version 8.0\n.entry k() .maxntid 5000 { ret; }", "a block of 5000 threads"},
        {".version 8.0\n.entry k() { ret;", "the text ends too early"},
        {".version 8.0\n.global .u32 x = y;", "'y' is no initialiser"},
        {".version 8.0\n.global .u32 x[2] = {1, 2, 3};", "more initialisers than elements"},
        {".version 8.0\n.global .b8 x[99999999];", "no device memory for x"},
        {".version 8.0\n.global .align 3 .b8 x[4];", "an alignment of 3"},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        Rig *r = rig_open(rig_options(), RIG_BYTES);
        assert_null(vm_module_load(r->vm, rows[n][0], "test", &r->error));
        assert_int_equal(r->error.fault, VM_BAD_PTX);
        if (strstr(r->error.text, rows[n][1]) == NULL)
            fail_msg("%s: %s", rows[n][0], r->error.text);
        rig_close(r);
    }
}

static void test_launch_errors(void **state)
{
    (void)state;
    static const struct {
        uint32_t grid[3], block[3], shared;
        bool fits;
    } rows[] = {{{1, 1, 1}, {8, 4, 1}, 0, true},      {{1, 1, 1}, {32, 1, 1}, 0, false}, {{0, 1, 1}, {8, 4, 1}, 0, false},
                {{1, 70000, 1}, {8, 4, 1}, 0, false}, {{1, 1, 1}, {0, 1, 1}, 0, false},  {{1, 1, 1}, {8, 4, 1}, 240000, false}};
    Rig *r = rig_open(rig_options(), RIG_BYTES);
    VmModule *m = rig_load(r, ".version 8.0\n.entry k() .reqntid 8, 4 { ret; }");
    VmKernel *k = rig_kernel(m, "k");
    assert_int_equal(vm_kernel_info(k)->max_threads, 32);
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++)
        assert_int_equal(vm_launch(k, rows[n].grid, rows[n].block, rows[n].shared, NULL, &r->error), rows[n].fits);
    assert_null(vm_kernel_find(m, "other"));
    assert_null(vm_kernel_at(m, 1));
    rig_close(r);
}

/* A function that is called twice, once from a function; it branches and returns early. */
static void test_calls(void **state)
{
    (void)state;
    static const char ptx[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".func (.param .b32 out) half_or_more(.param .b32 in)\n{\n.reg .b32 %r<3>;\n.reg .pred %p;\nld.param.u32 %r0, [in];\n"
        "and.b32 %r1, %r0, 1;\nsetp.eq.u32 %p, %r1, 1;\n@%p bra ODD;\nshr.u32 %r0, %r0, 1;\nst.param.b32 [out], %r0;\nret;\n"
        "ODD:\nmad.lo.u32 %r0, %r0, 3, 1;\nst.param.b32 [out+0], %r0;\nret;\n}\n"
        ".func (.param .b32 out) twice(.param .b32 in)\n{\n.reg .b32 %r<3>;\nld.param.u32 %r0, [in];\n"
        "{ .param .b32 a; st.param.b32 [a], %r0; .param .b32 b; call.uni (b), half_or_more, (a); ld.param.b32 %r1, [b]; }\n"
        "{ .param .b32 a; st.param.b32 [a], %r1; .param .b32 b; call (b), half_or_more, (a); ld.param.b32 %r1, [b]; }\n"
        "st.param.b32 [out], %r1;\nret;\n}\n"
        ".visible .entry k(.param .u64 data)\n{\n.reg .b64 %rd<3>;\n.reg .b32 %r<3>;\nld.param.u64 %rd0, [data];\n"
        "mov.u32 %r0, %tid.x;\n"
        "{ .param .b32 a; st.param.b32 [a], %r0; .param .b32 b; call.uni (b), twice, (a); ld.param.b32 %r1, [b]; }\n"
        "mul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd1, %rd0, %rd1;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
    Rig *r = rig_open(rig_options(), RIG_BYTES);
    rig_run(r, rig_kernel(rig_load(r, ptx), "k"), 1, 64);
    for (uint32_t t = 0; t < 64; t++) {
        uint32_t x = t;
        for (int n = 0; n < 2; n++)
            x = x & 1 ? 3 * x + 1 : x / 2;
        assert_int_equal(((uint32_t *)r->data)[t], x);
    }
    rig_close(r);
}

/* A text with something of everything. */
static const char everything[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n.file 1 \"a.cu\"\n.global .align 4 .u32 g[3] = {1, 2, 0x3};\n"
    ".const .align 8 .f64 c = 0d3FF0000000000000;\n.extern .shared .align 16 .b8 dyn[];\n"
    ".func (.param .b32 out) f(.param .b32 in)\n{\n.reg .b32 %r;\nld.param.u32 %r, [in];\nst.param.b32 [out], %r;\nret;\n}\n"
    ".visible .entry k(.param .u64 .ptr .global .align 4 data, .param .align 8 .b8 s[24])\n.maxntid 256, 1, 1\n.minnctapersm "
    "2\n{\n"
    ".reg .pred %p<3>;\n.reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .b64 %rd<9>;\n.shared .align 4 .b8 sh[64];\n.local .align 8 .b8 "
    "lo[16];\n"
    ".loc 1 3 5\nld.param.u64 %rd0, [data];\nld.param.u32 %r0, [s+4];\nmov.u32 %r1, %tid.x;\n@!%p1 bra L;\n"
    "mov.b64 {%r2, %r3}, %rd0;\nmov.b64 %rd1, {%r2, %r3};\nadd.f32 %f0, %f1, 0f3F800000;\nsetp.lt.and.f32 %p0|%p1, %f0, %f1, "
    "!%p2;\n"
    "st.shared.v2.u32 [sh+8], {%r0, %r1};\nst.local.u32 [lo], %r0;\natom.shared.add.u32 %r4, [dyn+4], 1;\n"
    "shfl.sync.idx.b32 %r5|%p0, %r1, 0, 31, -1;\nbar.sync 0;\nL:\nldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r5, %r6}, "
    "[%r1+-16];\n"
    "cp.async.ca.shared.global [%r1], [%rd0+4], 4, %r2;\ncp.async.wait_group 0;\nld.global.nc.L1::no_allocate.u32 %r7, "
    "[%rd0+-4];\n"
    "{ .param .b32 a; st.param.b32 [a], %r0; .param .b32 b; call.uni (b), f, (a); ld.param.b32 %r1, [b]; }\n"
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2}, {%f0, %f1, %f2, %f3};\nret;\n}\n";

/* Loads the text and reads its kernels. */
static void try(const char *ptx)
{
    Rig *r = rig_open(rig_options(), 256);
    VmModule *m = vm_module_load(r->vm, ptx, "test", &r->error);
    for (int n = 0; m != NULL && vm_kernel_at(m, n) != NULL; n++)
        ;
    rig_close(r);
}

static void test_everything(void **state)
{
    (void)state;
    Rig *r = rig_open(rig_options(), RIG_BYTES);
    VmModule *m = rig_load(r, everything);
    const VmKernelInfo *info = vm_kernel_info(vm_kernel_find(m, "k"));
    assert_int_equal(info->n_params, 2);
    assert_int_equal(info->params[1].offset, 8);
    assert_int_equal(info->param_bytes, 32);
    assert_int_equal(info->shared_bytes, 64);
    assert_int_equal(info->local_bytes, 16);
    assert_int_equal(info->max_threads, 256);
    uint64_t address, bytes;
    assert_true(vm_symbol_find(m, "g", &address, &bytes));
    assert_int_equal(bytes, 12);
    const uint32_t g[3] = {1, 2, 3};
    assert_memory_equal(r->variables + (address - RIG_MODULE), g, sizeof g);
    rig_close(r);
}

static void test_cut(void **state)
{
    (void)state;
    char text[sizeof everything];
    for (size_t n = 0; n < sizeof everything; n++) {
        memcpy(text, everything, n);
        text[n] = 0;
        try(text);
    }
}

static void test_mangled(void **state)
{
    (void)state;
    static const char pieces[] = "{}[]();,.+-!@%|:0123456789abcdefrdpsux\n\"_$";
    uint32_t seed = 7;
    for (int round = 0; round < 3000; round++) {
        char text[sizeof everything];
        memcpy(text, everything, sizeof text);
        for (int n = 0; n < 1 + round % 5; n++) {
            seed = seed * 1664525 + 1013904223;
            size_t at = (seed >> 8) % (sizeof text - 1);
            seed = seed * 1664525 + 1013904223;
            text[at] = pieces[(seed >> 8) % (sizeof pieces - 1)];
        }
        try(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel_errors), cmocka_unit_test(test_module_errors), cmocka_unit_test(test_launch_errors),
        cmocka_unit_test(test_calls),         cmocka_unit_test(test_everything),    cmocka_unit_test(test_cut),
        cmocka_unit_test(test_mangled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
