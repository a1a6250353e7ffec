/* Files, folders, patterns and standard input as a source of documents. Nothing is mapped and nothing held but one block, so the
 * memory does not depend on how much text there is. */
#include "data/source.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BLOCK = 4 << 20,    /* bytes of a block, but where a text cannot be cut in it ... */
    LARGEST = 64 << 20, /* ... and what it then may grow to                          */
    SPANS = 1 << 16     /* documents of a block                                      */
};

typedef struct FileSource {
    TextSource base;
    char **path; /* [paths], in the order of reading; "-": standard input, as `input` */
    size_t paths, path_capacity;
    int input;             /* a file with what was on standard input; -1: not asked for */
    const char *separator; /* NULL: none */
    size_t separator_size;

    size_t current; /* path being read                          */
    int fd;         /* -1: not open                             */
    int64_t offset; /* in the file, of the block's first byte   */
    size_t used;    /* of the block: in spans handed out        */
    bool inside;    /* a document whose beginning is handed out */
} FileSource;

/* ---- Finding --------------------------------------------------------------------------------------------------------- */

static bool path_add(FileSource *s, const char *path, int64_t size, Error *e)
{
    if (!memory_grow(&s->path, &s->path_capacity, s->paths + 1, sizeof *s->path, "a list of files", e))
        return false;
    if (!(s->path[s->paths] = strdup(path)))
        return error_set(e, "out of host memory for a list of files");
    s->paths++;
    s->base.bytes += size;
    return true;
}

