#include "base/safetensors.h"
#include "base/convert.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[SAFE_DTYPE_COUNT] = {
    [SAFE_F64] = {"F64", 8},   [SAFE_I64] = {"I64", 8},         [SAFE_U64] = {"U64", 8},         [SAFE_F32] = {"F32", 4},
    [SAFE_I32] = {"I32", 4},   [SAFE_U32] = {"U32", 4},         [SAFE_F16] = {"F16", 2},         [SAFE_BF16] = {"BF16", 2},
    [SAFE_I16] = {"I16", 2},   [SAFE_U16] = {"U16", 2},         [SAFE_I8] = {"I8", 1},           [SAFE_U8] = {"U8", 1},
    [SAFE_BOOL] = {"BOOL", 1}, [SAFE_F8_E4M3] = {"F8_E4M3", 1}, [SAFE_F8_E5M2] = {"F8_E5M2", 1},
};

/* Bytes of a shape: false when a dimension is negative or the product overflows. */
static bool shape_bytes(SafeDtype dtype, int ndim, const int64_t *shape, size_t *bytes)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        if (!product_fits(n, shape[i], &n))
            return false;
    bool fits = product_fits(n, (int64_t)dtypes[dtype].size, &n);
    *bytes = (size_t)n;
    return fits;
}

/* ---- Reading ------------------------------------------------------------------------------------------------------- */

static bool dtype_parse(SafeDtype *out, const char *text, Error *e)
{
    for (int i = 0; i < SAFE_DTYPE_COUNT; i++) {
        if (strcmp(text, dtypes[i].name) == 0) {
            *out = (SafeDtype)i;
            return true;
        }
    }
    return error_set(e, "dtype: \"%.40s\" is not one of the format's", text);
}

/* A list of at most `max` integers >= 0; their number in *n. */
static bool integers_parse(int64_t *out, int *n, int max, const json_t *info, const char *field, Error *e)
{
    const json_t *list = json_object_get(info, field);
    if (!json_is_array(list))
        return error_set(e, "%s: a list of integers is needed", field);
    if (json_array_size(list) > (size_t)max)
        return error_set(e, "%s: has %zu numbers, more than %d", field, json_array_size(list), max);
    *n = (int)json_array_size(list);
    for (int i = 0; i < *n; i++) {
        const json_t *item = json_array_get(list, (size_t)i);
        out[i] = json_integer_value(item); /* 0 for what is no integer */
        if (!json_is_integer(item) || out[i] < 0)
            return error_set(e, "%s[%d]: must be an integer of at least 0", field, i);
    }
    return true;
}

/* One tensor's entry of the header, checked on its own: what it says is consistent and inside the data. */
static bool tensor_parse(SafeTensor *t, const json_t *info, const unsigned char *data, size_t data_size, Error *e)
{
    const char *dtype;
    int64_t offsets[2] = {0, 0};
    int n;
    if (!json_is_object(info))
        return error_set(e, "an object with dtype, shape and data_offsets is needed");
    if (!json_get_string(info, "dtype", &dtype, true, e) || !dtype_parse(&t->dtype, dtype, e) ||
        !integers_parse(t->shape, &t->ndim, SAFE_MAX_DIMS, info, "shape", e) ||
        !integers_parse(offsets, &n, 2, info, "data_offsets", e))
        return false;
    if (n != 2 || offsets[1] < offsets[0] || (size_t)offsets[1] > data_size)
        return error_set(e, "data_offsets: [%ld, %ld] is no range inside the file's %zu bytes of data", offsets[0], offsets[1],
                         data_size);
    t->data = data + offsets[0];
    t->bytes = (size_t)(offsets[1] - offsets[0]);
    size_t needed;
    if (!shape_bytes(t->dtype, t->ndim, t->shape, &needed))
        return error_set(e, "shape: the product of its dimensions is beyond 2^63 bytes");
    if (needed != t->bytes)
        return error_set(e, "data_offsets: span %zu bytes, but the shape in %s takes %zu", t->bytes, dtype, needed);
    return true;
}

static bool metadata_check(const json_t *metadata, Error *e)
{
    if (!json_is_object(metadata))
        return error_set(e, "an object of texts is needed");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)metadata, key, value) if (!json_is_string(value)) return error_set(e, "\"%.100s\" is not text",
                                                                                                     key);
    return true;
}

static int compare_places(const void *a, const void *b)
{
    const SafeTensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const SafeTensor *)a)->name, ((const SafeTensor *)b)->name);
}

/* Do the tensors, in the order of their offsets, cover the data exactly? */
static bool coverage_check(const SafeTensors *f, size_t data_size, Error *e)
{
    size_t end = 0;
    for (size_t i = 0; i < f->count; i++) {
        const SafeTensor *t = &f->tensors[i];
        size_t begin = (size_t)((const unsigned char *)t->data - f->data);
        if (begin != end)
            return error_set(e, "%.200s: begins at byte %zu of the data, %s byte %zu, where the one before it ends", t->name,
                             begin, begin < end ? "before" : "after", end);
        end += t->bytes;
    }
    return end == data_size || error_set(e, "holds %zu bytes of data, but its tensors end at byte %zu", data_size, end);
}

