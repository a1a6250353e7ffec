/* The counters, against counts by hand (cases/traffic.cu). */
#include "tests/softgpu/vm_rig.h"

enum { FLOATS = 8192 };

static VmProfile run(const char *ptx, const char *kernel, uint32_t blocks, uint32_t threads, int thread_count)
{
    VmOptions o = rig_options();
    o.profile = true;
    o.threads = thread_count;
    Rig *r = rig_open(o, FLOATS * sizeof(float));
    VmKernel *k = rig_kernel(rig_load(r, ptx), kernel);
    rig_run(r, k, blocks, threads);
    VmProfile p = *vm_profile(k);
    rig_close(r);
    return p;
}

static void test_global(void **state)
{
    (void)state;
    static const struct {
        const char *kernel;
        uint64_t requests, sectors, ideal; /* of the loads; 64 warps */
        uint64_t touched;                  /* different sectors      */
    } rows[] = {{"side_by_side", 64, 256, 256, 256},
                {"strided", 64, 64 * 32, 256, 256},
                {"shifted", 64, 64 * 5, 256, 257},
                {"same", 64, 64, 256, 1}}; /* 64 warps: blocks 0 to 7 read sector 0 */
    char *ptx = rig_case("traffic");
    if (ptx == NULL)
        skip();
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++)
        for (int threads = 1; threads <= 3; threads += 2) {
            VmProfile p = run(ptx, rows[n].kernel, 8, 256, threads);
            if (p.load.requests != rows[n].requests || p.load.sectors != rows[n].sectors ||
                p.load.ideal_sectors != rows[n].ideal || p.sectors_read != rows[n].touched)
                fail_msg("%s: %d requests, %d sectors, %d ideal, %d touched", rows[n].kernel, (int)p.load.requests,
                         (int)p.load.sectors, (int)p.load.ideal_sectors, (int)p.sectors_read);
            assert_int_equal(p.load.bytes, 64 * 32 * 4);
            assert_int_equal(p.store.bytes, 64 * 32 * 4);
            assert_int_equal(p.store.sectors, 256);
            assert_int_equal(p.sectors_written, 256);
        }
    VmProfile p = run(ptx, "same", 1, 1, 1); /* 4 bytes: a sector, if no more than that */
    assert_int_equal(p.load.ideal_sectors, 1);
    assert_int_equal(p.load.bytes, 4);
    free(ptx);
}

static void test_banks(void **state)
{
    (void)state;
    static const struct {
        const char *kernel;
        uint32_t threads;
        uint64_t load_phases, load_conflicts, store_phases, store_conflicts;
    } rows[] = {{"transpose_32", 256, 32, 32 * 31, 32, 0},
                {"transpose_33", 256, 32, 0, 32, 0},
                {"quads_1", 32, 4, 0, 4, 0},
                {"quads_2", 32, 4, 4, 4, 4},
                {"quads_8", 32, 4, 4 * 7, 4, 4 * 7}};
    char *ptx = rig_case("traffic");
    if (ptx == NULL)
        skip();
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        VmProfile p = run(ptx, rows[n].kernel, 1, rows[n].threads, 1);
        if (p.shared_load.phases != rows[n].load_phases || p.shared_load.conflicts != rows[n].load_conflicts ||
            p.shared_store.phases != rows[n].store_phases || p.shared_store.conflicts != rows[n].store_conflicts)
            fail_msg("%s: loads %d phases, %d conflicts; stores %d, %d", rows[n].kernel, (int)p.shared_load.phases,
                     (int)p.shared_load.conflicts, (int)p.shared_store.phases, (int)p.shared_store.conflicts);
    }
    VmProfile p = run(ptx, "copied", 1, 32, 1);
    assert_int_equal(p.copy.requests, 1);
    assert_int_equal(p.copy.bytes, 512);
    assert_int_equal(p.copy.sectors, 16);
    assert_int_equal(p.copy.phases, 4);
    assert_int_equal(p.copy.conflicts, 0);
    assert_int_equal(p.shared_load.conflicts, 3); /* one float of every 16 bytes */
    free(ptx);
}

static void test_counts(void **state)
{
    (void)state;
    char *ptx = rig_case("traffic");
    if (ptx == NULL)
        skip();
    VmProfile p = run(ptx, "counted", 2, 64, 1);
    assert_int_equal(p.flops, 2 * 2 * (10 * 64 + 10 * 32)); /* 2 blocks */
    assert_int_equal(p.instructions[VM_FP32], 2 * 2 * 20);  /* 2 warps */
    assert_int_equal(p.divergent, 4);
    assert_int_equal(p.instructions[VM_LOAD_GLOBAL], 4);
    assert_int_equal(p.tensor_flops, 0);
    p = run(ptx, "transpose_33", 3, 256, 2);
    assert_int_equal(p.barriers, 3);
    free(ptx);
}

/* vm_touched tells the sectors of each range; a launch forgets the last one's. */
static void touch_add(void *context, uint64_t address, uint64_t bytes, const uint8_t *sectors, uint64_t n, bool written)
{
    uint64_t *sums = context, first = (address - RIG_ADDRESS) / 32;
    assert_int_equal(bytes, 32 * n);
    for (uint64_t s = 0; s < n; s++)
        sums[written] += sectors[s] ? first + s : 0;
}

static void test_touched(void **state)
{
    (void)state;
    char *ptx = rig_case("traffic");
    if (ptx == NULL)
        skip();
    VmOptions o = rig_options();
    o.profile = true;
    Rig *r = rig_open(o, FLOATS * sizeof(float));
    VmModule *m = rig_load(r, ptx);
    rig_run(r, rig_kernel(m, "side_by_side"), 8, 256);
    rig_run(r, rig_kernel(m, "side_by_side"), 1, 32);
    uint64_t sums[2] = {0};
    vm_touched(r->vm, touch_add, sums);
    assert_int_equal(sums[0], 0 + 1 + 2 + 3);
    assert_int_equal(sums[1], 512 + 513 + 514 + 515);
    rig_close(r);
    free(ptx);
}

/* What is printed names the line that is to blame. */
static void test_print(void **state)
{
    (void)state;
    char *ptx = rig_case("traffic"), *text = NULL;
    size_t size = 0;
    if (ptx == NULL)
        skip();
    VmOptions o = rig_options();
    o.profile = true;
    Rig *r = rig_open(o, FLOATS * sizeof(float));
    VmKernel *k = rig_kernel(rig_load(r, ptx), "transpose_32");
    rig_run(r, k, 1, 256);
    FILE *f = open_memstream(&text, &size);
    vm_profile_print(f, k);
    fclose(f);
    assert_non_null(strstr(text, "32.00-way bank conflict"));
    assert_non_null(strstr(text, "traffic.cu:"));
    assert_non_null(strstr(text, "ld.shared"));
    free(text);
    rig_close(r);
    free(ptx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_global),  cmocka_unit_test(test_banks), cmocka_unit_test(test_counts),
        cmocka_unit_test(test_touched), cmocka_unit_test(test_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
