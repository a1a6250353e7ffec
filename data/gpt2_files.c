#include "data/gpt2_files.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { MERGES_LIMIT = 64 << 20 }; /* bytes of a merges.txt: GPT-2's has half a million */

/* ---- vocab.json and merges.txt ---- */

/* The lines of a merges.txt as a list of strings, without the first one if that is a comment. */
static json_t *merges_parse(const char *text, size_t n, Error *e)
{
    json_t *merges = json_array();
    size_t number = 1;
    for (const char *line = text, *end = text + n, *next; line < end; line = next + 1, number++) {
        next = memchr(line, '\n', (size_t)(end - line));
        next = next ? next : end;
        size_t length = (size_t)(next - line);
        length -= length > 0 && line[length - 1] == '\r';
        if (length == 0 || (number == 1 && strncmp(line, "#version", 8) == 0))
            continue;
        if (json_array_append_new(merges, json_stringn(line, length)) != 0) {
            error_set(e, "line %zu: not UTF-8, or out of host memory", number);
            json_decref(merges);
            return NULL;
        }
    }
    return merges;
}

static json_t *pair_read(const char *dir, Error *e)
{
    char vocab_path[PATH_SIZE], merges_path[PATH_SIZE], *text;
    size_t n;
    if (!path_join(vocab_path, dir, "vocab.json", e) || !path_join(merges_path, dir, "merges.txt", e))
        return NULL;
    if (!file_exists(vocab_path)) {
        error_set(e, "%s: has neither a tokenizer.json nor a vocab.json with a merges.txt", dir);
        return NULL;
    }
    json_t *vocab = json_read(vocab_path, e), *merges = NULL;
    if (vocab && file_read_all(merges_path, MERGES_LIMIT, &text, &n, e)) {
        if (!(merges = merges_parse(text, n, e)))
            error_prefix(e, "%s", merges_path);
        free(text);
    }
    return json_pack("{s:o, s:o}", "vocab", vocab, "merges", merges); /* NULL when one of them is */
}

/* ---- tokenizer.json ---- */

/* What a tokenizer.json says when it is of GPT-2's kind: the field of a part (or the part as a whole), as JSON. Where it may be
 * absent, null and absent are fine, too. */
static const struct {
    const char *part, *field, *wanted;
    bool may_be_absent;
} kind_fields[] = {{"model", "type", "\"BPE\"", false},
                   {"model", "dropout", "null", true},
                   {"model", "continuing_subword_prefix", "\"\"", true},
                   {"model", "end_of_word_suffix", "\"\"", true},
                   {"model", "byte_fallback", "false", true},
                   {"model", "ignore_merges", "false", true},
                   {"normalizer", NULL, "null", true},
                   {"pre_tokenizer", "type", "\"ByteLevel\"", false},
                   {"pre_tokenizer", "add_prefix_space", "false", false},
                   {"pre_tokenizer", "use_regex", "true", true},
                   {"post_processor", "type", "\"ByteLevel\"", true},
                   {"decoder", "type", "\"ByteLevel\"", false}};

static bool kind_check(const json_t *root, Error *e)
{
    for (size_t i = 0; i < sizeof kind_fields / sizeof *kind_fields; i++) {
        const char *part = kind_fields[i].part, *field = kind_fields[i].field, *wanted = kind_fields[i].wanted;
        const json_t *value = json_object_get(root, part);
        if (field)
            value = json_object_get(value, field);
        if (kind_fields[i].may_be_absent && (!value || json_is_null(value)))
            continue;
        char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        bool same = text && strcmp(text, wanted) == 0;
        if (!same)
            error_set(e, "%s%s%s: is %.60s, and not %s: this is another kind of tokenizer than GPT-2's", part, field ? "." : "",
                      field ? field : "", text ? text : "missing", wanted);
        free(text);
        if (!same)
            return false;
    }
    return true;
}

/* One of "added_tokens" goes into `special`. */
static bool special_take(json_t *special, const json_t *token, Error *e)
{
    static const char *const trimming[] = {"single_word", "lstrip", "rstrip"};
    int64_t id = 0;
    const char *content = "";
    bool is_special = false, trims = false;
    bool good = json_get_int(token, "id", 0, INT32_MAX, &id, true, e) && json_get_string(token, "content", &content, true, e) &&
                json_get_bool(token, "special", &is_special, true, e);
    for (size_t i = 0; good && i < sizeof trimming / sizeof *trimming; i++)
        if ((good = json_get_bool(token, trimming[i], &trims, false, e)) && trims)
            good = error_set(e, "%s: is true; GPT-2's are where they are written", trimming[i]);
    if (good && !is_special)
        good = error_set(e, "special: is false; GPT-2 adds special tokens only");
    if (good && json_object_get(special, content))
        good = error_set(e, "content: \"%.40s\" is there twice", content);
    if (good && json_object_set_new(special, content, json_integer(id)) != 0)
        good = error_set(e, "out of host memory");
    return good || error_prefix(e, "added_tokens");
}

static json_t *tokenizer_json_take(const json_t *root, Error *e)
{
    json_t *special = json_object(), *model = json_object_get(root, "model");
    const json_t *token;
    size_t i;
    bool good = kind_check(root, e);
    json_array_foreach(json_object_get(root, "added_tokens"), i, token) good = good && special_take(special, token, e);
    json_t *source = good ? json_pack("{s:O*, s:O*, s:O}", "vocab", json_object_get(model, "vocab"), "merges",
                                      json_object_get(model, "merges"), "special_tokens", special)
                          : NULL;
    json_decref(special);
    return source;
}

json_t *gpt2_files_read(const char *dir, Error *e)
{
    char path[PATH_SIZE];
    if (!path_join(path, dir, "tokenizer.json", e))
        return NULL;
    if (!file_exists(path))
        return pair_read(dir, e);
    json_t *root = json_read(path, e), *source = NULL;
    if (root && !(source = tokenizer_json_take(root, e)))
        error_prefix(e, "%s", path);
    json_decref(root);
    return source;
}
