#include "data/prepare.h"

#include "base/file.h"
#include "base/json.h"
#include "data/text.h"
#include "data/tokenfile.h"
#include "data/tokenizer.h"
#include "data/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool text_gather(Text *text, const PrepareOptions *o, Error *e)
{
    for (int i = 0; i < o->count; i++)
        if (!text_append(text, o->files[i], e))
            return false;
    return text->size > 0 || error_set(e, "there is no text: the input is empty (%d file%s)", o->count, o->count == 1 ? "" : "s");
}

/* Byte offset at which the validation part begins: a boundary between characters. The product is floor(characters (1 -
 * fraction)). */
static size_t text_split(const Text *text, double val_fraction)
{
    int64_t characters = utf8_count(text->bytes, text->size);
    return utf8_offset(text->bytes, text->size, (int64_t)((double)characters * (1 - val_fraction)));
}

/* Encodes text[0 .. n) into the new file DIR/NAME, not yet committed. */
static bool part_create(FileWriter *w, const char *dir, const char *name, const Tokenizer *t, const uint8_t *text, size_t n,
                        int64_t *tokens, Error *e)
{
    char path[PATH_SIZE];
    int32_t *ids = NULL;
    bool good = path_join(path, dir, name, e) && tokenizer_encode(t, text, n, &ids, tokens, e);
    if (good && *tokens < 2)
        good = error_set(e,
                         "%s would hold %" PRId64
                         " token%s, and at least 2 are needed, one to follow the other: more text, or another "
                         "--val-fraction (0: no validation)",
                         name, *tokens, *tokens == 1 ? "" : "s");
    good = good && token_file_create(w, path, ids, *tokens, tokenizer_vocab_size(t), e);
    free(ids);
    return good;
}

static bool file_drop(const char *dir, const char *name, Error *e)
{
    char path[PATH_SIZE];
    if (!path_join(path, dir, name, e))
        return false;
    return unlink(path) == 0 || errno == ENOENT || error_set(e, "%s: cannot remove: %s", path, strerror(errno));
}

/* Both parts are first written beside their final names, so that a full disk leaves an earlier data set as it was. */
static bool parts_write(const PrepareOptions *o, const Tokenizer *t, const Text *text, PrepareResult *r, Error *e)
{
    FileWriter train, val;
    size_t split = text_split(text, o->val_fraction);
    bool has_val = split < text->size;
    if (!part_create(&train, o->out, "train.bin", t, text->bytes, split, &r->train_tokens, e))
        return false;
    if (has_val && !part_create(&val, o->out, "val.bin", t, text->bytes + split, text->size - split, &r->val_tokens, e)) {
        file_abandon(&train);
        return false;
    }
    bool good = file_drop(o->out, "meta.json", e); /* from here until the new one is written it would be wrong */
    if (good)
        good = file_commit(&train, e);
    else
        file_abandon(&train);
    if (!has_val)
        return good && file_drop(o->out, "val.bin", e);
    if (good)
        return file_commit(&val, e);
    file_abandon(&val);
    return false;
}

static bool meta_write(const PrepareOptions *o, const Tokenizer *t, const PrepareResult *r, Error *e)
{
    char path[PATH_SIZE];
    json_t *meta = tokenizer_to_json(t, e);
    bool good = meta && path_join(path, o->out, "meta.json", e);
    if (good && (json_object_set_new(meta, "train_tokens", json_integer(r->train_tokens)) != 0 ||
                 json_object_set_new(meta, "val_tokens", json_integer(r->val_tokens)) != 0 ||
                 json_object_set_new(meta, "text_bytes", json_integer(r->text_bytes)) != 0))
        good = error_set(e, "out of host memory for meta.json");
    good = good && json_write(path, meta, e);
    json_decref(meta);
    return good;
}

static bool vocabulary_check(const Tokenizer *t, Error *e)
{
    return tokenizer_vocab_size(t) <= TOKEN_FILE_MAX_VOCAB ||
           error_set(e,
                     "the text has %" PRId64 " kinds of characters, more than the %d that 16-bit token files can tell apart; "
                     "--tokenizer byte takes any text",
                     tokenizer_vocab_size(t), TOKEN_FILE_MAX_VOCAB);
}

bool data_prepare(const PrepareOptions *o, PrepareResult *r, Error *e)
{
    *r = (PrepareResult){0};
    if (!(o->val_fraction >= 0 && o->val_fraction < 1))
        return error_usage(e, "--val-fraction is %g; it must be at least 0 and less than 1", o->val_fraction);
    Text text = {0};
    Tokenizer *t = NULL;
    bool good = text_gather(&text, o, e) && (t = tokenizer_create(o->tokenizer, e)) &&
                (!o->allow_special || tokenizer_allow_special(t, e)) && tokenizer_learn(t, text.bytes, text.size, e) &&
                tokenizer_learn_end(t, e) && vocabulary_check(t, e) && dir_make(o->out, e);
    r->text_bytes = (int64_t)text.size;
    r->vocab_size = t ? tokenizer_vocab_size(t) : 0;
    good = good && parts_write(o, t, &text, r, e) && meta_write(o, t, r, e);
    tokenizer_destroy(t);
    text_free(&text);
    return good;
}
