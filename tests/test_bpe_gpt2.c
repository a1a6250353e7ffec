/* GPT-2's tokenizer with its own vocabulary, against published ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/bpe_rig.h"

static Tokenizer *gpt2_tokenizer(void)
{
    char from[PATH_SIZE], to[PATH_SIZE];
    const char *data = getenv("TALLY_TEST_DATA"), *names[] = {"vocab.json", "merges.txt"};
    Error e = {0};
    snprintf(from, sizeof from, "%s/gpt2-vocab.json", data ? data : "");
    if (!data || !file_exists(from)) {
        print_message("SKIPPED: TALLY_TEST_DATA names no folder with gpt2-vocab.json and gpt2-merges.txt\n");
        skip();
    }
    assert_true(dir_make("gpt2", &e));
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/gpt2-%s", data, names[i]);
        snprintf(to, sizeof to, "gpt2/%s", names[i]);
        unlink(to);
        assert_int_equal(symlink(from, to), 0);
    }
    return loaded("gpt2:gpt2");
}

/* FIELD-CASES 27 to 35. */
static void published_ids(void **state)
{
    (void)state;
    Tokenizer *t = gpt2_tokenizer();
    static const struct {
        const char *text, *ids;
    } cases[] = {
        {"hello world", "31373 995"},
        {"Hello, world!", "15496 11 995 0"},
        {" this is \xF0\x9F\xA6\x99.cpp", "428 318 12520 99 247 13 20322"},
        {"<|endoftext|>", "27 91 437 1659 5239 91 29"},
        {"\n", "198"},
        {"\n\n", "628"},
        {"\n\n\n", "628 198"},
        {"\t\n", "197 198"},
        {"   ", "220 220 220"},
        {"' era", "6 6980"},
        {"\n =", "198 796"},
        {"ied 4 \xC2\xBD months", "798 604 25208 1933"},
        {"F\xC3\xBChrer", "37 9116 71 11751"},
        {"C\xE1\xBB\xAD"
         "a Vi\xE1\xBB\x87t",
         "34 157 119 255 64 16049 157 119 229 83"},
        {"\xD0\xBD\xD0\xB5\xD1\x89\xD0\xBE \xD0\xBD\xD0\xB0 "
         "\xD0\x91\xD1\x8A\xD0\xBB\xD0\xB3\xD0\xB0\xD1\x80\xD1\x81\xD0\xBA\xD0\xB8",
         "22177 16843 141 231 15166 12466 121 16142 12466 239 141 232 30143 140 111 16142 21169 21727 31583 18849"},
        {"I'M DON'T", "40 6 44 23917 6 51"},
        {"I\xE2\x80\x99m", "40 447 247 76"},
        {" 's", "705 82"},
        {"a\xC2\xA0"
         "b",
         "64 1849 65"},
        {"a\xE3\x80\x80"
         "b",
         "64 5099 222 65"},
        {"a\xE2\x80\x8B"
         "b",
         "64 9525 65"},
        {"a\r\nb", "64 201 198 65"},
        {"a\n b", "64 198 275"},
        {"\x80", "222"},
        {"\xFF\xFE", "187 186"},
    };
    assert_int_equal(tokenizer_vocab_size(t), 50257);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char got[256] = "";
        int32_t *ids;
        size_t n = strlen(cases[i].text);
        int64_t count = encode(t, cases[i].text, n, &ids);
        for (int64_t k = 0; k < count; k++)
            snprintf(got + strlen(got), sizeof got - strlen(got), k ? " %d" : "%d", ids[k]);
        if (strcmp(got, cases[i].ids) != 0)
            fail_msg("\"%s\": %s, not %s", cases[i].text, got, cases[i].ids);
        assert_decodes(t, ids, count, (const uint8_t *)cases[i].text, n);
        free(ids);
    }
    int32_t *ids;
    uint8_t *text = malloc(1000000);
    memset(text, '^', 1000000);
    assert_int_equal(encode(t, text, 1000000, &ids), 250000);
    free(ids);
    memset(text, 0, 1000);
    int64_t count = encode(t, text, 1000, &ids);
    assert_decodes(t, ids, count, text, 1000);
    free(ids);
    free(text);
    Error e = {0};
    assert_int_equal(tokenizer_special(t, "<|endoftext|>"), 50256);
    assert_true(tokenizer_allow_special(t, &e));
    assert_int_equal(encode(t, "<|endoftext|>", 13, &ids), 1);
    assert_int_equal(ids[0], 50256);
    free(ids);
    tokenizer_destroy(t);
}

/* Every token's text is that token, unless it ends or begins inside a character: of that the bytes are no word together. */
static void every_token(void **state)
{
    (void)state;
    Tokenizer *t = gpt2_tokenizer();
    int split = 0;
    for (int32_t id = 0; id < 50256; id++) {
        size_t n;
        int32_t *ids, symbol;
        bool whole = true;
        const uint8_t *piece = tokenizer_piece(t, id, &n);
        for (size_t at = 0; at < n; whole = whole && reference_class(symbol) != 'R')
            at += utf8_next(piece + at, n - at, &symbol);
        int64_t count = encode(t, piece, n, &ids);
        if ((count != 1 || ids[0] != id) && whole)
            fail_msg("token %d", id);
        split += count != 1;
        assert_decodes(t, ids, count, piece, n);
        free(ids);
    }
    assert_int_equal(split, 59);
    tokenizer_destroy(t);
}

/* FIELD-CASES 36. */
static void tinyshakespeare(void **state)
{
    (void)state;
    tokenizer_destroy(gpt2_tokenizer());
    const Output *o =
        works("data prepare %s/tinyshakespeare.txt --tokenizer gpt2:gpt2 --out shakespeare", getenv("TALLY_TEST_DATA"));
    assert_non_null(strstr(o->out, "train.bin  301966 tokens"));
    assert_non_null(strstr(o->out, "val.bin    36059 tokens"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_ids),
        cmocka_unit_test(every_token),
        cmocka_unit_test(tinyshakespeare),
    };
    return cmocka_run_group_tests(tests, command_begin, command_end);
}
