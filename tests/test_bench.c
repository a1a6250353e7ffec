/* tally bench and tally bench amp: what they print adds up, is what the plan and the training say, and Amdahl's law is his. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/device.h"
#include "tests/command.h"
#include "train/peak.h"

#define BENCH TINY_MODEL " --block-size 16 --batch-size 2"

static const char *const precisions[] = {"fp32", "bf16", "fp16"};

static int make_data(void **state)
{
    if (command_begin(state) != 0)
        return -1;
    text_prepare(400);
    return 0;
}

static void assert_text(const json_t *object, const char *field, const char *text)
{
    assert_string_equal(json_string_value(json_object_get(object, field)), text);
}

static void assert_near(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-9 * fabs(expected)))
        fail_msg("got %.12g, expected %.12g", got, expected);
}

/* ---- bench ---------------------------------------------------------------------------------------------------------- */

static void test_bench(void **state)
{
    (void)state;
    works("bench " BENCH " --precision bf16 --gradient-accumulation-steps 3 --max-iters 4 --json");
    json_t *bench = printed(), *ops = json_object_get(bench, "ops");
    double median = number(bench, "ms_median");
    assert_true(number(bench, "ms_min") > 0 && number(bench, "ms_min") <= median && median <= number(bench, "ms_max"));
    assert_near(number(bench, "tokens_per_s"), 3 * 2 * 16 / (median / 1e3));
    assert_true(number(bench, "mfu") > 0 && number(bench, "mfu") <= 1);
    assert_true(strncmp(json_string_value(json_object_get(bench, "precision")), "bf16 weights + f32 masters", 26) == 0);
    static const struct {
        const char *op;
        int calls;
    } calls[] = {{"linear_forward", 3 * 8}, {"attention_backward", 3 * 2}, {"linear_gelu_backward", 3 * 2}, {"adamw", 1}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        assert_true(number(json_object_get(ops, calls[i].op), "calls") == calls[i].calls);
    const json_t *adamw = json_object_get(ops, "adamw");
    assert_near(number(adamw, "bound_ms") * number(bench, "copy_gb_per_s"), number(adamw, "gb_per_s") * number(adamw, "ms"));
    const json_t *linear = json_object_get(ops, "linear_forward");
    assert_true(number(linear, "bound_ms") * number(bench, "gemm_peak_gflops") >=
                number(linear, "gflops") * number(linear, "ms") * (1 - 1e-9));
    json_decref(bench);
    const Output *o = works("bench " BENCH " --precision fp16 --max-iters 1");
    assert_non_null(strstr(o->out, "precision: f16 weights + f32 masters, "));
    assert_non_null(strstr(o->out, "GEMMs multiply f32"));
    o = works("bench " BENCH " --data data --max-iters 1");
    assert_non_null(strstr(o->out, "precision: fp32; GEMMs multiply f32"));
    ends(2, "max_iters: needs to be 1 or more", "bench " BENCH " --max-iters 0");
}

/* ---- bench amp ------------------------------------------------------------------------------------------------------ */

/* Memory is what tally plan says of the same run. */
static void assert_planned(const json_t *run, const char *precision)
{
    works("plan " BENCH " --vocab-size 16 --precision %s --json", precision);
    json_t *plan = printed();
    assert_true(json_equal(json_object_get(run, "memory"), json_object_get(plan, "categories")));
    assert_true(number(run, "total_bytes") == number(plan, "total_bytes"));
    json_decref(plan);
}

/* The loss is what tally train logs for that step. */
static void assert_trained(const json_t *run, const char *precision, size_t steps)
{
    works("train " BENCH " --data data --quiet --precision %s --max-iters %zu --out-dir trained-%s", precision, steps, precision);
    char out_dir[32];
    snprintf(out_dir, sizeof out_dir, "trained-%s", precision);
    json_t *log = log_lines(out_dir);
    assert_near(number(run, "loss"), log_number(log, steps, "loss"));
    json_decref(log);
}

static void test_amp(void **state)
{
    (void)state;
    works("bench amp " BENCH " --data data --max-iters 12 --json");
    json_t *amp = printed(), *settings = json_object_get(amp, "settings"), *runs = json_object_get(amp, "precisions");
    assert_text(amp, "model", "nano");
    assert_text(settings, "data", "data");
    assert_true(number(settings, "steps") == 12 && number(settings, "batch_size") == 2 && number(settings, "block_size") == 16);
    assert_int_equal(json_array_size(runs), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *run = json_array_get(runs, i), *class = json_object_get(run, "classes");
        double median = number(run, "ms_median"), sum = 0;
        assert_text(run, "precision", precisions[i]);
        assert_true(number(run, "ms_min") > 0 && number(run, "ms_min") <= median && median <= number(run, "ms_max"));
        assert_near(number(run, "tokens_per_s"), 2 * 16 / (median / 1e3));
        static const char *const classes[] = {"gemm", "attention", "memory", "optimizer"};
        for (int k = 0; k < 4; k++) {
            assert_true(number(class, classes[k]) > 0);
            sum += number(class, classes[k]);
        }
        assert_true(sum < 2 * number(run, "ms_max"));
        assert_true(number(run, "skipped") == 0);
        assert_planned(run, precisions[i]);
        assert_trained(run, precisions[i], 12);
    }
    json_decref(amp);
}

/* Amdahl's law from the printed times of the classes: the classes one after the other, each so many times as fast. */
static void test_amdahl(void **state)
{
    (void)state;
    works("bench amp " BENCH " --max-iters 7 --json");
    json_t *amp = printed(), *runs = json_object_get(amp, "precisions"), *law = json_object_get(amp, "amdahl");
    assert_true(json_is_null(json_object_get(json_object_get(amp, "settings"), "data")));
    assert_int_equal(json_array_size(law), 2);
    for (size_t i = 1; i < 3; i++) {
        const json_t *said = json_array_get(law, i - 1), *base = json_array_get(runs, 0), *run = json_array_get(runs, i);
        const json_t *before = json_object_get(base, "classes"), *after = json_object_get(run, "classes");
        const char *class;
        json_t *value;
        double sum_before = 0, sum_after = 0, gemm = number(before, "gemm");
        json_object_foreach((json_t *)before, class, value)
        {
            sum_before += json_number_value(value);
            sum_after += number(after, class);
            assert_near(number(json_object_get(said, "classes"), class), json_number_value(value) / number(after, class));
        }
        assert_text(said, "precision", precisions[i]);
        assert_near(number(said, "predicted"), sum_before / sum_after);
        assert_near(number(said, "measured"), number(base, "ms_median") / number(run, "ms_median"));
        assert_near(number(said, "gemm_alone"), sum_before / (sum_before - gemm + number(after, "gemm")));
        assert_near(number(said, "gemm_free"), sum_before / (sum_before - gemm));
    }
    json_decref(amp);
}

static void test_amp_says(void **state)
{
    (void)state;
    const Output *o = works("bench amp " BENCH " --max-iters 5 --gradient-accumulation-steps 2");
    assert_non_null(strstr(o->out, "B 2 x T 16 x 2, seed 1337"));
    assert_non_null(strstr(o->out, "5 steps in each precision, in turns: 1 to warm up, 2 timed whole, 2 op by op; loss of the "
                                   "last, on random tokens"));
    assert_non_null(strstr(o->out, "\n  master_weights               0.00 "));
    assert_non_null(strstr(o->out, "predicted  measured"));
    ends(2, "max_iters: is 2; needs to be 3 or more", "bench amp " BENCH " --max-iters 2");
    ends(2, "precision: bench amp runs them all", "bench amp " BENCH " --precision bf16");
    ends(2, "precision: bench amp runs them all", "bench amp " BENCH " --grad-dtype bf16");
    ends(2, "3 runs at once need ", "bench amp " BENCH " --mem-cap 1MiB");
    ends(2, "'map' is not a flag", "bench map " BENCH);
    ends(1, "nowhere: ", "bench amp " BENCH " --data nowhere");
}

/* ---- The peak ------------------------------------------------------------------------------------------------------- */

static void test_peak(void **state)
{
    (void)state;
    Target target;
    Error e = {0};
    const Device *device = cpu_device(&target, 1, &e);
    double peak = gemm_peak_measure(device, &target, DTYPE_F32, &e);
    assert_true(!e.set && peak > 1e8);
    /* a slower step says nothing about the peak; one that is faster than what was measured has it measured again */
    assert_true(gemm_peak_correct(3.5e8, 3.4e8, device, &target, DTYPE_F32) == 3.5e8);
    double again = gemm_peak_correct(peak / 100, peak / 50, device, &target, DTYPE_F32);
    assert_true(again > peak / 4);
    /* and what a step has reached is a lower bound in any case */
    assert_true(gemm_peak_correct(peak, 1e18, device, &target, DTYPE_F32) == 1e18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench),    cmocka_unit_test(test_amp),  cmocka_unit_test(test_amdahl),
        cmocka_unit_test(test_amp_says), cmocka_unit_test(test_peak),
    };
    return cmocka_run_group_tests(tests, make_data, command_end);
}
