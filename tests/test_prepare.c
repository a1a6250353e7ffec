/* tally data prepare, tally tokenize, tally detokenize: run as commands in a child process. */
#include "base/options.h"
#include "base/file.h"
#include "base/json.h"
#include "data/prepare.h"
#include "data/stream.h"
#include "tools/commands.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64]; /* of this run, and the working directory */

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* What a command has printed. */
typedef struct Output {
    int code;
    char *out, *err;
    size_t out_size, err_size;
} Output;

enum { MAX_ARGS = 13 };

/* Runs tally in a child, its arguments one line split at blanks, with `input` as its standard input. */
static Output run(const char *line, const void *input, size_t n)
{
    char copy[512], *argv[MAX_ARGS + 1] = {"tally"};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word && argc < MAX_ARGS; word = strtok(NULL, " "))
        argv[argc++] = word;
    write_bytes("stdin", input, n);
    pid_t child = fork();
    if (child == 0) {
        if (freopen("stdin", "rb", stdin) && freopen("stdout", "wb", stdout) && freopen("stderr", "wb", stderr))
            exit(tally_main(argc, argv));
        _exit(99);
    }
    int status = 0;
    Output o = {0};
    Error e = {0};
    assert_int_equal(waitpid(child, &status, 0), child);
    o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    assert_true(file_read_all("stdout", SIZE_MAX, &o.out, &o.out_size, &e));
    assert_true(file_read_all("stderr", SIZE_MAX, &o.err, &o.err_size, &e));
    return o;
}

static void output_free(Output *o)
{
    free(o->out);
    free(o->err);
}

/* Runs tally data; it must end with `code`, print `out` (a part of its output) and `err` (a part of its message; NULL: none at
 * all). */
static void data_ends(const char *line, const char *input, int code, const char *out, const char *err)
{
    char whole[512];
    snprintf(whole, sizeof whole, "data %s", line);
    Output o = run(whole, input, strlen(input));
    if (o.code != code || !strstr(o.out, out) || (err ? !strstr(o.err, err) : o.err_size > 0))
        fail_msg("tally data %s: code %d, printed \"%s\", said \"%s\"", line, o.code, o.out, o.err);
    output_free(&o);
}

static int64_t meta_number(const char *path, const char *field)
{
    Error e = {0};
    int64_t value = -1;
    json_t *meta = json_read(path, &e);
    assert_true(meta && json_get_int(meta, field, 0, INT64_MAX, &value, true, &e));
    json_decref(meta);
    return value;
}

static void assert_tokens(const char *where, const char *split, const char *ids)
{
    Error e = {0};
    TokenStream s;
    int32_t token;
    assert_true(token_stream_open(&s, where, split, &e));
    assert_int_equal(s.count, strlen(ids));
    for (int64_t i = 0; i < s.count; i++) {
        assert_true(token_stream_read(&s, i, 1, 65536, &token, &e));
        assert_int_equal(token, ids[i] - '0');
    }
    token_stream_close(&s);
}

static void dashes_and_underscores(void **state)
{
    (void)state;
    char a[] = "a_b", b[] = "--val_fraction=x_y", c[] = "--out_dir", d[] = "d_d", e[] = "--", f[] = "--e_f", g[] = "-x_y";
    char *argv[] = {a, b, c, d, g, e, f};
    args_dashes(7, argv);
    assert_string_equal(a, "a_b");
    assert_string_equal(b, "--val-fraction=x_y");
    assert_string_equal(c, "--out-dir");
    assert_string_equal(d, "d_d");
    assert_string_equal(g, "-x_y");
    assert_string_equal(f, "--e_f");
}

