/* Token files, little-endian, told apart by their first bytes:
 *
 *   llm.c, 16 bits     256 x int32 header {20240520, 1, number of tokens, 0 ...}, then uint16 tokens
 *   llm.c, 32 bits     256 x int32 header {20240801, 7, number of tokens, 0 ...}, then uint32 tokens
 *   headerless         uint16 tokens from the first byte to the last, as nanoGPT writes them
 *
 * (The 16-bit magic read as two tokens would be 55432, 308: no vocabulary in use has an id 55432 but those of 2^16 and more.)
 * Files are mapped, not read: one of any size costs no memory. */
#ifndef TALLY_DATA_TOKENFILE_H
#define TALLY_DATA_TOKENFILE_H

#include "base/error.h"
#include "base/file.h"

#include <stdint.h>

enum {
    TOKEN_FILE_NARROW = 65536,         /* ids that 16 bits can tell apart */
    TOKEN_FILE_MAX_TOKENS = INT32_MAX, /* that a header can count         */
};

/* One file's tokens. */
typedef struct TokenFile {
    const uint8_t *tokens; /* count x width bytes, not necessarily aligned */
    int64_t count;         /* tokens, at least 1                           */
    int width;             /* bytes of a token: 2 or 4                     */
    int64_t offset;        /* of the first token in the file, in bytes     */
} TokenFile;

/* Understands the n bytes of a token file, which must stay where they are while *f is used; `name` is for messages. false after
 * an error: empty, an odd number of bytes, a header cut short, of another version, or one that claims another number of tokens
 * than there are. */
bool token_file_parse(TokenFile *f, const uint8_t *bytes, size_t n, const char *name, Error *e);

/* Copies tokens first .. first+count-1, which must exist, to out [count]. Every id is compared with vocab_size: false after an
 * error that names the file (`name`), the byte offset in it, and the id. */
bool token_file_read(const TokenFile *f, int64_t first, int64_t count, int64_t vocab_size, int32_t *out, const char *name,
                     Error *e);

/* A token file being written, in llm.c's format of the width that the vocabulary needs. */
typedef struct TokenWriter {
    FileWriter file;
    int64_t vocab_size, count; /* count: tokens so far, at most TOKEN_FILE_MAX_TOKENS */
    size_t filled;             /* bytes of the buffer that are not in the file yet    */
    uint8_t buffer[1 << 16];
} TokenWriter;

/* Starts a token file at `path`. After true, token_writer_finish or file_abandon(&w->file) must follow. */
bool token_writer_create(TokenWriter *w, const char *path, int64_t vocab_size, Error *e);

/* Appends ids[0 .. n), each in [0, vocab_size), at most TOKEN_FILE_MAX_TOKENS in all. false after an error. */
bool token_writer_append(TokenWriter *w, const int32_t *ids, int64_t n, Error *e);

/* Puts the count into the header, and makes the file durable under its temporary name (file_finish), from which file_rename
 * brings it to where it belongs. After false nothing is left of it. */
bool token_writer_finish(TokenWriter *w, Error *e);

#endif
