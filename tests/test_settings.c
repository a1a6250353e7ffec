/* The settings of tally train and tally plan as commands: where a value comes from, and what is refused, with which exit code and
 * words. Nothing here may crash, hang, or take much memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/command.h"

#include <errno.h>

static int make_data(void **state)
{
    if (command_begin(state) != 0)
        return -1;
    text_prepare(300);
    return 0;
}

/* ---- Where a value comes from --------------------------------------------------------------------------------------- */

/* A setting as the run's log has it. */
static json_t *setting(const char *out_dir, const char *name)
{
    json_t *log = log_lines(out_dir), *value = json_object_get(json_object_get(json_array_get(log, 0), "settings"), name);
    json_incref(value);
    json_decref(log);
    return value;
}

static void assert_setting(const char *out_dir, const char *name, double number)
{
    json_t *value = setting(out_dir, name);
    if (json_is_boolean(value) ? json_is_true(value) != (number != 0) : json_number_value(value) != number)
        fail_msg("%s: %s is %g, not %g", out_dir, name, json_number_value(value), number);
    json_decref(value);
}

static void test_file_and_flags(void **state)
{
    (void)state;
    put("config.json",
        "{\"data\": \"data\", \"model\": \"nano\", \"n_layer\": 1, \"n_embd\": 16, \"n_head\": 2, \"threads\": 1,\n"
        " \"batch_size\": 3, \"block_size\": 8, \"max_iters\": 2, \"learning_rate\": 0.25, \"min_lr\": 0.125,\n"
        " \"overfit\": true, \"no_bias\": true, \"mem_cap\": \"1GiB\", \"eval_interval\": 0, \"out_dir\": \"file\"}");
    works("train --config config.json --quiet");
    assert_setting("file", "batch_size", 3);
    assert_setting("file", "learning_rate", 0.25);
    assert_setting("file", "no_bias", 1);
    assert_setting("file", "mem_cap", 0x1p30);
    works("train --batch_size 5 --config config.json --learning-rate=0.5 --no-bias=false --out_dir flags --max-iters 3 --quiet");
    assert_setting("flags", "batch_size", 5); /* wherever the flag stands */
    assert_setting("flags", "learning_rate", 0.5);
    assert_setting("flags", "min_lr", 0.125);
    assert_setting("flags", "no_bias", 0);
    assert_setting("flags", "overfit", 1);
    assert_setting("flags", "max_iters", 3);
}

/* The order is: checkpoint, file, flags; and the file may say what is resumed. */
static void test_resume_and_file(void **state)
{
    (void)state;
    works("train " TINY " --max-iters 2 --batch-size 3 --learning-rate 0.01 --weight-decay 0.5 --beta1 0.8 --out-dir order");
    put("more.json", "{\"resume\": true, \"out_dir\": \"order\", \"max_iters\": 4, \"weight_decay\": 0.25, \"beta1\": 0.7}");
    works("train --config more.json --beta1 0.6 --quiet");
    assert_true(file_exists("order/step-4/trainer.json"));
    Error e = {0};
    json_t *trainer = json_read("order/step-4/trainer.json", &e), *settings = json_object_get(trainer, "settings");
    assert_int_equal(json_integer_value(json_object_get(settings, "batch_size")), 3);
    assert_true(json_number_value(json_object_get(settings, "learning_rate")) == 0.01);
    assert_true(json_number_value(json_object_get(settings, "weight_decay")) == 0.25);
    assert_true(json_number_value(json_object_get(settings, "beta1")) == 0.6);
    json_decref(trainer);
}

