/* A text in memory: what comes on standard input. */
#ifndef TALLY_DATA_TEXT_H
#define TALLY_DATA_TEXT_H

#include "base/error.h"

#include <stdint.h>

typedef struct Text {
    uint8_t *bytes; /* [size], of room for `capacity` */
    size_t size, capacity;
} Text;

/* Appends standard input up to its end. A Text starts as {0}. false after an error; the text then still has to be freed. */
bool text_read(Text *t, Error *e);

void text_free(Text *t);

#endif
