/* base/file and base/json: what is read, what is refused, and that a file is whole under its name whatever happens. */
#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/temp_dir.h"

/* ---- Reading ------------------------------------------------------------------------------------------------------- */

static void test_map(void **state)
{
    (void)state;
    FileMap m;
    Error e = {0};
    put(at("some"), "bytes");
    assert_true(file_map(&m, at("some"), &e));
    assert_int_equal(m.size, 5);
    assert_memory_equal(m.data, "bytes", 5);
    file_unmap(&m);
    assert_int_equal(m.size, 0);

    put(at("empty"), "");
    assert_true(file_map(&m, at("empty"), &e));
    assert_int_equal(m.size, 0);
    assert_non_null(m.data);
    file_unmap(&m);

    assert_int_equal(symlink(at("some"), at("link")), 0);
    assert_true(file_map(&m, at("link"), &e));
    assert_int_equal(m.size, 5);
    file_unmap(&m);
    assert_false(e.set);
}

static void test_map_refuses(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(at("fifo"), 0600), 0); /* must not wait for a writer */
    const struct {
        const char *path, *message;
    } cases[] = {
        {at("absent"), "absent: cannot open: No such file"},
        {temp_dir, ": is a folder"},
        {at("fifo"), "fifo: is a FIFO"},
        {"/dev/zero", "/dev/zero: is a device"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        FileMap m;
        Error e = {0};
        assert_false(file_map(&m, cases[i].path, &e));
        assert_says(&e, cases[i].message);
        assert_int_equal(m.size, 0);
        file_unmap(&m);
    }
}

static void test_read_all(void **state)
{
    (void)state;
    char *bytes;
    size_t n;
    Error e = {0};
    put(at("six"), "123456");
    assert_true(file_read_all(at("six"), 6, &bytes, &n, &e));
    assert_int_equal(n, 6);
    assert_string_equal(bytes, "123456");
    free(bytes);
    assert_false(file_read_all(at("six"), 5, &bytes, &n, &e));
    assert_null(bytes);
    assert_says(&e, "six: has 6 bytes, more than the 5");
}

/* ---- Writing ------------------------------------------------------------------------------------------------------- */

static void test_write(void **state)
{
    (void)state;
    Error e = {0};
    assert_true(file_write_atomic(at("file"), "first", 5, &e));
    assert_holds(at("file"), "first");
    assert_true(file_write_atomic(at("file"), "", 0, &e));
    assert_holds(at("file"), "");
    assert_false(file_exists(at("file.tmp")));

    FileWriter w;
    assert_true(file_create(&w, at("file"), &e) && file_append(&w, "in ", 3, &e) && file_append(&w, "pieces", 6, &e));
    assert_holds(at("file"), ""); /* not before the commit */
    assert_true(file_commit(&w, &e));
    assert_holds(at("file"), "in pieces");

    assert_true(file_create(&w, at("file"), &e) && file_append(&w, "x", 1, &e));
    file_abandon(&w);
    assert_holds(at("file"), "in pieces");
    assert_false(file_exists(at("file.tmp")));
    assert_false(e.set);
}

