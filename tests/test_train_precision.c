/* tally train in other precisions: interrupted and resumed it computes the same bits, what it saves is what counts (masters, the
 * scaler), it learns as FP32 does, and it says in what it computes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/convert.h"
#include "tests/command.h"

#define RUN                                                                                                                      \
    TINY " --dropout 0.1 --gradient-accumulation-steps 2 --lr-decay-iters 40 --warmup-iters 5 --eval-interval 10 --eval-iters 2"

/* FP16 starts from a model whose first gradients overflow at 65536: the scaler has a history. */
static const char *const policies[] = {
    "--precision fp32",
    "--precision bf16",
    "--precision bf16 --grad-dtype bf16",
    "--precision bf16 --master-dtype none",
    "--precision bf16 --master-dtype none --m-dtype bf16 --v-dtype bf16 --resid-dtype f32 --recompute block",
    "--precision fp16 --init-from large/step-0",
    "--precision fp16 --loss-scale 128 --m-dtype fp16 --recompute attention",
};
enum { POLICIES = sizeof policies / sizeof *policies };

/* Rewrites model.safetensors of a checkpoint in place, every value multiplied. */
static void gains_multiply(const char *path, const char *name, float by)
{
    SafeTensors f;
    Error e = {0};
    assert_true(safetensors_open(&f, path, &e));
    char *bytes = malloc(f.map.size);
    memcpy(bytes, f.map.data, f.map.size);
    const SafeTensor *t = safetensors_find(&f, name);
    char *at = bytes + ((const char *)t->data - (const char *)f.map.data);
    for (size_t i = 0; i < t->bytes; i += sizeof(float)) {
        float x;
        memcpy(&x, at + i, sizeof x);
        x *= by;
        memcpy(at + i, &x, sizeof x);
    }
    assert_true(file_write_atomic(path, bytes, f.map.size, &e));
    free(bytes);
    safetensors_close(&f);
}

/* policy-P/step-40 of every policy, in one go. */
static int make_runs(void **state)
{
    if (command_begin(state) != 0)
        return -1;
    text_prepare(1200);
    works("train " TINY " --max-iters 0 --out-dir large");
    gains_multiply("large/step-0/model.safetensors", "ln_f.weight", 16);
    for (int p = 0; p < POLICIES; p++)
        works("train " RUN " --max-iters 40 --out-dir policy-%d %s", p, policies[p]);
    return 0;
}

static json_t *trainer_state(const char *out_dir, int step)
{
    char path[256];
    Error e = {0};
    snprintf(path, sizeof path, "%s/step-%d/trainer.json", out_dir, step);
    json_t *trainer = json_read(path, &e), *s = json_incref(json_object_get(trainer, "state"));
    assert_non_null(s);
    json_decref(trainer);
    return s;
}

/* FIELD: 40 steps are 20, and 20 more of a process that knows the checkpoint only: weights, moments, scaler, and what is logged.
 */
static void test_resume(void **state)
{
    (void)state;
    static const char *const fields[] = {"step", "loss", "lr", "grad_norm", "val_loss", "loss_scale"};
    for (int p = 0; p < POLICIES; p++) {
        char whole[32], half[32];
        snprintf(whole, sizeof whole, "policy-%d", p);
        snprintf(half, sizeof half, "half-%d", p);
        works("train " RUN " --max-iters 20 --out-dir %s %s", half, policies[p]);
        works("train --resume --max-iters 40 --out-dir %s --quiet", half);
        if (!steps_equal(whole, half, 40))
            fail_msg("%s: other weights or moments than in one go", policies[p]);
        json_t *a = trainer_state(whole, 40), *b = trainer_state(half, 40), *log_a = log_lines(whole), *log_b = log_lines(half);
        assert_true(json_equal(a, b));
        for (size_t i = 1; i <= 40; i++)
            for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
                double x = log_number(log_a, i, fields[k]), y = log_number(log_b, i, fields[k]);
                if (x != y && !(isnan(x) && isnan(y)))
                    fail_msg("%s: line %zu: %s is %.9g, in one go %.9g", policies[p], i, fields[k], y, x);
            }
        json_decref(a);
        json_decref(b);
        json_decref(log_a);
        json_decref(log_b);
    }
    json_t *half = trainer_state("half-5", 20); /* there was a scaler to remember */
    assert_true(json_real_value(json_object_get(half, "loss_scale")) < 65536);
    assert_in_range(json_integer_value(json_object_get(half, "skips")), 1, 10);
    assert_in_range(json_integer_value(json_object_get(half, "scaler_good")), 1, 19);
    json_decref(half);
}

