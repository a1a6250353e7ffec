/* A stream of tokens 0 .. count-1, made of one token file (data/tokenfile.h) or of several, its shards, in the order of their
 * names. */
#ifndef TALLY_DATA_STREAM_H
#define TALLY_DATA_STREAM_H

#include "base/error.h"

#include <stdint.h>

/* A folder with a file of this name holds parts of two data sets, and is refused. */
#define TOKENS_UNFINISHED "unfinished"

typedef struct TokenStream {
    struct Shard *shard; /* [shards] */
    int shards;
    int64_t count; /* tokens, at least 1                                                        */
    int64_t
        ignore_after; /* a target that follows this id does not count (data/window.h); -1, unless the caller sets it: all do */
} TokenStream;

/* Opens the tokens of one split ("train" or "val"). `where` is
 *   a folder    its SPLIT.bin, or, without that, all its *SPLIT*.bin in the order of their names (bytes compared)
 *   otherwise   a file, or a pattern as in the shell (*, ?, [...]) that names some, in the same order; the split doesn't matter
 * false after an error that names the file, or what was looked for and not found. Close with token_stream_close, which is fine
 * after false, too. */
bool token_stream_open(TokenStream *s, const char *where, const char *split, Error *e);

void token_stream_close(TokenStream *s);

/* Would token_stream_open find files here for this split? (Not whether they are good.) */
bool token_stream_present(const char *where, const char *split);

/* The path of the first shard: a name for the stream in messages. It belongs to the stream. */
const char *token_stream_name(const TokenStream *s);

/* Copies tokens first .. first+count-1 to out [count], across shards. Every id is compared with vocab_size: false after an error
 * that names the file, the byte offset in it, and the id; tokens outside the stream are an error, too. Safe for several threads
 * at a time. */
bool token_stream_read(const TokenStream *s, int64_t first, int64_t count, int64_t vocab_size, int32_t *out, Error *e);

#endif
