/* `tally data prepare` and `tally data info` on texts in many files, larger than a block, and told apart as documents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "data/source.h"
#include "data/stream.h"
#include "tests/command.h"

/* The tokens of a split of the byte tokenizer as a text, with a NUL behind it; free it. "" when there is no such split. */
static char *bytes_of(const char *where, const char *split, int64_t *n)
{
    TokenStream s;
    Error e = {0};
    *n = 0;
    if (!token_stream_present(where, split))
        return calloc(1, 1);
    assert_true(token_stream_open(&s, where, split, &e));
    int32_t *ids = malloc((size_t)s.count * sizeof *ids);
    char *text = malloc((size_t)s.count + 1);
    assert_true(token_stream_read(&s, 0, s.count, 256, ids, &e));
    for (int64_t i = 0; i < s.count; i++)
        text[i] = (char)ids[i];
    *n = s.count;
    text[*n] = 0;
    free(ids);
    token_stream_close(&s);
    return text;
}

static void assert_split(const char *where, const char *split, const char *text, size_t size)
{
    int64_t n;
    char *found = bytes_of(where, split, &n);
    assert_int_equal(n, size);
    assert_memory_equal(found, text, size);
    free(found);
}

/* ---- Splits ----------------------------------------------------------------------------------------------------------- */

static void lines_put(const char *path, int first, int count)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = first; i < first + count; i++)
        fprintf(f, "line number %d\n", i);
    fclose(f);
}

/* Is line `i` in the split? It has to be in one of both. */
static bool line_validates(const char *train, const char *val, int i)
{
    char line[40];
    snprintf(line, sizeof line, "\nline number %d\n", i);
    assert_true(!strstr(train, line) != !strstr(val, line));
    return strstr(val, line) != NULL;
}

