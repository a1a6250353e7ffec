/* A tokenizer turns bytes into token ids and back. Ids run from 0 to vocab_size - 1, and every id stands for a fixed string of
 * bytes, its piece: decoding is putting pieces one after the other. What differs between kinds is how a text is cut into pieces:
 *
 *   byte   256 ids, id = byte: for any file at all
 *   char   one id for every kind of character of the training text, in ascending order of code point; bytes that are not UTF-8
 *          are characters of their own (data/utf8.h), so that nothing is lost
 *
 *   gpt2   byte pair encoding of words, with a vocabulary from files (tokenizer_gpt2.c): for any file at all
 *
 * What can be encoded decodes to the same bytes. A kind is a file tokenizer_KIND.c with one TokenizerKind (tokenizer_kind.h).
 *
 * On disk a tokenizer is meta.json: {"tokenizer": "char", "vocab_size": 65, "characters": [10, 32, ...]}; other fields, such as
 * the counts that `tally data prepare` adds, are ignored when it is read.
 *
 * A tokenizer that has its vocabulary may be used by several threads at a time: encoding changes nothing in it that they see. */
#ifndef TALLY_DATA_TOKENIZER_H
#define TALLY_DATA_TOKENIZER_H

#include "base/error.h"

#include <stdint.h>

struct json_t;

typedef struct Tokenizer Tokenizer;

/* The tokenizer called `which` on a command line: "byte", "char", or "gpt2:DIR" with the folder of its files (a vocab.json and a
 * merges.txt, or a tokenizer.json), which are not needed again once meta.json is written; or what tokenizer_load takes, so that
 * another text gets the same ids. NULL after an error (an unknown name lists the known ones). Free with tokenizer_destroy. */
Tokenizer *tokenizer_create(const char *which, Error *e);

/* Has the tokenizer no vocabulary yet, because it takes it from texts (char)? Then it is made so, and till then vocab_size is 0:
 *
 *     tokenizer_learn(t, text, n, e)    for each piece of text, in any order, cut anywhere between characters
 *     tokenizer_learn_end(t, e)         an error when there was no text at all
 *
 * Both do nothing when tokenizer_learns is false. One thread at a time. */
bool tokenizer_learns(const Tokenizer *t);
bool tokenizer_learn(Tokenizer *t, const uint8_t *text, size_t n, Error *e);
bool tokenizer_learn_end(Tokenizer *t, Error *e);

/* The tokenizer of a folder with a meta.json, or of a meta.json itself, or one that tokenizer_create knows by name and that need
 * not learn. Everything in the file is checked: types, ranges, order, duplicates, vocab_size. NULL after an error that names the
 * file and the field. */
Tokenizer *tokenizer_load(const char *where, Error *e);

/* The meta.json of a tokenizer as a new JSON object, to which the caller may add fields; NULL after an error. json_decref it. */
struct json_t *tokenizer_to_json(const Tokenizer *t, Error *e);

/* The tokenizer that a parsed meta.json describes; `path` is for messages. NULL after an error. */
Tokenizer *tokenizer_from_json(const struct json_t *meta, const char *path, Error *e);

/* NULL is fine. */
void tokenizer_destroy(Tokenizer *t);

/* "byte", "char" or "gpt2". */
const char *tokenizer_kind(const Tokenizer *t);

/* Number of ids; never more than INT32_MAX. */
int64_t tokenizer_vocab_size(const Tokenizer *t);

/* A special token is one that ordinary text does not have, such as "<|endoftext|>". Its id, or -1 when there is none of that
 * text. */
int32_t tokenizer_special(const Tokenizer *t, const char *text);

/* From now on the text of special tokens is encoded as those, wherever it stands; before, it is text like any other. false after
 * an error: the tokenizer has none. */
bool tokenizer_allow_special(Tokenizer *t, Error *e);

/* Encodes text[0 .. n): *ids is a new array of *count ids (free it). n = 0 gives no ids. A long text is encoded by OpenMP's
 * threads, with the same ids whatever their number. false after an error: a character that is not in the vocabulary is named with
 * its code point and its byte offset. */
bool tokenizer_encode(const Tokenizer *t, const uint8_t *text, size_t n, int32_t **ids, int64_t *count, Error *e);

/* The ids of what a model is to continue. A line end, which prompts are by default, is the first token where the vocabulary has
 * none. A usage error when it cannot be encoded or is empty: a model has to begin with something. */
bool tokenizer_encode_prompt(const Tokenizer *t, const char *text, int32_t **ids, int64_t *count, Error *e);

/* Where a text that comes piece by piece can be cut: with text[0 .. n) its beginning, a position p <= n near the end such that
 * the ids of text[0 .. p) and those of what follows, encoded apart, are the ids of the whole, whatever comes behind n. 0: there
 * is no such place yet, more of the text is needed (or all of it is here, and needs no cut). */
size_t tokenizer_cut(const Tokenizer *t, const uint8_t *text, size_t n);

/* The bytes of one id and, in *n, their number: for printing tokens as they come. They belong to the tokenizer. A character of
 * the text may be spread over several pieces (byte). NULL, with *n = 0, when id is outside [0, vocab_size). */
const uint8_t *tokenizer_piece(const Tokenizer *t, int32_t id, size_t *n);

#endif
