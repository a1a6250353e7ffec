/* tally plan as a command, and the ledger of tally train: what is planned is what is taken, it adds up, and the process holds
 * what the ledger says. */
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
    text_prepare(300);
    return 0;
}

/* `tally plan FLAGS --json`, a new reference. */
static json_t *plan(const char *flags)
{
    char line[1024];
    Error e = {0};
    snprintf(line, sizeof line, "plan --json %s", flags);
    const Output *o = command_run(line);
    if (o->code != 0)
        fail_msg("tally %s: code %d, said %s", line, o->code, o->err);
    json_t *object = json_read("out", &e);
    if (!object)
        fail_msg("%s", e.text);
    return object;
}

static int64_t integer(const json_t *object, const char *field)
{
    json_t *value = json_object_get(object, field);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* ---- The plan ------------------------------------------------------------------------------------------------------- */

static void test_plan_is_what_train_takes(void **state)
{
    (void)state;
    static const char *const flags[] = {TINY,
                                        TINY " --dropout 0.1 --gradient-accumulation-steps 3",
                                        TINY " --no-bias --batch-size 7 --block-size 13 --head-rows 5",
                                        TINY " --sample-interval 5 --vocab-multiple 64",
                                        TINY " --vocab-size 1000 --n-layer 3 --threads 2",
                                        "--data data --threads 1 --quiet", /* the default model */
                                        TINY " --init-from deeper"};
    works("train " TINY " --n-layer 4 --max-iters 0 --out-dir made");
    assert_int_equal(rename("made/step-0", "deeper"), 0);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char out_dir[16], line[512];
        snprintf(out_dir, sizeof out_dir, "taken-%zu", i);
        snprintf(line, sizeof line, "%s%s", flags[i], strstr(flags[i], "init-from") ? " --n-layer 4" : "");
        json_t *planned = plan(line);
        works("train %s --max-iters 1 --eval-interval 0 --out-dir %s", line, out_dir);
        json_t *log = log_lines(out_dir), *taken = json_array_get(log, 0);
        static const char *const fields[] = {"persistent_bytes", "step_bytes", "parameters"};
        for (int k = 0; k < 3; k++)
            if (integer(planned, fields[k]) != integer(taken, fields[k]))
                fail_msg("%s: %s: planned %lld, taken %lld", line, fields[k], (long long)integer(planned, fields[k]),
                         (long long)integer(taken, fields[k]));
        json_decref(planned);
        json_decref(log);
    }
    json_t *planned = plan("--resume --out-dir taken-2"); /* that run's flags are in its checkpoint */
    json_t *log = log_lines("taken-2");
    assert_int_equal(integer(planned, "step_bytes"), integer(json_array_get(log, 0), "step_bytes"));
    json_decref(planned);
    json_decref(log);
}

static void test_plan_adds_up(void **state)
{
    (void)state;
    static const char *const persistent[] = {"weights", "packed_weights", "master_weights", "gradients", "adam_m", "adam_v"};
    json_t *p = plan("--model gpt2 --batch-size 8 --block-size 512 --n-layer 3 --sample-interval 100"), *value;
    json_t *categories = json_object_get(p, "categories"), *tensor;
    const char *name;
    int64_t kept = 0, peak = 0, largest_logits = 0, by_tensor = 0;
    json_object_foreach(categories, name, value)
    {
        bool is_kept = false;
        for (size_t i = 0; i < sizeof persistent / sizeof *persistent; i++)
            is_kept |= strcmp(name, persistent[i]) == 0;
        *(is_kept ? &kept : &peak) += json_integer_value(value);
    }
    assert_int_equal(kept + integer(p, "alignment_bytes"), integer(p, "persistent_bytes"));
    assert_int_equal(peak, integer(json_object_get(p, "peak"), "bytes"));
    const char *phase = json_string_value(json_object_get(json_object_get(p, "peak"), "phase"));
    assert_true(strcmp(phase, "forward") == 0 || strcmp(phase, "backward") == 0); /* evaluation and sampling need no more */
    assert_int_equal(peak + integer(p, "packing_bytes"), integer(p, "step_bytes"));
    assert_int_equal(integer(p, "persistent_bytes") + integer(p, "step_bytes"), integer(p, "total_bytes"));
    size_t i;
    json_array_foreach(json_object_get(p, "tensors"), i, tensor)
    {
        bool weights = strcmp(json_string_value(json_object_get(tensor, "category")), "weights") == 0;
        bool logits = strcmp(json_string_value(json_object_get(tensor, "category")), "logits") == 0;
        by_tensor += weights ? integer(tensor, "bytes") : 0;
        largest_logits = logits && integer(tensor, "bytes") > largest_logits ? integer(tensor, "bytes") : largest_logits;
        int64_t end = integer(tensor, "offset") + integer(tensor, "bytes");
        bool kept_one = strcmp(json_string_value(json_object_get(tensor, "arena")), "persistent") == 0;
        assert_true(end <= integer(p, kept_one ? "persistent_bytes" : "step_bytes"));
    }
    assert_int_equal(by_tensor, integer(categories, "weights"));
    assert_int_equal(by_tensor, 4 * integer(p, "parameters"));
    assert_int_equal(largest_logits, 4 * 512 * 50304); /* FIELD-CASES 41: not the 4 x 8 x 512 x 50257 of all rows at once */
    json_decref(p);
}

