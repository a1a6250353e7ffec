#include "data/prepare.h"

#include "base/file.h"
#include "base/json.h"
#include "base/philox.h"
#include "data/stream.h"
#include "data/tokenfile.h"
#include "data/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const split_name[SPLITS] = {"train", "val"};

/* The token files of one split, as far as they are written. All but the last are finished, under their temporary names. */
typedef struct SplitWriter {
    TokenWriter shard;
    bool open;
    int shards;
} SplitWriter;

/* A part of the text that goes to one split, and its tokens. */
typedef struct Piece {
    TextSpan span;
    int split;
    int32_t *ids; /* [count] */
    int64_t count;
} Piece;

typedef struct Preparation {
    const PrepareOptions *options;
    DataFacts *facts;
    Tokenizer *tokenizer;
    TextBlock block;
    Piece *piece; /* [pieces]: the block's */
    size_t pieces, piece_capacity;
    SplitWriter writer[SPLITS];
    int64_t train_characters; /* of one text: to come before the validation part begins */
    int split;                /* of the document in progress                            */
    int64_t done;             /* bytes of the text in this pass                         */
    int lock;                 /* of the folder (dir_lock); -1: not taken                */
} Preparation;

/* ---- Reading --------------------------------------------------------------------------------------------------------- */

/* The next block; *more = false at the end of the text. */
static bool block_next(Preparation *p, const char *pass, bool *more, Error *e)
{
    const PrepareOptions *o = p->options;
    if (!o->source->next(o->source, &p->block, p->tokenizer, e))
        return false;
    *more = p->block.spans > 0;
    size_t between = o->separator ? strlen(o->separator) : 0;
    for (size_t i = 0; i < p->block.spans; i++)
        p->done += (int64_t)(p->block.span[i].end - p->block.span[i].begin + (p->block.span[i].last ? between : 0));
    return !o->progress || o->progress(o->user, pass, p->done, o->source->bytes) ||
           error_set(e, "interrupted; %s is as it was before", o->out);
}

/* The first pass, where one is needed: counts the characters of the text, and lets the tokenizer learn from it. */
static bool text_learn(Preparation *p, Error *e)
{
    const PrepareOptions *o = p->options;
    bool counts = !o->separator && o->val_fraction > 0, learns = tokenizer_learns(p->tokenizer);
    int64_t characters = 0;
    for (bool more = counts || learns; more;) {
        if (!block_next(p, "reading", &more, e))
            return false;
        for (size_t i = 0; i < p->block.spans; i++) {
            TextSpan s = p->block.span[i];
            characters += counts ? utf8_count(p->block.bytes + s.begin, s.end - s.begin) : 0;
            if (!tokenizer_learn(p->tokenizer, p->block.bytes + s.begin, s.end - s.begin, e))
                return false;
        }
    }
    if ((counts || learns) && p->done == 0)
        return error_set(e, "there is no text: the input is empty");
    p->train_characters = counts ? (int64_t)((double)characters * (1 - o->val_fraction)) : INT64_MAX;
    if (o->separator && !tokenizer_learn(p->tokenizer, (const uint8_t *)o->separator, strlen(o->separator), e))
        return false;
    p->done = 0;
    o->source->rewind(o->source);
    return tokenizer_learn_end(p->tokenizer, e);
}

/* ---- Which split ----------------------------------------------------------------------------------------------------- */

/* Does a document that begins with these bytes validate? FNV-1a, its bits mixed by Philox and taken as a fraction. */
static bool document_validates(const uint8_t *bytes, size_t n, double val_fraction)
{
    enum { HASHED = 1 << 16 };
    uint64_t hash = 0xCBF29CE484222325;
    for (size_t i = 0; i < n && i < HASHED; i++)
        hash = (hash ^ bytes[i]) * 0x100000001B3;
    Philox mixed = philox4x32_10((uint32_t)hash, (uint32_t)(hash >> 32), 0, 0, 0, 0);
    return mixed.word[0] * 0x1p-32 < val_fraction;
}

static bool piece_add(Preparation *p, TextSpan span, int split, Error *e)
{
    if (!memory_grow(&p->piece, &p->piece_capacity, p->pieces + 1, sizeof *p->piece, "a list of documents", e))
        return false;
    p->piece[p->pieces++] = (Piece){span, split, NULL, 0};
    return true;
}

