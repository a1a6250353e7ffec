/* The loader. Token i of every stream here, unless it is about documents, is the number i, so that a row tells where it came
 * from. */
#include "base/clock.h"
#include "data/evaluation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>
#include <time.h>

#include "tests/stream_rig.h"

static void impossible_settings(void **state)
{
    (void)state;
    static const LoaderConfig cases[] = {
        {V, 0, 4, 1, 0, 1, 0, 0, NULL, 0, 0, host_take, free},
        {V, 1, 0, 1, 0, 1, 0, 0, NULL, 0, 0, host_take, free},
        {V, 1, 4, 0, 0, 1, 0, 0, NULL, 0, 0, host_take, free},
        {V, 1, 4, 1, 1, 1, 0, 0, NULL, 0, 0, host_take, free},
        {V, 1, 4, 1, -1, 1, 0, 0, NULL, 0, 0, host_take, free},
        {V, 1, 4, 1, 0, 1, -1, 0, NULL, 0, 0, host_take, free},
        {V, 1, 4, 1, 0, 1, INT64_MAX, 0, NULL, 0, 0, host_take, free},
        {V, INT64_MAX / 2, 4, 8, 0, 1, 0, 0, NULL, 0, 0, host_take, free},
        {0, 1, 4, 1, 0, 1, 0, 0, NULL, 0, 0, host_take, free},
    };
    TokenStream s = stream_make(50, 8192);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error e = {0};
        assert_null(loader_create(&s, &cases[i], &e));
        assert_true(e.set && e.usage);
    }
    stream_drop(&s);
}

/* FIELD-CASES 39: shards of 7 tokens, windows of 11: every window crosses ends; two epochs, each window once in each. */
static void windows_cross_shards_and_epochs(void **state)
{
    (void)state;
    enum { N = 300, T = 10, W = 30, B = 3 };
    TokenStream s = stream_make(N, 7);
    Loader *l = loader_make(&s, (LoaderConfig){.batch_size = B, .block_size = T, .accumulate = 2, .seed = 5, .epochs = 6});
    int seen[6][N] = {{0}}, g = 0;
    assert_int_equal(loader_steps_left(l), 6 * W / (2 * B));
    for (StepBatch b = next(l); b.micro_batches > 0; b = next(l)) {
        int64_t counted = 0;
        for (int row = 0; row < b.micro_batches * B; row++, g++) {
            Window w = row_window(&b, row, T);
            counted += w.count;
            assert_int_equal(seen[g / W][w.start]++, 0);
        }
        assert_int_equal(b.counted, counted);
        assert_int_equal(loader_position(l), g);
    }
    assert_int_equal(g, 6 * W);
    loader_destroy(l);
    stream_drop(&s);
}

/* Steps of 12 rows cut in every way into micro-batches and ranks, to the end of the data: the rows of a step are the same, in the
 * same places, and so are its counted targets. */
static void same_order_for_any_ranks(void **state)
{
    (void)state;
    enum { T = 4, STEP = 12, WINDOWS = 3 * 34 };
    static const LoaderConfig cuts[] = {
        {.batch_size = 12, .accumulate = 1, .world = 1}, {.batch_size = 2, .accumulate = 6, .world = 1},
        {.batch_size = 2, .accumulate = 3, .world = 2},  {.batch_size = 2, .accumulate = 2, .world = 3},
        {.batch_size = 1, .accumulate = 4, .world = 3},  {.batch_size = 4, .accumulate = 1, .world = 3},
    };
    TokenStream s = stream_make(4 * 33 + 3, 50);
    int first[WINDOWS], counted[WINDOWS / STEP + 1];
    for (size_t cut = 0; cut < sizeof cuts / sizeof *cuts; cut++) {
        int starts[WINDOWS + STEP];
        memset(starts, 0xFF, sizeof starts);
        LoaderConfig c = cuts[cut];
        c.block_size = T, c.epochs = 3, c.seed = 99;
        int64_t global = c.world * c.batch_size; /* rows of one micro-batch of all ranks */
        for (c.rank = 0; c.rank < c.world; c.rank++) {
            Loader *l = loader_make(&s, c);
            for (int64_t g = 0; g < WINDOWS; g += STEP) {
                StepBatch b = next(l);
                int64_t windows = WINDOWS - g < STEP ? WINDOWS - g : STEP;
                if (cut == 0)
                    counted[g / STEP] = (int)b.counted;
                assert_int_equal(b.counted, counted[g / STEP]); /* of all ranks */
                assert_in_range(b.counted, windows * T - 2 * (T - 1), windows * T);
                assert_int_equal(b.micro_batches, (windows + global - 1) / global);
                for (int64_t m = 0; m < c.accumulate; m++)
                    for (int64_t row = 0; row < c.batch_size; row++)
                        starts[g + (m * c.world + c.rank) * c.batch_size + row] = row_start(&b, m * c.batch_size + row, T);
            }
            assert_int_equal(next(l).micro_batches, 0);
            loader_destroy(l);
        }
        for (int g = 0; g < WINDOWS + STEP; g++)
            assert_int_equal(starts[g] >= 0, g < WINDOWS);
        if (cut == 0)
            memcpy(first, starts, sizeof first);
        assert_memory_equal(starts, first, sizeof first);
    }
    stream_drop(&s);
}

