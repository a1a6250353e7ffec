/* From text to what training reads: a folder with train.bin, val.bin (data/tokenfile.h) and meta.json (data/tokenizer.h, and the
 * counts train_tokens, val_tokens, text_bytes). The text is cut in two between characters: its beginning trains, its end
 * validates. */
#ifndef TALLY_DATA_PREPARE_H
#define TALLY_DATA_PREPARE_H

#include "base/error.h"

#include <stdint.h>

typedef struct PrepareOptions {
    char **files; /* [count] texts, taken as one in this order; "-" is standard input */
    int count;
    const char *tokenizer; /* "byte", "char" or "gpt2:DIR"                */
    bool allow_special;    /* tokenizer_allow_special                     */
    const char *out;       /* the folder; made when it doesn't exist      */
    double val_fraction;   /* of the characters, rounded up; 0 <= it < 1  */
} PrepareOptions;

typedef struct PrepareResult {
    int64_t text_bytes, vocab_size;
    int64_t train_tokens, val_tokens; /* val_tokens 0: no val.bin */
} PrepareResult;

/* Does it, and says in *r what was done. Files are written whole or not at all, meta.json last and only when the others are in
 * place; a val.bin of an earlier text does not survive a val_fraction of 0. Holds the text and the ids of its larger part in
 * memory: about five bytes for each of the text. false after an error. */
bool data_prepare(const PrepareOptions *o, PrepareResult *r, Error *e);

#endif