/* With more files, read in another order, every line that was there stays in its split; and a fifth of them validates. */
static void test_adding_files_moves_no_document(void **state)
{
    (void)state;
    enum { LINES = 2000 };
    int64_t n;
    bool validates[LINES];
    int all = 0;
    mkdir("texts", 0777);
    lines_put("texts/m", 0, LINES);
    works("data prepare texts --tokenizer byte --separator \\n --val-fraction 0.2 --out before");
    char *train = bytes_of("before", "train", &n), *val = bytes_of("before", "val", &n);
    for (int i = 0; i < LINES; i++)
        all += validates[i] = line_validates(train, val, i);
    free(train);
    free(val);
    assert_in_range(all, LINES / 5 - 80, LINES / 5 + 80); /* 4.5 standard deviations */
    lines_put("texts/a", LINES, 500);
    lines_put("texts/z", LINES + 500, 500);
    works("data prepare texts --tokenizer byte --separator \\n --val-fraction 0.2 --out after");
    train = bytes_of("after", "train", &n), val = bytes_of("after", "val", &n);
    for (int i = 0; i < LINES; i++)
        assert_int_equal(line_validates(train, val, i), validates[i]);
    free(train);
    free(val);
    works("data prepare texts --tokenizer byte --separator \\n --val-fraction 0.9 --out mostly");
    ends(0, "not written: no document fell to it", "data prepare texts --separator \\n --val-fraction 0.000001 --out hardly");
    ends(1, "train.bin would hold 0 tokens", "data prepare texts/a --separator z --val-fraction 0.99999 --out none");
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------------ */

/* Nine million bytes, with lines of up to 60 characters of one to four bytes, and one of five million without an end: documents,
 * their ends and characters lie across the ends of blocks. Nothing is lost, whatever the number of threads. */
static void test_across_blocks(void **state)
{
    (void)state;
    enum { SIZE = 9000000, LONG_AT = 1000000, LONG = 5000000 };
    static const char *const characters[] = {"a", " ", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\xA6\x99", "b"};
    char *text = malloc(SIZE + 80), *separated = malloc(SIZE + 81);
    size_t n = 0;
    uint32_t random = 9;
    while (n < SIZE) {
        random = random * 1664525 + 1013904223;
        bool end = (n < LONG_AT || n > LONG_AT + LONG) && random >> 27 == 0 && n > 0 && text[n - 1] != '\n';
        const char *c = end ? "\n" : characters[(random >> 20) % 6];
        memcpy(text + n, c, strlen(c));
        n += strlen(c);
    }
    text[n++] = '\n';
    separated[0] = '\n';
    memcpy(separated + 1, text, n);
    put_bytes("long", text, n);
    works("data prepare long --tokenizer byte --separator \\n --val-fraction 0 --threads 1 --out one");
    assert_split("one", "train", separated, n + 1);
    works("data prepare long --tokenizer byte --separator \\n --val-fraction 0 --threads 3 --shard-tokens 1000000 --out three");
    assert_split("three", "train", separated, n + 1);
    works("data prepare long --tokenizer byte --out plain");
    int64_t train, val;
    free(bytes_of("plain", "train", &train));
    free(bytes_of("plain", "val", &val));
    assert_int_equal(train + val, n);
    works("data prepare long --val-fraction 0 --out characters");
    works("data prepare long --val-fraction 0 --separator \\n --threads 2 --out documents");
    json_t *whole = (ends(0, "", "data info characters --json"), printed()),
           *lines = (ends(0, "", "data info documents --json"), printed());
    assert_true(number(json_object_get(lines, "train"), "tokens") == number(json_object_get(whole, "train"), "tokens") + 1);
    assert_true(number(whole, "vocab_size") == 7 && number(lines, "vocab_size") == 7);
    assert_true(number(json_object_get(lines, "train"), "longest_document") > LONG / 2.4);
    json_decref(whole);
    json_decref(lines);
    free(text);
    free(separated);
}

/* A separator of several bytes that is one token only for its tokenizer is refused by those for which it is not; documents of no
 * bytes are left out; a document's end is also the end of its file. */
static void test_documents(void **state)
{
    (void)state;
    put("d1", "one\n\n\ntwo");
    put("d2", "three\n");
    works("data prepare d1 d2 --tokenizer byte --separator \\n --val-fraction 0 --out d");
    assert_split("d", "train", "\none\ntwo\nthree\n", 15);
    ends(0, "train.bin  15 tokens, 100.0 %, 3 documents", "data prepare d1 d2 --separator \\n --val-fraction 0 --out d");
    works("data prepare d1 d2 --tokenizer byte --val-fraction 0 --out d");
    assert_split("d", "train", "one\n\n\ntwothree\n", 15);
}

/* ---- Inputs ------------------------------------------------------------------------------------------------------------ */

static void test_folders_and_patterns(void **state)
{
    (void)state;
    mkdir("tree", 0777);
    mkdir("tree/b", 0777);
    mkdir("tree/.hidden", 0777);
    put("tree/c.txt", "3");
    put("tree/a.txt", "1");
    put("tree/b/z.txt", "2");
    put("tree/.dot", "x");
    put("tree/.hidden/file", "x");
    for (int again = 0; again < 2; again++) { /* what the first has written is no text for the second */
        works("data prepare tree --tokenizer byte --val-fraction 0 --out tree/out");
        assert_split("tree/out", "train", "123", 3);
    }
    works("data prepare tree/*.txt tree/b --tokenizer byte --val-fraction 0 --out patterns");
    assert_split("patterns", "train", "132", 3);
    works("data prepare tree/* --tokenizer byte --val-fraction 0 --out tree/out");
    assert_split("tree/out", "train", "123", 3);
    assert_int_equal(symlink("..", "tree/b/loop"), 0);
    ends(1, "tree/b/loop: is a link to a folder that it is in", "data prepare tree --out tree/out");
    unlink("tree/b/loop");
    mkfifo("tree/b/fifo", 0600);
    ends(1, "tree/b/fifo: is a FIFO; an ordinary file is needed", "data prepare tree --out tree/out");
    unlink("tree/b/fifo");
    assert_int_equal(symlink("absent", "tree/b/nowhere"), 0);
    ends(1, "tree/b/nowhere: cannot open: No such file", "data prepare tree --out tree/out");
    assert_split("tree/out", "train", "123", 3);
    mkdir("way", 0777);
    mkdir("way/train.bin", 0777);
    ends(1, "way/train.bin: is a folder; an ordinary file is needed", "data prepare tree/a.txt --out way");
    ends(1, "tree/a.txt: exists and is not a folder", "data prepare tree/c.txt --out tree/a.txt");
}

/* What may not be read, for who is not root. */
static void test_unreadable(void **state)
{
    (void)state;
    put("locked", "text");
    chmod("locked", 0);
    chmod(".", 0755);
    pid_t child = fork();
    if (child == 0) {
        Error e = {0};
        char *inputs[] = {"locked"};
        bool other = geteuid() != 0 || seteuid(65534) == 0;
        TextSource *s = other ? source_files(inputs, 1, NULL, ".", &e) : NULL;
        _exit(!other ? 77 : s || !strstr(e.text, "locked: cannot open: Permission denied"));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("SKIPPED: cannot become another user\n");
        skip();
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- Info -------------------------------------------------------------------------------------------------------------- */

static void test_info(void **state)
{
    (void)state;
    put("info.txt", "abc\nabca\nb\x01\n\xC3\xA9\xFF\n");
    works("data prepare info.txt --separator \\n --val-fraction 0 --out info");
    const Output *o = works("data info info");
    assert_non_null(strstr(o->out, "tokenizer  char, vocabulary of 7\n"));
    assert_non_null(strstr(o->out, "train      16 tokens in 1 file, each id below 7\n"));
    assert_non_null(strstr(o->out, "7 ids occur, 100.0 % of the vocabulary\n"));
    assert_non_null(strstr(o->out, "4 documents, 2.8 tokens in the mean, 4 the longest\n"));
    assert_non_null(strstr(o->out, "\nabc\nabca\nb\\x01\n\xC3\xA9\\xFF\n"));
    works("data info info --json");
    json_t *info = printed(), *train = json_object_get(info, "train");
    assert_true(number(info, "vocab_size") == 7 && number(info, "separator") == 1);
    assert_true(number(train, "files") == 1 && number(train, "tokens") == 16 && number(train, "documents") == 4 &&
                number(train, "longest_document") == 4 && number(train, "ids") == 7);
    assert_null(json_object_get(info, "val"));
    json_decref(info);

    works("data prepare info --tokenizer byte --out both --val-fraction 0.5"); /* any files: those just written */
    works("data info both --json");
    info = printed();
    assert_true(number(json_object_get(info, "val"), "tokens") > 0 && number(json_object_get(info, "val"), "new_ids") < 256);
    json_decref(info);

    static const uint16_t ids[] = {1, 2, 50256, 60000};
    mkdir("bare", 0777);
    put_bytes("bare/train.bin", ids, sizeof ids);
    ends(1, "bare/train.bin: token 3, at byte offset 6, is 60000, but the vocabulary is 0 .. 50256", "data info bare");
    ends(0, "unknown, since there is no meta.json; vocabulary taken to be 65536", "data info bare --vocab-size 65536");
    ends(2, "vocab-size: '0' is not a whole number from 1", "data info bare --vocab-size 0");
    ends(1, "no train.bin and no *train*.bin in this folder", "data info tree");
    ends(2, "DIR is needed", "data info");
    works("data prepare info.txt --val-fraction 0 --out info");
    put_bytes("info/train.bin", ids, 4);
    ends(1, "info: train has 2 tokens, but meta.json says 15", "data info info");
}

/* A text with the tokenizer of another data set, or of a model trained on it, has the same ids: it can be trained on. */
static void test_same_ids(void **state)
{
    (void)state;
    put("first", "the quick brown fox jumps over the lazy dog\n");
    put("more", "a lazy fox\na quick dog\n");
    works("data prepare first --tokenizer char --val-fraction 0 --out letters");
    works("train " TINY_MODEL " --data letters --block-size 8 --batch-size 2 --eval-interval 0 --max-iters 1 --out-dir taught");
    static const char *const where[] = {"letters", "letters/meta.json", "taught/step-1"};
    for (int i = 0; i < 3; i++) {
        int64_t n;
        works("data prepare more --tokenizer %s --val-fraction 0 --out again", where[i]);
        char *ids = bytes_of("again", "train", &n);
        assert_int_equal(n, 23);
        assert_int_equal(ids[0], 2); /* \n, blank, a, b, ... */
        assert_int_equal(ids[10], 0);
        free(ids);
        json_t *meta = json_read("again/meta.json", &(Error){0});
        assert_int_equal(json_integer_value(json_object_get(meta, "vocab_size")), 28);
        json_decref(meta);
    }
    works("train " TINY_MODEL
          " --data again --block-size 8 --batch-size 2 --eval-interval 0 --max-iters 1 --init-from taught/step-1 "
          "--out-dir tuned");
    works("data prepare more --tokenizer letters --val-fraction 0 --out letters"); /* itself */
    put("other", "The fox\n");
    ends(1, "other, from byte 0 on: character 'T' U+0054 at byte offset 0 is not in the vocabulary of 28",
         "data prepare other --tokenizer letters --out none");
    ends(1, "taught/meta.json: cannot open", "data prepare more --tokenizer taught --out none");
    ends(2, "no tokenizer is called \"nowhere\": known are byte, char, gpt2:DIR, and a folder with a meta.json",
         "data prepare more --tokenizer nowhere --out none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adding_files_moves_no_document),
        cmocka_unit_test(test_across_blocks),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_folders_and_patterns),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_same_ids),
    };
    return cmocka_run_group_tests(tests, command_begin, command_end);
}