/* Fills f->tensors from f->header. */
static bool header_parse(SafeTensors *f, size_t data_size, Error *e)
{
    f->tensors = memory_get(e, json_object_size(f->header), sizeof *f->tensors, "the list of tensors");
    if (!f->tensors)
        return false;
    const char *name;
    json_t *info;
    json_object_foreach(f->header, name, info)
    {
        bool metadata = strcmp(name, "__metadata__") == 0;
        SafeTensor *t = &f->tensors[f->count];
        t->name = name;
        if (!(metadata ? metadata_check(info, e) : tensor_parse(t, info, f->data, data_size, e)))
            return error_prefix(e, "%.200s", name);
        f->count += !metadata;
    }
    qsort(f->tensors, f->count, sizeof *f->tensors, compare_places);
    if (!coverage_check(f, data_size, e))
        return false;
    qsort(f->tensors, f->count, sizeof *f->tensors, compare_names);
    return true;
}

/* Finds the header among the file's bytes. */
static bool header_find(const unsigned char *bytes, size_t size, size_t *length, Error *e)
{
    uint64_t n = 0;
    if (size < 8)
        return error_set(e, "has %zu bytes; a safetensors file begins with 8 bytes for its header's length", size);
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)bytes[i] << (8 * i);
    if (n > size - 8)
        return error_set(e, "says that its header has %lu bytes, but only %zu follow", n, size - 8);
    if (n > SAFE_MAX_HEADER)
        return error_set(e, "has a header of %lu bytes; more than %d are refused", n, SAFE_MAX_HEADER);
    if (n == 0 || bytes[8] != '{')
        return error_set(e, "has a header that does not begin with '{'");
    *length = (size_t)n;
    return true;
}

bool safetensors_open_memory(SafeTensors *f, const void *bytes, size_t size, const char *name, Error *e)
{
    *f = (SafeTensors){.map = {"", 0}};
    const unsigned char *p = bytes;
    size_t length = 0;
    if (!header_find(p, size, &length, e))
        return error_prefix(e, "%s", name);
    size_t used = length;
    while (p[8 + used - 1] == ' ') /* padding may be long, and stops at the '{' */
        used--;
    f->data = p + 8 + length;
    f->header = json_parse((const char *)p + 8, used, "the header", e);
    if (f->header && header_parse(f, size - 8 - length, e))
        return true;
    safetensors_close(f);
    return error_prefix(e, "%s", name);
}

bool safetensors_open(SafeTensors *f, const char *path, Error *e)
{
    FileMap map;
    *f = (SafeTensors){.map = {"", 0}};
    if (!file_map(&map, path, e))
        return false;
    if (!safetensors_open_memory(f, map.data, map.size, path, e)) {
        file_unmap(&map);
        return false;
    }
    f->map = map;
    return true;
}

void safetensors_close(SafeTensors *f)
{
    for (size_t i = 0; i < f->shards; i++)
        safetensors_close(&f->shard[i]);
    free(f->shard);
    json_decref(f->header);
    free(f->tensors);
    file_unmap(&f->map);
    *f = (SafeTensors){.map = {"", 0}};
}

const SafeTensor *safetensors_find(const SafeTensors *f, const char *name)
{
    SafeTensor key = {.name = name};
    return f->count ? bsearch(&key, f->tensors, f->count, sizeof key, compare_names) : NULL;
}

static float element_to_float(const unsigned char *p, SafeDtype dtype)
{
    uint16_t half;
    double wide;
    float value;
    switch (dtype) {
    case SAFE_F64:
        memcpy(&wide, p, sizeof wide);
        return (float)wide;
    case SAFE_F16:
        memcpy(&half, p, sizeof half);
        return f16_to_f32(half);
    case SAFE_BF16:
        memcpy(&half, p, sizeof half);
        return bf16_to_f32(half);
    default:
        memcpy(&value, p, sizeof value);
        return value;
    }
}

bool safetensors_read_f32(const SafeTensor *t, int64_t first, int64_t count, float *out, Error *e)
{
    size_t size = dtypes[t->dtype].size;
    int64_t total = (int64_t)(t->bytes / size);
    if (t->dtype != SAFE_F64 && t->dtype != SAFE_F32 && t->dtype != SAFE_F16 && t->dtype != SAFE_BF16)
        return error_set(e, "%.200s: is %s; F32, F16, BF16 or F64 is needed", t->name, dtypes[t->dtype].name);
    if (first < 0 || count < 0 || first > total || count > total - first)
        return error_set(e, "%.200s: has %ld elements; %ld from number %ld on are not all there", t->name, total, count, first);
    const unsigned char *p = (const unsigned char *)t->data + (size_t)first * size;
    if (t->dtype == SAFE_F32)
        memcpy(out, p, (size_t)count * size);
    else
        for (int64_t i = 0; i < count; i++)
            out[i] = element_to_float(p + (size_t)i * size, t->dtype);
    return true;
}

