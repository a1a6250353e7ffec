/* Bytes of a text, gathered from files and standard input. */
#ifndef TALLY_DATA_TEXT_H
#define TALLY_DATA_TEXT_H

#include "base/error.h"

#include <stdint.h>

typedef struct Text {
    uint8_t *bytes; /* [size], of room for `capacity` */
    size_t size, capacity;
} Text;

/* Appends the bytes of the regular file `path`, or, when it is "-", of standard input up to its end. A Text starts as {0}. false
 * after an error that names the file; the text then still has to be freed. */
bool text_append(Text *t, const char *path, Error *e);

void text_free(Text *t);

#endif