static void prepare_writes_a_data_set(void **state)
{
    (void)state;
    write_bytes("one", "abc\xC3\xA9", 5);
    write_bytes("two", "cab", 3);
    /* 7 + 3 characters: a b c U+E9 a c b c a b, of which floor(10 x 0.7) train; ids a 0, b 1, c 2, U+E9 3 */
    data_ends("prepare one - two --tokenizer char --out d/deep --val_fraction 0.3", "acb", 0,
              "  tally train --data d/deep --out-dir OUT", NULL);
    assert_tokens("d/deep", "train", "0123021");
    assert_tokens("d/deep/val.bin", "", "201");
    assert_int_equal(meta_number("d/deep/meta.json", "train_tokens"), 7);
    assert_int_equal(meta_number("d/deep/meta.json", "val_tokens"), 3);
    assert_int_equal(meta_number("d/deep/meta.json", "text_bytes"), 11);
    assert_int_equal(meta_number("d/deep/meta.json", "vocab_size"), 4);

    data_ends("prepare one two --tokenizer=byte --out d/deep --val-fraction=0", "", 0, "val.bin    not written", NULL);
    assert_int_equal(meta_number("d/deep/meta.json", "train_tokens"), 8);
    assert_int_equal(meta_number("d/deep/meta.json", "vocab_size"), 256);
    assert_false(token_stream_present("d/deep", "val")); /* the one of the earlier text is gone */
}

static void prepare_refuses(void **state)
{
    (void)state;
    write_bytes("text", "hello, world", 12);
    write_bytes("nothing", "", 0);
    mkfifo("fifo", 0666);
    data_ends("prepare text --out x --val-fraction 1", "", 2, "",
              "tally data prepare: --val-fraction is 1; it must be at least 0 and less than 1");
    data_ends("prepare text --out x --val-fraction -0.1", "", 2, "", "--val-fraction is -0.1");
    data_ends("prepare text --out x --val-fraction nan", "", 2, "", "val-fraction: 'nan' is not a number");
    data_ends("prepare text --out x --val-fraction 1e", "", 2, "", "val-fraction: '1e' is not a number");
    data_ends("prepare text --out x --tokenizer words", "", 2, "", "no tokenizer is called \"words\"");
    data_ends("prepare text", "", 2, "", "tally data prepare: --out DIR is needed");
    data_ends("prepare --out x", "", 2, "", "needs at least one text");
    data_ends("mend text --out x", "", 2, "", "there is no command 'data mend'");
    data_ends("prepare text --out x --frobnicate", "", 2, "", "unrecognized option");
    data_ends("prepare nothing - --out x", "", 1, "", "tally data prepare: there is no text: the input is empty");
    data_ends("prepare absent --out x", "", 1, "", "tally data prepare: absent: cannot open");
    data_ends("prepare /dev/null --out x", "", 1, "", "tally data prepare: /dev/null: is a device");
    data_ends("prepare no*such --out x", "", 1, "", "no*such: no such file, and as a pattern it matches none");
    data_ends("prepare text --out x --shard-tokens 1", "", 2, "", "shard-tokens: '1' is not a whole number from 2");
    data_ends("prepare text --out x --shard-tokens 2147483648", "", 2, "", "is not a whole number from 2 to 2147483647");
    data_ends("prepare text --out x --separator ab", "", 2, "", "--separator is 2 tokens of the char tokenizer; one is needed");
    data_ends("prepare text --out x --threads no", "", 2, "", "threads: 'no' is not a whole number");
    data_ends("prepare - - --out x", "", 2, "", "standard input, -, can be read once only");
    data_ends("prepare fifo --out x", "", 1, "", "tally data prepare: fifo: is a FIFO");
    data_ends("prepare - --out x", "a", 1, "", "train.bin would hold 0 tokens, and at least 2 are needed");
    data_ends("prepare - --out x", "abc", 1, "", "val.bin would hold 1 token, and");
    data_ends("prepare text --out nothing", "", 1, "", "nothing: ");
    assert_false(file_exists("x/train.bin") || file_exists("x/train.bin.tmp") || file_exists("x/meta.json"));
}

