/* tally plan as a command: its JSON, other machines' memory, the table of other settings; --fit, and a run that it has fitted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/command.h"

static int make_data(void **state)
{
    if (command_begin(state) != 0)
        return -1;
    text_prepare(2000);
    return 0;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

static const char *const categories[] = {"weights", "packed_weights", "master_weights", "gradients",
                                         "adam_m",  "adam_v",         "activations",    "activation_gradients",
                                         "logits",  "workspace",      "communication",  "data"};
enum { CATEGORIES = 12 };

/* Everything adds up: categories to the total, tensors to the persistent categories and, at the peak, to the step's. */
static void test_json_adds_up(void **state)
{
    (void)state;
    const Output *o =
        works("plan --model gpt2-xl --precision bf16 --batch-size 4 --block-size 1024 --recompute block --vram 40GiB --json");
    assert_true(getenv("SANITIZED") || o->peak_kib < 100 * 1024); /* nothing of it is taken */
    json_t *plan = printed(), *tensor, *category = json_object_get(plan, "categories");
    double sum = number(plan, "alignment_bytes") + number(plan, "packing_bytes"), persistent = 0, step_end = 0;
    assert_int_equal(json_object_size(category), CATEGORIES);
    for (int i = 0; i < CATEGORIES; i++)
        sum += number(category, categories[i]);
    assert_true(sum == number(plan, "total_bytes"));
    assert_true(sum == number(plan, "persistent_bytes") + number(plan, "step_bytes"));
    size_t i;
    json_array_foreach(json_object_get(plan, "tensors"), i, tensor)
    {
        bool stays = strcmp(json_string_value(json_object_get(tensor, "arena")), "persistent") == 0;
        double end = number(tensor, "offset") + number(tensor, "bytes");
        persistent += stays ? number(tensor, "bytes") : 0;
        step_end = !stays && end > step_end ? end : step_end;
    }
    assert_true(persistent == 18 * number(plan, "parameters"));
    assert_true(number(plan, "static_bytes_per_parameter") == 18);
    assert_true(step_end <= number(plan, "step_bytes") && step_end > number(plan, "step_bytes") - 64);
    assert_true(number(json_object_get(plan, "peak"), "bytes") + number(plan, "packing_bytes") == number(plan, "step_bytes"));
    json_decref(plan);
}

/* FLOPs per token: the ops of a phase add up to the phase, the phases to what is executed. */
static void test_json_flops(void **state)
{
    (void)state;
    works("plan --model gpt2 --batch-size 2 --gradient-accumulation-steps 3 --recompute attention --vram 100GiB --json");
    json_t *plan = printed(), *phase, *op;
    const char *name, *op_name;
    double executed = 0;
    assert_int_equal(json_object_size(json_object_get(plan, "costs")), 4);
    json_object_foreach(json_object_get(plan, "costs"), name, phase)
    {
        double flops = 0, bytes = 0, tokens = strcmp(name, "optimizer") ? 2 * 1024 : 2 * 3 * 1024;
        json_object_foreach(json_object_get(phase, "ops"), op_name, op)
        {
            flops += number(op, "gemm_flops") + number(op, "other_flops");
            bytes += number(op, "bytes_read") + number(op, "bytes_written");
        }
        assert_true(flops == number(phase, "gemm_flops") + number(phase, "other_flops"));
        assert_true(fabs(flops / tokens / number(phase, "flops_per_token") - 1) < 1e-12);
        assert_true(fabs(flops / bytes / number(phase, "intensity") - 1) < 1e-12);
        executed += number(phase, "flops_per_token");
    }
    assert_true(fabs(executed / number(plan, "executed_flops_per_token") - 1) < 1e-12);
    assert_true(executed > number(plan, "model_flops_per_token"));
    json_decref(plan);
}

/* ---- Other machines ------------------------------------------------------------------------------------------------ */

static void test_card_with_a_blank(void **state)
{
    (void)state;
    put("card.json", "{\"card\": \"rtx 4060\", \"model\": \"gpt2\", \"batch_size\": 1}"); /* command.h splits at blanks */
    const Output *o = works("plan --config card.json");
    assert_non_null(strstr(o->out, "RTX 4060: 24 SMs of compute capability 8.9, 15.1 TFLOPS fp32, 272 GB/s"));
    put("card.json", "{\"card\": \"RTX 9999\"}");
    ends(2, "card: there is no 'RTX 9999' in the list: GTX 1060 6GB, ", "plan --config card.json");
}

static void test_card(void **state)
{
    (void)state;
    works("plan --model gpt2 --precision bf16 --batch-size 8 --card l4 --json");
    json_t *plan = printed(), *memory = json_object_get(plan, "memory"), *card = json_object_get(plan, "card");
    assert_true(number(memory, "bytes") == 24 * 0x1p30 && json_is_true(json_object_get(memory, "fits")));
    assert_true(number(memory, "needed_bytes") == number(plan, "total_bytes")); /* the loader's tokens lie elsewhere */
    assert_string_equal(json_string_value(json_object_get(memory, "not_planned")), "driver and context");
    assert_string_equal(json_string_value(json_object_get(card, "name")), "L4");
    assert_string_equal(json_string_value(json_object_get(card, "gemm_units")), "bf16");
    double tokens = 8 * 1024, least = tokens * number(plan, "model_flops_per_token") / 121.2e12;
    assert_in_range((int64_t)(1e6 * number(card, "step_seconds_least")), (int64_t)(1e6 * least), (int64_t)(2e6 * least));
    json_decref(plan);
    const Output *o = works("plan --model gpt2 --precision bf16 --batch-size 8 --card l4");
    assert_non_null(strstr(o->out, "L4: 58 SMs of compute capability 8.9, 121.2 TFLOPS bf16, 300 GB/s"));
    assert_non_null(strstr(o->out, "not planned: driver and context"));
    o = works("plan --model gpt2 --batch-size 1");
    assert_null(strstr(o->out, "not planned"));
}

