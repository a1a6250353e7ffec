/* base/safetensors: every kind of broken file is refused with a message, every legitimate one accepted, and what is written
 * is the format to the byte. */
#include "base/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "tests/temp_dir.h"

/* A file in memory: the length, the header, data bytes 0, 1, 2, ... Free it. */
static unsigned char *file_bytes(uint64_t claimed, const char *header, size_t header_size, size_t data_size, size_t *size)
{
    *size = 8 + header_size + data_size;
    unsigned char *p = malloc(*size);
    assert_non_null(p);
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)(claimed >> (8 * i));
    memcpy(p + 8, header, header_size);
    for (size_t i = 0; i < data_size; i++)
        p[8 + header_size + i] = (unsigned char)i;
    return p;
}

/* Opens such a file; with message NULL it must be accepted, otherwise refused with that in the message. */
static void check_bytes(const unsigned char *bytes, size_t size, const char *message)
{
    SafeTensors f;
    Error e = {0};
    bool ok = safetensors_open_memory(&f, bytes, size, "x", &e);
    if (message) {
        assert_false(ok);
        assert_says(&e, message);
        assert_int_equal(strncmp(e.text, "x: ", 3), 0);
        assert_int_equal(f.count, 0);
    } else if (!ok) {
        fail_msg("refused: %s", e.text);
    }
    safetensors_close(&f);
}

static void check_header(const char *header, size_t data_size, const char *message)
{
    size_t size;
    unsigned char *bytes = file_bytes(strlen(header), header, strlen(header), data_size, &size);
    check_bytes(bytes, size, message);
    free(bytes);
}

/* ---- What is refused ----------------------------------------------------------------------------------------------- */

#define T(dtype, shape, begin, end)   "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"
#define ONE(dtype, shape, begin, end) "{\"a\":" T(dtype, shape, begin, end) "}"

static void test_refused_headers(void **state)
{
    (void)state;
    const struct {
        const char *header;
        size_t data_size;
        const char *message;
    } cases[] = {
        /* not JSON, or not an object of objects */
        {"{", 0, "not JSON"},
        {"hello", 0, "does not begin with '{'"},
        {" {}", 0, "does not begin with '{'"},
        {"[]", 0, "does not begin with '{'"},
        {"{} x", 0, "not JSON"},
        {"{\"a\":" T("F32", "[1]", 0, 4) ",\"a\":" T("F32", "[1]", 0, 4) "}", 4, "duplicate object key"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "duplicate object key"},
        {"{\"a\":3}", 0, "a: an object with dtype, shape and data_offsets"},
        {"{\"__metadata__\":3}", 0, "__metadata__: an object of texts"},
        {"{\"__metadata__\":{\"k\":3}}", 0, "__metadata__: \"k\" is not text"},
        /* a field of the wrong kind */
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "a: dtype: is missing"},
        {"{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "a: dtype: is an integer"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "a: shape: a list"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "a: data_offsets: a list"},
        {ONE("F128", "[1]", 0, 16), 16, "a: dtype: \"F128\" is not one"},
        {ONE("f32", "[1]", 0, 4), 4, "a: dtype: \"f32\" is not one"},
        {ONE("F32", "[1.0]", 0, 4), 4, "a: shape[0]: must be an integer"},
        {ONE("F32", "[\"1\"]", 0, 4), 4, "a: shape[0]: must be an integer"},
        {ONE("F32", "[1,-1]", 0, 4), 4, "a: shape[1]: must be an integer of at least 0"},
        {ONE("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4), 4, "a: shape: has 9 numbers, more than 8"},
        {ONE("F32", "[1]", 0, -4), 4, "a: data_offsets[1]: must be"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "a: data_offsets: [0, 0] is no range"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4, "a: data_offsets: has 3 numbers"},
        /* an extent that cannot be */
        {ONE("F32", "[1]", 4, 0), 4, "a: data_offsets: [4, 0] is no range"},
        {ONE("F32", "[2]", 0, 8), 4, "a: data_offsets: [0, 8] is no range inside the file's 4 bytes"},
        {ONE("F32", "[1]", 0, 9223372036854775807), 4, "is no range"},
        {ONE("F32", "[1]", 0, 9223372036854775808), 4, "too big integer"},
        {ONE("F32", "[2]", 0, 4), 4, "a: data_offsets: span 4 bytes, but the shape in F32 takes 8"},
        {ONE("F32", "[0]", 0, 4), 4, "span 4 bytes, but the shape in F32 takes 0"},
        {ONE("F32", "[1]", 0, 0), 0, "span 0 bytes, but the shape in F32 takes 4"},
        {ONE("F32", "[4294967296,4294967296]", 0, 0), 0, "a: shape: the product of its dimensions is beyond"},
        {ONE("U8", "[4294967296,4294967296]", 0, 0), 0, "a: shape: the product"}, /* 2^64, which is 0 in 64 bits */
        {ONE("F32", "[4611686018427387904]", 0, 0), 0, "a: shape: the product"},  /* 2^62 x 4 bytes likewise     */
        {ONE("I64", "[2305843009213693953]", 0, 8), 8, "a: shape: the product"},  /* (2^61 + 1) x 8 = 8           */
        /* tensors that do not cover the data exactly */
        {ONE("F32", "[1]", 0, 4), 5, "holds 5 bytes of data, but its tensors end at byte 4"},
        {ONE("F32", "[1]", 4, 8), 8, "a: begins at byte 4 of the data, after byte 0"},
        {"{}", 1, "holds 1 bytes of data, but its tensors end at byte 0"},
        {"{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[4]", 5, 9) "}", 9, "b: begins at byte 5 of the data, after byte 4"},
        {"{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[4]", 3, 7) "}", 7, "b: begins at byte 3 of the data, before byte 4"},
        {"{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[4]", 0, 4) "}", 4, "begins at byte 0 of the data, before byte 4"},
        {"{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[0]", 2, 2) "}", 4, "b: begins at byte 2 of the data, before byte 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_header(cases[i].header, cases[i].data_size, cases[i].message);
}

