/* The batches of an evaluation. Token i of every stream here is the number i, so that a row tells where it came from. */
#include "data/evaluation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/stream_rig.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_split_counts_each_target_once),
        cmocka_unit_test(random_evaluation),
        cmocka_unit_test(evaluation_of_too_little),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
