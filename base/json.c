#include "base/json.h"
#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *json_parse(const char *bytes, size_t n, const char *name, Error *e)
{
    json_error_t cause;
    json_t *root = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &cause);
    if (!root) {
        error_set(e, "%s:%d:%d: not JSON that can be read: %s", name, cause.line, cause.column, cause.text);
    } else if (!json_is_object(root)) {
        error_set(e, "%s:1:1: holds a list; an object {...} is needed", name);
        json_decref(root);
        root = NULL;
    }
    return root;
}

json_t *json_read(const char *path, Error *e)
{
    char *bytes;
    size_t n;
    if (!file_read_all(path, JSON_FILE_LIMIT, &bytes, &n, e))
        return NULL;
    json_t *root = json_parse(bytes, n, path, e);
    free(bytes);
    return root;
}

bool json_write(const char *path, const json_t *object, Error *e)
{
    char *text = json_dumps(object, JSON_INDENT(2));
    if (!text)
        return error_set(e, "%s: cannot be written as JSON: out of memory, or not valid UTF-8", path);
    size_t n = strlen(text);
    text[n] = '\n'; /* in place of the final NUL */
    bool ok = file_write_atomic(path, text, n + 1, e);
    free(text);
    return ok;
}

bool json_print(json_t *object, Error *e)
{
    bool ok = object && json_dumpf(object, stdout, JSON_INDENT(1)) == 0;
    printf("\n");
    json_decref(object);
    return ok || error_set(e, "the result cannot be written as JSON");
}

json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static const char *json_type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",    [JSON_STRING] = "text",      [JSON_INTEGER] = "an integer",
        [JSON_REAL] = "a fraction",  [JSON_TRUE] = "true/false", [JSON_FALSE] = "true/false", [JSON_NULL] = "null"};
    return names[json_typeof(value)];
}

/* The field's value, when there is one; it has to be of one of `types`, a bit for each json_type. NULL: *ok says whether that is
 * fine. */
static json_t *json_field(const json_t *object, const char *field, unsigned types, const char *wanted, bool required, bool *ok,
                          Error *e)
{
    json_t *value = json_object_get(object, field);
    *ok = true;
    if (!value || json_is_null(value))
        *ok = !required || error_set(e, "%s: is missing", field);
    else if (!(types >> json_typeof(value) & 1))
        *ok = error_set(e, "%s: is %s; %s is needed", field, json_type_name(value), wanted);
    else
        return value;
    return NULL;
}

bool json_get_int(const json_t *object, const char *field, int64_t min, int64_t max, int64_t *out, bool required, Error *e)
{
    bool ok;
    const json_t *value = json_field(object, field, 1 << JSON_INTEGER, "an integer", required, &ok, e);
    int64_t number = json_integer_value(value);
    if (value && (number < min || number > max))
        return error_set(e, "%s: is %ld; must be from %ld to %ld", field, number, min, max);
    if (value)
        *out = number;
    return ok;
}

bool json_get_double(const json_t *object, const char *field, double min, double max, double *out, bool required, Error *e)
{
    bool ok;
    const json_t *value = json_field(object, field, 1 << JSON_INTEGER | 1 << JSON_REAL, "a number", required, &ok, e);
    double number = json_number_value(value);
    if (value && !(number >= min && number <= max))
        return error_set(e, "%s: is %g; must be from %g to %g", field, number, min, max);
    if (value)
        *out = number;
    return ok;
}

bool json_get_bool(const json_t *object, const char *field, bool *out, bool required, Error *e)
{
    bool ok;
    const json_t *value = json_field(object, field, 1 << JSON_TRUE | 1 << JSON_FALSE, "true or false", required, &ok, e);
    if (value)
        *out = json_is_true(value);
    return ok;
}

bool json_get_string(const json_t *object, const char *field, const char **out, bool required, Error *e)
{
    bool ok;
    const json_t *value = json_field(object, field, 1 << JSON_STRING, "text", required, &ok, e);
    if (value)
        *out = json_string_value(value);
    return ok;
}

bool json_get_object(const json_t *object, const char *field, json_t **out, bool required, Error *e)
{
    bool ok;
    json_t *value = json_field(object, field, 1 << JSON_OBJECT, "an object", required, &ok, e);
    if (value)
        *out = value;
    return ok;
}