/* Gives the block's spans to the splits; one in which the validation part begins is cut there, between characters. */
static bool block_route(Preparation *p, Error *e)
{
    const PrepareOptions *o = p->options;
    for (size_t i = 0; i < p->block.spans; i++) {
        TextSpan s = p->block.span[i];
        const uint8_t *text = p->block.bytes + s.begin;
        if (o->separator) {
            if (s.first)
                p->split = document_validates(text, s.end - s.begin, o->val_fraction) ? SPLIT_VAL : SPLIT_TRAIN;
        } else if (p->split == SPLIT_TRAIN && p->train_characters < INT64_MAX) {
            size_t cut = utf8_offset(text, s.end - s.begin, p->train_characters);
            p->train_characters -= utf8_count(text, cut);
            if (cut < s.end - s.begin) {
                TextSpan before = s;
                before.end = s.begin += cut;
                s.offset += (int64_t)cut;
                if (!piece_add(p, before, SPLIT_TRAIN, e))
                    return false;
                p->split = SPLIT_VAL;
            }
        }
        if (!piece_add(p, s, p->split, e))
            return false;
    }
    return true;
}

/* ---- Encoding -------------------------------------------------------------------------------------------------------- */

static void piece_encode(const Preparation *p, Piece *piece, Error *e)
{
    Error mine = {0};
    const TextSpan *s = &piece->span;
    if (tokenizer_encode(p->tokenizer, p->block.bytes + s->begin, s->end - s->begin, &piece->ids, &piece->count, &mine))
        return;
    error_prefix(&mine, "%s, from byte %" PRId64 " on", s->name, s->offset);
#pragma omp critical(prepare)
    if (!e->set)
        *e = mine;
}

/* Many documents are shared out to the threads; a single piece the tokenizer shares out itself. */
static bool block_encode(Preparation *p, Error *e)
{
#pragma omp parallel for schedule(dynamic, 16) if (p->pieces > 1)
    for (size_t i = 0; i < p->pieces; i++)
        piece_encode(p, &p->piece[i], e);
    return !e->set;
}

/* ---- Writing --------------------------------------------------------------------------------------------------------- */

static bool shard_path(const Preparation *p, int split, int shard, const char *suffix, char path[PATH_SIZE], Error *e)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%06d.bin%s", split_name[split], shard, suffix);
    return path_join(path, p->options->out, name, e);
}

static bool tokens_write(Preparation *p, int split, const int32_t *ids, int64_t n, Error *e)
{
    SplitWriter *w = &p->writer[split];
    int64_t most = p->options->shard_tokens ? p->options->shard_tokens : TOKEN_FILE_MAX_TOKENS;
    while (n > 0) {
        char path[PATH_SIZE];
        if (!w->open) {
            if (!shard_path(p, split, w->shards, "", path, e) || !token_writer_create(&w->shard, path, p->facts->vocab_size, e))
                return false;
            w->open = true;
            w->shards++;
        }
        int64_t room = most - w->shard.count, part = n < room ? n : room;
        if (!token_writer_append(&w->shard, ids, part, e))
            return false;
        if (part == room) {
            w->open = false;
            if (!token_writer_finish(&w->shard, e))
                return false;
        }
        p->facts->tokens[split] += part;
        ids += part, n -= part;
    }
    return true;
}

static bool block_write(Preparation *p, Error *e)
{
    DataFacts *f = p->facts;
    int32_t separator = (int32_t)f->separator;
    for (size_t i = 0; i < p->pieces; i++) {
        const Piece *piece = &p->piece[i];
        if (separator >= 0 && f->tokens[piece->split] == 0 && !tokens_write(p, piece->split, &separator, 1, e))
            return false;
        if (!tokens_write(p, piece->split, piece->ids, piece->count, e))
            return false;
        f->text_bytes += (int64_t)(piece->span.end - piece->span.begin);
        if (separator < 0 || !piece->span.last)
            continue;
        f->documents[piece->split]++;
        f->nats[piece->split] += piece->span.nats;
        if (!tokens_write(p, piece->split, &separator, 1, e))
            return false;
    }
    return true;
}

static void pieces_drop(Preparation *p)
{
    for (size_t i = 0; i < p->pieces; i++)
        free(p->piece[i].ids);
    p->pieces = 0;
}

static bool text_encode(Preparation *p, Error *e)
{
    bool good = true;
    for (bool more = true; good && more;) {
        good = block_next(p, "encoding", &more, e) && block_route(p, e) && block_encode(p, e) && block_write(p, e);
        pieces_drop(p);
    }
    return good;
}