/* From any position, with another cut into micro-batches, the windows go on as if nothing had happened; and back again. */
static void resume_anywhere(void **state)
{
    (void)state;
    enum { T = 3, TOTAL = 120 };
    TokenStream s = stream_make(100, 1000);
    Loader *l = loader_make(&s, (LoaderConfig){.batch_size = 4, .block_size = T, .accumulate = 3, .seed = 3});
    int want[TOTAL + 12];
    for (int g = 0; g < TOTAL; g += 12) {
        StepBatch b = next(l);
        for (int row = 0; row < 12; row++)
            want[g + row] = row_start(&b, row, T);
    }
    Loader *other = loader_make(&s, (LoaderConfig){.batch_size = 1, .block_size = T, .accumulate = 2, .seed = 3});
    for (int position = TOTAL - 12; position >= 0; position -= 5) {
        Error e = {0};
        assert_true(loader_seek(l, position, &e) && loader_seek(other, position, &e));
        StepBatch b = next(l);
        for (int row = 0; row < 12; row++)
            assert_int_equal(row_start(&b, row, T), want[position + row]);
        for (int step = 0; step < 6; step++) {
            StepBatch c = next(other);
            assert_int_equal(row_start(&c, 0, T), want[position + 2 * step]);
            assert_int_equal(row_start(&c, 1, T), want[position + 2 * step + 1]);
        }
        assert_true(loader_position(l) == position + 12 && loader_position(other) == position + 12);
    }
    Error e = {0};
    assert_false(loader_seek(l, -1, &e));
    assert_int_equal(loader_steps_left(l), INT64_MAX);
    loader_destroy(other);
    loader_destroy(l);
    stream_drop(&s);
}

static int taken_blocks;
static size_t taken_bytes;

static void *counted_take(size_t bytes, const char *what, Error *e)
{
    taken_blocks++;
    taken_bytes += bytes;
    return memory_get(e, bytes, 1, what);
}

static void counted_give(void *p)
{
    taken_blocks--;
    free(p);
}

/* With `kept`, what a step handed out is untouched while the next one is in use, however far the thread reads ahead; and the
 * memory is the caller's. */
static void kept_batches(void **state)
{
    (void)state;
    enum { T = 4, B = 3, STEPS = 40 };
    TokenStream s = stream_make(2000, 1000);
    Loader *plain = loader_make(&s, (LoaderConfig){.batch_size = B, .block_size = T, .accumulate = 2, .seed = 9});
    Loader *l = loader_make(&s, (LoaderConfig){.batch_size = B,
                                               .block_size = T,
                                               .accumulate = 2,
                                               .seed = 9,
                                               .kept = 1,
                                               .memory_take = counted_take,
                                               .memory_give = counted_give});
    assert_true(taken_blocks == 6 && taken_bytes == 3 * 2 * 4 * 2 * B * T);
    StepBatch last = {0};
    int32_t copy[2 * B * T];
    for (int step = 0; step < STEPS; step++) {
        StepBatch b = next(l), want = next(plain);
        usleep(200); /* the thread fills what it may */
        assert_memory_equal(b.tokens, want.tokens, sizeof copy);
        assert_memory_equal(b.targets, want.targets, sizeof copy);
        if (step)
            assert_memory_equal(last.tokens, copy, sizeof copy);
        memcpy(copy, b.tokens, sizeof copy);
        last = b;
    }
    loader_destroy(plain);
    loader_destroy(l);
    assert_int_equal(taken_blocks, 0);
    stream_drop(&s);
}

