/* From text to what training reads: a folder with train.bin, val.bin (data/tokenfile.h), or shards of them, and meta.json
 * (data/tokenizer.h, and what DataFacts has). The text may be of any size: it is read, encoded and written block by block. */
#ifndef TALLY_DATA_PREPARE_H
#define TALLY_DATA_PREPARE_H

#include "data/source.h"

enum { SPLIT_TRAIN, SPLIT_VAL, SPLITS };
extern const char *const split_name[SPLITS]; /* "train", "val" */

typedef struct PrepareOptions {
    TextSource *source;
    const char *tokenizer; /* as tokenizer_create takes it                */
    bool allow_special;    /* tokenizer_allow_special                     */
    const char *out;       /* the folder; made when it doesn't exist      */
    double val_fraction;   /* 0 <= it < 1                                 */
    /* NULL: the source's documents are one text, of which the last val_fraction of the characters, rounded up, validates. Else
     * what stands between documents, one token, and each document falls to a split by a hash of its first 64 KiB alone: which one
     * it is does not depend on the others. The tokens of a split are then separator, document, separator, ..., separator. */
    const char *separator;
    int64_t shard_tokens; /* of a file; 0: all in one, while a header can count them */

    /* Called now and then with the bytes done in this pass over the text and all that there are; false ends the work. */
    bool (*progress)(void *user, const char *pass, int64_t done, int64_t all);
    void *user;
} PrepareOptions;

/* What is known of a data set. Stored in meta.json, and read again from there. */
typedef struct DataFacts {
    int64_t text_bytes, vocab_size;
    int64_t tokens[SPLITS];    /* of val 0: there is no val.bin                                             */
    int64_t documents[SPLITS]; /* 0: they were not told apart                                               */
    int64_t separator;         /* the token between documents; -1: none                                     */
    double nats[SPLITS];       /* -log of the probability of all documents of a split, where that is known; 0: it is not */
} DataFacts;

/* Does it, and says in *f what was done. Files are written whole or not at all: an earlier data set stays as it was until all of
 * the new one is on the disk; while the new files take their places there is a file `unfinished` beside them, with which
 * token_stream_open refuses the folder, so that a mixture is never read. Memory: some blocks of a few MiB and their ids, and what
 * the tokenizer needs. false after an error. */
bool data_prepare(const PrepareOptions *o, DataFacts *f, Error *e);

/* The tokenizer and, in *f, the facts of a meta.json; those that it does not have are 0, separator -1. The file is read once:
 * *text (NULL: not wanted) is what was in it, to be freed, NULL after an error. Returns NULL after an error that names file and
 * field. */
Tokenizer *data_meta_read(const char *path, DataFacts *f, char **text, Error *e);

#endif
