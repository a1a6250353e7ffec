/* The order of windows, the loader and the evaluation. Token i of every stream here is the number i, so that a row tells where it
 * came from. */
#include "base/clock.h"
#include "base/file.h"
#include "data/evaluation.h"
#include "data/loader.h"
#include "data/order.h"
#include "data/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>
#include <time.h>
#include <unistd.h>

enum { V = 65536 };

static char dir[64];

static void assert_says(const Error *e, const char *part)
{
    if (!e->set || !strstr(e->text, part))
        fail_msg("wanted a message with \"%s\", got \"%s\"", part, e->set ? e->text : "(no error)");
}

/* A stream of the tokens 0 .. n-1 in headerless shards of `shard` tokens; close and unlink with stream_drop. */
static TokenStream stream_make(int n, int shard)
{
    char path[128], pattern[128];
    for (int first = 0; first < n; first += shard) {
        uint16_t tokens[8192];
        int count = n - first < shard ? n - first : shard;
        for (int i = 0; i < count; i++)
            tokens[i] = (uint16_t)(first + i);
        snprintf(path, sizeof path, "%s/t%05d.bin", dir, first);
        FILE *f = fopen(path, "wb");
        assert_int_equal(fwrite(tokens, 2, (size_t)count, f), count);
        fclose(f);
    }
    snprintf(pattern, sizeof pattern, "%s/t*.bin", dir);
    Error e = {0};
    TokenStream s;
    if (!token_stream_open(&s, pattern, "train", &e))
        fail_msg("%s", e.text);
    assert_int_equal(s.count, n);
    return s;
}

static void stream_drop(TokenStream *s)
{
    char path[128];
    for (int64_t first = 0; first < s->count; first++) {
        snprintf(path, sizeof path, "%s/t%05d.bin", dir, (int)first);
        unlink(path);
    }
    token_stream_close(s);
}

static Loader *loader_make(const TokenStream *s, LoaderConfig c)
{
    Error e = {0};
    c.vocab_size = c.vocab_size ? c.vocab_size : V;
    c.world = c.world ? c.world : 1;
    Loader *l = loader_create(s, &c, &e);
    if (!l)
        fail_msg("%s", e.text);
    return l;
}

static StepBatch next(Loader *l)
{
    Error e = {0};
    StepBatch b;
    if (!loader_next(l, &b, &e))
        fail_msg("%s", e.text);
    return b;
}

/* Checks that row `row` is a window, consecutive tokens with targets one further, and after `count` of them nothing. count 0: a
 * row that does not exist. */
static Window row_window(const StepBatch *b, int64_t row, int64_t T)
{
    const int32_t *tokens = b->tokens + row * T, *targets = b->targets + row * T;
    int64_t count = 0;
    while (count < T && targets[count] != -1)
        count++;
    for (int64_t t = 0; t < T; t++) {
        assert_int_equal(tokens[t], t < count ? tokens[0] + t : 0);
        assert_int_equal(targets[t], t < count ? tokens[0] + t + 1 : -1);
    }
    return (Window){tokens[0], count};
}

/* The window's start; -1: a row that does not exist. */
static int row_start(const StepBatch *b, int64_t row, int64_t T)
{
    Window w = row_window(b, row, T);
    return w.count > 0 ? (int)w.start : -1;
}

/* ---- Order ---- */

/* Expected values: another implementation, in Python, of Philox (itself checked against published vectors), key, network and
 * offset. They are part of the results: a checkpoint's position means something only under this order. */
static void order_is_pinned(void **state)
{
    (void)state;
    static const Window want[3][11] = {
        {{58, 10}, {28, 10}, {68, 10}, {18, 10}, {98, 6}, {0, 8}, {38, 10}, {48, 10}, {78, 10}, {8, 10}, {88, 10}},
        {{42, 10}, {0, 2}, {12, 10}, {22, 10}, {2, 10}, {82, 10}, {52, 10}, {62, 10}, {92, 10}, {32, 10}, {72, 10}},
        {{68, 10}, {88, 10}, {0, 8}, {78, 10}, {8, 10}, {58, 10}, {48, 10}, {18, 10}, {38, 10}, {28, 10}, {98, 6}}};
    static const int64_t epochs[3] = {0, 1, 1ll << 33};
    Error e = {0};
    WindowOrder o;
    assert_true(window_order_init(&o, 105, 10, 1337, NULL, &e));
    assert_int_equal(o.windows, 11);
    for (int i = 0; i < 3; i++)
        for (int g = 0; g < 11; g++) {
            Window w = window_order_window(&o, epochs[i] * 11 + g);
            assert_int_equal(w.start, want[i][g].start);
            assert_int_equal(w.count, want[i][g].count);
        }
}

