/* Planted bugs: each must be found, with the right kind of fault and the right words, whatever the order of warps; and kernels
 * without one must run. The kernels are cases/bugs.cu. */
#include "tests/softgpu/vm_rig.h"

enum { N = 64 };

typedef struct Case {
    const char *kernel;
    VmFault fault; /* VM_NO_FAULT: it must run */
    const char *text;
    bool only_check; /* without check mode it is not found */
    uint32_t blocks, dynamic;
} Case;

static const Case cases[] = {
    {"shared_write_beyond", VM_OUT_OF_BOUNDS, "shared access out of bounds: 4 bytes at byte 256", false, 1, 0},
    {"shared_read_beyond", VM_OUT_OF_BOUNDS, "shared access out of bounds: 4 bytes at byte 256", false, 1, 0},
    {"dynamic_beyond", VM_OUT_OF_BOUNDS, "of dynamic shared memory, which has 252", false, 1, 252},
    {"both_shared_ok", VM_NO_FAULT, "", false, 1, 256},
    {"straddles_end", VM_OUT_OF_BOUNDS, "16 bytes at byte 256", false, 1, 0},
    {"global_beyond", VM_OUT_OF_BOUNDS, "0 bytes past the end of data (256 bytes)", false, 1, 0},
    {"global_before", VM_OUT_OF_BOUNDS, "4 bytes before data (256 bytes)", false, 1, 0},
    {"misaligned", VM_MISALIGNED, "misaligned global read: 16 bytes", false, 1, 0},
    {"host_pointer", VM_OUT_OF_BOUNDS, "global read out of bounds", false, 1, 0},
    {"uninitialised", VM_UNINITIALISED, "read of uninitialised shared memory, byte 256", true, 1, 0},
    {"divergent_barrier", VM_BAD_SYNC, "divergent barrier", false, 1, 0},
    {"half_a_warp_at_barrier", VM_BAD_SYNC, "a barrier in a warp some of whose threads have exited", false, 1, 0},
    {"exit_before_barrier", VM_BAD_SYNC, "a barrier in a warp some of whose threads have exited", false, 1, 0},
    {"warp_exits_before_barrier", VM_BAD_SYNC, "has exited", false, 1, 0},
    {"wrong_mask", VM_BAD_SYNC, "lanes", false, 1, 0},
    {"exited_lanes_in_mask", VM_BAD_SYNC, "names lanes that have exited", false, 1, 0},
    {"half_mask_ok", VM_NO_FAULT, "", false, 1, 0},
    {"no_syncwarp", VM_RACE, "race: read of shared byte", true, 1, 0},
    {"syncwarp_ok", VM_NO_FAULT, "", false, 1, 0},
    {"no_barrier_before_read", VM_RACE, "race", true, 1, 0},
    {"no_barrier_before_write", VM_RACE, "race", true, 1, 0},
    {"barriers_ok", VM_NO_FAULT, "", false, 1, 0},
    {"no_barrier_global", VM_RACE, "of global byte", true, 1, 0},
    {"barrier_global_ok", VM_NO_FAULT, "", false, 1, 0},
    {"blocks_race", VM_RACE, "race between blocks", true, 4, 0},
    {"blocks_atomic_ok", VM_NO_FAULT, "", false, 4, 0},
    {"last_block_ok", VM_NO_FAULT, "", false, 4, 0},
    {"last_block_without_fence", VM_RACE, "race between blocks", true, 4, 0},
    {"last_block_writes_late", VM_RACE, "race between blocks", true, 4, 0},
    {"blocks_shift", VM_RACE, "race between blocks", true, 4, 0},
    {"copy_not_waited_for", VM_RACE, "target of a cp.async", true, 1, 0},
    {"copy_ok", VM_NO_FAULT, "", false, 1, 0},
    {"older_group_ok", VM_NO_FAULT, "", false, 1, 0},
    {"newest_group_too_early", VM_RACE, "target of a cp.async", true, 1, 0},
    {"copy_forgotten", VM_BAD_SYNC, "a cp.async that nobody waited for", false, 1, 0},
    {"endless", VM_ENDLESS, "is it an endless loop", false, 1, 0},
    {"trapped", VM_TRAP, "executed a trap", false, 1, 0},
};