/* FIELD-CASES 18: five micro-batches, accumulation 2. And a last step in which only one of two ranks has rows. */
static void last_step_is_smaller(void **state)
{
    (void)state;
    enum { T = 6 };
    static const int64_t micro[] = {2, 2, 1, 0, 0};
    TokenStream s = stream_make(5 * T + 1, 8192);
    Loader *l = loader_make(&s, (LoaderConfig){.batch_size = 1, .block_size = T, .accumulate = 2, .epochs = 1});
    assert_int_equal(loader_steps_left(l), 3);
    for (int step = 0; step < 5; step++) {
        StepBatch b = next(l);
        assert_int_equal(b.micro_batches, micro[step]);
        assert_int_equal(b.counted, row_window(&b, 0, T).count + row_window(&b, 1, T).count);
        assert_int_equal(row_start(&b, 1, T) >= 0, micro[step] == 2);
    }
    assert_int_equal(loader_position(l), 5);
    assert_int_equal(loader_steps_left(l), 0);
    Error e = {0};
    assert_false(loader_seek(l, 6, &e));
    assert_says(&e, "outside 0 .. 5 (1 epochs of 5)");
    loader_destroy(l);
    for (int rank = 0; rank < 2; rank++) {
        Error none = {0};
        l = loader_make(&s,
                        (LoaderConfig){.batch_size = 1, .block_size = T, .accumulate = 1, .epochs = 1, .rank = rank, .world = 2});
        assert_true(loader_seek(l, 4, &none));
        StepBatch b = next(l);
        assert_true(b.micro_batches == 1 && b.counted >= 1); /* on both ranks */
        assert_int_equal(row_start(&b, 0, T) >= 0, rank == 0);
        loader_destroy(l);
    }
    stream_drop(&s);
}

/* FIELD-CASES 38: the id is found by the thread, and told by loader_next, again and again, without moving. */
static void bad_id_in_the_data(void **state)
{
    (void)state;
    TokenStream s = stream_make(40, 8192);
    Loader *l = loader_make(&s, (LoaderConfig){.vocab_size = 39, .batch_size = 1, .block_size = 3, .accumulate = 1, .seed = 1});
    Error e = {0};
    StepBatch b;
    int good = 0;
    while (loader_next(l, &b, &e))
        assert_int_equal(loader_position(l), ++good);
    assert_says(&e, "t00000.bin: token 39, at byte offset 78, is 39, but the vocabulary is 0 .. 38");
    for (int again = 0; again < 3; again++) {
        e = (Error){0};
        assert_false(loader_next(l, &b, &e));
        assert_says(&e, "at byte offset 78");
        assert_true(b.micro_batches == 0 && b.counted == 0);
        assert_int_equal(loader_position(l), good);
    }
    e = (Error){0};
    assert_true(loader_seek(l, 0, &e) && (good == 0 || loader_next(l, &b, &e)));
    loader_destroy(l);
    stream_drop(&s);
}

/* ---- Documents, and targets that do not count ---- */

/* Random documents of 0 .. longest tokens (1 and up; 0 is the separator), with a separator before, between and behind. */
static int documents_make(uint16_t *tokens, int most, int longest)
{
    int n = 0;
    while (n + longest + 2 < most) {
        tokens[n++] = 0;
        for (int left = rand() % (longest + 1); left > 0; left--)
            tokens[n++] = (uint16_t)(1 + rand() % 100);
    }
    tokens[n++] = 0;
    return n;
}

/* For any documents and T: windows begin at separators but where a document is longer than T, no further document would have fit
 * into one, and an epoch of the loader, like an evaluation of the whole split, has each target exactly once. */