/* The flags that nanoGPT's users know, with either spelling. */
static void test_known_flags(void **state)
{
    (void)state;
    works(
        "train --data data --model nano --threads 1 --quiet --out-dir names --batch_size 2 --block_size 8 --n_layer 1 --n_head 2 "
        "--n_embd 16 --learning_rate 0.001 --warmup_iters 1 --lr_decay_iters 3 --min_lr 0.0001 --weight_decay 0.1 --beta1 0.9 "
        "--beta2 0.99 --grad_clip 1 --max_iters 2 --eval_interval 2 --eval_iters 1 --gradient_accumulation_steps 2 --dropout "
        "0.1");
    works("train --data data --model nano --threads 1 --quiet --out-dir dashes --batch-size 2 --block-size 8 --n-layer 1 "
          "--n-head 2 "
          "--n-embd 16 --learning-rate 0.001 --warmup-iters 1 --lr-decay-iters 3 --min-lr 0.0001 --weight-decay 0.1 --beta1 0.9 "
          "--beta2 0.99 --grad-clip 1 --max-iters 2 --eval-interval 2 --eval-iters 1 --gradient-accumulation-steps 2 --dropout "
          "0.1");
    assert_true(steps_equal("names", "dashes", 2));
}

/* ---- What is refused ------------------------------------------------------------------------------------------------ */

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"batch_size\": \"x\"}", "bad.json: batch_size: is text"},
        {"{\"batch_size\": 2.5}", "bad.json: batch_size: is a fraction"},
        {"{\"batch_size\": 0}", "bad.json: batch_size: is 0; must be from 1"},
        {"{\"batch_size\": 1, \"batch_size\": 2}", "bad.json:1:30: not JSON that can be read: duplicate object key"},
        {"{\"batch_sizes\": 1}", "bad.json: there is no setting 'batch_sizes'"},
        {"{\"batch-size\": 1}", "bad.json: there is no setting 'batch-size'"},
        {"{\"learning_rate\": \"1e-3\"}", "bad.json: learning_rate: is text; a number"},
        {"{\"learning_rate\": -1}", "bad.json: learning_rate: is -1"},
        {"{\"beta1\": 1.5}", "bad.json: beta1: is 1.5; must be from 0 to 1"},
        {"{\"overfit\": 1}", "bad.json: overfit: is an integer; true or false"},
        {"{\"model\": 3}", "bad.json: model: is an integer; text"},
        {"{\"mem_cap\": true}", "bad.json: mem_cap: is true/false"},
        {"{\"mem_cap\": \"4X\"}", "bad.json: mem_cap: '4X' is not a size"},
        {"{\"seed\": 18446744073709551616}", "bad.json:1:"},
        {"{\"config\": \"config.json\"}", "bad.json: config: a file of settings cannot name another"},
        {"[1]", "bad.json:1:1: holds a list"},
        {"", "bad.json:"},
        {"{", "bad.json:"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("bad.json", bad[i].text);
        ends(2, bad[i].says, "train " TINY " --config bad.json --out-dir refused");
    }
    ends(2, "none.json: cannot open", "train " TINY " --config none.json --out-dir refused");
    assert_false(file_exists("refused"));
}

