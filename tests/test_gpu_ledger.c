/* The ledger of a GPU's memory: its parts are the whole, to the byte, whatever the driver tells, and what comes later is
 * remainder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/ledger.h"

#include <math.h>

#define GIB 0x1p30
#define MIB 0x1p20

static Model model_make(void)
{
    Model m = {.plan = {.persistent_bytes = 3u << 20, .step_bytes = 5u << 20}};
    m.ctx.target.total_bytes = (size_t)8 << 30;
    m.ctx.target.free_bytes = (size_t)(7.5 * GIB); /* when the device was opened */
    return m;
}

static void assert_whole(const GpuLedger *l)
{
    double parts =
        l->persistent + l->step + l->libraries + l->context + (isnan(l->others) ? 0 : l->others) + l->free + l->remainder;
    assert_true(parts == l->total && l->total == 8 * GIB);
    assert_true(l->persistent == 3 * MIB && l->step == 5 * MIB);
}

/* 8 GiB: 6 free, 0.5 others, 1 ours: half a GiB that nobody has. */
static void test_told(void **state)
{
    (void)state;
    Model m = model_make();
    GpuLedger l = gpu_ledger(&m, 6 * GIB, 1 * GIB, 0.5 * GIB, 16 * MIB, NAN);
    assert_whole(&l);
    assert_true(l.context == 1 * GIB - (3 + 5 + 16) * MIB);
    assert_true(l.others == 0.5 * GIB && l.remainder == 0.5 * GIB);

    /* What this process takes later is not context any more; what others take or give back is theirs. */
    GpuLedger later = gpu_ledger(&m, 6 * GIB - 8 * MIB, 1 * GIB + 8 * MIB, 0.5 * GIB, 16 * MIB, l.context);
    assert_whole(&later);
    assert_true(later.context == l.context && later.remainder == l.remainder + 8 * MIB);
    later = gpu_ledger(&m, 5.75 * GIB, 1 * GIB, 0.75 * GIB, 16 * MIB, l.context);
    assert_whole(&later);
    assert_true(later.remainder == l.remainder);
}

/* Without the driver's word, what was taken at the start is context and others; kernels and graphs are the remainder. */
static void test_not_told(void **state)
{
    (void)state;
    Model m = model_make();
    GpuLedger l = gpu_ledger(&m, 7.5 * GIB - 32 * MIB, NAN, 0.5 * GIB, 16 * MIB, NAN);
    assert_whole(&l);
    assert_true(l.context == 0.5 * GIB && isnan(l.others) && l.remainder == 8 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_told), cmocka_unit_test(test_not_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
