/* GPT-2's words: a text is cut into them before each is byte pair encoded. Contractions; letters, numbers or anything else, each
 * with a space before it; blanks, of which the last is left for the word behind them. Letters, numbers and blanks are Unicode's,
 * in the version that PCRE2 knows. Bytes that are not UTF-8 are words of their own: a run of them is one. */
#ifndef TALLY_DATA_WORDS_H
#define TALLY_DATA_WORDS_H

#include "base/error.h"

#include <stdint.h>

/* The compiled pattern, for any number of threads; and what one thread needs to search with. */
typedef struct pcre2_real_code_8 WordPattern;
typedef struct pcre2_real_match_data_8 WordMatch;

/* Both give NULL after an error, and are freed by the functions below, for which NULL is fine. */
WordPattern *word_pattern_create(Error *e);
WordMatch *word_match_create(Error *e);
void word_pattern_destroy(WordPattern *p);
void word_match_destroy(WordMatch *m);

/* Finds the word that begins at text[at], at < n, and sets *end to where it ends, at < *end <= n. */
bool word_find(const WordPattern *p, WordMatch *m, const uint8_t *text, size_t n, size_t at, size_t *end, Error *e);

/* The last place in text[0 .. n) where one word ends and another begins whatever comes behind n: tokenizer_cut. 0: there is none.
 */
size_t words_cut(const uint8_t *text, size_t n);

#endif
