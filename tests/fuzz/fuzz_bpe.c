/* libFuzzer: any bytes as a text for GPT-2's tokenizer with a small vocabulary. Its ids are those of the reference, where that
 * knows all characters; they decode to the text; and the text may be cut where tokenizer_cut says. With special tokens allowed it
 * decodes to itself, too. */
#include "data/tokenizer.h"
#include "tests/bpe_reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static int64_t encode(const Tokenizer *t, const uint8_t *text, size_t n, int32_t **ids)
{
    Error e = {0};
    int64_t count;
    require(tokenizer_encode(t, text, n, ids, &count, &e) && !e.set);
    return count;
}

static void check_decoding(const Tokenizer *t, const int32_t *ids, int64_t count, const uint8_t *text, size_t n)
{
    size_t at = 0, piece_n;
    for (int64_t i = 0; i < count; i++, at += piece_n) {
        const uint8_t *piece = tokenizer_piece(t, ids[i], &piece_n);
        require(piece && piece_n <= n - at && memcmp(piece, text + at, piece_n) == 0);
    }
    require(at == n);
}

static void check_cut(const Tokenizer *t, const uint8_t *text, size_t n, const int32_t *ids, int64_t count)
{
    size_t known = n ? (text[0] * 257u + text[n - 1]) % (n + 1) : 0, cut = tokenizer_cut(t, text, known);
    require(cut <= known);
    int32_t *left, *right;
    int64_t left_count = encode(t, text, cut, &left), right_count = encode(t, text + cut, n - cut, &right);
    require(left_count + right_count == count);
    require(memcmp(left, ids, (size_t)left_count * sizeof *ids) == 0);
    require(memcmp(right, ids + left_count, (size_t)right_count * sizeof *ids) == 0);
    free(left);
    free(right);
}

static void check_reference(const uint8_t *text, size_t n, const int32_t *ids, int64_t count)
{
    int32_t want[300];
    if (n > sizeof want / sizeof *want)
        return;
    int64_t known = reference_encode(text, n, want);
    require(known < 0 || (known == count && memcmp(ids, want, (size_t)count * sizeof *ids) == 0));
}

/* The small tokenizer, made once for all inputs. */
static Tokenizer *small(bool special)
{
    Error e = {0};
    json_t *meta = small_meta();
    Tokenizer *t = tokenizer_from_json(meta, "small", &e);
    json_decref(meta);
    require(t && (!special || tokenizer_allow_special(t, &e)));
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Tokenizer *plain, *special;
    if (!plain) {
        plain = small(false);
        special = small(true);
    }
    int32_t *ids;
    int64_t count = encode(plain, data, size, &ids);
    check_reference(data, size, ids, count);
    check_decoding(plain, ids, count, data, size);
    check_cut(plain, data, size, ids, count);
    free(ids);
    count = encode(special, data, size, &ids);
    check_decoding(special, ids, count, data, size);
    check_cut(special, data, size, ids, count);
    free(ids);
    return 0;
}
