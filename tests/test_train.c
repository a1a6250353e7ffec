/* tally train, run as a command: what it computes depends on nothing but its settings. Interrupted and resumed, killed, stopped
 * by a signal, evaluated and saved more or less often: the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/command.h"

/* 40 steps with all that a resumed run could get wrong: dropout, accumulation, a schedule that moves, evaluations that count. */
#define RUN                                                                                                                      \
    TINY " --dropout 0.1 --gradient-accumulation-steps 3 --lr-decay-iters 40 --warmup-iters 5 --eval-interval 10 --eval-iters 2"

static void run_40(const char *out_dir, const char *flags)
{
    works("train " RUN " --max-iters 40 --out-dir %s %s", out_dir, flags);
}

/* The 40 steps in one go, made once: run/step-40 and run/log.jsonl. */
static int make_run(void **state)
{
    if (command_begin(state) != 0)
        return -1;
    text_prepare(1200);
    run_40("run", "");
    return 0;
}

/* Is the log one configuration and then steps 1 .. count, each once, with the losses and gradient norms of run's? */
static void assert_log_of_run(const char *out_dir, int count)
{
    json_t *log = log_lines(out_dir), *reference = log_lines("run");
    assert_int_equal(json_array_size(log), count + 1);
    assert_non_null(json_object_get(json_array_get(log, 0), "settings"));
    for (int i = 1; i <= count; i++) {
        static const char *const fields[] = {"step", "loss", "lr", "grad_norm"};
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
            if (log_number(log, (size_t)i, fields[k]) != log_number(reference, (size_t)i, fields[k]))
                fail_msg("%s: line %d: %s is %.9g, in one go %.9g", out_dir, i, fields[k], log_number(log, (size_t)i, fields[k]),
                         log_number(reference, (size_t)i, fields[k]));
    }
    json_decref(log);
    json_decref(reference);
}

/* ---- The same again ------------------------------------------------------------------------------------------------- */

static void test_seeds(void **state)
{
    (void)state;
    run_40("again", "");
    assert_true(steps_equal("run", "again", 40));
    assert_log_of_run("again", 40);
    run_40("other", "--seed 7");
    assert_false(steps_equal("run", "other", 40));
}

static void test_two_threads(void **state)
{
    (void)state;
    works("train " RUN " --threads 2 --max-iters 4 --out-dir two");
    works("train " RUN " --threads 2 --max-iters 4 --out-dir two-again");
    assert_true(steps_equal("two", "two-again", 4));
}

/* Looking at a run does not change it. */
static void test_intervals(void **state)
{
    (void)state;
    static const char *const flags[] = {"--eval-interval 0",
                                        "--eval-interval 1 --eval-iters 0",
                                        "--checkpoint-interval 1 --keep 2",
                                        "--checkpoint-interval 0",
                                        "--log-interval 1",
                                        "--sample-interval 3 --sample-tokens 40 --prompt the"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char out_dir[16];
        snprintf(out_dir, sizeof out_dir, "interval-%zu", i);
        run_40(out_dir, flags[i]);
        if (!steps_equal("run", out_dir, 40))
            fail_msg("%s changes the weights", flags[i]);
        assert_log_of_run(out_dir, 40);
    }
}

static double logged(const json_t *line, const char *field)
{
    json_t *value = json_object_get(line, field);
    if (!json_is_number(value))
        fail_msg("%s is not a number", field);
    return json_number_value(value);
}

/* What programs and people are told of a step. */
static void test_log_fields(void **state)
{
    (void)state;
    const Output *o = works("train " TINY " --quiet=false --log-interval 2 --max-iters 5 --eval-interval 4 --out-dir fields");
    static const char *const words[] = {"Memory plan: 0.03M parameters",
                                        "It fits: ",
                                        "Data: data, ",
                                        "Resident after the first step: ",
                                        "step      1/5  loss ",
                                        "step      2/5  loss ",
                                        "step      4/5  loss ",
                                        "step      5/5  loss ",
                                        "  val ",
                                        "  lr ",
                                        "  norm ",
                                        " ms  ",
                                        " tokens/s",
                                        " % of peak",
                                        "  ETA "};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(o->out, words[i]))
            fail_msg("no \"%s\" in: %s", words[i], o->out);
    assert_null(strstr(o->out, "step      3/5"));
    json_t *log = log_lines("fields"), *head = json_array_get(log, 0);
    static const char *const numbers[] = {"loss", "lr", "grad_norm", "ms", "tokens_per_s", "mfu"};
    assert_int_equal(json_array_size(log), 6);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(head, "model"), "n_embd")), 32);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(head, "settings"), "max_iters")), 5);
    assert_true(logged(head, "parameters") > 0 && logged(head, "gemm_peak") > 1e6);
    for (size_t step = 1; step <= 5; step++) {
        const json_t *line = json_array_get(log, step);
        assert_int_equal(logged(line, "step"), step);
        assert_true(logged(line, "mfu") > 0 && logged(line, "mfu") <= 1);
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            assert_true(logged(line, numbers[i]) > 0);
        assert_true(fabs(logged(line, "tokens_per_s") * logged(line, "ms") / 1e3 - 32) < 0.1); /* B x T */
        assert_int_equal(json_object_get(line, "val_loss") != NULL, step >= 4);                /* at 4, and at the end */
    }
    json_decref(log);
}