/* FIELD-CASES 38. 65,537 kinds of characters, U+10000 and up, do not go into 16 bits; one fewer does. */
static void prepare_vocabulary_decides_width(void **state)
{
    (void)state;
    uint8_t *text = malloc(4 * 65537);
    for (int i = 0; i < 65537; i++) {
        uint8_t c[4] = {(uint8_t)(0xF0 | (0x10000 + i) >> 18), (uint8_t)(0x80 | ((0x10000 + i) >> 12 & 63)),
                        (uint8_t)(0x80 | ((0x10000 + i) >> 6 & 63)), (uint8_t)(0x80 | (i & 63))};
        memcpy(text + 4 * i, c, 4);
    }
    for (int kinds = 65536; kinds <= 65537; kinds++) {
        Output o = run("data prepare - --out wide --val-fraction 0", text, 4 * (size_t)kinds);
        Error e = {0};
        TokenStream s;
        size_t size;
        assert_int_equal(o.code, 0);
        assert_int_equal(meta_number("wide/meta.json", "vocab_size"), kinds);
        int fd = file_open("wide/train.bin", &size, &e);
        assert_int_equal(size, 1024 + (kinds > 65536 ? 4 : 2) * kinds);
        close(fd);
        assert_true(token_stream_open(&s, "wide", "train", &e));
        int32_t *ids = malloc((size_t)kinds * sizeof *ids);
        assert_true(token_stream_read(&s, 0, kinds, kinds, ids, &e));
        for (int i = 0; i < kinds; i++)
            assert_int_equal(ids[i], i);
        free(ids);
        token_stream_close(&s);
        output_free(&o);
    }
    free(text);
}

/* What a data set has to be after a run that may have failed: the old one (18 + 2 tokens, a file each), the new one (shards of 4,
 * 3 and 2 tokens, and 2), or refused. Returns whether it is the new one. */
static bool old_or_new_or_refused(void)
{
    TokenStream train = {0}, val = {0};
    Error e = {0};
    bool new = false;
    if (file_exists("full/unfinished")) {
        assert_false(token_stream_open(&train, "full", "train", &e));
        assert_non_null(strstr(
            e.text,
            "full/unfinished: says that `tally data prepare` is at work there or was interrupted: wait for it, or run it again"));
    } else {
        assert_true(token_stream_open(&train, "full", "train", &e) && token_stream_open(&val, "full", "val", &e));
        assert_int_equal(meta_number("full/meta.json", "train_tokens"), train.count);
        assert_int_equal(meta_number("full/meta.json", "val_tokens"), val.count);
        assert_true(train.count == 18 || train.count == 10);
        new = train.count == 10;
        assert_int_equal(train.shards, new ? 3 : 1);
    }
    token_stream_close(&train);
    token_stream_close(&val);
    return new;
}

/* The disk fills up, or the process is killed, at every write, flush and rename in turn. */
static void prepare_is_interrupted(void **state)
{
    (void)state;
    static const char *const faults[] = {"TALLY_FAULT_WRITE", "TALLY_FAULT_KILL"};
    write_bytes("text", "hello, world", 12);
    for (int kind = 0; kind < 2; kind++) {
        int code = 1, call = 1, refused = 0, old = 0;
        for (; code != 0 && call < 60; call++) {
            char number[16];
            snprintf(number, sizeof number, "%d", call);
            data_ends("prepare - --tokenizer byte --out full", "01234567890123456789", 0, "", NULL); /* 18 + 2 */
            setenv(faults[kind], number, 1);
            Output o = run("data prepare text --out full --shard-tokens 4", "", 0); /* 10 + 2 */
            unsetenv(faults[kind]);
            code = o.code;
            assert_true(kind == 1 || (code == 0) == (o.err_size == 0));
            output_free(&o);
            bool new = old_or_new_or_refused();
            assert_true(new || code != 0);
            refused += file_exists("full/unfinished");
            old += !new && !file_exists("full/unfinished");
            bool left = file_exists("full/train_000001.bin.tmp") || file_exists("full/val_000000.bin.tmp");
            assert_true(!left || kind == 1); /* who is killed cannot clean up, but the next run does */
        }
        assert_in_range(call, 10, 59); /* it did fail on the way, and did end */
        assert_true(refused > 0 && old > 0);
    }
    assert_false(file_exists("full/train_000001.bin.tmp") || file_exists("full/train.bin"));
}

/* Runs a filter on n bytes of input; wants code and, exactly, `out` or a part of the message. */
static void filter_ends(const char *line, const void *input, size_t n, int code, const void *out, size_t out_size,
                        const char *err)
{
    Output o = run(line, input, n);
    if (o.code != code || (code == 0 && (o.out_size != out_size || memcmp(o.out, out, out_size) != 0)) ||
        (err ? !strstr(o.err, err) : o.err_size > 0))
        fail_msg("%s: code %d, printed \"%s\", said \"%s\"", line, o.code, o.out, o.err);
    output_free(&o);
}