static void test_refused_lengths(void **state)
{
    (void)state;
    const struct {
        uint64_t claimed;
        size_t header_size;
        const char *message;
    } cases[] = {
        {0, 0, "does not begin with '{'"}, /* only 8 bytes */
        {1, 0, "says that its header has 1 bytes, but only 0 follow"},
        {100, 52, "says that its header has 100 bytes, but only 52 follow"},
        {UINT64_MAX, 52, "says that its header has 18446744073709551615 bytes"},
        {UINT64_MAX - 7, 52, "says that its header has 18446744073709551608 bytes"}, /* + 8 is 0 in 64 bits */
        {(uint64_t)INT64_MAX + 1, 52, "says that its header has 9223372036854775808 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size;
        unsigned char *bytes = file_bytes(cases[i].claimed, ONE("F32", "[]", 0, 4), cases[i].header_size, 0, &size);
        check_bytes(bytes, size, cases[i].message);
        free(bytes);
    }
    for (size_t size = 0; size < 8; size++)
        check_bytes((const unsigned char *)"\1\0\0\0\0\0\0", size, "begins with 8 bytes");
}

/* Every beginning of a good file is a bad file. */
static void test_refused_truncation(void **state)
{
    (void)state;
    static const char header[] = "{\"a\":" T("F32", "[2]", 0, 8) ",\"b\":" T("U8", "[3]", 8, 11) "}";
    size_t size;
    unsigned char *bytes = file_bytes(sizeof header - 1, header, sizeof header - 1, 11, &size);
    check_bytes(bytes, size, NULL);
    for (size_t n = 0; n < size; n++) {
        unsigned char *part = malloc(n ? n : 1); /* its own block, so that a read beyond it is seen */
        memcpy(part, bytes, n);
        check_bytes(part, n, "");
        free(part);
    }
    free(bytes);
}

static void test_refused_nesting(void **state)
{
    (void)state;
    enum { DEEP = 1000000 };
    char *header = malloc(DEEP + 1);
    memset(header, '[', DEEP);
    header[DEEP] = 0;
    memcpy(header, "{\"a\":", 5);
    check_header(header, 0, "maximum parsing depth");
    for (int i = 0; i + 5 <= DEEP; i += 5)
        memcpy(header + i, "{\"a\":", 5);
    check_header(header, 0, "maximum parsing depth");
    free(header);
}

/* ---- What is accepted ---------------------------------------------------------------------------------------------- */

static void test_accepted(void **state)
{
    (void)state;
    check_header("{}", 0, NULL);
    check_header("{\"__metadata__\":{\"format\":\"pt\"}}  \n ", 0, NULL);
    check_header(ONE("F32", "[]", 0, 4), 4, NULL);
    check_header(ONE("F32", "[2,0]", 0, 0), 0, NULL);
    check_header(ONE("F32", "[0,9223372036854775807]", 0, 0), 0, NULL);
    check_header(ONE("U8", "[1,1,1,1,1,1,1,5]", 0, 5), 5, NULL);
    check_header("{\"a\":{\"data_offsets\":[0,1],\"note\":[{}],\"shape\":[1],\"dtype\":\"BOOL\"}}", 1, NULL);
    check_header("{\"b\":" T("U8", "[2]", 4, 6) ",\"e\":" T("F64", "[0]", 4, 4) ",\"a\":" T("F32", "[1]", 0, 4) "}", 6, NULL);
}

static void test_accepted_dtypes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t size;
    } dtypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},  {"I32", 4},     {"I16", 2},    {"I8", 1},
                  {"U8", 1},  {"U16", 2}, {"U32", 4}, {"U64", 8},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    assert_int_equal(sizeof dtypes / sizeof dtypes[0], SAFE_DTYPE_COUNT);
    for (int i = 0; i < SAFE_DTYPE_COUNT; i++) {
        char header[128];
        SafeTensors f;
        Error e = {0};
        size_t size, n = 3 * dtypes[i].size;
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}", dtypes[i].name, n);
        unsigned char *bytes = file_bytes(strlen(header), header, strlen(header), n, &size);
        assert_true(safetensors_open_memory(&f, bytes, size, "x", &e));
        assert_int_equal(f.tensors[0].bytes, 3 * dtypes[i].size);
        safetensors_close(&f);
        free(bytes);
    }
}