/* ---- Interrupted ---------------------------------------------------------------------------------------------------- */

static void test_resume(void **state)
{
    (void)state;
    works("train " RUN " --max-iters 20 --out-dir half");
    works("train --resume --max-iters 40 --out-dir half --quiet");
    assert_true(steps_equal("run", "half", 40));
    assert_log_of_run("half", 40);
    works("train --resume --out-dir half --quiet"); /* nothing left to do */
    assert_true(steps_equal("run", "half", 40));
    assert_log_of_run("half", 40);
}

/* A larger batch, cut in other micro-batches after half of the way: the place in the data stays exact. */
static void test_resume_in_other_pieces(void **state)
{
    (void)state;
    works("train " TINY " --max-iters 6 --checkpoint-interval 3 --keep 9 --schedule constant --out-dir whole --batch-size 4");
    works("train " TINY " --max-iters 3 --schedule constant --out-dir cut --batch-size 4");
    works("train --resume --max-iters 6 --out-dir cut --batch-size 2 --gradient-accumulation-steps 2 --quiet");
    json_t *a = log_lines("whole"), *b = log_lines("cut");
    for (size_t i = 1; i <= 6; i++) /* the same windows: losses differ in rounding only */
        assert_true(fabs(log_number(a, i, "loss") - log_number(b, i, "loss")) < 1e-5);
    json_decref(a);
    json_decref(b);
}

static int latest_step(const char *out_dir)
{
    char path[256];
    for (int step = 100000; step >= 0; step--) {
        snprintf(path, sizeof path, "%s/step-%d", out_dir, step);
        if (file_exists(path))
            return step;
    }
    return -1;
}

static void test_signals(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    static const char *const names[] = {"term", "int"};
    for (int i = 0; i < 2; i++) {
        char line[1024];
        snprintf(line, sizeof line, "train " RUN " --max-iters 100000 --checkpoint-interval 0 --out-dir %s", names[i]);
        pid_t child = command_start(line);
        log_wait(names[i], 5);
        kill(child, signals[i]);
        const Output *o = command_wait(child);
        assert_int_equal(o->code, 0);
        assert_non_null(strstr(o->out, "saved. Go on with: tally train --out-dir"));
        int step = latest_step(names[i]);
        assert_in_range(step, 4, 99999);
        works("train --resume --out-dir %s --max-iters %d --quiet", names[i], step + 10);
        works("train " RUN " --max-iters %d --out-dir straight-%d", step + 10, i);
        snprintf(line, sizeof line, "straight-%d", i);
        assert_true(steps_equal(line, names[i], step + 10));
    }
}

/* A signal at any time, the earliest included: the process either was ended by it before it began, or has saved. */
static void test_signal_at_any_time(void **state)
{
    (void)state;
    int saved = 0;
    for (int i = 0; i < 12; i++) {
        char out_dir[16], line[1024];
        snprintf(out_dir, sizeof out_dir, "early-%d", i);
        snprintf(line, sizeof line, "train " RUN " --max-iters 100000 --out-dir %s", out_dir);
        pid_t child = command_start(line);
        usleep((useconds_t)(i * i * 1000));
        kill(child, SIGTERM);
        const Output *o = command_wait(child);
        assert_true(o->code == 0 || o->code == 128 + SIGTERM);
        saved += o->code == 0;
        assert_true((latest_step(out_dir) >= 0) == (o->code == 0));
    }
    assert_in_range(saved, 1, 12);
}