/* One case under these settings. */
static void run(const char *ptx, const Case *c, VmOptions o)
{
    Rig *r = rig_open(o, N * sizeof(float));
    VmModule *m = rig_load(r, ptx);
    for (int i = 0; i < N; i++)
        ((float *)r->data)[i] = 2;
    if (strcmp(c->kernel, "host_pointer") == 0) {
        uint64_t pointer = (uint64_t)r->data; /* where the bytes are, but no device address */
        memcpy(r->data + 8, &pointer, sizeof pointer);
    }
    VmFault want = c->only_check && !o.check ? VM_NO_FAULT : c->fault;
    rig_launch(r, rig_kernel(m, c->kernel), c->blocks, N, c->dynamic);
    if (r->error.fault != want || (want != VM_NO_FAULT && strstr(r->error.text, c->text) == NULL))
        fail_msg("%s%s, order %d, seed %d: fault %d, not %d: %s", c->kernel, o.check ? " checked" : "", o.order, (int)o.seed,
                 r->error.fault, want, r->error.text);
    if (want != VM_NO_FAULT && (strstr(r->error.text, "bugs.cu:") == NULL || strstr(r->error.text, c->kernel) == NULL))
        fail_msg("%s: no kernel or line in: %s", c->kernel, r->error.text);
    rig_close(r);
}

static void test_bugs(void **state)
{
    (void)state;
    char *ptx = rig_case("bugs");
    if (ptx == NULL)
        skip();
    for (const Case *c = cases; c < cases + sizeof cases / sizeof *cases; c++)
        for (int check = 0; check < 2; check++)
            for (int order = 0; order < 12; order++) {
                VmOptions o = rig_options();
                o.check = check;
                o.order = order < 2 ? (VmOrder)order : VM_RANDOM;
                o.seed = (uint64_t)order;
                o.copy = (VmCopy)(order % 3);
                run(ptx, c, o);
            }
    free(ptx);
}

/* What the correct ones compute: sums over locks, a flag, the last block, in every order and with several threads. */
static void test_results(void **state)
{
    (void)state;
    static const struct {
        const char *kernel;
        uint32_t blocks;
        int at;
        float value;
    } results[] = {{"lock_ok", 1, 0, 64},
                   {"spin_ok", 1, 0, 64},
                   {"flag_ok", 1, 31, 7},
                   {"last_block_ok", 8, 63, 36},
                   {"blocks_atomic_ok", 100, 0, 6402}};
    char *ptx = rig_case("bugs");
    if (ptx == NULL)
        skip();
    for (size_t n = 0; n < sizeof results / sizeof *results; n++)
        for (int order = 0; order < 20; order++) {
            VmOptions o = rig_options();
            o.threads = 1 + order % 3;
            o.order = order < 2 ? (VmOrder)order : VM_RANDOM;
            o.seed = (uint64_t)order;
            Rig *r = rig_open(o, N * sizeof(float));
            for (int i = 0; i < N; i++)
                ((float *)r->data)[i] = 2;
            rig_run(r, rig_kernel(rig_load(r, ptx), results[n].kernel), results[n].blocks, N);
            assert_float_equal(((float *)r->data)[results[n].at], results[n].value, 0);
            rig_close(r);
        }
    free(ptx);
}

/* Static and dynamic shared memory lie apart. */
static void test_both_shared(void **state)
{
    (void)state;
    char *ptx = rig_case("bugs");
    if (ptx == NULL)
        skip();
    Rig *r = rig_open(rig_options(), N * sizeof(float));
    for (int i = 0; i < N; i++)
        ((float *)r->data)[i] = (float)i;
    assert_true(rig_launch(r, rig_kernel(rig_load(r, ptx), "both_shared_ok"), 1, N, 256));
    for (int i = 0; i < N; i++)
        assert_float_equal(((float *)r->data)[i], (float)(64 - i), 0);
    rig_close(r);
    free(ptx);
}

