/* What an optimizer step of tally train is, through the command line: the learning rate, accumulation, the last step of an epoch,
 * clipping, steps that are skipped, and that a model can learn a batch by heart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/command.h"
#include "train/schedule.h"

/* With eps = 1, far above any gradient here, AdamW moves a weight by lr g / (|g| + 1), nearly lr g: the change of the weights is
 * the gradient, and so are the errors of both. With the usual eps an error in a gradient near 0 would be a change of lr. */
#define LINEAR                                                                                                                   \
    TINY " --eps 1 --learning-rate 1 --min-lr 1 --schedule constant --warmup-iters 0 --weight-decay 0 --dropout 0 "              \
         "--eval-interval 0"

/* Relative error of a plain FP32 gradient, all in all: see tests/golden/README.md ("floors"). */
static const double gradient_limit = 2e-5;

static json_t *schedules; /* tests/golden/lr_schedules.json */

static int make_data(void **state)
{
    Error e = {0};
    schedules = json_read("tests/golden/lr_schedules.json", &e);
    if (!schedules || command_begin(state) != 0)
        return -1;
    text_prepare(300);
    works("train " TINY " --max-iters 0 --out-dir start"); /* start/step-0: the initial weights of this seed */
    return 0;
}

/* A number of line `line` of an out-dir's log. */
static double logged(const char *out_dir, size_t line, const char *field)
{
    json_t *log = log_lines(out_dir);
    double number = log_number(log, line, field);
    json_decref(log);
    return number;
}

static void assert_close(double got, double expected, double relative)
{
    if (!(fabs(got - expected) <= relative * fabs(expected)))
        fail_msg("got %.12g, expected %.12g", got, expected);
}

/* ---- The learning rate ---------------------------------------------------------------------------------------------- */

static void test_cosine_tables(void **state)
{
    (void)state;
    json_t *table, *value;
    size_t i, step, rates = 0;
    json_array_foreach(json_object_get(schedules, "tables"), i, table)
    {
        Schedule s = {SCHEDULE_COSINE,
                      json_integer_value(json_object_get(table, "warmup_steps")),
                      json_integer_value(json_object_get(table, "total_steps")),
                      json_number_value(json_object_get(table, "lr")),
                      json_number_value(json_object_get(table, "min_lr")),
                      0};
        json_array_foreach(json_object_get(table, "values"), step, value)
        {
            assert_true(fabs(schedule_rate(&s, (int64_t)step) - json_number_value(value)) <= 1e-14 * s.lr);
            rates++;
        }
    }
    assert_int_equal(rates, 9 + 23 + 10);
}

