/* Where texts come from: a source hands out documents in blocks of a few MiB, so that what is larger than memory can be read. */
#ifndef TALLY_DATA_SOURCE_H
#define TALLY_DATA_SOURCE_H

#include "data/tokenizer.h"

/* A document of a block, or a piece of one that is longer than a block. */
typedef struct TextSpan {
    size_t begin, end; /* in the block's bytes; the last piece of a document may be empty */
    bool first, last;  /* piece of its document                 */
    const char *name;  /* of the file that it is from           */
    int64_t offset;    /* of its first byte in that file        */
    double nats;       /* -log of the document's probability, where that is known; else 0 */
} TextSpan;

typedef struct TextBlock {
    uint8_t *bytes; /* [size], of room for `capacity` */
    size_t size, capacity;
    TextSpan *span; /* [spans], in the order of the text */
    size_t spans, span_capacity;
} TextBlock;

typedef struct TextSource {
    int64_t bytes; /* to be read, about: for an estimate of the time that is left */

    /* Fills the block with the next documents; none at the end. A piece ends where the tokenizer can cut (tokenizer_cut). false
     * after an error, which names file and byte. */
    bool (*next)(struct TextSource *s, TextBlock *b, const Tokenizer *t, Error *e);

    /* Back to the beginning. */
    void (*rewind)(struct TextSource *s);

    void (*close)(struct TextSource *s);
} TextSource;

/* Text from `inputs` [count], in this order: files; folders, with all that is in them in the order of the names, but for what
 * begins with a dot and for the folder `except`; patterns as in the shell; "-" for standard input, which is first copied to a
 * nameless file in `except`. A document ends at each `separator`, and at the end of a file; without one (NULL) a file is one
 * document. The separators belong to no document, and documents of no bytes are left out. NULL after an error: nothing found,
 * something that is no file, or cannot be read. */
TextSource *source_files(char **inputs, int count, const char *separator, const char *except, Error *e);

/* At least `bytes` of the stories of that seed (data/stories.h), a document each, without line ends, which are counted. NULL
 * after an error. */
TextSource *source_stories(int64_t bytes, uint64_t seed, Error *e);

void source_close(TextSource *s);

/* Adds a span to the block. false: no memory. For sources. */
bool block_add(TextBlock *b, TextSpan span, Error *e);

/* Room for `capacity` bytes; what is there stays. */
bool block_reserve(TextBlock *b, size_t capacity, Error *e);

void block_free(TextBlock *b);

#endif