/* A copy that is not waited for reads old bytes if it happens late, and the right ones by luck if it happens early. */
static void test_copy_time(void **state)
{
    (void)state;
    char *ptx = rig_case("bugs");
    if (ptx == NULL)
        skip();
    for (int copy = VM_COPY_LATE; copy <= VM_COPY_EARLY; copy++) {
        VmOptions o = rig_options();
        o.copy = (VmCopy)copy;
        Rig *r = rig_open(o, N * sizeof(float));
        for (int i = 0; i < N; i++)
            ((float *)r->data)[i] = (float)i;
        rig_run(r, rig_kernel(rig_load(r, ptx), "copy_not_waited_for"), 1, N);
        float first = ((float *)r->data)[0];
        assert_true(copy == VM_COPY_LATE ? first != first : first == 63);
        rig_close(r);
    }
    free(ptx);
}

/* Each barrier left out in turn is noticed; put back, all is well. */
static void test_skip(void **state)
{
    (void)state;
    char *ptx = rig_case("bugs");
    if (ptx == NULL)
        skip();
    VmOptions o = rig_options();
    o.check = true;
    Rig *r = rig_open(o, N * sizeof(float));
    VmKernel *k = rig_kernel(rig_load(r, ptx), "barriers_ok");
    assert_int_equal(vm_sync_count(k), 4);
    assert_non_null(strstr(vm_sync_text(k, 0), "bar"));
    assert_non_null(strstr(vm_sync_text(k, 0), "bugs.cu:"));
    assert_null(vm_sync_text(k, 4));
    for (int n = 1; n < 3; n++) { /* the others order what each thread does to its own element */
        vm_sync_skip(k, n);
        assert_false(rig_launch(r, k, 1, N, 0));
        assert_int_equal(r->error.fault, VM_RACE);
    }
    vm_sync_skip(k, -1);
    assert_true(rig_launch(r, k, 1, N, 0));
    rig_close(r);
    free(ptx);
}

/* Memory that nobody has written, and memory that is gone. */
static void test_memory(void **state)
{
    (void)state;
    static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 data)\n{\n"
                              ".reg .b64 %rd<2>; .reg .b32 %r<2>;\nld.param.u64 %rd0, [data];\n"
                              "ld.global.u32 %r0, [%rd0+4096];\nst.global.u32 [%rd0+4100], %r0;\nret;\n}\n";
    VmOptions o = rig_options();
    o.check = true;
    Rig *r = rig_open(o, 256);
    VmKernel *k = vm_kernel_at(rig_load(r, ptx), 0);
    uint64_t at = RIG_ADDRESS + 4096, first;
    assert_false(rig_launch(r, k, 1, 1, 0));
    assert_int_equal(r->error.fault, VM_OUT_OF_BOUNDS);
    assert_int_equal(r->error.address, at);
    r->error = (VmError){0};
    assert_true(vm_memory_add(r->vm, at, 8, r->data + 4096, "late", &r->error));
    assert_false(vm_memory_add(r->vm, at + 4, 8, r->data, "overlapping", &r->error));
    assert_false(rig_launch(r, k, 1, 1, 0));
    assert_int_equal(r->error.fault, VM_UNINITIALISED);
    vm_memory_written(r->vm, at, 4);
    assert_true(vm_memory_unwritten(r->vm, at, 8, &first));
    assert_int_equal(first, at + 4);
    assert_true(rig_launch(r, k, 1, 1, 0));
    assert_false(vm_memory_unwritten(r->vm, at, 8, &first));
    vm_memory_remove(r->vm, at);
    assert_false(rig_launch(r, k, 1, 1, 0));
    assert_int_equal(r->error.fault, VM_OUT_OF_BOUNDS);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bugs),      cmocka_unit_test(test_results), cmocka_unit_test(test_both_shared),
        cmocka_unit_test(test_copy_time), cmocka_unit_test(test_skip),    cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