/* Every n and T: windows are full but for one at each end, no target is in two of an epoch's, fewer than T are in none, and every
 * target meets every length of context in some epoch, as far as the text reaches back; the last ones some. */
static void every_window_once_every_target_sometime(void **state)
{
    (void)state;
    for (int64_t n = 2; n <= 70; n++)
        for (int64_t T = 1; T < n && T <= 9; T++) {
            enum { EPOCHS = 200 }; /* a cut is missed with probability (8/9)^200 = 6e-11; the seed is fixed */
            Error e = {0};
            WindowOrder o;
            bool ever[70][10] = {{false}}; /* target, how many tokens before it its window has */
            assert_true(window_order_init(&o, n, T, 7, NULL, &e));
            for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
                int used[70] = {0}, unused = 0, shorter = 0;
                for (int64_t g = 0; g < o.windows; g++) {
                    Window w = window_order_window(&o, epoch * o.windows + g);
                    assert_in_range(w.count, 1, T);
                    assert_in_range(w.start, 0, n - 1 - w.count);
                    assert_true(w.count == T || w.start == 0 || w.start + w.count == n - 1);
                    shorter += w.count < T;
                    for (int64_t t = 1; t <= w.count; t++) {
                        used[w.start + t]++;
                        ever[w.start + t][t] = true;
                    }
                }
                assert_in_range(shorter, 0, 2);
                for (int64_t i = 1; i < n; i++) {
                    assert_in_range(used[i], 0, 1);
                    unused += !used[i];
                }
                assert_in_range(unused, 0, T - 1);
            }
            for (int64_t i = 1; i < n; i++) {
                assert_non_null(memchr(ever[i], true, sizeof ever[i]));
                for (int64_t t = 1; t <= T && t <= i; t++) /* at the very end only the cuts that reach so far */
                    assert_true(ever[i][t] || i > (o.windows - 1) * T + 1);
            }
        }
}

/* Large counts, around powers of 4 where the network's width changes: still a permutation, and not in order. */
static void large_permutations(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 3, 4, 5, 255, 256, 257, 4095, 4096, 4097, 65536, 65537, 100003};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        Error e = {0};
        WindowOrder o;
        char *seen = calloc((size_t)counts[i], 1);
        int64_t fixed = 0;
        assert_true(window_order_init(&o, counts[i] + 1, 1, 42, NULL, &e));
        for (int64_t g = 0; g < counts[i]; g++) {
            int64_t start = window_order_window(&o, g).start;
            assert_in_range(start, 0, counts[i] - 1);
            assert_int_equal(seen[start]++, 0);
            fixed += start == g;
        }
        assert_true(counts[i] < 10 || fixed < 10); /* a random permutation has one fixed point on average */
        free(seen);
    }
    /* 2^40 windows of 1024 tokens: no table, no overflow */
    Error e = {0};
    WindowOrder o;
    assert_true(window_order_init(&o, (1ll << 50) + 5, 1024, 1, NULL, &e));
    assert_int_equal(o.windows, (1ll << 40) + 1);
    for (int64_t g = (1ll << 41) - 5; g < (1ll << 41) + 5; g++)
        assert_in_range(window_order_window(&o, g).start, 0, (1ll << 50) + 3);
}

/* The six orders of three windows are equally likely: chi-square with 5 degrees of freedom is below 20.5 in 99.9 % of cases. */
static void small_permutations_are_uniform(void **state)
{
    (void)state;
    enum { EPOCHS = 6000 };
    Error e = {0};
    WindowOrder o;
    int seen[27] = {0};
    double chi_square = 0;
    assert_true(window_order_init(&o, 4, 1, 1, NULL, &e));
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++)
        seen[9 * window_order_window(&o, 3 * epoch).start + 3 * window_order_window(&o, 3 * epoch + 1).start +
             window_order_window(&o, 3 * epoch + 2).start]++;
    static const int orders[6] = {0 * 9 + 1 * 3 + 2, 0 * 9 + 2 * 3 + 1, 1 * 9 + 0 * 3 + 2,
                                  1 * 9 + 2 * 3 + 0, 2 * 9 + 0 * 3 + 1, 2 * 9 + 1 * 3 + 0};
    for (int i = 0; i < 6; i++) {
        double off = seen[orders[i]] - EPOCHS / 6.0;
        chi_square += off * off / (EPOCHS / 6.0);
    }
    assert_true(chi_square < 20.5);
}