static void windows_of_whole_documents(void **state)
{
    (void)state;
    enum { MOST = 600, B = 3 };
    srand(5);
    for (int round = 0; round < 60; round++) {
        uint16_t tokens[MOST];
        int longest = 1 + rand() % 40, T = 1 + rand() % 50, n = documents_make(tokens, MOST, longest), inside = 0;
        TokenStream s = stream_of(tokens, n);
        DocumentWindows d;
        Error e = {0};
        assert_true(document_windows_find(&d, &s, 0, T, 101, &e));
        assert_true(d.cut[0] == 0 && d.cut[d.windows] == n - 1);
        for (int64_t w = 0; w < d.windows; w++) {
            int64_t from = d.cut[w], to = d.cut[w + 1], next = to + 1;
            assert_in_range(to - from, 1, T);
            inside += tokens[from] != 0;
            while (next < n && tokens[next] != 0)
                next++;
            assert_true(tokens[to] != 0 || next >= n || next - from > T); /* the next document does not fit */
            assert_true(tokens[to] == 0 || to - from == T);
        }
        assert_int_equal(d.inside, inside);

        int seen[MOST] = {0}, evaluated[MOST] = {0};
        Loader *l = loader_make(&s, (LoaderConfig){.batch_size = 1, .block_size = T, .accumulate = 1, .documents = &d});
        EvaluationData whole = {&s, V, B, T, 0, 1, &d}, some = {&s, V, B, T, 7, 1, &d};
        assert_int_equal(loader_epoch_windows(l), d.windows);
        for (int64_t step = 0; step < 2 * d.windows; step++) {
            StepBatch b = next(l);
            Window w = window_order_window(&(WindowOrder){T, d.windows, n - 1, 0, &d},
                                           step); /* the permutation, which other tests look at */
            for (int64_t i = 0; i < T; i++) {
                assert_int_equal(b.tokens[i], i < w.count ? tokens[w.start + i] : 0);
                assert_int_equal(b.targets[i], i < w.count ? tokens[w.start + i + 1] : -1);
            }
            for (int64_t i = 0; i < w.count; i++)
                seen[w.start + i + 1]++;
            assert_int_equal(b.counted, w.count);
        }
        int32_t in[B * 50], out[B * 50];
        int64_t counted, all = 0;
        for (int64_t i = 0; i < evaluation_batches(&whole); i++) {
            assert_true(evaluation_batch(&whole, 0, i, in, out, &counted, &e));
            for (int row = 0; row < B && i * B + row < d.windows; row++)
                for (int64_t k = d.cut[i * B + row]; k < d.cut[i * B + row + 1]; k++)
                    evaluated[k + 1] += out[row * T + (k - d.cut[i * B + row])] == tokens[k + 1];
            all += counted;
        }
        assert_int_equal(all, n - 1);
        for (int i = 1; i < n; i++)
            assert_true(seen[i] == 2 && evaluated[i] == 1);
        assert_int_equal(evaluation_batches(&some), 7);
        assert_true(evaluation_batch(&some, 0, 6, in, out, &counted, &e) && counted >= B);
        loader_destroy(l);
        document_windows_free(&d);
        stream_drop(&s);
    }
}

static void documents_that_are_none(void **state)
{
    (void)state;
    TokenStream s = stream_make(50, 8192);
    DocumentWindows d;
    Error e = {0};
    assert_false(document_windows_find(&d, &s, 77, 8, V, &e));
    assert_says(&e, "t00000.bin: no document ends: of 50 tokens none is 77, the separator");
    document_windows_free(&d);
    e = (Error){0};
    assert_false(document_windows_find(&d, &s, 3, 8, 40, &e));
    assert_says(&e, "token 40, at byte offset 80, is 40, but the vocabulary is 0 .. 39");
    document_windows_free(&d);
    stream_drop(&s);
}

