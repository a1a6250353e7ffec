/* The loss scale of FP16: its rules, and runs in which it has to find its way or cannot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/command.h"
#include "kernels/scaler.h"

static void updates(Scaler *s, bool overflow, int64_t times)
{
    for (int64_t i = 0; i < times; i++)
        scaler_update(s, overflow);
}

/* FIELD: three overflows, 2000 good steps, an overflow, from 65536. */
static void test_script(void **state)
{
    (void)state;
    Scaler s = scaler_create(0, true);
    static const double after[] = {32768, 16384, 8192};
    assert_true(s.dynamic && s.scale == 65536);
    for (int i = 0; i < 3; i++) {
        scaler_update(&s, true);
        assert_true(s.scale == after[i]);
    }
    updates(&s, false, 1999);
    assert_true(s.scale == 8192 && s.good == 1999);
    scaler_update(&s, false);
    assert_true(s.scale == 16384 && s.good == 0);
    scaler_update(&s, true);
    assert_true(s.scale == 8192);
    updates(&s, false, 1500);
    scaler_update(&s, true); /* begins to count anew */
    updates(&s, false, 1999);
    assert_true(s.scale == 4096);
    scaler_update(&s, false);
    assert_true(s.scale == 8192);
}

static void test_ends(void **state)
{
    (void)state;
    Scaler s = scaler_create(0, true);
    updates(&s, true, 15);
    assert_true(s.scale == 2 && scaler_can_shrink(&s));
    scaler_update(&s, true);
    assert_true(s.scale == 1 && !scaler_can_shrink(&s));
    updates(&s, true, 100);
    assert_true(s.scale == 1);
    updates(&s, false, INT64_C(24) * 2000);
    assert_true(s.scale == 1 << 24);
    updates(&s, false, 4000);
    assert_true(s.scale == 1 << 24);
}

static void test_fixed(void **state)
{
    (void)state;
    const struct {
        Scaler s;
        double scale;
    } fixed[] = {{scaler_create(1024, true), 1024}, {scaler_create(3, false), 3}, {scaler_create(0, false), 1}};
    for (int i = 0; i < 3; i++) {
        Scaler s = fixed[i].s;
        updates(&s, true, 5);
        updates(&s, false, 5000);
        assert_true(!s.dynamic && s.scale == fixed[i].scale && !scaler_can_shrink(&s));
    }
}

/* ---- Runs ----------------------------------------------------------------------------------------------------------- */

static int data_make(void **state)
{
    if (command_begin(state) != 0)
        return -1;
    text_prepare(400);
    return 0;
}

static bool log_skipped(const json_t *log, size_t line)
{
    return json_is_true(json_object_get(json_array_get(log, line), "skipped"));
}

/* A checkpoint of an FP32 run whose tensor `name` is set to `value` throughout. */
static void checkpoint_spoil(const char *out_dir, const char *name, float value)
{
    char path[256];
    SafeTensors f;
    Error e = {0};
    works("train " TINY " --max-iters 1 --out-dir %s", out_dir);
    snprintf(path, sizeof path, "%s/step-1/model.safetensors", out_dir);
    assert_true(safetensors_open(&f, path, &e));
    char *bytes = malloc(f.map.size);
    memcpy(bytes, f.map.data, f.map.size);
    const SafeTensor *t = safetensors_find(&f, name);
    assert_non_null(t);
    char *data = bytes + ((const char *)t->data - (const char *)f.map.data);
    for (size_t i = 0; i < t->bytes / sizeof value; i++)
        memcpy(data + i * sizeof value, &value, sizeof value);
    assert_true(file_write_atomic(path, bytes, f.map.size, &e));
    free(bytes);
    safetensors_close(&f);
}

/* FIELD: a gradient that overflows for ever. A gain of 1e6 is Inf in FP16: the scale goes down to its floor, 16 halvings that are
 * no failure, and after --max-skips more the run says which tensor it is. */
static void test_overflow_for_ever(void **state)
{
    (void)state;
    checkpoint_spoil("spoilt", "h.1.ln_2.weight", 1e6f);
    ends(1,
         "step 20: the gradient has not been finite for 4 steps in a row; the first tensor that is not finite is the weight "
         "h.1.ln_2.weight: 32 of 32 elements, element 0 is inf",
         "train " TINY " --init-from spoilt/step-1 --precision fp16 --max-skips 3 --max-iters 100 --out-dir forever");
    json_t *log = log_lines("forever");
    assert_int_equal(json_array_size(log), 21);
    for (size_t i = 1; i <= 20; i++) {
        assert_true(log_skipped(log, i));
        assert_true(log_number(log, i, "loss_scale") == fmax(1, ldexp(65536, 1 - (int)i)));
    }
    json_decref(log);
    works("train " TINY " --init-from spoilt/step-1 --precision bf16 --max-iters 2 --out-dir fine"); /* BF16 holds it */
}

