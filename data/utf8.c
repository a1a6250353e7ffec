#include "data/utf8.h"

static bool is_surrogate(int64_t code)
{
    return code >= 0xD800 && code <= 0xDFFF;
}

/* Length of the sequence that a byte >= 0x80 begins; 0 when it can begin none. C0, C1 could only begin an overlong sequence, F5..
 * only something beyond U+10FFFF. */
static size_t lead_length(uint8_t lead)
{
    return lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
}

size_t utf8_next(const uint8_t *text, size_t n, int32_t *symbol)
{
    static const int32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000}; /* that needs this length: anything less is overlong */
    *symbol = text[0];
    if (text[0] < 0x80)
        return 1;
    size_t length = lead_length(text[0]);
    int32_t code = text[0] & (0xFF >> (length + 1));
    bool good = length > 0 && length <= n;
    for (size_t i = 1; good && i < length; i++) {
        good = (text[i] & 0xC0) == 0x80;
        code = code << 6 | (text[i] & 0x3F);
    }
    if (good && code >= smallest[length] && code < UTF8_SYMBOLS && !is_surrogate(code)) {
        *symbol = code;
        return length;
    }
    *symbol = UTF8_RAW_BYTE + text[0];
    return 1;
}

size_t utf8_put(int32_t symbol, uint8_t out[UTF8_MAX_BYTES])
{
    size_t length = symbol < 0x80 || is_surrogate(symbol) ? 1 : symbol < 0x800 ? 2 : symbol < 0x10000 ? 3 : 4;
    if (length == 1) {
        out[0] = (uint8_t)symbol; /* ASCII, or the low 8 bits of a raw byte's symbol */
        return 1;
    }
    for (size_t i = length - 1; i > 0; i--, symbol >>= 6)
        out[i] = (uint8_t)(0x80 | (symbol & 0x3F));
    out[0] = (uint8_t)(0xF00 >> length | symbol); /* length ones and a zero, then the highest bits */
    return length;
}

bool utf8_symbol_valid(int64_t symbol)
{
    if (is_surrogate(symbol))
        return symbol >= UTF8_RAW_BYTE + 0x80 && symbol <= UTF8_RAW_BYTE + 0xFF;
    return symbol >= 0 && symbol < UTF8_SYMBOLS;
}

int64_t utf8_count(const uint8_t *text, size_t n)
{
    int64_t count = 0;
    int32_t symbol;
    for (size_t at = 0; at < n; at += utf8_next(text + at, n - at, &symbol))
        count++;
    return count;
}

size_t utf8_offset(const uint8_t *text, size_t n, int64_t symbols)
{
    size_t at = 0;
    int32_t symbol;
    for (; symbols > 0 && at < n; symbols--)
        at += utf8_next(text + at, n - at, &symbol);
    return at;
}