/* The same twice, and on two threads. */
static void test_again(void **state)
{
    (void)state;
    for (int p = 1; p < POLICIES; p++) {
        for (int i = 0; i < 2; i++)
            works("train " RUN " --threads 2 --max-iters 4 --out-dir again-%d-%d %s", p, i, policies[p]);
        char a[32], b[32];
        snprintf(a, sizeof a, "again-%d-0", p);
        snprintf(b, sizeof b, "again-%d-1", p);
        assert_true(steps_equal(a, b, 4));
    }
}

/* The mean loss of the last ten of 40 steps is that of FP32 within one percent. */
static void test_learns_as_fp32(void **state)
{
    (void)state;
    double mean[POLICIES] = {0};
    for (int p = 0; p < POLICIES; p++) {
        char out_dir[32];
        snprintf(out_dir, sizeof out_dir, "policy-%d", p);
        json_t *log = log_lines(out_dir);
        for (size_t i = 31; i <= 40; i++)
            mean[p] += log_number(log, i, "loss") / 10;
        json_decref(log);
        if (p != 5 && !(fabs(mean[p] / mean[0] - 1) < 0.01)) /* 5 began elsewhere */
            fail_msg("%s: loss %g, in fp32 %g", policies[p], mean[p], mean[0]);
    }
}

/* ---- What is saved -------------------------------------------------------------------------------------------------- */

/* The dtype of a tensor in a file. */
static SafeDtype dtype_in(const char *path, const char *name)
{
    SafeTensors f;
    Error e = {0};
    assert_true(safetensors_open(&f, path, &e));
    SafeDtype dtype = safetensors_find(&f, name)->dtype;
    safetensors_close(&f);
    return dtype;
}

/* FIELD: masters are saved, and in FP32: hardly one of them is a BF16 number. What has no master is saved as it is. */
static void test_masters_are_saved(void **state)
{
    (void)state;
    int64_t n, exact = 0;
    float *x = tensor_of("policy-1/step-40", "h.0.mlp.c_fc.weight", &n);
    for (int64_t i = 0; i < n; i++)
        exact += x[i] == bf16_to_f32(f32_to_bf16(x[i]));
    assert_true(n == 32 * 128 && exact < n / 100);
    free(x);
    assert_int_equal(dtype_in("policy-1/step-40/model.safetensors", "wte.weight"), SAFE_F32);
    assert_int_equal(dtype_in("policy-3/step-40/model.safetensors", "wte.weight"), SAFE_BF16);
    assert_int_equal(dtype_in("policy-3/step-40/optimizer.safetensors", "wte.weight.m"), SAFE_F32);
    assert_int_equal(dtype_in("policy-4/step-40/optimizer.safetensors", "wte.weight.m"), SAFE_BF16);
    assert_int_equal(dtype_in("policy-4/step-40/optimizer.safetensors", "wte.weight.v"), SAFE_BF16);
    assert_int_equal(dtype_in("policy-6/step-40/optimizer.safetensors", "wte.weight.m"), SAFE_F16);
}

/* A checkpoint begins a run in any precision: masters as FP32 weights and back without a loss; BF16 weights widened and back. */
static void test_from_one_precision_to_another(void **state)
{
    (void)state;
    works("train " TINY " --max-iters 0 --init-from policy-1/step-40 --precision fp32 --out-dir to-fp32");
    assert_true(files_equal("to-fp32/step-0/model.safetensors", "policy-1/step-40/model.safetensors"));
    works("train " TINY " --max-iters 0 --init-from to-fp32/step-0 --precision fp16 --out-dir to-fp16");
    assert_true(files_equal("to-fp16/step-0/model.safetensors", "policy-1/step-40/model.safetensors"));
    works("train " TINY " --max-iters 0 --init-from to-fp32/step-0 --precision bf16 --master-dtype none --out-dir to-bf16");
    int64_t n, n_bf16;
    float *x = tensor_of("to-fp32/step-0", "wpe.weight", &n);
    SafeTensors m;
    Error e = {0};
    assert_true(safetensors_open_model(&m, "to-bf16/step-0", &e));
    const SafeTensor *t = safetensors_find(&m, "wpe.weight");
    n_bf16 = (int64_t)(t->bytes / 2);
    assert_int_equal(n_bf16, n);
    float *y = malloc((size_t)n * sizeof *y);
    assert_true(safetensors_read_f32(t, 0, n, y, &e));
    for (int64_t i = 0; i < n; i++)
        assert_true(y[i] == bf16_to_f32(f32_to_bf16(x[i])));
    safetensors_close(&m);
    free(x);
    free(y);
    works("train " TINY " --max-iters 0 --init-from policy-3/step-40 --precision fp32 --out-dir wide");
    works("train " TINY " --max-iters 0 --init-from wide/step-0 --precision bf16 --master-dtype none --out-dir narrow");
    assert_true(files_equal("narrow/step-0/model.safetensors", "policy-3/step-40/model.safetensors"));
    works("sample --checkpoint policy-3/step-40 --max-new-tokens 20 --threads 1");
}

