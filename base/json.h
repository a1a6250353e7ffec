/* JSON files through jansson: objects read with line and column in the message, fields fetched with type and range
 * checked, files saved whole or not at all.
 *
 * A field that is null counts as absent. A getter names only the field; who knows the file adds it:
 *
 *     if (!json_get_int(root, "n_layer", 1, INT64_MAX, &n, true, e))
 *         return error_prefix(e, "%s", path);                          "DIR/config.json: n_layer: is -3; ..." */
#ifndef TALLY_BASE_JSON_H
#define TALLY_BASE_JSON_H

#include "base/error.h"

#include <jansson.h>
#include <stdint.h>

/* Reads a text whose outermost value is an object. Duplicate keys, more than 2048 nested brackets, numbers beyond 64
 * bits, invalid UTF-8 and anything after the object are refused. `name` is for messages. Returns a new reference (give it
 * back with json_decref), or NULL after recording "NAME:LINE:COLUMN: ...". */
json_t *json_parse(const char *bytes, size_t n, const char *name, Error *e);

enum { JSON_FILE_LIMIT = 64 << 20 }; /* bytes */

/* The same for a file of at most JSON_FILE_LIMIT. */
json_t *json_read(const char *path, Error *e);

/* Writes an object, keys in the order of insertion, two spaces of indent, a final newline; durably and whole
 * (base/file.h). */
bool json_write(const char *path, const json_t *object, Error *e);

/* Prints an object, one space of indent, and gives it back. NULL is an error. */
bool json_print(json_t *object, Error *e);

/* A new reference: the number, or null for Inf and NaN, which JSON has not. */
json_t *json_number(double value);

/* The fields of an object. Absent (or null): *out is left as it is, and it is an error only when `required`. Another
 * type, or a number outside [min, max], is an error. json_get_double takes integers too. A string points into the object
 * and lives as long. json_get_object gives a borrowed reference. */
bool json_get_int(const json_t *object, const char *field, int64_t min, int64_t max, int64_t *out, bool required, Error *e);
bool json_get_double(const json_t *object, const char *field, double min, double max, double *out, bool required, Error *e);
bool json_get_bool(const json_t *object, const char *field, bool *out, bool required, Error *e);
bool json_get_string(const json_t *object, const char *field, const char **out, bool required, Error *e);
bool json_get_object(const json_t *object, const char *field, json_t **out, bool required, Error *e);

#endif
