/* The files of a GPT-2 tokenizer, as Hugging Face and OpenAI publish them. */
#ifndef TALLY_DATA_GPT2_FILES_H
#define TALLY_DATA_GPT2_FILES_H

#include "base/error.h"

#include <jansson.h>

/* Reads what the folder has: tokenizer.json (of this kind; any other is refused by the field that tells) or else vocab.json and
 * merges.txt. A new object {"vocab": {token: id}, "merges": ["left right", ...], "special_tokens": {text: id}} (the last only
 * from a tokenizer.json; a merge may also be [left, right]), or NULL after an error. Merges and ids are for the caller to check.
 */
json_t *gpt2_files_read(const char *dir, Error *e);

#endif
