#include "base/json.h"
#include "base/file.h"

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

static const char *json_type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",    [JSON_STRING] = "text",      [JSON_INTEGER] = "an integer",
        [JSON_REAL] = "a fraction",  [JSON_TRUE] = "true/false", [JSON_FALSE] = "true/false", [JSON_NULL] = "null"};
    return names[json_typeof(value)];
}

/* The field's value, or NULL: then *ok says whether that is fine. */
static const json_t *json_field(const json_t *object, const char *field, bool required, bool *ok, Error *e)
{
    const json_t *value = json_object_get(object, field);
    if (json_is_null(value))
        value = NULL;
    *ok = value || !required || error_set(e, "%s: is missing", field);
    return value;
}

static bool json_wrong_type(const json_t *value, const char *field, const char *wanted, Error *e)
{
    return error_set(e, "%s: is %s; %s is needed", field, json_type_name(value), wanted);
}

bool json_get_int(const json_t *object, const char *field, int64_t min, int64_t max, int64_t *out, bool required, Error *e)
{
    bool ok;
    const json_t *value = json_field(object, field, required, &ok, e);
    if (!value)
        return ok;
    if (!json_is_integer(value))
        return json_wrong_type(value, field, "an integer", e);
    int64_t number = json_integer_value(value);
    if (number < min || number > max)
        return error_set(e, "%s: is %ld; must be from %ld to %ld", field, number, min, max);
    *out = number;
    return true;
}

bool json_get_double(const json_t *object, const char *field, double min, double max, double *out, bool required, Error *e)
{
    bool ok;
    const json_t *value = json_field(object, field, required, &ok, e);
    if (!value)
        return ok;
    if (!json_is_number(value))
        return json_wrong_type(value, field, "a number", e);
    double number = json_number_value(value);
    if (!(number >= min && number <= max))
        return error_set(e, "%s: is %g; must be from %g to %g", field, number, min, max);
    *out = number;
    return true;
}

bool json_get_bool(const json_t *object, const char *field, bool *out, bool required, Error *e)
{
    bool ok;
    const json_t *value = json_field(object, field, required, &ok, e);
    if (!value)
        return ok;
    if (!json_is_boolean(value))
        return json_wrong_type(value, field, "true or false", e);
    *out = json_is_true(value);
    return true;
}

bool json_get_string(const json_t *object, const char *field, const char **out, bool required, Error *e)
{
    bool ok;
    const json_t *value = json_field(object, field, required, &ok, e);
    if (!value)
        return ok;
    if (!json_is_string(value))
        return json_wrong_type(value, field, "text", e);
    *out = json_string_value(value);
    return true;
}

bool json_get_object(const json_t *object, const char *field, json_t **out, bool required, Error *e)
{
    bool ok;
    const json_t *value = json_field(object, field, required, &ok, e);
    if (!value)
        return ok;
    if (!json_is_object(value))
        return json_wrong_type(value, field, "an object", e);
    *out = (json_t *)value;
    return true;
}