/* FIELD-CASES 25. Rows that pad the vocabulary are taken, and counted, and not exported. */
static void test_padding(void **state)
{
    (void)state;
    json_t *p = plan("--model gpt2"), *exact = plan("--model gpt2 --vocab-multiple 1");
    assert_int_equal(integer(p, "parameters"), 124475904);
    assert_int_equal(integer(exact, "parameters"), 124439808);
    json_decref(p);
    json_decref(exact);
    ends(0, "Memory plan: 124.48M parameters", "plan --model gpt2");
    works("train " TINY " --vocab-multiple 64 --max-iters 3 --out-dir padded");
    works("train " TINY " --max-iters 3 --out-dir exact");
    json_t *a = log_lines("padded"), *b = log_lines("exact");
    assert_int_equal(integer(json_array_get(a, 0), "parameters"), integer(json_array_get(b, 0), "parameters") + 48 * 32);
    for (size_t step = 1; step <= 3; step++) /* what is padding has no part in the loss */
        assert_true(fabs(log_number(a, step, "loss") - log_number(b, step, "loss")) < 1e-5);
    json_decref(a);
    json_decref(b);
    int64_t n;
    free(tensor_of("padded/step-3", "wte.weight", &n));
    assert_int_equal(n, 16 * 32);
    free(tensor_of("padded/step-3", "wpe.weight", &n));
    assert_int_equal(n, 16 * 32);
    works("train --resume --max-iters 5 --out-dir padded --quiet");
}

static void test_plan_is_cheap(void **state)
{
    (void)state;
    const Output *o = works("plan --model gpt2");
    assert_true(getenv("SANITIZED") || (o->peak_kib < 100 * 1024 && o->cpu_seconds < 1));
    o = works("plan --model gpt2 --n-layer 512 --n-embd 12 --block-size 16");
    assert_true(getenv("SANITIZED") || (o->peak_kib < 200 * 1024 && o->cpu_seconds < 2));
    o = works("plan --model gpt2 --n-layer 1024 --n-embd 12 --block-size 16 --dropout 0.1 --recompute block --precision bf16");
    assert_true(getenv("SANITIZED") || (o->peak_kib < 400 * 1024 && o->cpu_seconds < 5));
    put("config.json", "{\"model_type\": \"gpt2\", \"n_layer\": 65536, \"n_head\": 1, \"n_embd\": 1, \"n_positions\": 1, "
                       "\"vocab_size\": 1}");
    ends(1, "config.json: n_layer: is 65536; must be from 1 to 1024", "plan --init-from .");
}

/* ---- The process ---------------------------------------------------------------------------------------------------- */

/* Bytes in a line "NAME ... 1.25 MiB ..." of what train prints. */
static double printed_bytes(const char *text, const char *name)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    const char *line = strstr(text, name);
    char unit[8];
    double value;
    if (!line)
        fail_msg("no line \"%s\" in %s", name, text);
    assert_int_equal(sscanf(line + strlen(name), "%lf %7[A-Za-z]", &value, unit), 2);
    for (int i = 0; i < 4; i++)
        if (strcmp(unit, units[i]) == 0)
            return value * pow(1024, i);
    fail_msg("%s: unit %s", name, unit);
    return 0;
}

static double resident_of(pid_t process)
{
    char path[64], line[256];
    double kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", process);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %lf kB", &kib) == 1)
            break;
    fclose(f);
    return 1024 * kib;
}

/* 21 million parameters: what the ledger says after the first step is what the kernel says, line by line and in all. */
static void test_resident(void **state)
{
    (void)state;
    if (getenv("SANITIZED")) {
        print_message("SKIPPED: sanitizers hold memory of their own\n");
        skip();
    }
    pid_t child =
        command_start("train --data data --model gpt2 --n-layer 4 --n-embd 512 --n-head 8 --block-size 64 --batch-size 2 "
                      "--vocab-size 16000 --threads 2 --eval-interval 0 --checkpoint-interval 0 --out-dir ledger");
    log_wait("ledger", 3);
    double resident = resident_of(child);
    kill(child, SIGKILL);
    const Output *o = command_wait(child);
    const char *text = strstr(o->out, "Resident after the first step:");
    assert_non_null(text);
    static const char *const parts[] = {"persistent arena",
                                        "step arena, as far as touched",
                                        "program and libraries (mapped files)",
                                        "token files (mapped)",
                                        "machine code made at run time (oneDNN)",
                                        "stacks of all threads",
                                        "malloc: libraries, loader, tables",
                                        "unexplained"};
    double total = printed_bytes(text, "Resident after the first step:"), sum = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        sum += printed_bytes(text, parts[i]);
    assert_true(fabs(sum - total) < 0.005 * total);
    assert_true(fabs(total - resident) < 0.05 * resident);
    assert_true(printed_bytes(text, "unexplained") < 0.02 * total);
    json_t *log = log_lines("ledger");
    double planned = log_number(log, 0, "persistent_bytes");
    json_decref(log);
    assert_true(fabs(printed_bytes(text, "persistent arena") - planned) < 0.001 * planned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_is_what_train_takes),
        cmocka_unit_test(test_plan_adds_up),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_plan_is_cheap),
        cmocka_unit_test(test_resident),
    };
    return cmocka_run_group_tests(tests, make_data, command_end);
}
