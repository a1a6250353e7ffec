/* For tests of who reads token streams: streams of made-up tokens in the test's folder, and rows of windows told apart. Include
 * after cmocka. */
#ifndef TALLY_TESTS_STREAM_RIG_H
#define TALLY_TESTS_STREAM_RIG_H

#include "data/loader.h"
#include "data/order.h"
#include "data/stream.h"
#include "tests/temp_dir.h"

enum { V = 65536 };

/* A stream of the tokens 0 .. n-1 in headerless shards of `shard` tokens; close and unlink with stream_drop. */
static inline TokenStream stream_make(int n, int shard)
{
    char path[PATH_SIZE], pattern[PATH_SIZE];
    for (int first = 0; first < n; first += shard) {
        uint16_t tokens[8192];
        int count = n - first < shard ? n - first : shard;
        for (int i = 0; i < count; i++)
            tokens[i] = (uint16_t)(first + i);
        snprintf(path, sizeof path, "%s/t%05d.bin", temp_dir, first);
        FILE *f = fopen(path, "wb");
        assert_int_equal(fwrite(tokens, 2, (size_t)count, f), count);
        fclose(f);
    }
    snprintf(pattern, sizeof pattern, "%s/t*.bin", temp_dir);
    Error e = {0};
    TokenStream s;
    if (!token_stream_open(&s, pattern, "train", &e))
        fail_msg("%s", e.text);
    assert_int_equal(s.count, n);
    return s;
}

static inline void stream_drop(TokenStream *s)
{
    char path[PATH_SIZE];
    for (int64_t first = 0; first < s->count; first++) {
        snprintf(path, sizeof path, "%s/t%05d.bin", temp_dir, (int)first);
        unlink(path);
    }
    token_stream_close(s);
}

static inline void *host_take(size_t bytes, const char *what, Error *e)
{
    return memory_get(e, bytes, 1, what);
}

static inline Loader *loader_make(const TokenStream *s, LoaderConfig c)
{
    Error e = {0};
    c.vocab_size = c.vocab_size ? c.vocab_size : V;
    c.world = c.world ? c.world : 1;
    if (!c.memory_take)
        c.memory_take = host_take, c.memory_give = free;
    Loader *l = loader_create(s, &c, &e);
    if (!l)
        fail_msg("%s", e.text);
    return l;
}

static inline StepBatch next(Loader *l)
{
    Error e = {0};
    StepBatch b;
    if (!loader_next(l, &b, &e))
        fail_msg("%s", e.text);
    return b;
}

/* Checks that row `row` is a window, consecutive tokens with targets one further, and after `count` of them nothing. count 0: a
 * row that does not exist. */
static inline Window row_window(const StepBatch *b, int64_t row, int64_t T)
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
static inline int row_start(const StepBatch *b, int64_t row, int64_t T)
{
    Window w = row_window(b, row, T);
    return w.count > 0 ? (int)w.start : -1;
}

/* A stream of these tokens, one shard; stream_drop as well. */
static inline TokenStream stream_of(const uint16_t *tokens, int n)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/t00000.bin", temp_dir);
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(tokens, 2, (size_t)n, f), n);
    fclose(f);
    Error e = {0};
    TokenStream s;
    assert_true(token_stream_open(&s, path, "train", &e));
    return s;
}

#endif
