/* One row of a batch: T inputs and the T targets that follow them. */
#ifndef TALLY_DATA_WINDOW_H
#define TALLY_DATA_WINDOW_H

#include "data/stream.h"

enum { TARGET_IGNORED = -1 };

/* Tokens start .. start + count of a stream, of which the last `count` are targets; count = 0: of none. */
typedef struct Window {
    int64_t start, count;
} Window;

/* Reads a window of at most T: tokens [T] gets its first `count` tokens, targets [T] the same shifted by one, but -1 where they
 * follow the stream's ignore_after; what is left of the row is filled with tokens 0 and targets -1. Adds the targets that count
 * to *counted. false after an error. */
bool window_read(const TokenStream *s, Window w, int64_t block_size, int64_t vocab_size, int32_t *tokens, int32_t *targets,
                 int64_t *counted, Error *e);

/* Adds to *counted what window_read would. Reads nothing where all targets count. */
bool window_count(const TokenStream *s, Window w, int64_t vocab_size, int64_t *counted, Error *e);

#endif