static void test_write_refuses(void **state)
{
    (void)state;
    char *endless = malloc(2 * PATH_SIZE);
    memset(endless, 'a', 2 * PATH_SIZE - 1);
    endless[2 * PATH_SIZE - 1] = 0;
    const struct {
        const char *path, *message;
    } cases[] = {
        {at("no/such/folder"), "no/such/folder.tmp: cannot create: No such file"},
        {temp_dir, ": is a folder; cannot be replaced"},
        {"/dev/null", "/dev/null: is a device; cannot be replaced"},
        {endless, "path is longer than"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Error e = {0};
        assert_false(file_write_atomic(cases[i].path, "x", 1, &e));
        assert_says(&e, cases[i].message);
    }
    char out[PATH_SIZE];
    Error e = {0};
    assert_false(path_join(out, endless, "x", &e));
    assert_says(&e, "path is longer than");
    free(endless);
}

/* Replaces at("victim") in a child process with a fault at the N-th disk call. Returns the child's wait status; its exit
 * code is 0 when the write succeeded, 1 when it failed with a message that names the path and the cause. */
static int write_with_fault(const char *variable, int call)
{
    pid_t child = fork();
    if (child == 0) {
        char number[16];
        Error e = {0};
        snprintf(number, sizeof number, "%d", call);
        setenv(variable, number, 1);
        bool ok = file_write_atomic(at("victim"), "the new content", 15, &e);
        _exit(ok ? 0 : strstr(e.text, temp_dir) && strstr(e.text, "No space left") ? 1 : 2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* write, fsync of the file, rename, fsync of the folder: the disk may be full at each. */
static void test_write_full_disk(void **state)
{
    (void)state;
    for (int call = 1; call <= 4; call++) {
        put(at("victim"), "old");
        int status = write_with_fault("TALLY_FAULT_WRITE", call);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 1);
        assert_holds(at("victim"), call <= 3 ? "old" : "the new content");
        assert_false(file_exists(at("victim.tmp")));
    }
    assert_int_equal(write_with_fault("TALLY_FAULT_WRITE", 5), 0); /* there is no fifth call */
}

static void test_write_killed(void **state)
{
    (void)state;
    for (int call = 1; call <= 4; call++) {
        put(at("victim"), "old");
        int status = write_with_fault("TALLY_FAULT_KILL", call);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGKILL);
        assert_holds(at("victim"), call <= 3 ? "old" : "the new content");
        if (call == 1)
            assert_holds(at("victim.tmp"), "the new"); /* 7 of 15 bytes */
    }
    assert_int_equal(write_with_fault("TALLY_FAULT_KILL", 5), 0); /* over the remains */
    assert_holds(at("victim"), "the new content");
}

/* A limit on the file's size makes the kernel itself write short once and then refuse. */
static void test_write_short(void **state)
{
    (void)state;
    put(at("victim"), "old");
    pid_t child = fork();
    if (child == 0) {
        static char bytes[10000];
        Error e = {0};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){5000, 5000});
        bool ok = file_write_atomic(at("victim"), bytes, sizeof bytes, &e);
        _exit(!ok && strstr(e.text, "victim.tmp: cannot write: File too large") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_holds(at("victim"), "old");
    assert_false(file_exists(at("victim.tmp")));
}

/* A file system of 64 KiB, in a mount namespace of the child's own. Exit code 77: this machine does not allow that. */
static void test_write_full_filesystem(void **state)
{
    (void)state;
    assert_int_equal(mkdir(at("small"), 0700), 0);
    pid_t child = fork();
    if (child == 0) {
        static char bytes[200000];
        Error e = {0};
        if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            _exit(77);
        if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("tmpfs", at("small"), "tmpfs", 0, "size=64k") != 0)
            _exit(77);
        if (!file_write_atomic(at("small/f"), "old", 3, &e) || file_write_atomic(at("small/f"), bytes, sizeof bytes, &e))
            _exit(1);
        if (!strstr(e.text, "small/f.tmp: cannot write: No space left") || file_exists(at("small/f.tmp")))
            _exit(2);
        assert_holds(at("small/f"), "old");
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("SKIPPED: no right to mount a tmpfs here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* ---- Folders ------------------------------------------------------------------------------------------------------- */

static void test_folders(void **state)
{
    (void)state;
    Error e = {0};
    assert_true(dir_make(at("a/b//c/"), &e));
    assert_true(dir_make(at("a/b/c"), &e));
    put(at("a/b/c/1"), "1");
    put(at("a/b/c/2"), "2");
    assert_true(file_rename(at("a/b/c"), at("a/b/d"), &e));
    assert_holds(at("a/b/d/2"), "2");
    assert_true(dir_sync(at("a"), &e));
    assert_true(dir_remove(at("a/b/d"), &e));
    assert_false(file_exists(at("a/b/d")));
    assert_true(dir_remove(at("a/b/d"), &e)); /* it is gone already */
    assert_false(e.set);

    put(at("a/file"), "x");
    assert_false(dir_make(at("a/file"), &e));
    assert_says(&e, "a/file: exists and is not a folder");
    e = (Error){0};
    assert_false(dir_make(at("a/file/below"), &e));
    assert_says(&e, "a/file: exists and is not a folder");
    e = (Error){0};
    assert_false(dir_remove(at("a"), &e));
    assert_says(&e, "a/b: cannot remove");
    e = (Error){0};
    assert_int_equal(symlink(at("a/b"), at("to-b")), 0);
    put(at("a/b/precious"), "x");
    assert_false(dir_remove(at("to-b"), &e));
    assert_holds(at("a/b/precious"), "x");
    e = (Error){0};
    assert_false(dir_sync(at("a/none"), &e));
    assert_says(&e, "a/none: cannot flush");
}

static void test_folder_relative(void **state)
{
    (void)state;
    Error e = {0};
    char here[PATH_SIZE];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(temp_dir), 0);
    assert_true(dir_make("plain", &e) && file_write_atomic("plain-file", "x", 1, &e) && dir_remove("plain", &e));
    assert_int_equal(chdir(here), 0);
    assert_holds(at("plain-file"), "x");
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

static void test_json_refuses(void **state)
{
    (void)state;
    const struct {
        const char *text, *message;
    } cases[] = {
        {"", "x:1:0:"},
        {"{\n  \"a\": 1,\n  \"a\": 2}", "x:3:5: not JSON that can be read: duplicate object key"},
        {"{\"a\": 1} 2", "end of file expected"},
        {"[1]", "x:1:1: holds a list"},
        {"{\"a\": 9223372036854775808}", "too big integer"},
        {"{\"a\": 1e999}", "real number overflow"},
        {"{\"a\": NaN}", "x:1:"},
        {"{\"a\": \"\xff\"}", "unable to decode byte 0xff"},
        {"{\"a\": \"\\u0000\"}", "\\u0000 is not allowed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Error e = {0};
        assert_null(json_parse(cases[i].text, strlen(cases[i].text), "x", &e));
        assert_says(&e, cases[i].message);
    }
    enum { DEEP = 1000000 };
    char *deep = malloc(DEEP);
    memset(deep, '[', DEEP);
    memcpy(deep, "{\"a\":", 5);
    Error e = {0};
    assert_null(json_parse(deep, DEEP, "x", &e));
    assert_says(&e, "maximum parsing depth");
    free(deep);
}

static void test_json_get(void **state)
{
    (void)state;
    static const char text[] =
        "{\"n\": 5, \"x\": 0.5, \"b\": true, \"s\": \"word\", \"o\": {}, \"nil\": null, \"big\": 9223372036854775807}";
    Error e = {0};
    json_t *j = json_parse(text, sizeof text - 1, "x", &e);
    int64_t n = -1;
    double x = -1;
    bool b = false;
    const char *s = NULL;
    json_t *o = NULL;
    assert_true(json_get_int(j, "n", 5, 5, &n, true, &e) && n == 5);
    assert_true(json_get_int(j, "big", 0, INT64_MAX, &n, true, &e) && n == INT64_MAX);
    assert_true(json_get_double(j, "x", 0, 1, &x, true, &e) && x == 0.5);
    assert_true(json_get_double(j, "n", 0, 9, &x, true, &e) && x == 5);
    assert_true(json_get_bool(j, "b", &b, true, &e) && b);
    assert_true(json_get_string(j, "s", &s, true, &e) && strcmp(s, "word") == 0);
    assert_true(json_get_object(j, "o", &o, true, &e) && json_is_object(o));
    n = 7;
    assert_true(json_get_int(j, "absent", 0, 9, &n, false, &e) && n == 7); /* keeps the default */
    assert_true(json_get_int(j, "nil", 0, 9, &n, false, &e) && n == 7);
    assert_false(e.set);

#define REFUSED(call, message)                                                                                                   \
    do {                                                                                                                         \
        e = (Error){0};                                                                                                          \
        assert_false(call);                                                                                                      \
        assert_says(&e, message);                                                                                                \
    } while (0)
    REFUSED(json_get_int(j, "n", 6, 9, &n, true, &e), "n: is 5; must be from 6 to 9");
    REFUSED(json_get_int(j, "n", 0, 4, &n, false, &e), "n: is 5; must be from 0 to 4");
    REFUSED(json_get_int(j, "x", 0, 9, &n, true, &e), "x: is a fraction; an integer is needed");
    REFUSED(json_get_int(j, "s", 0, 9, &n, false, &e), "s: is text; an integer is needed");
    REFUSED(json_get_int(j, "nil", 0, 9, &n, true, &e), "nil: is missing");
    REFUSED(json_get_double(j, "x", 0.6, 1, &x, true, &e), "x: is 0.5; must be from 0.6 to 1");
    REFUSED(json_get_double(j, "b", 0, 1, &x, true, &e), "b: is true/false; a number is needed");
    REFUSED(json_get_bool(j, "n", &b, true, &e), "n: is an integer; true or false is needed");
    REFUSED(json_get_string(j, "o", &s, true, &e), "o: is an object; text is needed");
    REFUSED(json_get_object(j, "absent", &o, true, &e), "absent: is missing");
    assert_int_equal(n, 7);
    json_decref(j);
}

static void test_json_files(void **state)
{
    (void)state;
    Error e = {0};
    json_t *j = json_pack("{s:i, s:f, s:s}", "z", 1, "a", 0.1, "m", "ü");
    assert_true(json_write(at("x.json"), j, &e));
    assert_holds(at("x.json"), "{\n  \"z\": 1,\n  \"a\": 0.10000000000000001,\n  \"m\": \"ü\"\n}\n");
    json_t *back = json_read(at("x.json"), &e);
    assert_true(json_equal(j, back));
    json_decref(j);
    json_decref(back);
    put(at("bad.json"), "{\n\"a\": ?}");
    assert_null(json_read(at("bad.json"), &e));
    assert_says(&e, "bad.json:2:6: not JSON");
    assert_says(&e, temp_dir);
}

/* ---- Running ------------------------------------------------------------------------------------------------------- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map),          cmocka_unit_test(test_map_refuses),     cmocka_unit_test(test_read_all),
        cmocka_unit_test(test_write),        cmocka_unit_test(test_write_refuses),   cmocka_unit_test(test_write_full_disk),
        cmocka_unit_test(test_write_killed), cmocka_unit_test(test_write_short),     cmocka_unit_test(test_write_full_filesystem),
        cmocka_unit_test(test_folders),      cmocka_unit_test(test_folder_relative), cmocka_unit_test(test_json_refuses),
        cmocka_unit_test(test_json_get),     cmocka_unit_test(test_json_files),
    };
    return cmocka_run_group_tests_name("files", tests, temp_dir_make, temp_dir_remove);
}