/* The longest header that there may be, most of it padding; and one byte more. */
static void test_header_limit(void **state)
{
    (void)state;
    static const char header[] = ONE("F32", "[]", 0, 4);
    for (size_t extra = 0; extra <= 1; extra++) {
        size_t length = SAFE_MAX_HEADER + extra;
        char *text = malloc(length);
        assert_non_null(text);
        memset(text, ' ', length);
        memcpy(text, header, sizeof header - 1);
        size_t size;
        unsigned char *bytes = file_bytes(length, text, length, 4, &size);
        free(text);
        check_bytes(bytes, size, extra ? "has a header of 100000001 bytes; more than 100000000 are refused" : NULL);
        free(bytes);
    }
}

/* The text that __metadata__ has under that key, or NULL. */
static const char *metadata(const SafeTensors *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), key));
}

static void test_lookup(void **state)
{
    (void)state;
    static const char header[] =
        "{\"w\":" T("U8", "[2,3]", 2, 8) ",\"__metadata__\":{\"k\":\"v\"},\"a\":" T("U8", "[2]", 0, 2) "}";
    size_t size;
    unsigned char *bytes = file_bytes(sizeof header - 1, header, sizeof header - 1, 8, &size);
    SafeTensors f;
    Error e = {0};
    assert_true(safetensors_open_memory(&f, bytes, size, "x", &e));
    assert_int_equal(f.count, 2);
    const SafeTensor *w = safetensors_find(&f, "w");
    assert_non_null(w);
    assert_int_equal(w->ndim, 2);
    assert_int_equal(w->shape[0], 2);
    assert_int_equal(w->shape[1], 3);
    assert_int_equal(w->bytes, 6);
    assert_memory_equal(w->data, "\2\3\4\5\6\7", 6);
    assert_null(safetensors_find(&f, "b"));
    assert_null(safetensors_find(&f, ""));
    assert_null(safetensors_find(&f, "__metadata__"));
    assert_string_equal(metadata(&f, "k"), "v");
    assert_null(metadata(&f, "none"));
    safetensors_close(&f);
    assert_null(safetensors_find(&f, "w"));
    free(bytes);
}

