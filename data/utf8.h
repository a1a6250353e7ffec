/* UTF-8 in which no byte is lost. A text is cut into symbols: well-formed UTF-8 gives its code points; a byte that is not part of
 * any well-formed sequence gives the symbol 0xDC00 + byte, in U+DC80 .. U+DCFF. Those code points are surrogates, which UTF-8 may
 * not encode, so the two never meet, and bytes -> symbols -> bytes is the identity for any bytes at all. */
#ifndef TALLY_DATA_UTF8_H
#define TALLY_DATA_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    UTF8_SYMBOLS = 0x110000, /* every symbol is below this                    */
    UTF8_MAX_BYTES = 4,      /* of one symbol                                 */
    UTF8_RAW_BYTE = 0xDC00   /* symbol of the raw byte b (0x80..0xFF): this + b */
};

/* Reads the symbol at text[0 .. n), n >= 1, into *symbol. Returns the bytes it took, 1..4. Cannot fail. */
size_t utf8_next(const uint8_t *text, size_t n, int32_t *symbol);

/* Writes the bytes of a valid symbol to out and returns their number, 1..4. */
size_t utf8_put(int32_t symbol, uint8_t out[UTF8_MAX_BYTES]);

/* Can utf8_next return this number? Code points but surrogates, and the raw bytes. */
bool utf8_symbol_valid(int64_t symbol);

/* Number of symbols in text[0 .. n). */
int64_t utf8_count(const uint8_t *text, size_t n);

/* Byte offset of symbol number `symbols` of text[0 .. n); n when there are not that many. */
size_t utf8_offset(const uint8_t *text, size_t n, int64_t symbols);

#endif