/* By hand: peak 1, floor 0.2, warm-up 2, end 10; wsd decays in the last half. */
static void test_other_schedules(void **state)
{
    (void)state;
    static const struct {
        ScheduleKind kind;
        double rate[12];
    } by_hand[] = {
        {SCHEDULE_LINEAR, {0.5, 1, 1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.2}},
        {SCHEDULE_WSD, {0.5, 1, 1, 1, 1, 1, 0.84, 0.68, 0.52, 0.36, 0.2, 0.2}},
        {SCHEDULE_CONSTANT, {0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++)
        for (int step = 0; step < 12; step++) {
            Schedule s = {by_hand[i].kind, 2, 10, 1, 0.2, 0.5};
            assert_true(fabs(schedule_rate(&s, step) - by_hand[i].rate[step]) < 1e-15);
        }
}

/* FIELD-CASES 19: the rate counts optimizer steps. And the flags arrive: linear from 5e-5 to 1e-5 in steps 25 to 29. */
static void test_rate_in_the_log(void **state)
{
    (void)state;
    works("train " TINY " --learning-rate 5e-5 --min-lr 1e-5 --warmup-iters 25 --max-iters 30 --gradient-accumulation-steps 4 "
          "--schedule linear --lr-decay-iters 29 --out-dir rate");
    static const struct {
        size_t step;
        double rate;
    } steps[] = {{1, 2e-6}, {2, 4e-6}, {25, 5e-5}, {26, 5e-5}, {27, 4e-5}, {29, 2e-5}, {30, 1e-5}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        assert_close(logged("rate", steps[i].step, "lr"), steps[i].rate, 1e-7); /* a float */
}

/* ---- Accumulation --------------------------------------------------------------------------------------------------- */

/* The same eight windows in one micro-batch and in four; clipped, too, and then after all four. */
static void test_accumulation(void **state)
{
    (void)state;
    static const char *const clip[] = {"0", "0.05"};
    for (int i = 0; i < 2; i++) {
        works("train " LINEAR " --max-iters 3 --grad-clip %s --batch-size 8 --out-dir one-%d", clip[i], i);
        works("train " LINEAR " --max-iters 3 --grad-clip %s --gradient-accumulation-steps 4 --out-dir four-%d", clip[i], i);
        char one[32], four[32];
        for (size_t step = 1; step <= 3; step++) {
            snprintf(one, sizeof one, "one-%d", i);
            snprintf(four, sizeof four, "four-%d", i);
            assert_close(logged(four, step, "loss"), logged(one, step, "loss"), 1e-6);
            assert_close(logged(four, step, "grad_norm"), logged(one, step, "grad_norm"), 1e-5);
        }
        snprintf(one, sizeof one, "one-%d/step-3", i);
        snprintf(four, sizeof four, "four-%d/step-3", i);
        double way = weights_distance(one, "start/step-0"), apart = weights_distance(one, four);
        if (!(apart <= gradient_limit * way))
            fail_msg("clip %s: %.3g apart after a way of %.3g", clip[i], apart, way);
        assert_in_range(way * 1000, i ? 100 : 400, i ? 151 : 100000); /* three steps of 0.05 at most; further without clipping */
    }
}

/* The norm bounds the step: the first change is as long as grad_clip says, in the direction that it has without clipping. */
static void test_clipping(void **state)
{
    (void)state;
    works("train " LINEAR " --max-iters 1 --grad-clip 1e-3 --out-dir clipped");
    works("train " LINEAR " --max-iters 1 --grad-clip 0 --out-dir free");
    double norm = logged("clipped", 1, "grad_norm");
    assert_close(norm, logged("free", 1, "grad_norm"), 0); /* the log has the norm before clipping */
    assert_true(norm > 0.1);
    assert_close(weights_distance("clipped/step-1", "start/step-0"), 1e-3, 1e-3); /* g / (|g| + 1) is g - g^2 */
}

/* 81 tokens are 5 windows of 16. FIELD-CASES 18: in pairs, the third step has one, and is what that window makes alone. */
static void test_end_of_an_epoch(void **state)
{
    (void)state;
    char text[82];
    for (int i = 0; i < 81; i++)
        text[i] = "abcdefghijklmnop"[(i * i + i / 7) % 16];
    text[81] = 0;
    put("short", text);
    works("data prepare short --tokenizer char --out short-data --val-fraction 0");
/* With this seed the first epoch's first window is a full one: its five windows are 80 targets. */
#define EPOCH TINY " --seed 17 --data short-data --batch-size 1 --epochs 1 --checkpoint-interval 1 --keep 9"
    works("train " EPOCH " --gradient-accumulation-steps 2 --out-dir pairs");
    json_t *log = log_lines("pairs");
    assert_int_equal(json_array_size(log), 4);
    json_decref(log);
    Error e = {0};
    json_t *trainer = json_read("pairs/step-3/trainer.json", &e);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(trainer, "state"), "tokens")), 80);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(trainer, "state"), "loader_position")), 5);
    json_decref(trainer);
    assert_int_equal(system("mkdir single && cp -r pairs/step-2 pairs/log.jsonl single"), 0);
    works("train --resume --out-dir single --gradient-accumulation-steps 1 --quiet");
    assert_true(steps_equal("pairs", "single", 3));
    assert_false(file_exists("single/step-4"));
    works("train --resume --out-dir single --quiet --batch-size 3"); /* the data has ended, however it is cut */
    assert_false(file_exists("single/step-4"));
    works("train " EPOCH " --epochs 2 --gradient-accumulation-steps 2 --out-dir twice"); /* 10 windows */
    assert_true(file_exists("twice/step-5") && !file_exists("twice/step-6"));
}