/* ---- Numbers ------------------------------------------------------------------------------------------------------- */

/* Reads all of one tensor, at an odd address. */
static void read_numbers(const char *dtype, const void *values, size_t size_each, int n, float *out)
{
    char header[128];
    size_t size;
    Error e = {0};
    SafeTensors f;
    snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%zu]}}", dtype, n,
             n * size_each);
    size_t length = strlen(header) | 1;
    header[length - 1] = header[length - 1] ? header[length - 1] : ' ';
    unsigned char *bytes = file_bytes(length, header, length, (size_t)n * size_each, &size);
    memcpy(bytes + 8 + length, values, (size_t)n * size_each);
    assert_true(safetensors_open_memory(&f, bytes, size, "x", &e));
    assert_int_equal((uintptr_t)f.data % 2, 1);
    assert_true(safetensors_read_f32(f.tensors, 0, n, out, &e));
    safetensors_close(&f);
    free(bytes);
}

static void assert_floats(const float *got, const float *wanted, int n)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&got[i], &wanted[i], sizeof *got) != 0)
            fail_msg("number %d is %a, not %a", i, (double)got[i], (double)wanted[i]);
}

static void test_numbers(void **state)
{
    (void)state;
    float got[9];
    /* 1, -2, largest, smallest normal, smallest subnormal, -0, inf, -inf */
    static const uint16_t half[] = {0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x8000, 0x7c00, 0xfc00, 0x7e00};
    static const float half_wanted[] = {1, -2, 65504, 0x1p-14f, 0x1p-24f, -0.0f, INFINITY, -INFINITY};
    read_numbers("F16", half, 2, 9, got);
    assert_floats(got, half_wanted, 8);
    assert_true(isnan(got[8]));
    static const uint16_t bfloat[] = {0x3f80, 0xc000, 0x7f7f, 0x0080, 0x0001, 0x8000, 0x7f80, 0xff80, 0x7fc0};
    static const float bfloat_wanted[] = {1, -2, 0x1.fep127f, 0x1p-126f, 0x1p-133f, -0.0f, INFINITY, -INFINITY};
    read_numbers("BF16", bfloat, 2, 9, got);
    assert_floats(got, bfloat_wanted, 8);
    assert_true(isnan(got[8]));
    static const double wide[] = {1, -0.1, 1e300, 0x1p-149};
    static const float wide_wanted[] = {1, -0.1f, INFINITY, 0x1p-149f};
    read_numbers("F64", wide, 8, 4, got);
    assert_floats(got, wide_wanted, 4);
    static const float plain[] = {1, -0.1f, NAN};
    read_numbers("F32", plain, 4, 3, got);
    assert_floats(got, plain, 3);
}

static void test_numbers_range(void **state)
{
    (void)state;
    static const float values[] = {10, 11, 12, 13};
    static const int32_t integers[] = {1};
    const SafeEntry entries[] = {{"f", SAFE_F32, 1, {4}, values, NULL, NULL}, {"i", SAFE_I32, 0, {0}, integers, NULL, NULL}};
    static const struct {
        int64_t first, count;
    } wrong[] = {{0, 5}, {4, 1}, {5, 0}, {-1, 1}, {0, -1}, {1, INT64_MAX}, {INT64_MAX, INT64_MAX}};
    float got[4];
    SafeTensors f;
    Error e = {0};
    assert_true(safetensors_write(at("f"), entries, 2, NULL, &e) && safetensors_open(&f, at("f"), &e));
    const SafeTensor *t = safetensors_find(&f, "f");
    assert_true(safetensors_read_f32(t, 1, 2, got, &e) && got[0] == 11 && got[1] == 12);
    assert_true(safetensors_read_f32(t, 4, 0, got, &e));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        e = (Error){0};
        assert_false(safetensors_read_f32(t, wrong[i].first, wrong[i].count, got, &e));
        assert_says(&e, "f: has 4 elements");
    }
    e = (Error){0};
    assert_false(safetensors_read_f32(safetensors_find(&f, "i"), 0, 1, got, &e));
    assert_says(&e, "i: is I32; F32, F16, BF16 or F64 is needed");
    safetensors_close(&f);
}