/* FIELD-CASES 13: targets after the id are -1, and counted nowhere, on whichever rank; a step of nothing else counts 0. */
static void targets_after_a_token_do_not_count(void **state)
{
    (void)state;
    enum { T = 8, N = 400, B = 2, WORLD = 3 };
    uint16_t tokens[N];
    for (int i = 0; i < N; i++)
        tokens[i] = (uint16_t)(rand() % 5);
    TokenStream s = stream_of(tokens, N);
    s.ignore_after = 2;
    Loader *l[WORLD];
    for (int rank = 0; rank < WORLD; rank++)
        l[rank] =
            loader_make(&s, (LoaderConfig){.batch_size = B, .block_size = T, .accumulate = 2, .rank = rank, .world = WORLD});
    for (int step = 0; step < 20; step++) {
        int64_t here = 0, counted = 0;
        for (int rank = 0; rank < WORLD; rank++) {
            StepBatch b = next(l[rank]);
            counted = b.counted;
            for (int i = 0; i < 2 * B * T; i++) {
                here += b.targets[i] >= 0;
                assert_true(b.tokens[i] != 2 || b.targets[i] == -1);
            }
        }
        assert_int_equal(here, counted);
        assert_true(counted > 0 && counted < 2 * B * T * WORLD);
    }
    for (int rank = 0; rank < WORLD; rank++)
        loader_destroy(l[rank]);
    stream_drop(&s);
    s = stream_of((uint16_t[N]){0}, N);
    s.ignore_after = 0;
    Loader *none = loader_make(&s, (LoaderConfig){.batch_size = B, .block_size = T, .accumulate = 1});
    assert_int_equal(next(none).counted, 0);
    loader_destroy(none);
    stream_drop(&s);
}

/* ---- Under load ---- */

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* A device that takes 10 million tokens a second: 16 x 1024 every 1.6 ms. How much of the step is waiting for the loader, and how
 * much of a core the loader takes for it. The limits are generous, since the machine may be busy. */
static void under_load(void **state)
{
    (void)state;
    enum { T = 1024, B = 16, N = 4000000, STEPS = 600 };
    uint16_t *tokens = malloc(2 * N);
    for (int i = 0; i < N; i++)
        tokens[i] = (uint16_t)rand();
    TokenStream s = stream_of(tokens, N);
    Loader *l = loader_make(&s, (LoaderConfig){.batch_size = B, .block_size = T, .accumulate = 1});
    next(l); /* the first has to be waited for */
    double begin = clock_seconds(), waited = 0, cpu = cpu_seconds();
    for (int step = 0; step < STEPS; step++) {
        double from = clock_seconds(), until = from + B * T / 10e6;
        next(l);
        waited += clock_seconds() - from;
        usleep((useconds_t)fmax(0, 1e6 * (until - clock_seconds())));
    }
    double seconds = clock_seconds() - begin, share = waited / seconds;
    double core = (cpu_seconds() - cpu) / (STEPS * B * T / 10e6);
    print_message("at 10 million tokens/s: %.3f %% of a step waiting for the loader, %.1f %% of a core\n", 100 * share,
                  100 * core);
    assert_true(share < 0.2);
    assert_true(core < 0.8);
    loader_destroy(l);
    unlink(token_stream_name(&s));
    token_stream_close(&s);
    free(tokens);
}

/* A slow disk is seen in the waiting. */
static void slow_disk(void **state)
{
    (void)state;
    TokenStream s = stream_make(500, 8192);
    Loader *l = loader_make(&s, (LoaderConfig){.batch_size = 1, .block_size = 8, .accumulate = 1, .delay = 0.02});
    double begin = clock_seconds();
    for (int step = 0; step < 10; step++)
        next(l);
    assert_true(clock_seconds() - begin > 0.19);
    loader_destroy(l);
    stream_drop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_settings),
        cmocka_unit_test(windows_cross_shards_and_epochs),
        cmocka_unit_test(same_order_for_any_ranks),
        cmocka_unit_test(resume_anywhere),
        cmocka_unit_test(kept_batches),
        cmocka_unit_test(last_step_is_smaller),
        cmocka_unit_test(bad_id_in_the_data),
        cmocka_unit_test(windows_of_whole_documents),
        cmocka_unit_test(documents_that_are_none),
        cmocka_unit_test(targets_after_a_token_do_not_count),
        cmocka_unit_test(under_load),
        cmocka_unit_test(slow_disk),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
