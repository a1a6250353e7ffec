/* tally report as a command: what it refuses and says, and that no log and no comparison of precisions, however odd, stops it
 * from writing a whole page. What the page shows is tested in a browser (report_check.sh). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/command.h"

#define CURVE "data-chart=\"curve\""

static void file_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
}

/* The first line of the log of a run of one step. */
static char configuration[8192];

static int make_run(void **state)
{
    if (command_begin(state) != 0)
        return -1;
    text_prepare(300);
    works("train " TINY " --max-iters 1 --eval-interval 0 --out-dir run");
    FILE *f = fopen("run/log.jsonl", "r");
    bool ok = f && fgets(configuration, sizeof configuration, f) && mkdir("odd", 0700) == 0;
    return fclose(f) || !ok;
}

/* A page that ends as it should and has `what` so many times. */
static void page_has(const char *path, int count, const char *what)
{
    FileMap file;
    Error e = {0};
    static const char end[] = "</html>\n";
    if (!file_map(&file, path, &e))
        fail_msg("%s", e.text);
    assert_true(file.size > 10000);
    assert_memory_equal((const char *)file.data + file.size - strlen(end), end, strlen(end));
    int seen = 0;
    for (const char *at = file.data, *stop = at + file.size; (at = memmem(at, (size_t)(stop - at), what, strlen(what))); at++)
        seen++;
    assert_int_equal(seen, count);
    file_unmap(&file);
}

static void test_run_is_reported(void **state)
{
    (void)state;
    works("report run");
    page_has("run/report.html", 4, CURVE);
    works("report run --out=elsewhere.html");
    page_has("elsewhere.html", 4, CURVE);
    ends(0, "RUN_DIR", "report --help");
    works("report --plan " TINY_MODEL
          " --vram 1K --recompute block --recompute-every 2"); /* does not fit, and the page says so */
    page_has("plan.html", 0, CURVE);
}

/* The command of a run that was resumed with other settings is two; that of one which began with a model's weights names them. */
static void test_commands(void **state)
{
    (void)state;
    works("train " TINY " --max-iters 1 --eval-interval 0 --out-dir resumed");
    works("train --resume --out-dir resumed --max-iters 2 --quiet");
    works("report resumed");
    page_has("resumed/report.html", 1, "\ntally train --resume --out-dir resumed <span>--max-iters</span> 2</code>");
    works("train " TINY " --max-iters 1 --eval-interval 0 --init-from resumed/step-2 --out-dir tuned");
    works("report tuned");
    page_has("tuned/report.html", 1, "tally train --out-dir tuned --init-from resumed/step-2 <span>--data</span> data ");
    page_has("resumed/report.html", 1, "<p data-steps=\"2\"");
}

static void test_odd_logs(void **state)
{
    (void)state;
    static const struct {
        const char *lines;
        int curves;
    } cases[] = {
        {"", 0},
        {"{\"step\":1", 0},
        {"\n\n[]\n7\n{\"step\":0,\"loss\":1}\n{\"step\":-5}\n{\"step\":9223372036854775807,\"loss\":1}\n", 0},
        {"{\"step\":1}\n", 0},
        {"{\"step\":3,\"loss\":2,\"lr\":0,\"grad_norm\":-1,\"tokens_per_s\":1e29}\n", 4},
        {"{\"step\":3,\"loss\":2}\n{\"step\":2,\"loss\":3}\n{\"step\":3,\"loss\":3}\n{\"step\":1125899906842623,\"loss\":null}\n",
         1},
        {"{\"step\":1,\"loss\":1e308,\"lr\":\"x\",\"grad_norm\":null}\n{\"step\":2,\"loss\":-1e-308}\n", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[sizeof configuration + 512];
        snprintf(text, sizeof text, "%s%s", configuration, cases[i].lines);
        file_write("odd/log.jsonl", text);
        works("report odd");
        page_has("odd/report.html", cases[i].curves, CURVE);
    }
}

/* The run's machine is in its log: it need not be this one. */
static void test_other_machines(void **state)
{
    (void)state;
    static const struct {
        int kind, threads, isa, sm_count, code;
        const char *says;
    } cases[] = {{0, 4096, 0, 0, 0, "<strong>The run took"}, /* a partial sum for each thread */
                 {2, 1, 0, 24, 0, "<strong>The run took"},   {2, 1, 0, 0, 1, "multiprocessors"}, {1, 1, 0, 24, 1, "kind 1"},
                 {0, 4097, 0, 0, 1, "4097 threads"},         {0, 1, 3, 0, 1, "isa 3"},           {0, 0, 0, 0, 1, "threads"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *object = json_loads(configuration, 0, NULL), *machine = json_object_get(object, "machine");
        assert_int_equal(json_object_size(machine), 7);
        json_object_update_new(machine, json_pack("{s:i, s:i, s:i, s:i, s:i}", "kind", cases[i].kind, "threads", cases[i].threads,
                                                  "isa", cases[i].isa, "sm_count", cases[i].sm_count, "capability", 89));
        assert_int_equal(json_dump_file(object, "odd/log.jsonl", JSON_COMPACT), 0);
        json_decref(object);
        if (cases[i].code == 0) {
            works("report odd");
            page_has("odd/report.html", 1, cases[i].says);
        } else {
            ends(1, cases[i].says, "report odd");
        }
    }
    page_has("run/report.html", 0, "<strong>The run took");
}

static void test_odd_comparisons(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}", "{\"precisions\":7}", "{\"precisions\":[1,null,{},[]],\"amdahl\":[]}",
        "{\"precisions\":[{\"precision\":3,\"ms_median\":0,\"classes\":{\"gemm\":\"x\"},\"memory\":"
        "{\"weights\":-1e308,\"a\":{}}}],\"amdahl\":{\"a\":{\"b\":{\"c\":1}}}}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        file_write("run/bench-amp.json", texts[i]);
        works("report run");
        page_has("run/report.html", 4, CURVE);
    }
    file_write("run/bench-amp.json", "{");
    ends(1, "run/bench-amp.json:1", "report run");
    assert_int_equal(remove("run/bench-amp.json"), 0);
}

static void test_refusals(void **state)
{
    (void)state;
    ends(2, "RUN_DIR", "report");
    ends(2, "RUN_DIR", "report run odd");
    ends(2, "RUN_DIR", "report run --batch-size 4");
    ends(2, "--out", "report run --out");
    ends(2, "what_if", "report --plan --what-if");
    ends(2, "RTX 4060", "report --plan --card nosuch");
    ends(1, "nosuch/log.jsonl", "report nosuch");
    ends(1, "nosuch.json", "report run --amp nosuch.json");
    ends(1, "nosuch/page.html", "report run --out nosuch/page.html");
    static const char *const logs[][2] = {{"", "is empty"},
                                          {"[]\n", "object"},
                                          {"{}\n", "settings"},
                                          {"{\"settings\":{},\"model\":{}}\n", "n_layer"},
                                          {"{\"settings\":{\"nosuch\":1},\"model\":{}}\n", "n_layer"}};
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        file_write("odd/log.jsonl", logs[i][0]);
        ends(1, logs[i][1], "report odd");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_is_reported), cmocka_unit_test(test_commands),        cmocka_unit_test(test_odd_logs),
        cmocka_unit_test(test_other_machines),  cmocka_unit_test(test_odd_comparisons), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, make_run, command_end);
}
