#include "data/words.h"

#include "data/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* What Unicode calls White_Space. (PCRE2's \s has U+180E, too, which is none since Unicode 6.3.) */
#define BLANK "\\t-\\r\\x{85}\\p{Z}"

static const char pattern[] = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^" BLANK "\\p{L}\\p{N}]++"
                              "|[" BLANK "]+(?![^" BLANK "])|[" BLANK "]+";

WordPattern *word_pattern_create(Error *e)
{
    int code;
    PCRE2_SIZE offset;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF;
    pcre2_code *p = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &code, &offset, NULL);
    if (p)
        pcre2_jit_compile(p, PCRE2_JIT_COMPLETE); /* where PCRE2 cannot, it finds the same, but slower */
    else
        error_set(e, "PCRE2 cannot compile the pattern of words: error %d", code);
    return p;
}

WordMatch *word_match_create(Error *e)
{
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    if (!m)
        error_set(e, "out of host memory for the words of a text");
    return m;
}

void word_pattern_destroy(WordPattern *p)
{
    pcre2_code_free(p);
}

void word_match_destroy(WordMatch *m)
{
    pcre2_match_data_free(m);
}

bool word_find(const WordPattern *p, WordMatch *m, const uint8_t *text, size_t n, size_t at, size_t *end, Error *e)
{
    int code = pcre2_match(p, text, n, at, 0, m, NULL);
    if (code < 0 && code != PCRE2_ERROR_NOMATCH)
        return error_set(e, "PCRE2 cannot find the next word: error %d", code);
    const PCRE2_SIZE *match = pcre2_get_ovector_pointer(m);
    size_t begin = code > 0 ? match[0] : n; /* every character is in some word, so what is before it is not UTF-8 */
    *end = begin > at ? begin : match[1];
    return true;
}

static bool is_blank(int32_t symbol)
{
    return (symbol >= '\t' && symbol <= '\r') || symbol == ' ' || symbol == 0x85 || symbol == 0xA0 || symbol == 0x1680 ||
           (symbol >= 0x2000 && symbol <= 0x200A) || symbol == 0x2028 || symbol == 0x2029 || symbol == 0x202F ||
           symbol == 0x205F || symbol == 0x3000;
}

/* Is the character that ends at text[p], p > 0, a blank? */
static bool blank_before(const uint8_t *text, size_t p)
{
    int32_t symbol;
    size_t begin = p - 1;
    while (begin > 0 && p - begin < 3 && (text[begin] & 0xC0) == 0x80) /* no blank has more than 3 bytes */
        begin--;
    return utf8_next(text + begin, p - begin, &symbol) == p - begin && is_blank(symbol);
}

/* A word has a blank at its beginning only, or it has nothing else. So one ends wherever a blank comes behind something else, and
 * what comes then begins a word whatever was before. */
size_t words_cut(const uint8_t *text, size_t n)
{
    for (size_t p = n; p > 1;)
        if (text[--p] < 0x80 && is_blank(text[p]) && !blank_before(text, p))
            return p;
    return 0;
}