/* FIELD-CASES 37. */
static void too_few_tokens(void **state)
{
    (void)state;
    enum { T = 8 };
    static const int sizes[] = {1, T, T + 1, T + 2};
    for (int i = 0; i < 4; i++) {
        TokenStream s = stream_make(sizes[i], 8192);
        LoaderConfig c = {.vocab_size = V, .batch_size = 3, .block_size = T, .accumulate = 1, .world = 1};
        Error e = {0};
        Loader *l = loader_create(&s, &c, &e);
        if (sizes[i] <= T) {
            char part[80];
            snprintf(part, sizeof part, "t00000.bin: %d tokens are too few: block_size 8 needs at least 9", sizes[i]);
            assert_null(l);
            assert_says(&e, part);
        } else {
            StepBatch b = next(l);
            assert_int_equal(loader_epoch_windows(l), sizes[i] - T); /* 8 targets are one window, 9 are two */
            for (int row = 0; row < 3; row++)
                assert_in_range(row_start(&b, row, T), 0, sizes[i] - 2);
        }
        loader_destroy(l);
        stream_drop(&s);
    }
}

/* ---- Loader ---- */

static void impossible_settings(void **state)
{
    (void)state;
    static const LoaderConfig cases[] = {
        {V, 0, 4, 1, 0, 1, 0, 0, NULL, 0, 0, NULL, NULL},         {V, 1, 0, 1, 0, 1, 0, 0, NULL, 0, 0, NULL, NULL},
        {V, 1, 4, 0, 0, 1, 0, 0, NULL, 0, 0, NULL, NULL},         {V, 1, 4, 1, 1, 1, 0, 0, NULL, 0, 0, NULL, NULL},
        {V, 1, 4, 1, -1, 1, 0, 0, NULL, 0, 0, NULL, NULL},        {V, 1, 4, 1, 0, 1, -1, 0, NULL, 0, 0, NULL, NULL},
        {V, 1, 4, 1, 0, 1, INT64_MAX, 0, NULL, 0, 0, NULL, NULL}, {V, INT64_MAX / 2, 4, 8, 0, 1, 0, 0, NULL, 0, 0, NULL, NULL},
        {0, 1, 4, 1, 0, 1, 0, 0, NULL, 0, 0, NULL, NULL},
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
    assert_true(loader_wait_seconds(l) >= 0 && loader_bytes(l) == 2 * 2 * 4 * 3 * 4 * T);
    assert_int_equal(loader_steps_left(l), INT64_MAX);
    loader_destroy(other);
    loader_destroy(l);
    stream_drop(&s);
}

static int taken_blocks;

static void *counted_take(size_t bytes, const char *what, Error *e)
{
    taken_blocks++;
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
    assert_true(taken_blocks == 6 && loader_bytes(l) == 3 * 2 * 4 * 2 * B * T);
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

/* A stream of these tokens, one shard; stream_drop as well. */
static TokenStream stream_of(const uint16_t *tokens, int n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/t00000.bin", dir);
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(tokens, 2, (size_t)n, f), n);
    fclose(f);
    Error e = {0};
    TokenStream s;
    assert_true(token_stream_open(&s, path, "train", &e));
    return s;
}

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
    double begin = clock_seconds(), waited = loader_wait_seconds(l), cpu = cpu_seconds();
    for (int step = 0; step < STEPS; step++) {
        double until = clock_seconds() + B * T / 10e6;
        next(l);
        usleep((useconds_t)fmax(0, 1e6 * (until - clock_seconds())));
    }
    double seconds = clock_seconds() - begin, share = (loader_wait_seconds(l) - waited) / seconds;
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
    for (int step = 0; step < 10; step++)
        next(l);
    assert_true(loader_wait_seconds(l) > 0.19);
    loader_destroy(l);
    stream_drop(&s);
}

/* ---- Evaluation ---- */