/* The whole split is each target once: with a rate of 0 the losses of an epoch's steps have the same mean. 81 tokens are 5
 * windows and nothing else. Dropout is for training only. */
static void test_evaluation(void **state)
{
    (void)state;
    assert_int_equal(system("cp -r short-data both && cp both/train.bin both/val.bin"), 0);
#define STILL TINY " --seed 17 --data both --batch-size 1 --epochs 1 --learning-rate 0 --min-lr 0 --eval-interval 5"
    works("train " STILL " --eval-iters 0 --out-dir still");
    double sum = 0;
    for (size_t step = 1; step <= 5; step++)
        sum += logged("still", step, "loss");
    assert_close(logged("still", 5, "val_loss"), sum / 5, 1e-6);
    works("train " STILL " --eval-iters 0 --dropout 0.5 --out-dir dropped");
    assert_close(logged("dropped", 5, "val_loss"), sum / 5, 1e-6);
    assert_true(logged("dropped", 1, "loss") != logged("still", 1, "loss"));
    works("train " STILL " --eval-iters 0 --batch-size 3 --out-dir thirds"); /* 3 windows and 2, one evaluation after all */
    assert_close(logged("thirds", 2, "val_loss"), sum / 5, 1e-6);
    works("train " STILL " --eval-iters 1 --out-dir drawn"); /* one window that starts anywhere */
    assert_close(logged("drawn", 5, "val_loss"), sum / 5, 0.1);
    assert_true(fabs(logged("drawn", 5, "val_loss") - sum / 5) > 1e-5);
}

/* ---- Steps that are skipped ----------------------------------------------------------------------------------------- */

/* Overwrites element `index` of a tensor of a checkpoint. */
static void weight_poison(const char *dir, const char *name, size_t index, float value)
{
    char path[256];
    SafeTensors file;
    Error e = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_true(safetensors_open(&file, path, &e));
    const SafeTensor *t = safetensors_find(&file, name);
    assert_non_null(t);
    long at_byte = (long)((const unsigned char *)t->data - (const unsigned char *)file.map.data);
    safetensors_close(&file);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, at_byte + (long)(index * sizeof value), SEEK_SET);
    assert_int_equal(fwrite(&value, sizeof value, 1, f), 1);
    fclose(f);
}

/* FIELD-CASES 2, 3: no step is taken, nothing moves, and the run ends with the name of what is wrong. */
static void test_poisoned_weight(void **state)
{
    (void)state;
    static const float values[] = {NAN, INFINITY};
    static const char *const says[] = {
        "step 4: the gradient has not been finite for 4 steps in a row; the first tensor that is not "
        "finite is the weight h.1.mlp.c_fc.weight: 1 of 4096 elements, element 77 is",
        "the weight h.1.mlp.c_fc.weight: 1 of 4096 elements, element 77 is inf"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(system("rm -rf poison poisoned && cp -r start/step-0 poison"), 0);
        weight_poison("poison", "h.1.mlp.c_fc.weight", 77, values[i]);
        ends(1, says[i],
             "train " TINY " --init-from poison --max-skips 3 --max-iters 20 --checkpoint-interval 1 --keep 9 --eval-interval 2 "
             "--out-dir poisoned");
        json_t *log = log_lines("poisoned");
        assert_int_equal(json_array_size(log), 5);
        for (size_t step = 1; step <= 4; step++) {
            const json_t *line = json_array_get(log, step);
            assert_true(json_is_true(json_object_get(line, "skipped")));
            assert_true(json_is_null(json_object_get(line, "loss")) && json_is_null(json_object_get(line, "grad_norm")));
            assert_true(step % 2 ? !json_object_get(line, "val_loss") : json_is_null(json_object_get(line, "val_loss")));
        }
        json_decref(log);
        assert_false(file_exists("poisoned/step-4"));
        Error e = {0};
        json_t *trainer = json_read("poisoned/step-3/trainer.json", &e), *counts = json_object_get(trainer, "state");
        assert_int_equal(json_integer_value(json_object_get(counts, "adam_t")), 0);
        assert_int_equal(json_integer_value(json_object_get(counts, "skips")), 3);
        assert_int_equal(json_integer_value(json_object_get(counts, "skips_in_a_row")), 3);
        assert_int_equal(json_integer_value(json_object_get(counts, "loader_position")), 6); /* the data was consumed */
        assert_true(json_is_null(json_object_get(counts, "best_loss")));
        json_decref(trainer);
        assert_true(files_equal("poisoned/step-3/model.safetensors", "poison/model.safetensors"));
        assert_true(files_equal("poisoned/step-3/optimizer.safetensors", "start/step-0/optimizer.safetensors")); /* zeros */
    }
}