/* ---- Writing ------------------------------------------------------------------------------------------------------- */

/* Gives the bytes 100, 101, ... in pieces of at most 3; user: how many bytes until it fails (-1: never). */
static bool piece_counting(void *user, size_t done, size_t left, const void **bytes, size_t *n, Error *e)
{
    static unsigned char piece[3];
    int fail_at = *(int *)user;
    if (fail_at >= 0 && done >= (size_t)fail_at)
        return error_set(e, "the source failed at %zu", done);
    *n = left < 3 ? left : 3;
    for (size_t i = 0; i < *n; i++)
        piece[i] = (unsigned char)(100 + done + i);
    *bytes = piece;
    return true;
}

static bool piece_wrong(void *user, size_t done, size_t left, const void **bytes, size_t *n, Error *e)
{
    (void)done, (void)e;
    *bytes = "";
    *n = user ? left + 1 : 0;
    return true;
}

/* A file written here, against the same file put together by hand. */
static void test_write_bytes(void **state)
{
    (void)state;
    int never = -1;
    const SafeEntry entries[] = {
        {"tiny", SAFE_U8, 1, {7}, NULL, piece_counting, &never},
        {"\xc3\xa9\"", SAFE_BF16, 2, {2, 1}, "\1\2\3\4", NULL, NULL},
        {"none", SAFE_F32, 2, {0, 4}, NULL, NULL, NULL},
        {"num", SAFE_I64, 0, {0}, "abcdefgh", NULL, NULL},
    };
    static const char header[] = "{\"__metadata__\":{\"by\":\"me\",\"format\":\"pt\"},"
                                 "\"num\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                                 "\"none\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[8,8]},"
                                 "\"\xc3\xa9\\\"\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[8,12]},"
                                 "\"tiny\":{\"dtype\":\"U8\",\"shape\":[7],\"data_offsets\":[12,19]}}";
    size_t n = sizeof header - 1, padded = (n + 7) / 8 * 8, size, got_size;
    char text[sizeof header + 8], *got;
    memset(text, ' ', sizeof text);
    memcpy(text, header, n);
    unsigned char *wanted = file_bytes(padded, text, padded, 19, &size);
    memcpy(wanted + 8 + padded, "abcdefgh\1\2\3\4defghij", 19);

    Error e = {0};
    json_t *metadata = json_pack("{s:s}", "by", "me");
    assert_true(safetensors_write(at("w"), entries, 4, metadata, &e));
    assert_true(file_read_all(at("w"), 1 << 20, &got, &got_size, &e));
    assert_int_equal(got_size, size);
    assert_memory_equal(got, wanted, size);
    check_bytes((unsigned char *)got, got_size, NULL);
    assert_int_equal(json_object_size(metadata), 1); /* the caller's own is as it was */
    json_decref(metadata);
    free(got);
    free(wanted);
}

/* Rows 2 and 3 of a matrix of 4, without a copy. */
static void test_write_rows(void **state)
{
    (void)state;
    static const float matrix[4][3] = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}};
    const SafeEntry rows = {"rows", SAFE_F32, 2, {2, 3}, matrix[2], NULL, NULL};
    SafeTensors f;
    Error e = {0};
    float got[6];
    assert_true(safetensors_write(at("r"), &rows, 1, NULL, &e) && safetensors_open(&f, at("r"), &e));
    assert_true(safetensors_read_f32(f.tensors, 0, 6, got, &e));
    assert_floats(got, matrix[2], 6);
    assert_int_equal((uintptr_t)f.data % 8, 0);
    assert_string_equal(metadata(&f, "format"), "pt");
    safetensors_close(&f);
}

