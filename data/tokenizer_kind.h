/* The inside of a tokenizer, for the files that implement a kind. */
#ifndef TALLY_DATA_TOKENIZER_KIND_H
#define TALLY_DATA_TOKENIZER_KIND_H

#include "data/tokenizer.h"

/* What makes a kind: its functions fill a Tokenizer or read one. Those that return bool have recorded an error when they return
 * false. */
typedef struct TokenizerKind {
    const char *name;
    /* One of the two, by whether a command line has a folder behind the name (NAME:DIR): the vocabulary, or readiness to learn
     * it. */
    bool (*create)(Tokenizer *t, Error *e);
    bool (*open)(Tokenizer *t, const char *dir, Error *e);
    /* NULL, both, when there is nothing to learn from a text. */
    bool (*learn)(Tokenizer *t, const uint8_t *text, size_t n, Error *e);
    bool (*learn_end)(Tokenizer *t, Error *e);
    /* The vocabulary from meta.json, and the kind's fields of it. NULL, both, when it has none: `create` knows all. */
    bool (*read)(Tokenizer *t, const struct json_t *meta, Error *e);
    bool (*write)(const Tokenizer *t, struct json_t *meta, Error *e);
    /* text[begin .. end), which lies between two places to cut -> ids; ids has room for end - begin, the most there can be. Sets
     * *count. Called by several threads at a time. */
    bool (*encode)(const Tokenizer *t, const uint8_t *text, size_t begin, size_t end, int32_t *ids, int64_t *count, Error *e);
    size_t (*cut)(const uint8_t *text, size_t n); /* see tokenizer_cut                        */
    void (*destroy)(Tokenizer *t);                /* what `state` points to, or NULL; cleans up after failures, too */
} TokenizerKind;

struct Tokenizer {
    const TokenizerKind *kind;
    int64_t vocab_size;
    uint8_t *bytes;   /* all pieces, one after the other                                               */
    size_t *start;    /* [vocab_size + 1]: piece i is bytes[start[i] .. start[i + 1])                  */
    void *state;      /* what the kind needs to encode: one block of memory, freed with the tokenizer  */
    int32_t *special; /* [specials]: ids of special tokens, none of which is empty         */
    int32_t specials;
    bool special_first[256]; /* may this byte begin a special token? Where they are allowed       */
};

extern const TokenizerKind tokenizer_byte, tokenizer_char, tokenizer_gpt2;

/* Makes room for vocab_size pieces of `total` bytes altogether: sets vocab_size, bytes, start (zeroed). false after an error. */
bool tokenizer_make_pieces(Tokenizer *t, int64_t vocab_size, size_t total, Error *e);

#endif
