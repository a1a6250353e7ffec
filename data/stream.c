#include "data/stream.h"

#include "base/file.h"
#include "data/tokenfile.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct Shard {
    char *path;
    FileMap map;
    TokenFile file;
    int64_t first; /* its first token's number in the stream */
} Shard;

/* out = path with the characters quoted that have a meaning in patterns. */
static void pattern_quote(char out[2 * PATH_SIZE], const char *path)
{
    for (; *path; *out++ = *path++)
        if (strchr("*?[\\", *path))
            *out++ = '\\';
    *out = 0;
}

/* In the order of the names, by their bytes: the program is in the locale "C". */
static bool pattern_find(const char *pattern, glob_t *found)
{
    return glob(pattern, 0, NULL, found) == 0;
}

/* Finds the files of a split as token_stream_open describes. After true, and only then, globfree(found). */
static bool shards_find(const char *where, const char *split, glob_t *found, Error *e)
{
    char quoted[2 * PATH_SIZE], pattern[2 * PATH_SIZE + 64];
    if (strlen(where) >= PATH_SIZE)
        return error_set(e, "%.200s...: path is longer than %d bytes", where, PATH_SIZE - 1);
    pattern_quote(quoted, where);
    struct stat status;
    bool exists = stat(where, &status) == 0, folder = exists && S_ISDIR(status.st_mode);
    if (!folder && !pattern_find(exists ? quoted : where, found))
        return error_set(e, "%s: no such file, and as a pattern it matches none", where);
    if (folder) {
        snprintf(pattern, sizeof pattern, "%s/%s", where, TOKENS_UNFINISHED);
        if (file_exists(pattern))
            return error_set(
                e, "%s: says that `tally data prepare` is at work there or was interrupted: wait for it, or run it again",
                pattern);
        snprintf(pattern, sizeof pattern, "%s/%.30s.bin", quoted, split);
        if (!pattern_find(pattern, found)) {
            snprintf(pattern, sizeof pattern, "%s/*%.30s*.bin", quoted, split);
            if (!pattern_find(pattern, found))
                return error_set(e, "%s: no %s.bin and no *%s*.bin in this folder (`tally data prepare` makes them from text)",
                                 where, split, split);
        }
    }
    return true;
}

static bool shard_open(Shard *shard, const char *path, Error *e)
{
    size_t n = strlen(path) + 1;
    if (!(shard->path = memory_get(e, n, 1, "the name of a token file")))
        return false;
    memcpy(shard->path, path, n);
    return file_map(&shard->map, path, e) && token_file_parse(&shard->file, shard->map.data, shard->map.size, path, e);
}

bool token_stream_open(TokenStream *s, const char *where, const char *split, Error *e)
{
    *s = (TokenStream){.ignore_after = -1};
    glob_t found;
    if (!shards_find(where, split, &found, e))
        return false;
    s->shard = memory_get(e, found.gl_pathc, sizeof *s->shard, "the list of token files");
    bool good = s->shard != NULL;
    for (size_t i = 0; good && i < found.gl_pathc; i++) {
        Shard *shard = &s->shard[s->shards++];
        shard->first = s->count;
        good = shard_open(shard, found.gl_pathv[i], e);
        s->count += shard->file.count;
    }
    globfree(&found);
    return good;
}

void token_stream_close(TokenStream *s)
{
    for (int i = 0; i < s->shards; i++) {
        file_unmap(&s->shard[i].map);
        free(s->shard[i].path);
    }
    free(s->shard);
    *s = (TokenStream){0};
}

bool token_stream_present(const char *where, const char *split)
{
    glob_t found;
    Error ignored = {0};
    if (!shards_find(where, split, &found, &ignored))
        return false;
    globfree(&found);
    return true;
}

const char *token_stream_name(const TokenStream *s)
{
    return s->shard[0].path;
}

bool token_stream_read(const TokenStream *s, int64_t first, int64_t count, int64_t vocab_size, int32_t *out, Error *e)
{
    if (first < 0 || count < 0 || first > s->count || count > s->count - first)
        return error_set(e, "%s: tokens %" PRId64 " .. %" PRId64 " were asked for, but there are %" PRId64, token_stream_name(s),
                         first, first + count - 1, s->count);
    for (const Shard *shard = s->shard; count > 0; shard++) {
        int64_t at = first - shard->first, left = shard->file.count - at;
        if (left <= 0)
            continue;
        int64_t part = count < left ? count : left;
        if (!token_file_read(&shard->file, at, part, vocab_size, out, shard->path, e))
            return false;
        first += part, count -= part, out += part;
    }
    return true;
}