static void test_write_refuses(void **state)
{
    (void)state;
    static int early = 3;
    static const float x[2];
    const struct {
        SafeEntry entries[2];
        const char *message;
    } cases[] = {
        {{{"a", SAFE_F32, 1, {1}, x, NULL, NULL}, {"a", SAFE_F32, 1, {1}, x, NULL, NULL}}, "a: is there twice"},
        {{{"__metadata__", SAFE_F32, 1, {1}, x, NULL, NULL}, {"b", SAFE_F32, 1, {1}, x, NULL, NULL}}, "__metadata__: is there"},
        {{{"\xff", SAFE_F32, 1, {1}, x, NULL, NULL}, {"b", SAFE_F32, 1, {1}, x, NULL, NULL}}, "not a name in UTF-8"},
        {{{"a", SAFE_F32, 1, {-1}, x, NULL, NULL}, {"b", SAFE_F32, 1, {1}, x, NULL, NULL}}, "a: has a shape that cannot"},
        {{{"a", SAFE_F32, 9, {1}, x, NULL, NULL}, {"b", SAFE_F32, 1, {1}, x, NULL, NULL}}, "a: has a shape that cannot"},
        {{{"a", SAFE_U8, 1, {9}, NULL, piece_counting, &early}, {"b", SAFE_U8, 0, {0}, x, NULL, NULL}}, "failed at 3"},
        {{{"a", SAFE_U8, 1, {9}, NULL, piece_wrong, NULL}, {"b", SAFE_U8, 0, {0}, x, NULL, NULL}}, "a: a piece of 0 bytes"},
        {{{"a", SAFE_U8, 1, {9}, NULL, piece_wrong, &early}, {"b", SAFE_U8, 0, {0}, x, NULL, NULL}}, "a: a piece of 10 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Error e = {0};
        assert_false(safetensors_write(at("refused"), cases[i].entries, 2, NULL, &e));
        assert_says(&e, cases[i].message);
        assert_false(file_exists(at("refused")));
        assert_false(file_exists(at("refused.tmp")));
    }
    Error e = {0};
    json_t *metadata = json_pack("{s:i}", "steps", 3);
    assert_false(safetensors_write(at("refused"), cases[0].entries, 1, metadata, &e));
    assert_says(&e, "__metadata__: \"steps\" is not text");
    json_decref(metadata);
}

/* The disk is full at the N-th call, for every N until it all fits: no half file, and a message. */
static void test_write_full_disk(void **state)
{
    (void)state;
    static const float x[100];
    const SafeEntry entries[] = {{"a", SAFE_F32, 1, {100}, x, NULL, NULL}, {"b", SAFE_F32, 1, {50}, x, NULL, NULL}};
    int failures = 0, status = 1;
    for (int call = 1; status != 0; call++) {
        unlink(at("full"));
        pid_t child = fork();
        if (child == 0) {
            char number[16];
            Error e = {0};
            snprintf(number, sizeof number, "%d", call);
            setenv("TALLY_FAULT_WRITE", number, 1);
            bool ok = safetensors_write(at("full"), entries, 2, NULL, &e);
            _exit(ok ? 0 : strstr(e.text, "No space left") ? 1 : 2);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
        assert_false(file_exists(at("full.tmp")));
        failures += status != 0;
    }
    assert_true(failures >= 7); /* length, header, padding or not, two tensors, fsync, rename, fsync of the folder */
    SafeTensors f;
    Error e = {0};
    assert_true(safetensors_open(&f, at("full"), &e));
    safetensors_close(&f);
}

/* ---- Models -------------------------------------------------------------------------------------------------------- */

static void test_model_single(void **state)
{
    (void)state;
    SafeTensors m;
    Error e = {0};
    assert_true(dir_make(at("single"), &e));
    assert_false(safetensors_open_model(&m, at("single"), &e));
    assert_says(&e, "single: holds neither model.safetensors nor model.safetensors.index.json");
    e = (Error){0};

    enum { MANY = 5000 };
    static char names[MANY][16];
    static int32_t values[MANY];
    SafeEntry *entries = calloc(MANY, sizeof *entries);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "h.%d.w", i);
        values[i] = i;
        entries[i] = (SafeEntry){names[i], SAFE_I32, 0, {0}, &values[i], NULL, NULL};
    }
    assert_true(safetensors_write(at("single/model.safetensors"), entries, MANY, NULL, &e));
    free(entries);
    assert_true(safetensors_open_model(&m, at("single"), &e));
    assert_int_equal(m.count, MANY);
    for (int i = 0; i < MANY; i++) {
        const SafeTensor *t = safetensors_find(&m, names[i]);
        assert_non_null(t);
        assert_memory_equal(t->data, &values[i], 4);
    }
    assert_null(safetensors_find(&m, "h.5000.w"));
    safetensors_close(&m);
}