static bool splits_finish(Preparation *p, Error *e)
{
    const DataFacts *f = p->facts;
    if (f->text_bytes == 0)
        return error_set(e, "there is no text: the input is empty");
    for (int split = 0; split < SPLITS; split++) {
        SplitWriter *w = &p->writer[split];
        if (f->tokens[split] == 1 || (f->tokens[split] == 0 && split == SPLIT_TRAIN))
            return error_set(e,
                             "%s.bin would hold %" PRId64
                             " token%s, and at least 2 are needed, one to follow the other: more text, "
                             "or another --val-fraction (0: no validation)",
                             split_name[split], f->tokens[split], f->tokens[split] == 1 ? "" : "s");
        if (w->open) {
            w->open = false;
            if (!token_writer_finish(&w->shard, e))
                return false;
        }
    }
    return true;
}

/* ---- The data set ---------------------------------------------------------------------------------------------------- */

#define SHARD_NUMBER "_[0-9][0-9][0-9][0-9][0-9][0-9].bin"

/* The files of a data set, as patterns, and how many of them are plain names. */
static const char *const set_files[] = {"meta.json", "train.bin", "val.bin", "train" SHARD_NUMBER, "val" SHARD_NUMBER};
enum { SET_FILES = sizeof set_files / sizeof *set_files, SET_NAMES = 3 };

/* Removes a data set from the folder; `suffix` ".tmp": what an interrupted run has left. */
static bool files_drop(const char *dir, const char *suffix, Error *e)
{
    DIR *d = opendir(dir);
    if (!d)
        return error_set(e, "%s: cannot read the folder: %s", dir, strerror(errno));
    for (struct dirent *f; (f = readdir(d)) && !e->set;)
        for (int i = 0; i < SET_FILES; i++) {
            char pattern[64];
            snprintf(pattern, sizeof pattern, "%s%s", set_files[i], suffix);
            if (fnmatch(pattern, f->d_name, 0) == 0 && unlinkat(dirfd(d), f->d_name, 0) != 0)
                error_set(e, "%s/%s: cannot remove: %s", dir, f->d_name, strerror(errno));
        }
    closedir(d);
    return !e->set;
}

/* What would be in the way at the end is found at the beginning. */
static bool places_check(const char *dir, Error *e)
{
    for (int i = 0; i < SET_NAMES; i++) {
        char path[PATH_SIZE];
        size_t size;
        if (!path_join(path, dir, set_files[i], e))
            return false;
        int fd = file_exists(path) ? file_open(path, &size, e) : -1;
        if (fd >= 0)
            close(fd);
    }
    return !e->set;
}

/* Brings the finished files to their names. A split that is one file gets the plain one. */
static bool files_place(const Preparation *p, Error *e)
{
    for (int split = 0; split < SPLITS; split++) {
        int shards = p->writer[split].shards;
        for (int i = 0; i < shards; i++) {
            char from[PATH_SIZE], to[PATH_SIZE], plain[16];
            snprintf(plain, sizeof plain, "%s.bin", split_name[split]);
            bool single = shards == 1 && !p->options->shard_tokens;
            if (!shard_path(p, split, i, ".tmp", from, e) ||
                !(single ? path_join(to, p->options->out, plain, e) : shard_path(p, split, i, "", to, e)) ||
                !file_rename(from, to, e))
                return false;
        }
    }
    return true;
}

/* The fields of DataFacts in meta.json. */
static const struct {
    const char *name;
    size_t offset;
} counts[] = {{"text_bytes", offsetof(DataFacts, text_bytes)},
              {"train_tokens", offsetof(DataFacts, tokens[SPLIT_TRAIN])},
              {"val_tokens", offsetof(DataFacts, tokens[SPLIT_VAL])},
              {"train_documents", offsetof(DataFacts, documents[SPLIT_TRAIN])},
              {"val_documents", offsetof(DataFacts, documents[SPLIT_VAL])}};
static const char *const nats_name[SPLITS] = {"train_nats", "val_nats"};

enum { COUNTS = sizeof counts / sizeof *counts };

static bool meta_write(const Preparation *p, Error *e)
{
    char path[PATH_SIZE];
    const DataFacts *f = p->facts;
    json_t *meta = tokenizer_to_json(p->tokenizer, e);
    bool good = meta && path_join(path, p->options->out, "meta.json", e);
    for (int i = 0; meta && i < COUNTS; i++)
        json_object_set_new(meta, counts[i].name, json_integer(*(const int64_t *)((const char *)f + counts[i].offset)));
    if (meta && f->separator >= 0)
        json_object_set_new(meta, "separator", json_integer(f->separator));
    for (int split = 0; meta && split < SPLITS; split++)
        if (f->nats[split] > 0)
            json_object_set_new(meta, nats_name[split], json_real(f->nats[split]));
    good = good && json_write(path, meta, e);
    json_decref(meta);
    return good;
}

