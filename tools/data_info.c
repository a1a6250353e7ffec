/* tally data info: what is in a folder of tokens. All of them are read, and each id is checked. */
#include "tools/commands.h"

#include "base/file.h"
#include "base/json.h"
#include "base/options.h"
#include "data/prepare.h"
#include "data/stream.h"
#include "data/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_TOKENS = 60, SAMPLE_SIZE = 4096, GPT2_VOCAB = 50257 };

typedef struct SplitInfo {
    int files; /* 0: there is no such split */
    int64_t tokens;
    int64_t documents;        /* that a separator ends; 0 without one   */
    int64_t longest;          /* tokens of the longest between two      */
    int64_t ids;              /* of the vocabulary that occur           */
    int64_t fresh;            /* of these do not occur in the split before */
    char sample[SAMPLE_SIZE]; /* its beginning as text             */
} SplitInfo;

typedef struct Info {
    OptionWords where;  /* one folder */
    int64_t vocab_size; /* asked for; 0: the tokenizer's, else GPT-2's */
    bool json;
    Tokenizer *tokenizer; /* NULL: there is no meta.json */
    DataFacts facts;
    uint8_t *seen; /* [vocab_size]: in a split before, or in this one */
    SplitInfo split[SPLITS];
} Info;

/* Appends an id's piece to a text for people: what is not UTF-8, and control characters, as \xNN. */
static void piece_append(char *text, const Tokenizer *t, int32_t id)
{
    size_t n = 0, used = strlen(text), length;
    const uint8_t *piece = tokenizer_piece(t, id, &n);
    for (size_t at = 0; at < n && used + 8 < SAMPLE_SIZE; at += length) {
        int32_t symbol;
        length = utf8_next(piece + at, n - at, &symbol);
        bool raw = (symbol < ' ' && symbol != '\n') || symbol == 0x7F || (length == 1 && symbol > 0x7F);
        used += (size_t)snprintf(text + used, SAMPLE_SIZE - used, raw ? "\\x%02X" : "%.*s", raw ? piece[at] : (int)length,
                                 piece + at);
    }
}

static void token_count(Info *info, SplitInfo *s, int32_t id, int64_t at, int64_t *begin)
{
    uint8_t here = s == &info->split[SPLIT_TRAIN] ? 1 : 2;
    s->ids += !(info->seen[id] & here);
    s->fresh += !info->seen[id];
    info->seen[id] |= here;
    if (at < SAMPLE_TOKENS && info->tokenizer)
        piece_append(s->sample, info->tokenizer, id);
    if (id != info->facts.separator)
        return;
    s->documents += at > *begin;
    s->longest = at - *begin > s->longest ? at - *begin : s->longest;
    *begin = at + 1;
}

static bool split_read(Info *info, int split, Error *e)
{
    enum { PART = 1 << 14 };
    int32_t ids[PART];
    SplitInfo *s = &info->split[split];
    TokenStream stream;
    if (split == SPLIT_VAL && !token_stream_present(*info->where.word, split_name[split]))
        return true;
    if (!token_stream_open(&stream, *info->where.word, split_name[split], e)) {
        token_stream_close(&stream);
        return false;
    }
    s->files = stream.shards;
    s->tokens = stream.count;
    int64_t begin = 0, said = info->facts.tokens[split];
    for (int64_t at = 0; at < s->tokens && !e->set; at += PART) {
        int64_t n = s->tokens - at < PART ? s->tokens - at : PART;
        if (token_stream_read(&stream, at, n, info->vocab_size, ids, e))
            for (int64_t i = 0; i < n; i++)
                token_count(info, s, ids[i], at + i, &begin);
    }
    token_stream_close(&stream);
    if (said && said != s->tokens)
        error_set(e, "%s: %s has %" PRId64 " tokens, but meta.json says %" PRId64, *info->where.word, split_name[split],
                  s->tokens, said);
    return !e->set;
}