static void test_bad_flags(void **state)
{
    (void)state;
    static const struct {
        const char *flags, *says;
    } bad[] = {
        {"--frobnicate", "unrecognized option"},
        {"word", "'word' is not a flag"},
        {"--batch-size", "requires an argument"},
        {"--batch-size x", "batch_size: 'x' is not a whole number from 1 to"},
        {"--batch-size 2.5", "batch_size: '2.5' is not a whole number"},
        {"--batch-size 0", "batch_size: '0'"},
        {"--batch-size _", "batch_size: ''"},
        {"--gradient-accumulation-steps 0", "gradient_accumulation_steps: '0' is not a whole number from 1"},
        {"--max-iters -1", "max_iters: '-1' is not a whole number from 0 to 9223372036854775807"},
        {"--seed 99999999999999999999", "seed: '99999999999999999999'"},
        {"--learning-rate nan", "learning_rate: 'nan'"},
        {"--learning-rate 1e-3x", "learning_rate: '1e-3x'"},
        {"--learning-rate 1e-4 --min-lr 1e-3", "min_lr: is 0.001; needs to be at most learning_rate, 0.0001"},
        {"--dropout 1", "dropout: '1' is not a number from -1 to 0.999"},
        {"--beta2 1", "beta2 1: need to be at least 0 and less than 1"},
        {"--eps 0", "eps 0"},
        {"--eps 1e-320", "eps: is 9.99989e-321, which is 0 in FP32"},
        {"--loss-scale 1e-40", "loss_scale: is 1e-40, which is 0 in FP32"}, /* its inverse would be infinite, and weights NaN */
        {"--overfit=maybe", "overfit: 'maybe' is neither true nor false"},
        {"--overfit --epochs 1", "epochs: is 1"},
        {"--mem-cap 4X", "mem_cap: '4X' is not a size like 4GiB"},
        {"--mem-cap -1", "mem_cap: '-1'"},
        {"--schedule steep", "schedule: 'steep' is none of cosine, linear, wsd, constant"},
        {"--device tpu", "device: there is no 'tpu'"},
        {"--model gtp2", "gpt2-medium"},
        {"--n-head 3", "n_embd: is 32, which must be a multiple of n_head = 3"},
        {"--json", "json: is for tally plan and tally bench"},
        {"--vocab-size 5", "vocab_size: the model has 5, the data's tokenizer 16"},
        {"--max-iters 20 --warmup-iters 20", "warmup_iters: is 20; needs to be less than"},
        {"--max-iters 20 --warmup-iters 21", "warmup_iters: is 21"},
        {"--sample-interval 1 --prompt Q", "prompt: character 'Q'"},
        {"--sample-interval 1 --prompt _", "prompt: is empty"},
        {"--threads 5000", "threads: '5000'"},
        {"--threads 2000", "2000 threads"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ends(2, bad[i].says, "train " TINY " --out-dir refused %s", bad[i].flags);
    assert_false(file_exists("refused"));
}

/* Wishes that no machine can grant: refused from the plan, before any of the memory is taken. */
static void test_too_large(void **state)
{
    (void)state;
    static const char *const flags[] = {
        "--n-embd 1000000",
        "--n-embd 16777216 --n-layer 1000",
        "--vocab-size 2147483647",
        "--vocab-size 2147483647 --vocab-multiple 64",
        "--batch-size 1073741824",
        "--batch-size 1073741824 --block-size 1",
        "--batch-size 134217727",
        "--gradient-accumulation-steps 16777216 --batch-size 64",
        "--model gpt2-xl --batch-size 1000 --n-layer 0 --n-head 0 --n-embd 0",
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const Output *o = ends(2, "tally train: ", "train " TINY " --out-dir refused %s", flags[i]);
        assert_true(getenv("SANITIZED") || o->peak_kib < 100 * 1024);
    }
    assert_false(file_exists("refused"));
    static const char *const numbers[] = {"0", "-5", "9223372036854775807"};
    static const char *const fields[] = {"n_layer", "n_head", "n_embd", "n_positions", "vocab_size"};
    for (int f = 0; f < 5; f++)
        for (int n = 0; n < 3; n++) {
            char text[512], says[64];
            int used = snprintf(text, sizeof text, "{\"model_type\": \"gpt2\"");
            for (int i = 0; i < 5; i++)
                used += snprintf(text + used, sizeof text - (size_t)used, ", \"%s\": %s", fields[i], i == f ? numbers[n] : "16");
            snprintf(text + used, sizeof text - (size_t)used, "}");
            put("config.json", text); /* FIELD-CASES 45 */
            snprintf(says, sizeof says, "config.json: %s", fields[f]);
            ends(1, says, "train " TINY " --out-dir refused --init-from .");
        }
}

/* The advice is right: that batch_size fits, and one more does not. */
static void test_memory_cap(void **state)
{
    (void)state;
    static const char run[] = "--model gpt2 --threads 1 --block-size 32 --n-layer 2";
    const Output *o = ends(2, "--batch-size", "train --data data --out-dir refused %s --mem-cap 300MiB --batch-size 100", run);
    assert_true(getenv("SANITIZED") || o->peak_kib < 100 * 1024);
    const char *advice = strstr(o->err, "--batch-size ");
    int fits = atoi(advice + strlen("--batch-size "));
    assert_in_range(fits, 2, 99);
    works("plan --data data %s --mem-cap 300MiB --batch-size %d", run, fits);
    ends(2, "(--mem-cap)", "plan --data data %s --mem-cap 300MiB --batch-size %d", run, fits + 1);
    o = ends(2, "no batch_size fits", "train --data data --out-dir refused %s --mem-cap 1MiB --batch-size 100", run);
    assert_true(getenv("SANITIZED") || o->peak_kib < 100 * 1024);
    assert_non_null(strstr(o->err, "the largest part is "));
    ends(2, "is free", "plan --model gpt2-xl --batch-size 4096 --mem-cap 1000000GiB"); /* more than there is */
    assert_false(file_exists("refused"));
}

/* ---- Places --------------------------------------------------------------------------------------------------------- */

static void test_places(void **state)
{
    (void)state;
    ends(2, "--data DIR is missing", "train --out-dir refused");
    ends(1, "nowhere: no such file", "train " TINY " --data nowhere --out-dir refused");
    ends(1, "text: ", "train " TINY " --data text --out-dir refused");
    ends(1, "nowhere: cannot open", "train " TINY " --init-from nowhere --out-dir refused");
    put("not-a-folder", "");
    ends(1, "not-a-folder: exists and is not a folder", "train " TINY " --out-dir not-a-folder");
    ends(1, "cannot make the folder", "train " TINY " --out-dir /proc/refused");
    ends(1, "tokens are too few: block_size 16384 needs at least 16385", "train " TINY " --block-size 16384 --out-dir refused");
    assert_false(file_exists("refused"));
    works("train " TINY " --data data/train.bin --max-iters 1 --eval-interval 1 --out-dir one-file --vocab-size 16");
    json_t *log = log_lines("one-file"); /* there is nothing to validate on */
    assert_null(json_object_get(json_array_get(log, 1), "val_loss"));
    json_decref(log);
}

/* A folder `raw` with `count` tokens 0, 1, 2, ... as nanoGPT writes them, and a byte more when `odd`. */
static void raw_tokens(int count, bool odd)
{
    uint16_t tokens[64];
    for (int i = 0; i < count; i++)
        tokens[i] = (uint16_t)i;
    tokens[count] = 0;
    assert_true(mkdir("raw", 0700) == 0 || errno == EEXIST);
    put_bytes("raw/train.bin", tokens, 2 * (size_t)count + odd);
}

/* FIELD-CASES 37, 38, 40: what a token file must hold. */
static void test_token_files(void **state)
{
    (void)state;
#define RAW TINY " --data raw --vocab-size 18 --batch-size 1 --epochs 1 --eval-interval 0"
    static const struct {
        int count;
        bool odd;
        const char *says;
    } few[] = {{0, false, "raw/train.bin: "},
               {0, true, "raw/train.bin: has 1 byte"},
               {1, false, "needs at least 17"},
               {16, false, "raw/train.bin: 16 tokens are too few: block_size 16 needs at least 17"},
               {17, true, "raw/train.bin: has 35 bytes, an odd number"}};
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        raw_tokens(few[i].count, few[i].odd);
        ends(1, few[i].says, "train " RAW " --out-dir refused");
    }
    assert_false(file_exists("refused"));
    for (int count = 17; count <= 18; count++) {
        raw_tokens(count, false);
        works("train " RAW " --out-dir raw-%d", count);
        assert_true(file_exists(count == 17 ? "raw-17/step-1" : "raw-18/step-2")); /* 16 targets, and 17 */
    }
    raw_tokens(19, false); /* with the id 18; an epoch may end before it, but not every one */
    ends(1, "raw/train.bin: ", "train " RAW " --epochs 50 --out-dir too-high");
    assert_non_null(strstr(ends(1, "18", "train " RAW " --epochs 50 --out-dir too-high")->err, "offset 36"));
    int32_t header[256] = {20240520, 1, 100}; /* and not one token */
    put_bytes("raw/train.bin", header, sizeof header);
    ends(1, "raw/train.bin: ", "train " RAW " --out-dir refused");
    header[2] = -1;
    put_bytes("raw/train.bin", header, sizeof header);
    ends(1, "raw/train.bin: ", "train " RAW " --out-dir refused");
}

/* A full disk: for the log, for the checkpoint; the checkpoint before is whole. */
static void test_full_disk(void **state)
{
    (void)state;
    assert_int_equal(mkdir("full", 0700), 0);
    assert_int_equal(symlink("/dev/full", "full/log.jsonl"), 0);
    ends(1, "full/log.jsonl: cannot write: No space left on device", "train " TINY " --max-iters 3 --out-dir full");
    setenv("TALLY_FAULT_WRITE", "150", 1); /* in the second checkpoint */
    ends(1, "No space left on device", "train " TINY " --max-iters 3 --checkpoint-interval 1 --out-dir filled");
    unsetenv("TALLY_FAULT_WRITE");
    assert_true(file_exists("filled/step-1/trainer.json"));
    assert_false(file_exists("filled/step-2") || file_exists("filled/step-2.tmp"));
    works("train --resume --out-dir filled --quiet");
    assert_true(file_exists("filled/step-3/trainer.json"));
}

/* A file system of 700 KiB, where that can be had. */
static void test_small_disk(void **state)
{
    (void)state;
    assert_int_equal(mkdir("disk", 0700), 0);
    if (system("mount -t tmpfs -o size=700k tmpfs disk 2>/dev/null") != 0) {
        print_message("SKIPPED: a tmpfs cannot be mounted here\n");
        skip();
    }
    const Output *o = command_run("train " TINY " --max-iters 9 --checkpoint-interval 1 --keep 9 --out-dir disk");
    bool whole = file_exists("disk/step-1/trainer.json");
    int code = o->code;
    bool says = strstr(o->err, "No space left on device") != NULL;
    const Output *sampled = command_run("sample --out-dir disk --max-new-tokens 5 --threads 1");
    int sample_code = sampled->code;
    assert_int_equal(system("umount disk"), 0);
    assert_true(code == 1 && says && whole && sample_code == 0);
}

/* ---- Exit codes and help -------------------------------------------------------------------------------------------- */

static void test_help(void **state)
{
    (void)state;
    static const struct {
        const char *command, *flag;
    } helps[] = {{"data prepare", "--val-fraction"},
                 {"data stories", "--bytes"},
                 {"tokenize", "--tokenizer"},
                 {"detokenize", "--tokenizer"},
                 {"train", "--grad-clip"},
                 {"train", "--warmup-iters"},
                 {"plan", "--mem-cap"},
                 {"plan", "--json"},
                 {"sample", "--top-p"},
                 {"bench", "--max-iters"},
                 {"bench", "--json"},
                 {"golden", "--out"},
                 {"", "train a GPT"},
                 {"train", "--resume"},
                 {"train", "(s+1)/W"}};
    for (size_t i = 0; i < sizeof helps / sizeof *helps; i++) {
        const Output *o = ends(0, helps[i].flag, "%s --help", helps[i].command);
        assert_int_equal(o->err[0], 0);
        if (helps[i].command[0])
            ends(2, "unrecognized option", "%s --frobnicate", helps[i].command);
    }
    ends(2, "usage: tally COMMAND", "%s", "");
    ends(2, "there is no command 'tarin'", "tarin --help");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_and_flags), cmocka_unit_test(test_resume_and_file), cmocka_unit_test(test_known_flags),
        cmocka_unit_test(test_bad_files),      cmocka_unit_test(test_bad_flags),       cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_memory_cap),     cmocka_unit_test(test_places),          cmocka_unit_test(test_token_files),
        cmocka_unit_test(test_full_disk),      cmocka_unit_test(test_small_disk),      cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, make_data, command_end);
}