/* What cannot be read is found before anything is written. */
static bool file_add(FileSource *s, const char *path, Error *e)
{
    size_t size;
    int fd = file_open(path, &size, e);
    return fd >= 0 && close(fd) == 0 && path_add(s, path, (int64_t)size, e);
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static bool folder_add(FileSource *s, char *folder, const char *except, Error *e)
{
    struct stat out = {0};
    bool has_out = stat(except, &out) == 0;
    FTS *tree = fts_open((char *[]){folder, NULL}, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *f; tree && !e->set && (f = fts_read(tree));) {
        bool hidden = f->fts_level > 0 && f->fts_name[0] == '.';
        bool ours = f->fts_info == FTS_D && has_out && f->fts_dev == out.st_dev && f->fts_ino == out.st_ino;
        if (f->fts_info == FTS_DP)
            continue;
        if (hidden || ours)
            fts_set(tree, f, FTS_SKIP);
        else if (f->fts_info == FTS_DC)
            error_set(e, "%s: is a link to a folder that it is in", f->fts_path);
        else if (f->fts_info == FTS_DNR || f->fts_info == FTS_ERR || f->fts_info == FTS_NS)
            error_set(e, "%s: cannot read: %s", f->fts_path, strerror(f->fts_errno));
        else if (f->fts_info != FTS_D)
            file_add(s, f->fts_path, e);
    }
    if (!tree)
        return error_set(e, "%s: cannot read the folder: %s", folder, strerror(errno));
    fts_close(tree);
    return !e->set;
}

/* A file, or all that is in a folder. */
static bool name_add(FileSource *s, char *name, const char *except, Error *e)
{
    struct stat st;
    bool folder = stat(name, &st) == 0 && S_ISDIR(st.st_mode);
    return folder ? folder_add(s, name, except, e) : file_add(s, name, e);
}

static bool pattern_add(FileSource *s, const char *pattern, const char *except, Error *e)
{
    glob_t found = {0};
    bool none = glob(pattern, 0, NULL, &found) != 0;
    for (size_t i = 0; !none && i < found.gl_pathc && !e->set; i++)
        name_add(s, found.gl_pathv[i], except, e);
    globfree(&found);
    return none ? error_set(e, "%s: no such file, and as a pattern it matches none", pattern) : !e->set;
}

/* Standard input has to be read twice, and how long it is has to be known: it becomes a file that goes with the process. */
static bool input_copy(FileSource *s, const char *folder, Error *e)
{
    char path[PATH_SIZE], buffer[1 << 16];
    int64_t size = 0;
    if (s->input >= 0)
        return error_usage(e, "standard input, -, can be read once only");
    if (!dir_make(folder, e) || !path_join(path, folder, "input.XXXXXX", e))
        return false;
    if ((s->input = mkstemp(path)) < 0 || unlink(path) != 0)
        return error_set(e, "%s: cannot make a file for standard input: %s", path, strerror(errno));
    for (ssize_t n; (n = read(STDIN_FILENO, buffer, sizeof buffer)) != 0; size += n > 0 ? n : 0) {
        if (n < 0 && errno != EINTR)
            return error_set(e, "standard input: cannot read: %s", strerror(errno));
        for (ssize_t done = 0, part; done < n; done += part)
            if ((part = write(s->input, buffer + done, (size_t)(n - done))) <= 0)
                return error_set(e, "%s: cannot write a copy of standard input there: %s", folder, strerror(errno));
    }
    return path_add(s, "-", size, e);
}

static bool input_find(FileSource *s, char *input, const char *except, Error *e)
{
    if (strcmp(input, "-") == 0)
        return input_copy(s, except, e);
    bool pattern = strpbrk(input, "*?[") && access(input, F_OK) != 0;
    return pattern ? pattern_add(s, input, except, e) : name_add(s, input, except, e);
}

/* ---- Reading --------------------------------------------------------------------------------------------------------- */

static const char *current_name(const FileSource *s)
{
    return strcmp(s->path[s->current], "-") == 0 ? "standard input" : s->path[s->current];
}

static bool current_open(FileSource *s, Error *e)
{
    size_t size;
    bool input = strcmp(s->path[s->current], "-") == 0;
    s->fd = input ? dup(s->input) : file_open(s->path[s->current], &size, e);
    return s->fd >= 0 && (!input || lseek(s->fd, 0, SEEK_SET) == 0);
}

/* Hands out block bytes begin .. end, a document or a piece of one, and remembers how far it is. */
static bool hand_out(FileSource *s, TextBlock *b, size_t end, bool last, Error *e)
{
    TextSpan span = {s->used, end, !s->inside, last, current_name(s), s->offset + (int64_t)s->used, 0};
    s->used = end;
    /* The last piece of a document may be empty: what ended it came just behind a cut. */
    bool empty = span.begin == end && !s->inside;
    s->inside = !last;
    return empty || block_add(b, span, e);
}

/* Hands out the documents that end in the block's bytes from `searched` on, as many as a block may have. */
static bool separators_find(FileSource *s, TextBlock *b, size_t searched, Error *e)
{
    size_t n = s->separator_size;
    const uint8_t *at = b->bytes + (searched > s->used + n ? searched - n + 1 : s->used);
    while (n && b->spans < SPANS && (at = memmem(at, (size_t)(b->bytes + b->size - at), s->separator, n))) {
        if (!hand_out(s, b, (size_t)(at - b->bytes), true, e))
            return false;
        at += n;
        s->used += n;
    }
    return true;
}

/* The block is full, and no document ends in it: hands out what there is up to a place to cut, or makes the block larger. */
static bool document_cut(FileSource *s, TextBlock *b, const Tokenizer *t, Error *e)
{
    /* what may be the beginning of a separator stays */
    size_t n = b->size - (s->separator_size ? s->separator_size - 1 : 0), cut = tokenizer_cut(t, b->bytes, n);
    if (cut > 0)
        return hand_out(s, b, cut, false, e);
    if (b->capacity >= LARGEST)
        return error_set(e, "%s: byte %lld begins %d MiB in which there is no place where the %s tokenizer can cut a text in two",
                         current_name(s), (long long)s->offset, LARGEST >> 20, tokenizer_kind(t));
    return block_reserve(b, 2 * b->capacity, e);
}

/* Reads into what is left of the block; *n = 0 at the end of the file. */
static bool file_read(FileSource *s, TextBlock *b, size_t *n, Error *e)
{
    ssize_t got;
    do
        got = read(s->fd, b->bytes + b->size, b->capacity - b->size);
    while (got < 0 && errno == EINTR);
    *n = got > 0 ? (size_t)got : 0;
    b->size += *n;
    return got >= 0 || error_set(e, "%s: cannot read on at byte %lld: %s", current_name(s),
                                 (long long)(s->offset + (int64_t)b->size), strerror(errno));
}

/* The file is at its end: so is the document in it. The next file's first byte comes next in the block. */
static bool file_end(FileSource *s, TextBlock *b, Error *e)
{
    if (!hand_out(s, b, b->size, true, e))
        return false;
    close(s->fd);
    s->fd = -1;
    s->current++;
    s->offset = -(int64_t)b->size;
    return true;
}

static bool files_next(TextSource *base, TextBlock *b, const Tokenizer *t, Error *e)
{
    FileSource *s = (FileSource *)base;
    if (!block_reserve(b, BLOCK, e))
        return false;
    b->spans = 0;
    b->size -= s->used;
    s->offset += (int64_t)s->used;
    if (b->size)
        memmove(b->bytes, b->bytes + s->used, b->size);
    s->used = 0;
    if (!separators_find(s, b, 0, e))
        return false;
    while (b->spans < SPANS && s->current < s->paths && (b->size < b->capacity || !b->spans)) {
        size_t before = b->size, n = 0;
        if (s->fd < 0 && !current_open(s, e))
            return false;
        if (b->size == b->capacity) {
            if (!document_cut(s, b, t, e))
                return false;
            continue;
        }
        if (!file_read(s, b, &n, e) || !separators_find(s, b, before, e) || (n == 0 && !file_end(s, b, e)))
            return false;
    }
    return true;
}

static void files_rewind(TextSource *base)
{
    FileSource *s = (FileSource *)base;
    s->current = 0;
    s->offset = 0;
    s->used = 0;
    s->inside = false;
}

static void files_close(TextSource *base)
{
    FileSource *s = (FileSource *)base;
    if (s->fd >= 0)
        close(s->fd);
    if (s->input >= 0)
        close(s->input);
    for (size_t i = 0; i < s->paths; i++)
        free(s->path[i]);
    free(s->path);
    free(s);
}

TextSource *source_files(char **inputs, int count, const char *separator, const char *except, Error *e)
{
    FileSource *s = memory_get(e, 1, sizeof *s, "the list of files");
    if (!s)
        return NULL;
    *s = (FileSource){.base = {0, files_next, files_rewind, files_close},
                      .separator = separator,
                      .separator_size = separator ? strlen(separator) : 0,
                      .input = -1,
                      .fd = -1};
    for (int i = 0; i < count; i++)
        if (!input_find(s, inputs[i], except, e)) {
            files_close(&s->base);
            return NULL;
        }
    return &s->base;
}