static bool info_read(Info *info, Error *e)
{
    char meta[PATH_SIZE];
    info->facts.separator = -1;
    if (!path_join(meta, *info->where.word, "meta.json", e))
        return false;
    if (file_exists(meta) && !(info->tokenizer = data_meta_read(meta, &info->facts, NULL, e)))
        return false;
    if (!info->vocab_size)
        info->vocab_size = info->tokenizer ? tokenizer_vocab_size(info->tokenizer) : GPT2_VOCAB;
    return (info->seen = memory_get(e, (size_t)info->vocab_size, 1, "the vocabulary")) && split_read(info, SPLIT_TRAIN, e) &&
           split_read(info, SPLIT_VAL, e);
}

static void info_print(const Info *info)
{
    if (info->tokenizer)
        printf("tokenizer  %s, vocabulary of %" PRId64 "\n", tokenizer_kind(info->tokenizer), info->vocab_size);
    else
        printf("tokenizer  unknown, since there is no meta.json; vocabulary taken to be %" PRId64 " (--vocab-size)\n",
               info->vocab_size);
    for (int split = 0; split < SPLITS && info->split[split].files; split++) {
        const SplitInfo *s = &info->split[split];
        printf("%-9s  %" PRId64 " tokens in %d file%s, each id below %" PRId64 "\n", split_name[split], s->tokens, s->files,
               s->files == 1 ? "" : "s", info->vocab_size);
        printf("           %" PRId64 " ids occur, %.1f %% of the vocabulary", s->ids,
               100 * (double)s->ids / (double)info->vocab_size);
        if (split == SPLIT_VAL)
            printf("; %" PRId64 " of them not in train", s->fresh);
        if (s->documents)
            printf("\n           %" PRId64 " documents, %.1f tokens in the mean, %" PRId64 " the longest", s->documents,
                   (double)(s->tokens - s->documents - 1) / (double)s->documents, s->longest);
        if (info->facts.nats[split] > 0)
            printf("\n           %.6f nats per token at least", info->facts.nats[split] / (double)(s->tokens - 1));
        printf("\n");
        if (s->sample[0])
            printf("---- begins\n%s\n----\n", s->sample);
    }
}

static void info_print_json(const Info *info)
{
    json_t *object = json_pack("{s:s*, s:I, s:I}", "tokenizer", info->tokenizer ? tokenizer_kind(info->tokenizer) : NULL,
                               "vocab_size", (json_int_t)info->vocab_size, "separator", (json_int_t)info->facts.separator);
    for (int split = 0; split < SPLITS && info->split[split].files; split++) {
        const SplitInfo *s = &info->split[split];
        json_object_set_new(object, split_name[split],
                            json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:s}", "files", s->files, "tokens", (json_int_t)s->tokens,
                                      "documents", (json_int_t)s->documents, "longest_document", (json_int_t)s->longest, "ids",
                                      (json_int_t)s->ids, "new_ids", (json_int_t)s->fresh, "sample", s->sample));
        if (info->facts.nats[split] > 0)
            json_object_set_new(json_object_get(object, split_name[split]), "nats", json_real(info->facts.nats[split]));
    }
    json_dumpf(object, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(object);
}

#define AT_TYPE Info
static const OptionRow rows[] = {
    OPTION(0, NULL, OPTION_ARGUMENTS, where, 1, 1, "DIR", "DIR is needed: a folder of tokens"),
    OPTION('j', "json", OPTION_FLAG, json, 0, 0, NULL, "The same as a JSON object"),
    OPTION('v', "vocab-size", OPTION_INT, vocab_size, 1, INT32_MAX, "N",
           "Ids must be below it; default: the tokenizer's, or 50257, GPT-2's, without a meta.json"),
};

bool data_info_command(int argc, char **argv, Error *e)
{
    static const OptionTable options = {rows, sizeof rows / sizeof *rows, "DIR",
                                        "Reads all tokens of a folder: counts them, checks each id, and says how much of the "
                                        "vocabulary occurs, how long documents are, "
                                        "and how the text begins."};
    Info info = {0};
    if (options_parse(&options, &info, argc, argv, e) && info_read(&info, e)) {
        if (info.json)
            info_print_json(&info);
        else
            info_print(&info);
    }
    tokenizer_destroy(info.tokenizer);
    free(info.seen);
    return !e->set;
}