static void test_other_memory(void **state)
{
    (void)state;
    ends(2, "of the L4", "plan --model gpt2-xl --card L4");
    ends(2, "of --vram", "plan --model gpt2-xl --card B200 --vram 8GiB"); /* what is left of the card */
    ends(2, "(--mem-cap)", "plan --model gpt2-xl --card B200 --mem-cap 8GiB");
    works("plan --model gpt2-xl --batch-size 1 --card B200");
    ends(2, "vram: '8apples'", "plan --vram 8apples");
    ends(2, "are for tally plan", "train --data data --out-dir refused --card L4");
    ends(2, "are for tally plan", "train --data data --out-dir refused --vram 8GiB");
    ends(2, "are for tally plan", "train --data data --out-dir refused --what-if");
    assert_false(file_exists("refused"));
}

static void test_what_if(void **state)
{
    (void)state;
    const Output *o = ends(2, "What if: MiB", "plan --model gpt2-xl --precision bf16 --batch-size 4 --what-if --vram 27GiB");
    assert_non_null(strstr(o->out, "  fp16       none        1.0000 "));
    assert_true(getenv("SANITIZED") || o->peak_kib < 100 * 1024);
    ends(2, "", "plan --model gpt2-xl --precision bf16 --batch-size 4 --what-if --vram 27GiB --json");
    json_t *plan = printed(), *row;
    size_t i, fits = 0, own = 0;
    assert_int_equal(json_array_size(json_object_get(plan, "what_if")), 3 * 4 * 5);
    json_array_foreach(json_object_get(plan, "what_if"), i, row)
    {
        fits += json_is_true(json_object_get(row, "fits"));
        own += number(row, "bytes") == number(plan, "total_bytes");
    }
    assert_true(fits > 0 && fits < 60 && own == 2); /* the run, and the same in fp16 */
    json_decref(plan);
}

/* ---- Fit ----------------------------------------------------------------------------------------------------------- */

static void test_plan_fit(void **state)
{
    (void)state;
    works("plan --model gpt2 --batch-size 12 --gradient-accumulation-steps 5 --vram 4GiB --fit --json");
    json_t *plan = printed(), *run = json_object_get(plan, "run");
    assert_true(number(run, "batch_size") * number(run, "gradient_accumulation_steps") == 60);
    assert_true(number(plan, "total_bytes") <= 4 * 0x1p30);
    assert_string_equal(json_string_value(json_object_get(run, "recompute")), "none");
    json_decref(plan);
    works("plan --model gpt2 --batch-size 12 --gradient-accumulation-steps 5 --vram 2300MiB --fit --json");
    plan = printed(), run = json_object_get(plan, "run");
    assert_string_equal(json_string_value(json_object_get(run, "recompute")), "attention");
    assert_true(number(plan, "total_bytes") <= 2300 * 0x1p20);
    json_decref(plan);
    ends(2, "fit: nothing fits into the 1.00 GiB of --vram: the least, with --batch-size 1 ",
         "plan --model gpt2 --vram 1GiB --fit");
}

/* A run that is fitted into little memory: it says so, stores what it has chosen, takes no more, and goes on without --fit. */
static void test_train_fit(void **state)
{
    (void)state;
    static const char run[] = TINY " --batch-size 8 --gradient-accumulation-steps 3 --eval-interval 0";
    const Output *o = works("train %s --max-iters 1 --out-dir all", run);
    assert_null(strstr(o->out, "Fit: "));
    works("plan %s --json", run);
    json_t *plan = printed();
    int64_t limit = (int64_t)(number(plan, "total_bytes") * 0.7);
    json_decref(plan);
    o = works("train %s --max-iters 2 --out-dir fitted --fit --mem-cap %lld", run, (long long)limit);
    assert_non_null(strstr(o->out, "Fit: --batch-size "));
    json_t *log = log_lines("fitted"), *settings = json_object_get(json_array_get(log, 0), "settings");
    assert_true(number(settings, "batch_size") < 8);
    assert_true(number(settings, "batch_size") * number(settings, "gradient_accumulation_steps") == 24);
    assert_true(number(json_array_get(log, 0), "persistent_bytes") + number(json_array_get(log, 0), "step_bytes") <=
                (double)limit);
    double batch = number(settings, "batch_size");
    json_decref(log);
    works("train --resume --out-dir fitted --max-iters 3 --quiet");
    Error e = {0};
    json_t *trainer = json_read("fitted/step-3/trainer.json", &e);
    assert_true(number(json_object_get(trainer, "settings"), "batch_size") == batch);
    json_decref(trainer);
    ends(2, "fit: nothing fits into the 100.00 KiB there may be (--mem-cap)", "train %s --out-dir refused --fit --mem-cap 100KiB",
         run);
    assert_false(file_exists("refused"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_adds_up), cmocka_unit_test(test_json_flops),   cmocka_unit_test(test_card_with_a_blank),
        cmocka_unit_test(test_card),         cmocka_unit_test(test_other_memory), cmocka_unit_test(test_what_if),
        cmocka_unit_test(test_plan_fit),     cmocka_unit_test(test_train_fit),
    };
    return cmocka_run_group_tests_name("plan command", tests, make_data, command_end);
}