/* Every n and T: all n - 1 targets count exactly once over the whole split. */
static void whole_split_counts_each_target_once(void **state)
{
    (void)state;
    for (int n = 2; n <= 40; n++) {
        TokenStream s = stream_make(n, 9);
        for (int T = 1; T <= n + 2; T += 1 + T / 4)
            for (int B = 1; B <= 5; B += 2) {
                EvaluationData d = {&s, V, B, T, 0, 1, NULL};
                Error e = {0};
                int seen[50] = {0}, total = 0;
                int32_t *tokens = calloc((size_t)(B * T), 4), *targets = calloc((size_t)(B * T), 4);
                assert_true(evaluation_check(&d, &e));
                for (int64_t i = 0; i < evaluation_batches(&d); i++) {
                    int64_t counted, here = 0;
                    assert_true(evaluation_batch(&d, 3, i, tokens, targets, &counted, &e));
                    for (int k = 0; k < B * T; k++) {
                        if (targets[k] == -1)
                            continue;
                        assert_int_equal(targets[k], tokens[k] + 1);
                        seen[targets[k]]++;
                        here++;
                    }
                    assert_int_equal(counted, here);
                    assert_true(here > 0); /* no batch for nothing */
                    total += (int)here;
                }
                assert_int_equal(total, n - 1);
                for (int i = 1; i < n; i++)
                    assert_int_equal(seen[i], 1);
                free(tokens);
                free(targets);
            }
        stream_drop(&s);
    }
}

static void random_evaluation(void **state)
{
    (void)state;
    enum { N = 200, T = 8, B = 3, K = 50 };
    TokenStream s = stream_make(N, 33);
    EvaluationData d = {&s, V, B, T, K, 11, NULL}, narrow = {&s, V, 1, T, K * B, 11, NULL};
    Error e = {0};
    int32_t tokens[B * T], targets[B * T], alone[T], alone_targets[T], other[B * T], other_targets[B * T];
    int64_t counted;
    int different = 0, lowest = N, highest = 0;
    assert_int_equal(evaluation_batches(&d), K);
    for (int i = K - 1; i >= 0; i--) {
        assert_true(evaluation_batch(&d, 2, i, tokens, targets, &counted, &e));
        assert_int_equal(counted, B * T);
        StepBatch b = {tokens, targets, 1, counted};
        for (int row = 0; row < B; row++) {
            int start = row_start(&b, row, T);
            assert_in_range(start, 0, N - 1 - T);
            lowest = start < lowest ? start : lowest;
            highest = start > highest ? start : highest;
            assert_true(evaluation_batch(&narrow, 2, i * B + row, alone, alone_targets, &counted,
                                         &e)); /* the same windows, cut otherwise */
            assert_memory_equal(alone, tokens + row * T, sizeof alone);
        }
        assert_true(evaluation_batch(&d, 3, i, other, other_targets, &counted, &e));
        different += memcmp(tokens, other, sizeof tokens) != 0;
    }
    assert_int_equal(different, K); /* another evaluation, other windows */
    assert_true(lowest < 10 && highest > N - 1 - T - 10);
    d.vocab_size = 100;
    assert_false(evaluation_batch(&d, 2, 0, tokens, targets, &counted, &e) &&
                 evaluation_batch(&d, 2, 1, tokens, targets, &counted, &e));
    assert_says(&e, "but the vocabulary is 0 .. 99");
    stream_drop(&s);
}

static void evaluation_of_too_little(void **state)
{
    (void)state;
    enum { T = 8 };
    TokenStream s = stream_make(1, 10);
    EvaluationData d = {&s, V, 1, T, 0, 0, NULL};
    Error e = {0};
    assert_false(evaluation_check(&d, &e));
    assert_says(&e, "t00000.bin: has 1 token; an evaluation needs at least 2");
    stream_drop(&s);
    s = stream_make(4, 10); /* random batches of a split shorter than a window: padded */
    d.iters = 2;
    int32_t tokens[T], targets[T];
    static const int32_t want_tokens[T] = {0, 1, 2}, want_targets[T] = {1, 2, 3, -1, -1, -1, -1, -1};
    int64_t counted;
    e = (Error){0};
    assert_true(evaluation_check(&d, &e));
    assert_true(evaluation_batch(&d, 0, 1, tokens, targets, &counted, &e));
    assert_int_equal(counted, 3);
    assert_memory_equal(tokens, want_tokens, sizeof tokens);
    assert_memory_equal(targets, want_targets, sizeof targets);
    d.batch_size = 0;
    assert_false(evaluation_check(&d, &e));
    stream_drop(&s);
}

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test_loader-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    Error e = {0};
    return dir_remove(dir, &e) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_pinned),
        cmocka_unit_test(every_window_once_every_target_sometime),
        cmocka_unit_test(large_permutations),
        cmocka_unit_test(small_permutations_are_uniform),
        cmocka_unit_test(too_few_tokens),
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
        cmocka_unit_test(whole_split_counts_each_target_once),
        cmocka_unit_test(random_evaluation),
        cmocka_unit_test(evaluation_of_too_little),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