/* A run that diverges by itself: at some step the gradient is no longer finite; from there on the weights stay as they are. */
static void test_divergence(void **state)
{
    (void)state;
    ends(1, "the first tensor that is not finite is the activation h.",
         "train " TINY
         " --learning-rate 1e6 --schedule constant --warmup-iters 0 --grad-clip 0 --max-iters 100 --checkpoint-interval 1 "
         "--keep 99 --eval-interval 0 --out-dir diverged");
    json_t *log = log_lines("diverged");
    size_t lines = json_array_size(log), first = 1;
    while (first < lines && !json_object_get(json_array_get(log, first), "skipped"))
        first++;
    json_decref(log);
    assert_in_range(first, 2, 90);
    assert_int_equal(lines, first + 11);
    char before[64], after[64];
    snprintf(before, sizeof before, "diverged/step-%zu/model.safetensors", first - 1);
    snprintf(after, sizeof after, "diverged/step-%zu/model.safetensors", first + 9);
    assert_true(files_equal(before, after));
}

/* A run with --max-skips 0 ends at once; its checkpoint has what it had before. */
static void test_no_skips_allowed(void **state)
{
    (void)state;
    assert_int_equal(system("rm -rf poison && cp -r start/step-0 poison"), 0);
    weight_poison("poison", "wte.weight", 3, -INFINITY);
    ends(1,
         "step 1: the gradient has not been finite for 1 steps in a row; the first tensor that is not finite is the weight "
         "wte.weight",
         "train " TINY " --init-from poison --max-skips 0 --max-iters 20 --out-dir none");
    assert_false(file_exists("none/step-1"));
}

/* ---- Learning ------------------------------------------------------------------------------------------------------- */

static void test_overfit(void **state)
{
    (void)state;
    works("train " TINY
          " --overfit --max-iters 400 --learning-rate 1e-2 --min-lr 1e-3 --weight-decay 0 --eval-interval 0 --out-dir heart");
    double loss = logged("heart", 400, "loss");
    assert_true(loss > 0 && loss < 0.05);
    works(
        "train " TINY
        " --max-iters 400 --learning-rate 1e-2 --min-lr 1e-3 --weight-decay 0 --eval-iters 0 --eval-interval 400 --out-dir all");
    assert_true(logged("all", 400, "loss") > 0.2); /* all of the text cannot be known by heart */
    double validation = logged("all", 400, "val_loss");
    assert_true(validation > 0.2 && validation < 1.8); /* of log 16 = 2.77 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cosine_tables),    cmocka_unit_test(test_other_schedules), cmocka_unit_test(test_rate_in_the_log),
        cmocka_unit_test(test_accumulation),     cmocka_unit_test(test_clipping),        cmocka_unit_test(test_end_of_an_epoch),
        cmocka_unit_test(test_evaluation),       cmocka_unit_test(test_poisoned_weight), cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_no_skips_allowed), cmocka_unit_test(test_overfit),
    };
    return cmocka_run_group_tests(tests, make_data, command_end);
}