/* A run may go on in another precision; FP16 begins with a scale of its own then. */
static void test_resume_in_another(void **state)
{
    (void)state;
    works("train " RUN " --max-iters 5 --out-dir other --precision bf16");
    works("train --resume --max-iters 8 --out-dir other --precision fp32 --quiet");
    works("train --resume --max-iters 10 --out-dir other --precision fp16 --quiet");
    json_t *log = log_lines("other");
    assert_int_equal(json_array_size(log), 11);
    assert_true(isnan(log_number(log, 8, "loss_scale")));
    assert_true(log_number(log, 9, "loss_scale") == 65536);
    assert_true(log_number(log, 10, "loss") < log_number(log, 1, "loss"));
    json_decref(log);
    json_t *s = trainer_state("other", 10);
    assert_int_equal(json_integer_value(json_object_get(s, "scaler_good")), 2);
    json_decref(s);
}

/* ---- What is said --------------------------------------------------------------------------------------------------- */

static void test_header(void **state)
{
    (void)state;
    const Output *o = works("train " TINY " --max-iters 1 --precision fp16 --out-dir said-fp16");
    assert_non_null(strstr(o->out, "Precision: f16 weights + f32 masters, f32 grads, f16 acts, f16 resid, f32/f32 moments; GEMMs "
                                   "multiply f32 to which 16-bit operands are widened, at "));
    assert_non_null(strstr(o->out, " GFLOP/s at most, measured; loss scale 65536, dynamic\n"));
    assert_non_null(strstr(o->out, "Done after step 1; skipped because the gradient was not finite: 0.\n"));
    o = works("train " TINY " --max-iters 1 --out-dir said-fp32");
    assert_non_null(strstr(o->out, "Precision: fp32; GEMMs multiply f32, at "));
    assert_non_null(strstr(o->out, " GFLOP/s at most, measured\n"));
    setenv("DNNL_MAX_CPU_ISA", "AVX2", 1); /* a processor without BF16 units: the same run, by widening */
    o = works("train " RUN " --max-iters 40 --precision bf16 --out-dir said-bf16");
    unsetenv("DNNL_MAX_CPU_ISA");
    assert_non_null(strstr(o->out, "bf16 acts, bf16 resid, f32/f32 moments; GEMMs multiply f32 to which 16-bit"));
    json_t *log = log_lines("said-bf16"), *native = log_lines("policy-1");
    assert_string_equal(json_string_value(json_object_get(json_array_get(log, 0), "gemm_type")), "f32");
    for (size_t i = 1; i <= 40; i++)
        assert_true(fabs(log_number(log, i, "loss") / log_number(native, i, "loss") - 1) < 0.003);
    json_decref(log);
    json_decref(native);
}

static void test_refusals(void **state)
{
    (void)state;
    ends(2, "precision: tf32 is how a GPU's tensor cores multiply FP32 numbers; a CPU has no such unit",
         "train " TINY " --precision tf32 --out-dir no");
    ends(2, "precision: 'fp8' is none of fp32, tf32, bf16, fp16", "train " TINY " --precision fp8 --out-dir no");
    ends(2, "act_dtype: 'int8' is none of f32, bf16, f16", "train " TINY " --act-dtype int8 --out-dir no");
    ends(2, "master_dtype: 'bf16' is neither f32 nor none", "train " TINY " --precision bf16 --master-dtype bf16 --out-dir no");
    ends(2, "master_dtype: FP32 weights need no FP32 master copy", "train " TINY " --master-dtype f32 --out-dir no");
    ends(2, "recompute: 'all' is none of none, norm, attention, block", "train " TINY " --recompute all --out-dir no");
    ends(2, "recompute_every: is 2; needs to be 1 or more, and goes with recompute block only",
         "train " TINY " --recompute norm --recompute-every 2 --out-dir no");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_learns_as_fp32),
        cmocka_unit_test(test_masters_are_saved),
        cmocka_unit_test(test_from_one_precision_to_another),
        cmocka_unit_test(test_resume_in_another),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, make_runs, command_end);
}
