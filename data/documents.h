/* Windows that begin where documents do. A data set may have a token, its separator, before each document and behind the last
 * (data/prepare.h). Then its targets can be cut into windows of T inputs at most so that each holds whole documents, as many as
 * fit:
 *
 *     | sep a a a sep b b | sep c c c c c | ...          a window's last target is the separator that the next one begins with
 *
 * A document of more than T targets is cut every T; those pieces begin inside it. Each target is in exactly one window. */
#ifndef TALLY_DATA_DOCUMENTS_H
#define TALLY_DATA_DOCUMENTS_H

#include "data/window.h"

typedef struct DocumentWindows {
    int64_t *cut;    /* [windows + 1]: window i is the tokens cut[i] .. cut[i+1], the first of which is no target */
    int64_t windows; /* at least 1                               */
    int64_t inside;  /* of them begin inside a document          */
} DocumentWindows;

/* The windows of a stream, which is read once for it. 8 bytes of memory a window. false after an error: fewer than two tokens, an
 * id that is not below vocab_size, no separator at all. Free with document_windows_free, after false, too. */
bool document_windows_find(DocumentWindows *d, const TokenStream *s, int64_t separator, int64_t block_size, int64_t vocab_size,
                           Error *e);

/* Window i of them, 0 <= i < windows. */
Window document_window(const DocumentWindows *d, int64_t i);

void document_windows_free(DocumentWindows *d);

#endif