/* kill -9 at the N-th of the calls that change the disk, in the run and again in the run that resumes it; then to the end. */
static void killed_twice(int moment)
{
    char out_dir[32], number[16];
    snprintf(out_dir, sizeof out_dir, "killed-%d", moment);
    snprintf(number, sizeof number, "%d", moment);
    char first[1024], again[1024];
    snprintf(first, sizeof first, "train " RUN " --max-iters 40 --checkpoint-interval 4 --keep 2 --out-dir %s", out_dir);
    snprintf(again, sizeof again, "train --resume --quiet --out-dir %s", out_dir);
    setenv("TALLY_FAULT_KILL", number, 1);
    assert_int_equal(command_run(first)->code, 128 + SIGKILL);
    int whole = latest_step(out_dir);
    if (whole >= 0)
        assert_true(command_run(again)->code == 128 + SIGKILL || latest_step(out_dir) == 40);
    unsetenv("TALLY_FAULT_KILL");
    assert_true(latest_step(out_dir) >= whole);
    ends(0, "", "%s", whole >= 0 ? again : first); /* without a whole checkpoint there is nothing to resume */
    if (!steps_equal("run", out_dir, 40))
        fail_msg("killed at call %d, the run ends with other weights", moment);
    assert_log_of_run(out_dir, 40);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", out_dir);
    assert_int_equal(system(command), 0);
}

static void test_kills(void **state)
{
    (void)state;
    bool all = getenv("LONG") != NULL;
    for (int i = 0; i < (all ? 500 : 10); i++)
        killed_twice(all ? i + 1 : 7 + 43 * i); /* a save is about 110 calls */
}

/* ---- What is refused ------------------------------------------------------------------------------------------------ */

static void test_resume_refuses(void **state)
{
    (void)state;
    works("train " TINY " --max-iters 3 --out-dir kept --schedule constant");
    ends(2, "kept has checkpoints of an earlier run", "train " TINY " --max-iters 3 --out-dir kept");
    json_t *log = log_lines("kept"); /* is as it was */
    assert_int_equal(json_array_size(log), 4);
    json_decref(log);
    ends(1, "there is no checkpoint", "train " TINY " --resume --out-dir data");
    ends(1, "nowhere: ", "train " TINY " --resume --out-dir nowhere");
    ends(2, "seed: is 8, and was 1337 in kept/step-3", "train --resume --out-dir kept --seed 8");
    ends(2, "block_size: is 15, and was 16 in kept/step-3", "train --resume --out-dir kept --block-size 15");
    ends(2, "n_layer: the checkpoint's model has 2", "train --resume --out-dir kept --n-layer 3");
    ends(2, "n_embd: the checkpoint's model has 32", "train --resume --out-dir kept --n-embd 64");
    ends(2, "bias: the checkpoint's model has 1", "train --resume --out-dir kept --no-bias");
    ends(2, "model: is gpt2, and was nano in kept/step-3", "train --resume --out-dir kept --model gpt2");
    FILE *more = fopen("text", "a");
    fputs("we see\n", more);
    fclose(more);
    works("data prepare text --tokenizer char --out longer");
    ends(2, "and was", "train --resume --out-dir kept --data longer");
    works("train --resume --out-dir kept --quiet --max-iters 5 --batch-size 3 --learning-rate 1e-4"); /* those may change */
    assert_int_equal(latest_step("kept"), 5);
}

/* The best checkpoint stays when newer ones push the others out: here that of step 4, for then the rate goes through the roof. */
static void test_keep(void **state)
{
    (void)state;
    works("train " TINY " --max-iters 4 --eval-interval 2 --eval-iters 0 --checkpoint-interval 2 --keep 2 --out-dir keep");
    works("train --resume --max-iters 12 --schedule constant --learning-rate 1 --out-dir keep --quiet");
    json_t *log = log_lines("keep");
    for (size_t step = 2; step <= 12; step += 2)
        assert_true(step == 4 || log_number(log, step, "val_loss") > log_number(log, 4, "val_loss"));
    json_decref(log);
    for (int step = 2; step <= 12; step += 2) {
        char path[64];
        snprintf(path, sizeof path, "keep/step-%d/trainer.json", step);
        assert_int_equal(file_exists(path), step >= 10 || step == 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeds),     cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_intervals), cmocka_unit_test(test_log_fields),
        cmocka_unit_test(test_resume),    cmocka_unit_test(test_resume_in_other_pieces),
        cmocka_unit_test(test_signals),   cmocka_unit_test(test_signal_at_any_time),
        cmocka_unit_test(test_kills),     cmocka_unit_test(test_resume_refuses),
        cmocka_unit_test(test_keep),
    };
    return cmocka_run_group_tests(tests, make_run, command_end);
}