static bool facts_read(const json_t *meta, DataFacts *f, Error *e)
{
    bool good = json_get_int(meta, "vocab_size", 1, INT32_MAX, &f->vocab_size, false, e) &&
                json_get_int(meta, "separator", 0, INT32_MAX, &f->separator, false, e);
    for (int i = 0; good && i < COUNTS; i++)
        good = json_get_int(meta, counts[i].name, 0, INT64_MAX, (int64_t *)((char *)f + counts[i].offset), false, e);
    for (int split = 0; good && split < SPLITS; split++)
        good = json_get_double(meta, nats_name[split], 0, 1e300, &f->nats[split], false, e);
    return good;
}

Tokenizer *data_meta_read(const char *path, DataFacts *f, char **text, Error *e)
{
    char *bytes;
    size_t n;
    *f = (DataFacts){.separator = -1};
    json_t *meta = file_read_all(path, JSON_FILE_LIMIT, &bytes, &n, e) ? json_parse(bytes, n, path, e) : NULL;
    Tokenizer *t = NULL;
    if (meta && (facts_read(meta, f, e) || error_prefix(e, "%s", path)))
        t = tokenizer_from_json(meta, path, e);
    json_decref(meta);
    if (text)
        *text = t ? bytes : NULL;
    if (!text || !t)
        free(bytes);
    return t;
}

/* Puts the new data set where the old one was: from the first line to the last the folder is marked. */
static bool data_set_place(const Preparation *p, Error *e)
{
    char mark[PATH_SIZE];
    const char *out = p->options->out;
    static const char why[] = "`tally data prepare` was interrupted here while it put its files in place; run it again.\n";
    return path_join(mark, out, TOKENS_UNFINISHED, e) && file_write_atomic(mark, why, sizeof why - 1, e) &&
           files_drop(out, "", e) && files_place(p, e) && meta_write(p, e) &&
           (unlink(mark) == 0 || error_set(e, "%s: cannot remove: %s", mark, strerror(errno))) && dir_sync(out, e);
}

/* What is between documents has to be one token. */
static bool separator_find(Preparation *p, Error *e)
{
    const char *text = p->options->separator;
    int32_t *ids;
    int64_t count;
    p->facts->separator = -1;
    if (!text || (p->facts->separator = tokenizer_special(p->tokenizer, text)) >= 0)
        return true;
    if (!tokenizer_encode(p->tokenizer, (const uint8_t *)text, strlen(text), &ids, &count, e))
        return error_prefix(e, "--separator");
    p->facts->separator = count == 1 ? ids[0] : -1;
    free(ids);
    return count == 1 || error_usage(e, "--separator is %" PRId64 " tokens of the %s tokenizer; one is needed", count,
                                     tokenizer_kind(p->tokenizer));
}

static bool prepare(Preparation *p, Error *e)
{
    const PrepareOptions *o = p->options;
    if (!(p->tokenizer = tokenizer_create(o->tokenizer, e)) || (o->allow_special && !tokenizer_allow_special(p->tokenizer, e)) ||
        !dir_make(o->out, e) || !dir_lock(o->out, &p->lock, e) || !places_check(o->out, e) || !text_learn(p, e))
        return false;
    p->facts->vocab_size = tokenizer_vocab_size(p->tokenizer);
    return separator_find(p, e) && files_drop(o->out, ".tmp", e) && text_encode(p, e) && splits_finish(p, e) &&
           data_set_place(p, e);
}

bool data_prepare(const PrepareOptions *o, DataFacts *f, Error *e)
{
    *f = (DataFacts){0};
    if (!(o->val_fraction >= 0 && o->val_fraction < 1))
        return error_usage(e, "--val-fraction is %g; it must be at least 0 and less than 1", o->val_fraction);
    Preparation p = {.options = o, .facts = f, .lock = -1};
    bool good = prepare(&p, e);
    for (int split = 0; split < SPLITS; split++)
        if (p.writer[split].open)
            file_abandon(&p.writer[split].shard.file);
    if (!good && p.lock >= 0) { /* else the folder is another process's */
        Error ignored = {0};
        files_drop(o->out, ".tmp", &ignored);
    }
    if (p.lock >= 0)
        close(p.lock);
    free(p.piece);
    block_free(&p.block);
    tokenizer_destroy(p.tokenizer);
    return good;
}
