/* From `tally data stories` to a trained model, as commands: the floor that is shown is the data's own, windows of documents, a
 * slow disk, and what is refused. FIELD-CASES 37, 38, 40. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "data/prepare.h"
#include "data/stories.h"
#include "data/stream.h"
#include "tests/command.h"

#define STORIES TINY_MODEL " --data stories --block-size 256 --batch-size 2"

static DataFacts facts(const char *path)
{
    DataFacts f;
    Error e = {0};
    Tokenizer *tokenizer = data_meta_read(path, &f, NULL, &e);
    if (!tokenizer)
        fail_msg("%s", e.text);
    tokenizer_destroy(tokenizer);
    return f;
}

/* The tokens of both files, taken apart at separators, are the stories of that seed, each in one of them; and the nats that
 * meta.json has of each split are the sum over those in it. */
static void test_floor_is_exact(void **state)
{
    (void)state;
    enum { STORIES_MOST = 1000 };
    works("data stories --bytes 100KB --seed 3 --tokenizer byte --out stories");
    DataFacts f = facts("stories/meta.json");
    bool found[STORIES_MOST] = {false};
    int stories = 0, all = 0;
    for (int split = 0; split < SPLITS; split++) {
        Error e = {0};
        TokenStream s;
        double nats = 0;
        assert_true(token_stream_open(&s, "stories", split == SPLIT_TRAIN ? "train" : "val", &e));
        int32_t *ids = malloc((size_t)s.count * sizeof *ids);
        assert_true(token_stream_read(&s, 0, s.count, 256, ids, &e) && ids[0] == '\n' && ids[s.count - 1] == '\n');
        for (int64_t at = 1, end; at < s.count; at = end + 1) {
            char text[STORY_MAX + 1] = "";
            for (end = at; ids[end] != '\n'; end++)
                text[end - at] = (char)ids[end];
            Story story;
            int number = 0;
            do
                story_draw(&story, 3, (uint64_t)number);
            while ((strcmp(story.text, text) != 0 || found[number]) && ++number < STORIES_MOST);
            assert_true(number < STORIES_MOST);
            found[number] = true;
            all = number + 1 > all ? number + 1 : all;
            nats += story.nats;
            stories++;
        }
        assert_true(fabs(nats - f.nats[split]) < 1e-9 * nats);
        assert_int_equal(s.count, f.tokens[split]);
        free(ids);
        token_stream_close(&s);
    }
    assert_int_equal(stories, all);
    assert_int_equal(stories, f.documents[SPLIT_TRAIN] + f.documents[SPLIT_VAL]);
    assert_in_range(f.documents[SPLIT_VAL], stories / 20, stories / 5);
}

static void test_floor_beside_the_loss(void **state)
{
    (void)state;
    works("data stories --bytes 100KB --out stories");
    DataFacts f = facts("stories/meta.json");
    double floor = f.nats[SPLIT_TRAIN] / (double)(f.tokens[SPLIT_TRAIN] - 1);
    double val_floor = f.nats[SPLIT_VAL] / (double)(f.tokens[SPLIT_VAL] - 1);
    const Output *o = works("train " STORIES " --out-dir whole --whole-documents --max-iters 4 --eval-interval 4 --eval-iters 0");
    char line[200];
    snprintf(line, sizeof line, "Floor: %.6f nats per token of the data to train on, %.6f to validate\n", floor, val_floor);
    assert_non_null(strstr(o->out, line));
    json_t *log = log_lines("whole");
    assert_true(fabs(log_number(log, 1, "floor") - floor) < 1e-9 && fabs(log_number(log, 4, "val_floor") - val_floor) < 1e-9);
    assert_true(isnan(log_number(log, 3, "val_floor")));
    assert_true(fabs(log_number(log, 3, "gap") - (log_number(log, 3, "loss") - floor)) < 1e-9);
    assert_true(fabs(log_number(log, 4, "val_gap") - (log_number(log, 4, "val_loss") - val_floor)) < 1e-9);
    assert_true(fabs(log_number(log, 0, "val_floor") - val_floor) < 1e-9);
    snprintf(line, sizeof line, "val %.4f (floor %.4f + %.4f)", log_number(log, 4, "val_loss"), val_floor,
             log_number(log, 4, "val_loss") - val_floor);
    assert_non_null(strstr(o->out, line));
    double log_floor = log_number(log, 0, "val_floor"); /* 12 digits */
    json_decref(log);
    ends(2, "whole_documents: is 0, and was 1 in whole/step-4",
         "train --out-dir whole --resume --whole-documents=false --max-iters 6");
    works("train --out-dir whole --resume --max-iters 6");
    works("report whole");
    char *page;
    size_t size;
    Error e = {0};
    assert_true(file_read_all("whole/report.html", 1 << 24, &page, &size, &e));
    snprintf(line, sizeof line, "data-fact=\"val_floor\" title=\"%.17g\"", log_floor);
    assert_non_null(strstr(page, line));
    free(page);

    ends(0, "out of reach, since windows begin inside documents: --whole-documents",
         "train " STORIES " --out-dir any --max-iters 1");
    ends(0, "windows begin inside documents longer than 64",
         "train " TINY_MODEL " --data stories --block-size 64 --batch-size 2 --out-dir short --whole-documents --max-iters 1");
    /* of a data set whose entropy nobody knows, or when not all of its targets count: not a word of a floor */
    o = works("train " STORIES " --out-dir ignored --whole-documents --ignore-after-token 0 --max-iters 1");
    assert_null(strstr(o->out, "loor"));
    text_prepare(500);
    o = works("train " TINY " --out-dir plain --max-iters 1");
    assert_null(strstr(o->out, "loor"));
    ends(2, "whole_documents: data has no meta.json that names a separator", "train " TINY " --out-dir no --whole-documents");
}

