/* For tests that touch files: a folder of their own, and short ways to fill it and to look into it. Include after cmocka. */
#ifndef TALLY_TESTS_TEMP_DIR_H
#define TALLY_TESTS_TEMP_DIR_H

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char temp_dir[PATH_SIZE / 2];

/* Group set-up and tear-down: makes and removes temp_dir. */
static inline int temp_dir_make(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(temp_dir, sizeof temp_dir, "%s/tally-test-XXXXXX", base ? base : "/tmp");
    return mkdtemp(temp_dir) ? 0 : -1;
}

static inline int temp_dir_remove(void **state)
{
    (void)state;
    char command[PATH_SIZE];
    snprintf(command, sizeof command, "rm -rf '%s'", temp_dir);
    return system(command);
}

/* temp_dir/name; four results may be in use at once. */
static inline const char *at(const char *name)
{
    static char paths[4][PATH_SIZE];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", temp_dir, name);
    return path;
}

static inline void put_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static inline void put(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

static inline void assert_holds(const char *path, const char *text)
{
    char *bytes;
    size_t n;
    Error e = {0};
    assert_true(file_read_all(path, 1 << 20, &bytes, &n, &e));
    assert_string_equal(bytes, text);
    assert_int_equal(n, strlen(text));
    free(bytes);
}

static inline void assert_says(const Error *e, const char *part)
{
    if (!e->set || !strstr(e->text, part))
        fail_msg("wanted \"%s\" in \"%s\"", part, e->text);
}

#endif
