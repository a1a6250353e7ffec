/* The order of windows: a permutation anew in each epoch, cut anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/stream_rig.h"

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
        LoaderConfig c = {.vocab_size = V,
                          .batch_size = 3,
                          .block_size = T,
                          .accumulate = 1,
                          .world = 1,
                          .memory_take = host_take,
                          .memory_give = free};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_pinned),    cmocka_unit_test(every_window_once_every_target_sometime),
        cmocka_unit_test(large_permutations), cmocka_unit_test(small_permutations_are_uniform),
        cmocka_unit_test(too_few_tokens),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