/* The same with an activation that overflows: the first one is named, at every level of recomputation, of those that are kept. */
static void test_overflow_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *flags, *tensor;
    } runs[] = {{"", "the activation h.1.ln_2:"},
                {"--recompute norm", "the activation h.1.fc:"},
                {"--recompute block", "the activation x_final:"}};
    checkpoint_spoil("wide", "h.1.ln_2.weight", 60000); /* times a normal number: some are beyond 65504 */
    for (size_t i = 0; i < 3; i++)
        ends(1, runs[i].tensor,
             "train " TINY
             " --init-from wide/step-1 --precision fp16 --loss-scale 1 --max-skips 0 --max-iters 3 --out-dir wide-%zu %s",
             i, runs[i].flags);
    works("train " TINY " --init-from wide/step-1 --precision fp16 --act-dtype f32 --loss-scale 1 --max-skips 0 --max-iters 3 "
          "--out-dir wide-f32");
}

/* A scale that is too large at first: steps are skipped until it fits, and the run goes on and learns. */
static void test_finds_its_way(void **state)
{
    (void)state;
    checkpoint_spoil("large", "ln_f.weight", 8.0f); /* gradients times 65536 overflow */
    const Output *o =
        works("train " TINY " --init-from large/step-1 --precision fp16 --max-skips 0 --max-iters 40 --out-dir way");
    json_t *log = log_lines("way");
    int skips = 0;
    for (size_t i = 1; i <= 40; i++) {
        double scale = log_number(log, i, "loss_scale");
        assert_true(i == 40 || log_number(log, i + 1, "loss_scale") == (log_skipped(log, i) ? scale / 2 : scale));
        skips += log_skipped(log, i);
    }
    assert_in_range(skips, 1, 15);
    assert_false(log_skipped(log, 40));
    assert_true(log_number(log, 40, "loss") < log_number(log, 1, "loss"));
    char line[96];
    snprintf(line, sizeof line, "Done after step 40; skipped because the gradient was not finite: %d.", skips);
    assert_non_null(strstr(o->out, line));
    assert_non_null(strstr(o->out, "; loss scale 65536, dynamic"));
    json_decref(log);
}

/* A skipped step consumes its data and its place in the schedule, and nothing else of the run: no weight, no moment. */
static void test_skipped_step(void **state)
{
    (void)state;
    checkpoint_spoil("start", "ln_f.weight", 3000);
    works("train " TINY " --init-from start/step-1 --precision fp16 --max-iters 1 --out-dir one");
    json_t *log = log_lines("one");
    assert_true(log_skipped(log, 1) && log_number(log, 1, "lr") > 0 && isnan(log_number(log, 1, "grad_norm")));
    json_decref(log);
    assert_true(files_equal("one/step-1/model.safetensors", "start/step-1/model.safetensors"));
    SafeTensors f;
    Error e = {0};
    assert_true(safetensors_open(&f, "one/step-1/optimizer.safetensors", &e));
    for (size_t i = 0; i < f.count; i++)
        for (size_t k = 0; k < f.tensors[i].bytes; k++)
            assert_int_equal(((const char *)f.tensors[i].data)[k], 0);
    safetensors_close(&f);
    json_t *trainer = json_read("one/step-1/trainer.json", &e), *s = json_object_get(trainer, "state");
    assert_int_equal(json_integer_value(json_object_get(s, "adam_t")), 0);
    assert_int_equal(json_integer_value(json_object_get(s, "skips")), 1);
    assert_int_equal(json_integer_value(json_object_get(s, "skips_in_a_row")), 0); /* the scale can still shrink */
    assert_int_equal(json_integer_value(json_object_get(s, "loader_position")), 2);
    assert_true(json_real_value(json_object_get(s, "loss_scale")) == 32768);
    json_decref(trainer);
}

/* One of the shares that --grad-stats has put into a line of the log. */
static double share(const json_t *log, size_t line, size_t entry, const char *of, const char *what)
{
    const json_t *list = json_object_get(json_array_get(log, line), "grad_stats"), *object = json_array_get(list, entry);
    assert_int_equal(json_integer_value(json_object_get(object, "layer")), entry < 2 ? (int)entry : -1);
    const json_t *value = json_object_get(json_object_get(object, of), what);
    assert_true(json_is_real(value));
    return json_real_value(value);
}

/* Adam's first moment of block 0's c_attn after the one step of a run: (1 - beta1) times its gradient. */
static float *attention_gradient(const char *out_dir, int64_t *n)
{
    char path[64];
    SafeTensors f;
    Error e = {0};
    snprintf(path, sizeof path, "%s/step-1/optimizer.safetensors", out_dir);
    assert_true(safetensors_open(&f, path, &e));
    const SafeTensor *t = safetensors_find(&f, "h.0.attn.c_attn.weight.m");
    assert_non_null(t);
    *n = (int64_t)(t->bytes / sizeof(float));
    float *values = malloc(t->bytes);
    assert_true(safetensors_read_f32(t, 0, *n, values, &e));
    safetensors_close(&f);
    return values;
}