/* A sample of a model of documents is one, and ends with it. */
static void test_sample_ends_with_the_document(void **state)
{
    (void)state;
    works("data stories --bytes 40KB --out stories");
    works("train " STORIES " --out-dir sampled --whole-documents --max-iters 2");
    const Output *o = works("sample --out-dir sampled --num-samples 3 --max-new-tokens 3000 --temperature 3 --threads 1");
    int lines = 0;
    for (const char *at = o->out; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, 3 * 3); /* the heading, the prompt's newline, the sample */
    assert_null(strstr(works("sample --out-dir sampled --max-new-tokens 3000 --temperature 3 --threads 1")->out + 1, "\n\n"));
}

static void test_starvation_shows(void **state)
{
    (void)state;
    text_prepare(500);
    ends(0, "% of it waiting for data",
         "train " TINY_MODEL
         " --data data --block-size 16 --batch-size 2 --out-dir starved --loader-delay 60 --max-iters 4 --log-interval 1");
    json_t *log = log_lines("starved");
    double waited = log_number(log, 2, "wait_ms") + log_number(log, 3, "wait_ms") + log_number(log, 4, "wait_ms");
    assert_true(waited > 100 &&
                waited < 1.001 * (log_number(log, 2, "ms") + log_number(log, 3, "ms") + log_number(log, 4, "ms")));
    json_decref(log);
}

/* Token files that no training should be made of: what is wrong, and in which file. */
static void test_bad_token_files(void **state)
{
    (void)state;
    text_prepare(500);
    unlink("data/meta.json");
    enum { T = 16 };
    static const struct {
        int bytes, code;
        const char *says;
    } sizes[] = {{0, 1, "data/train.bin: holds no tokens; training needs at least block_size + 1"},
                 {2, 1, "data/train.bin: 1 tokens are too few: block_size 16 needs at least 17"},
                 {2 * T, 1, "data/train.bin: 16 tokens are too few: block_size 16 needs at least 17"},
                 {2 * T + 2, 0, "Done after step 1"},
                 {2 * T + 4, 0, "Done after step 1"},
                 {2 * T + 3, 1, "data/train.bin: has 35 bytes, an odd number"}};
    static const uint8_t zeros[100];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        put_bytes("data/train.bin", zeros, (size_t)sizes[i].bytes);
        ends(sizes[i].code, sizes[i].says, "train " TINY " --vocab-size 64 --max-iters 1 --out-dir size-%zu", i);
    }
    int32_t header[256 + 20] = {20240520, 1, 100};
    put_bytes("data/train.bin", header, sizeof header);
    ends(1, "data/train.bin: the header claims 100 tokens of 2 bytes, 200 bytes, but 80 bytes follow it",
         "train " TINY " --vocab-size 64 --max-iters 1 --out-dir claims");
    header[2] = -1;
    put_bytes("data/train.bin", header, sizeof header);
    ends(1, "data/train.bin: the header claims a negative number of tokens, -1",
         "train " TINY " --vocab-size 64 --max-iters 1 --out-dir negative");
    header[2] = 40;
    header[256 + 19] = 64 << 16; /* token 39, at byte 1024 + 78 */
    put_bytes("data/train.bin", header, sizeof header);
    ends(1, "data/train.bin: token 39, at byte offset 1102, is 64, but the vocabulary is 0 .. 63",
         "train " TINY " --vocab-size 64 --max-iters 10 --out-dir id");
}

/* A data set of which a shard is missing. */
static void test_missing_shard(void **state)
{
    (void)state;
    works("data stories --bytes 40KB --out stories --shard-tokens 5000");
    unlink("stories/train_000003.bin");
    ends(1, "tokens with what belongs to it, but stories/meta.json says", "train " STORIES " --out-dir missing --max-iters 1");
    put("stories/meta.json", "{\"tokenizer\": \"byte\", \"vocab_size\": 256, \"separator\": -2}");
    ends(1, "stories/meta.json: separator: is -2", "train " STORIES " --out-dir missing --max-iters 1");
    works("data stories --bytes 40KB --out stories");
    put("stories/unfinished", "");
    ends(1, "stories/unfinished: says that `tally data prepare` is at work there or was interrupted",
         "train " STORIES " --out-dir missing --max-iters 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floor_is_exact),
        cmocka_unit_test(test_floor_beside_the_loss),
        cmocka_unit_test(test_sample_ends_with_the_document),
        cmocka_unit_test(test_starvation_shows),
        cmocka_unit_test(test_bad_token_files),
        cmocka_unit_test(test_missing_shard),
    };
    return cmocka_run_group_tests(tests, command_begin, command_end);
}