/* ---- Writing ------------------------------------------------------------------------------------------------------- */

/* The entries from the widest dtype to the narrowest, otherwise in their order. Free the list; NULL on error. */
static const SafeEntry **entries_order(const SafeEntry *entries, size_t n, Error *e)
{
    const SafeEntry **order = memory_get(e, n, sizeof *order, "the order of the tensors");
    size_t placed = 0;
    for (size_t size = 8; order && size >= 1; size /= 2)
        for (size_t i = 0; i < n; i++)
            if (dtypes[entries[i].dtype].size == size)
                order[placed++] = &entries[i];
    return order;
}

/* Adds a tensor to the header; its data begins at *offset, which moves to its end. */
static bool header_add(json_t *header, const SafeEntry *t, size_t *offset, Error *e)
{
    size_t bytes;
    if (t->ndim < 0 || t->ndim > SAFE_MAX_DIMS || !shape_bytes(t->dtype, t->ndim, t->shape, &bytes))
        return error_set(e, "%.200s: has a shape that cannot be written", t->name);
    if (json_object_get(header, t->name))
        return error_set(e, "%.200s: is there twice, or is a name that the format reserves", t->name);
    json_t *shape = json_array();
    for (int i = 0; i < t->ndim; i++)
        json_array_append_new(shape, json_integer(t->shape[i]));
    json_t *info = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[t->dtype].name, "shape", shape, "data_offsets",
                             (json_int_t)*offset, (json_int_t)(*offset + bytes));
    *offset += bytes;
    return json_object_set_new(header, t->name, info) == 0 || error_set(e, "%.200s: is not a name in UTF-8", t->name);
}

/* Length and header, padded with spaces so that the data begins at a multiple of 8 bytes. */
static bool header_write(FileWriter *w, const json_t *header, Error *e)
{
    char *text = json_dumps(header, JSON_COMPACT);
    size_t n = text ? strlen(text) : 0, padding = (8 - n % 8) % 8;
    uint64_t length = n + padding;
    bool ok = text && length <= SAFE_MAX_HEADER;
    if (!ok)
        error_set(e, "%s: the names of the tensors take %lu bytes; the format ends at %d", w->path, length, SAFE_MAX_HEADER);
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (unsigned char)(length >> (8 * i));
    ok = ok && file_append(w, prefix, 8, e) && file_append(w, text, n, e) && file_append(w, "       ", padding, e);
    free(text);
    return ok;
}

static bool data_write(FileWriter *w, const SafeEntry *t, Error *e)
{
    size_t left = 0, done = 0;
    shape_bytes(t->dtype, t->ndim, t->shape, &left);
    if (t->data)
        return file_append(w, t->data, left, e);
    while (left > 0) {
        const void *bytes = NULL;
        size_t n = 0;
        if (!t->piece(t->user, done, left, &bytes, &n, e))
            return false;
        if (n == 0 || n > left)
            return error_set(e, "%.200s: a piece of %zu bytes where %zu are left", t->name, n, left);
        if (!file_append(w, bytes, n, e))
            return false;
        done += n;
        left -= n;
    }
    return true;
}

/* The header of all entries in that order, or NULL. */
static json_t *header_build(const SafeEntry **order, size_t n, const json_t *metadata, Error *e)
{
    json_t *header = json_object();
    json_t *about = metadata ? json_copy((json_t *)metadata) : json_object();
    size_t offset = 0;
    json_object_set_new(about, "format", json_string("pt"));
    bool ok = json_object_set_new(header, "__metadata__", about) == 0 || error_set(e, "out of memory for the header");
    if (ok && !metadata_check(about, e))
        ok = error_prefix(e, "__metadata__");
    for (size_t i = 0; ok && i < n; i++)
        ok = header_add(header, order[i], &offset, e);
    if (ok)
        return header;
    json_decref(header);
    return NULL;
}

bool safetensors_write(const char *path, const SafeEntry *entries, size_t n, const json_t *metadata, Error *e)
{
    FileWriter w;
    const SafeEntry **order = entries_order(entries, n, e);
    json_t *header = order ? header_build(order, n, metadata, e) : NULL;
    bool opened = header && file_create(&w, path, e);
    bool ok = opened && header_write(&w, header, e);
    for (size_t i = 0; ok && i < n; i++)
        ok = data_write(&w, order[i], e);
    if (ok)
        ok = file_commit(&w, e);
    else if (opened)
        file_abandon(&w);
    json_decref(header);
    free(order);
    return ok;
}