static void tokenize_and_detokenize(void **state)
{
    (void)state;
    data_ends("prepare - --out ab --val-fraction 0", "ab\xC3\xA9", 0, "", NULL);
    filter_ends("tokenize --tokenizer ab",
                "b\xC3\xA9"
                "a",
                4, 0, "1 2 0\n", 6, NULL);
    filter_ends("tokenize --tokenizer ab/meta.json", "", 0, 0, "\n", 1, NULL);
    filter_ends("tokenize --tokenizer byte", "\0\xFF\n", 3, 0, "0 255 10\n", 9, NULL);
    filter_ends("tokenize --tokenizer ab", "axb", 3, 1, "", 0, "tally tokenize: character 'x' U+0078 at byte offset 1 is not");
    filter_ends("tokenize --tokenizer absent", "a", 1, 1, "", 0, "tally tokenize: absent: cannot open");
    filter_ends("tokenize ", "a", 1, 2, "", 0, "--tokenizer is needed");
    filter_ends("tokenize --tokenizer byte more", "a", 1, 2, "", 0, "'more' is not a flag");
    filter_ends("detokenize --tokenizer ab", "1\t2\n\r\v0 0002", 12, 0,
                "b\xC3\xA9"
                "a\xC3\xA9",
                6, NULL);
    filter_ends("detokenize --tokenizer byte", "", 0, 0, "", 0, NULL);
    filter_ends("detokenize --tokenizer byte", " 0 255\n", 7, 0, "\0\xFF", 2, NULL);
    filter_ends("detokenize --tokenizer ab", "0 3", 3, 1, "", 0,
                "byte offset 2: \"3\" is not a token id; ids are decimal numbers, 0 .. 2");
    filter_ends("detokenize --tokenizer byte", "7 -1", 4, 1, "", 0, "byte offset 2: \"-1\" is not");
    filter_ends("detokenize --tokenizer byte", "0x10", 4, 1, "", 0, "byte offset 0: \"0x10\" is not");
    filter_ends("detokenize --tokenizer byte", "18446744073709551617", 20, 1, "", 0, "\"18446744073709551617\" is not");
    filter_ends("detokenize --tokenizer byte", "4294967297", 10, 1, "", 0, "\"4294967297\" is not");

    uint8_t noise[5000];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)rand();
    Output ids = run("tokenize --tokenizer byte", noise, sizeof noise);
    filter_ends("detokenize --tokenizer byte", ids.out, ids.out_size, 0, noise, sizeof noise, NULL);
    output_free(&ids);
}

/* FIELD-CASES 36. */
static void tinyshakespeare(void **state)
{
    (void)state;
    const char *data = getenv("TALLY_TEST_DATA");
    char line[400];
    snprintf(line, sizeof line, "%s/tinyshakespeare.txt", data ? data : "");
    if (!data || !file_exists(line)) {
        print_message("SKIPPED: TALLY_TEST_DATA names no folder with tinyshakespeare.txt\n");
        skip();
    }
    snprintf(line, sizeof line, "prepare %s/tinyshakespeare.txt --tokenizer char --out shakespeare", data);
    data_ends(line, "", 0, "train.bin  1003854 tokens", NULL);
    assert_int_equal(meta_number("shakespeare/meta.json", "vocab_size"), 65);
    assert_int_equal(meta_number("shakespeare/meta.json", "train_tokens"), 1003854);
    assert_int_equal(meta_number("shakespeare/meta.json", "val_tokens"), 111540);
    filter_ends("tokenize --tokenizer shakespeare", "hello", 5, 0, "46 43 50 50 53\n", 15, NULL);
}

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test_prepare-XXXXXX");
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    Error e = {0};
    static const char *const folders[] = {"d/deep", "d", "x", "wide", "full", "ab", "shakespeare"};
    bool good = chdir(dir) == 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        good = good && dir_remove(folders[i], &e);
    return good && dir_remove(dir, &e) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dashes_and_underscores), cmocka_unit_test(prepare_writes_a_data_set),
        cmocka_unit_test(prepare_refuses),        cmocka_unit_test(prepare_vocabulary_decides_width),
        cmocka_unit_test(prepare_is_interrupted), cmocka_unit_test(tokenize_and_detokenize),
        cmocka_unit_test(tinyshakespeare),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