static void test_model_sharded(void **state)
{
    (void)state;
    SafeTensors m;
    Error e = {0};
    const SafeEntry one[] = {{"a", SAFE_U8, 1, {1}, "A", NULL, NULL}, {"both", SAFE_U8, 1, {1}, "1", NULL, NULL}};
    const SafeEntry two[] = {{"b", SAFE_U8, 1, {1}, "B", NULL, NULL}, {"both", SAFE_U8, 1, {1}, "2", NULL, NULL}};
    assert_true(dir_make(at("shards"), &e) && safetensors_write(at("shards/1.safetensors"), one, 2, NULL, &e) &&
                safetensors_write(at("shards/2.safetensors"), two, 2, NULL, &e));
    put(at("shards/model.safetensors.index.json"),
        "{\"metadata\": {\"total_size\": 3}, \"weight_map\": {\"b\": \"2.safetensors\", "
        "\"a\": \"1.safetensors\", \"both\": \"2.safetensors\"}}");
    assert_true(safetensors_open_model(&m, at("shards"), &e));
    assert_int_equal(m.count, 3);
    assert_int_equal(m.shards, 2);
    static const char *const wanted[][2] = {{"a", "A"}, {"b", "B"}, {"both", "2"}};
    for (int i = 0; i < 3; i++) {
        const SafeTensor *t = safetensors_find(&m, wanted[i][0]);
        assert_non_null(t);
        assert_memory_equal(t->data, wanted[i][1], 1);
    }
    assert_null(safetensors_find(&m, "c"));
    safetensors_close(&m);

    static const struct {
        const char *index, *message;
    } cases[] = {
        {"{}", "model.safetensors.index.json: weight_map: is missing"},
        {"{\"weight_map\": []}", "weight_map: is a list; an object is needed"},
        {"{\"weight_map\": {\"a\": 3}}", "weight_map: a: \"\" is not the name of a file"},
        {"{\"weight_map\": {\"a\": \"\"}}", "weight_map: a: \"\" is not the name of a file"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "weight_map: a: \"/etc/passwd\" is not the name of a file"},
        {"{\"weight_map\": {\"a\": \"../1.safetensors\"}}", "is not the name of a file in the same folder"},
        {"{\"weight_map\": {\"a\": \"..\"}}", "is not the name of a file in the same folder"},
        {"{\"weight_map\": {\"a\": \"3.safetensors\"}}", "3.safetensors: cannot open"},
        {"{\"weight_map\": {\"a\": \"model.safetensors.index.json\"}}", "says that its header has"},
        {"{\"weight_map\": {\"b\": \"1.safetensors\"}}", "weight_map: b is not in 1.safetensors"},
        {"{\"weight_map\": {\"a\": \"1.safetensors\", \"a\": \"1.safetensors\"}}", "duplicate object key"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        e = (Error){0};
        put(at("shards/model.safetensors.index.json"), cases[i].index);
        assert_false(safetensors_open_model(&m, at("shards"), &e));
        assert_says(&e, cases[i].message);
        assert_says(&e, "shards/");
        assert_null(safetensors_find(&m, "a"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_headers), cmocka_unit_test(test_refused_lengths), cmocka_unit_test(test_refused_truncation),
        cmocka_unit_test(test_refused_nesting), cmocka_unit_test(test_accepted),        cmocka_unit_test(test_accepted_dtypes),
        cmocka_unit_test(test_header_limit),    cmocka_unit_test(test_lookup),          cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_numbers_range),   cmocka_unit_test(test_write_bytes),     cmocka_unit_test(test_write_rows),
        cmocka_unit_test(test_write_refuses),   cmocka_unit_test(test_write_full_disk), cmocka_unit_test(test_model_single),
        cmocka_unit_test(test_model_sharded),
    };
    return cmocka_run_group_tests_name("safetensors", tests, temp_dir_make, temp_dir_remove);
}
