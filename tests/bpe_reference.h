/* GPT-2's tokenizer a second time, as it is defined and without a thought for speed, with a small vocabulary of our own: what
 * tests and fuzzers compare data/tokenizer_gpt2.c with. Its words are right for the characters that reference_class knows. */
#ifndef TALLY_TESTS_BPE_REFERENCE_H
#define TALLY_TESTS_BPE_REFERENCE_H

#include "data/utf8.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Merges, first to last: U+0120 (\xC4\xA0) stands for a space, U+010A (\xC4\x8A) for a line end, other Latin-1 for bytes. */
static const char *const small_merges[] = {"h e",
                                           "l l",
                                           "he ll",
                                           "hell o",
                                           "o r",
                                           "\xC4\xA0 w",
                                           "\xC4\xA0w or",
                                           "l d",
                                           "\xC4\xA0wor ld",
                                           "^ ^",
                                           "^^ ^^",
                                           "a a",
                                           "a aa",
                                           "aa aa",
                                           "' s",
                                           "o '",
                                           "\xC4\xA0 \xC4\xA0",
                                           "\xC4\x8A \xC4\x8A",
                                           "! !",
                                           "1 2",
                                           "12 1",
                                           "\xC3\x83 \xC2\xA9",
                                           "\xC3\xA2 \xC4\xA2",
                                           "ld !",
                                           "s \xC4\xA0",
                                           "\xC4\x8A h",
                                           "\xC3\xBF \xC3\xBF",
                                           "e l",
                                           "l o",
                                           "el lo",
                                           "\xC4\x80 \xC4\x80",
                                           "d 1",
                                           "- -",
                                           "\xC4\xA2 \xC4\xA0",
                                           "\xC5\x82 \xC4\xA0"};

enum { SMALL_MERGES = sizeof small_merges / sizeof *small_merges, SMALL_VOCAB = 256 + SMALL_MERGES + 1 };

/* The character of a byte as UTF-8: printable Latin-1 itself, the others U+0100, U+0101, ... */
static inline void byte_name(int byte, char name[8])
{
    int symbol = 256;
    for (int b = 0; b < byte; b++)
        symbol += b < 33 || (b > 126 && b < 161) || b == 173;
    if (!(byte < 33 || (byte > 126 && byte < 161) || byte == 173))
        symbol = byte;
    name[utf8_put(symbol, (uint8_t *)name)] = 0;
}

/* The tokens by id: 256 bytes in their order, then what the merges make, then <|endoftext|>. */
static inline const char *small_name(int id)
{
    static char name[64];
    if (id < 256)
        byte_name(id, name);
    else if (id == SMALL_VOCAB - 1)
        return "<|endoftext|>";
    else {
        const char *space = strchr(small_merges[id - 256], ' ');
        snprintf(name, sizeof name, "%.*s%s", (int)(space - small_merges[id - 256]), small_merges[id - 256], space + 1);
    }
    return name;
}

/* The small tokenizer's meta.json, a new object. */
static inline json_t *small_meta(void)
{
    json_t *vocab = json_object(), *merges = json_array();
    for (int id = 0; id < SMALL_VOCAB; id++)
        json_object_set_new(vocab, small_name(id), json_integer(id));
    for (int i = 0; i < SMALL_MERGES; i++)
        json_array_append_new(merges, json_string(small_merges[i]));
    return json_pack("{s:s, s:i, s:o, s:o, s:{s:i}}", "tokenizer", "gpt2", "vocab_size", SMALL_VOCAB, "vocab", vocab, "merges",
                     merges, "special_tokens", "<|endoftext|>", SMALL_VOCAB - 1);
}

