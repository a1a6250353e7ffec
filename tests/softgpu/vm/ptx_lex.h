/* PTX text as tokens: words (identifiers, opcodes with their dots, numbers), quoted strings, and single punctuation characters.
 */
#ifndef SOFTGPU_PTX_LEX_H
#define SOFTGPU_PTX_LEX_H

#include "tests/softgpu/vm/machine.h"

typedef struct Token {
    const char *text; /* a copy, ended by a zero byte */
    int line;         /* from 1                       */
} Token;

/* Splits m's PTX into m->tokens, ended by a token with an empty text. Comments and white space are left out. */
void ptx_lex(VmModule *m, const char *ptx);

#endif