/* |a - b| / |b| of that gradient in two runs. */
static double gradient_error(const char *a, const char *b)
{
    int64_t n;
    float *x = attention_gradient(a, &n), *y = attention_gradient(b, &n);
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        size += (double)y[i] * y[i];
    }
    free(x);
    free(y);
    return sqrt(error / size);
}

/* What half a million tokens a step do to FP16, in small. The loss is their mean, so each one's part of it has a tiny gradient.
 * Without a scale those of activations are 0, nearly all, and with them the gradients of attention; the dynamic scale saves them.
 */
static void test_many_tokens(void **state)
{
    (void)state;
    static const char run[] =
        "train --data data --model nano --n-embd 8 --n-head 1 --block-size 16 --batch-size 512 --max-iters 1 "
        "--gradient-accumulation-steps 16 --grad-clip 0 --eval-interval 0 --threads 1 --grad-stats 1";
    works("%s --precision fp32 --out-dir many-fp32", run);
    works("%s --precision fp16 --out-dir many-scaled", run);
    const Output *o = works("%s --precision fp16 --loss-scale 1 --out-dir many-unscaled", run);
    assert_non_null(strstr(o->out,
                           "  gradients that are 0 | subnormal | not finite, in %\n  layer                     dx (f16)   "
                           "                act (f16)               weights (f32)\n  0     "));
    json_t *scaled = log_lines("many-scaled"), *unscaled = log_lines("many-unscaled");
    for (size_t block = 0; block < 2; block++) {
        assert_true(share(unscaled, 1, block, "act", "zero") > 0.95);
        assert_true(share(unscaled, 1, block, "dx", "subnormal") > 0.9);
        assert_true(share(scaled, 1, block, "act", "zero") < 0.02); /* of them 0.011 of rows without targets, at an epoch's end */
        assert_true(share(scaled, 1, block, "dx", "subnormal") < 0.01);
    }
    json_decref(scaled);
    json_decref(unscaled);
    double with = gradient_error("many-scaled", "many-fp32"), without = gradient_error("many-unscaled", "many-fp32");
    if (!(with < 0.01 && without > 0.3))
        fail_msg("error of the gradient: %g with a scale, %g without", with, without);
}

/* Without a scale FP16 gradients drown, with one they are whole, with too large a one they overflow: the statistics show it,
 * where they are due, and looking changes nothing. */
static void test_grad_stats(void **state)
{
    (void)state;
    static const struct {
        const char *scale;
        double zero, subnormal, saturated; /* least shares of dx in block 0 */
    } runs[] = {{"1e-6", 1, 0, 0}, {"1e-4", 0.001, 0.9, 0}, {"65536", 0, 0, 0}, {"1e9", 0, 0, 0.9}};
    for (int i = 0; i < 4; i++) {
        works("train " TINY " --precision fp16 --loss-scale %s --max-skips 9 --max-iters 5 --grad-stats 2 --out-dir stats-%d",
              runs[i].scale, i);
        char out_dir[32];
        snprintf(out_dir, sizeof out_dir, "stats-%d", i);
        json_t *log = log_lines(out_dir);
        assert_null(json_object_get(json_array_get(log, 1), "grad_stats"));
        assert_null(json_object_get(json_array_get(log, 3), "grad_stats"));
        for (size_t line = 2; line <= 5; line += line == 2 ? 2 : 1) { /* 2, 4, and the last */
            double zero = share(log, line, 0, "dx", "zero"), subnormal = share(log, line, 0, "dx", "subnormal"),
                   saturated = share(log, line, 0, "dx", "saturated");
            assert_true(zero >= runs[i].zero && (runs[i].zero > 0 || zero == 0));
            assert_true(subnormal >= runs[i].subnormal && (runs[i].subnormal > 0 || subnormal == 0));
            assert_true(saturated >= runs[i].saturated && (runs[i].saturated > 0 || saturated == 0));
            assert_true((share(log, line, 1, "weights", "zero") > 0.01) == (i < 2)); /* in FP32, of what is left of dx */
            assert_true((share(log, line, 2, "weights", "saturated") > 0.9) == (i == 3));
        }
        json_decref(log);
    }
    works("train " TINY " --precision fp16 --loss-scale 65536 --max-iters 5 --out-dir unseen");
    assert_true(steps_equal("stats-2", "unseen", 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_script),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_overflow_for_ever),
        cmocka_unit_test(test_overflow_is_found),
        cmocka_unit_test(test_finds_its_way),
        cmocka_unit_test(test_skipped_step),
        cmocka_unit_test(test_grad_stats),
        cmocka_unit_test(test_many_tokens),
    };
    return cmocka_run_group_tests(tests, data_make, command_end);
}