/* The same as a tokenizer.json, with vocabulary and merges from a meta.json; a new object. */
static inline json_t *small_tokenizer_json(const json_t *source)
{
    json_t *root = json_pack("{s:s, s:n, s:{s:s, s:b, s:b, s:b}, s:{s:s, s:b, s:b}, s:{s:s}, s:{s:s, s:n, s:n, s:s, s:s, s:b}}",
                             "version", "1.0", "normalizer", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0,
                             "trim_offsets", 1, "use_regex", 1, "post_processor", "type", "ByteLevel", "add_prefix_space", 1,
                             "trim_offsets", 0, "decoder", "type", "ByteLevel", "model", "type", "BPE", "dropout", "unk_token",
                             "continuing_subword_prefix", "", "end_of_word_suffix", "", "fuse_unk", 0);
    json_t *model = json_object_get(root, "model");
    json_object_set(model, "vocab", json_object_get(source, "vocab"));
    json_object_set(model, "merges", json_object_get(source, "merges"));
    json_object_set_new(root, "added_tokens",
                        json_pack("[{s:i, s:s, s:b, s:b, s:b, s:b, s:b}]", "id", SMALL_VOCAB - 1, "content", "<|endoftext|>",
                                  "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    return root;
}

/* ---- Words ---- */

/* 'L'etter, 'N'umber, 'O'ther, ' ' blank, 'R'aw byte; '?' where only Unicode's tables would know. */
static inline char reference_class(int32_t s)
{
    if (s >= UTF8_RAW_BYTE && s <= UTF8_RAW_BYTE + 0xFF)
        return 'R';
    if ((s >= 9 && s <= 13) || s == ' ' || s == 0x85 || s == 0xA0 || s == 0x3000 || s == 0x2000 || s == 0x2003)
        return ' ';
    if ((s >= 'a' && s <= 'z') || (s >= 'A' && s <= 'Z') || (s >= 0x410 && s <= 0x44F) || s == 0xE9 ||
        (s >= 0x4E00 && s <= 0x9FA5))
        return 'L';
    if ((s >= '0' && s <= '9') || s == 0xBD || s == 0x661)
        return 'N';
    return s < 0x80 || s == 0x180E || s == 0x200B || s == 0x2019 || s == 0x1F999 || s == 0x1F000 || s == 0x3002 ? 'O' : '?';
}

/* Length of the word that s[0 .. n) begins with. */
static inline size_t reference_word(const int32_t *s, size_t n)
{
    static const char *const contractions[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t i = 0; s[0] == '\'' && i < 7; i++) {
        size_t k = strlen(contractions[i]);
        if (n > k && s[1] == contractions[i][0] && s[k] == contractions[i][k - 1])
            return 1 + k;
    }
    size_t from = s[0] == ' ' && n > 1 && strchr("LNO", reference_class(s[1])), end = from + 1;
    while (end < n && reference_class(s[end]) == reference_class(s[from]))
        end++;
    bool leaves = reference_class(s[from]) == ' ' && end > 1 && end < n && reference_class(s[end]) != 'R';
    return end - leaves;
}

/* ---- Merging ---- */

static inline int small_id(const char *left, size_t n)
{
    for (int id = 0; id < SMALL_VOCAB; id++)
        if (strlen(small_name(id)) == n && memcmp(small_name(id), left, n) == 0)
            return id;
    return -1;
}

/* Tokens of each merge: left, right. */
static inline int (*small_pairs(void))[2]
{
    static int pairs[SMALL_MERGES][2];
    for (int i = 0; i < SMALL_MERGES && pairs[SMALL_MERGES - 1][0] == 0; i++) {
        const char *space = strchr(small_merges[i], ' ');
        pairs[i][0] = small_id(small_merges[i], (size_t)(space - small_merges[i]));
        pairs[i][1] = small_id(space + 1, strlen(space + 1));
    }
    return pairs;
}

/* One token for every byte, then the first merge that applies, where it applies first, until none does. Returns the number. */
static inline size_t reference_merge(const uint8_t *word, size_t n, int32_t *ids)
{
    int(*pairs)[2] = small_pairs();
    for (size_t i = 0; i < n; i++)
        ids[i] = word[i];
    for (int m = 0; m < SMALL_MERGES;) {
        size_t i = 0;
        while (i + 1 < n && (ids[i] != pairs[m][0] || ids[i + 1] != pairs[m][1]))
            i++;
        if (i + 1 >= n) {
            m++;
            continue;
        }
        ids[i] = 256 + m;
        memmove(ids + i + 1, ids + i + 2, (--n - i - 1) * sizeof *ids);
        m = 0;
    }
    return n;
}

/* Encodes text[0 .. n) to ids [n]. Returns their number, or -1 when it has characters that the reference does not know. */
static inline int64_t reference_encode(const uint8_t *text, size_t n, int32_t *ids)
{
    int32_t *symbols = malloc((n + 1) * sizeof *symbols);
    size_t *offset = malloc((n + 1) * sizeof *offset), count = 0;
    int64_t k = 0;
    for (size_t at = 0; at < n && k == 0; count++) {
        offset[count] = at;
        at += utf8_next(text + at, n - at, &symbols[count]);
        k = reference_class(symbols[count]) == '?' ? -1 : 0;
    }
    offset[count] = n;
    for (size_t i = 0, next; k >= 0 && i < count; i = next) {
        next = i + reference_word(symbols + i, count - i);
        k += (int64_t)reference_merge(text + offset[i], offset[next] - offset[i], ids + k);
    }
    free(symbols);
    free(offset);
    return k;
}

#endif
