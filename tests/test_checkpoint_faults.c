/* train/checkpoint: a process killed and a disk full at every point of a save. A whole checkpoint is found afterwards, always. */
#include "tests/checkpoint_models.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

/* Saves step 20 of `m` in a child with a fault at the N-th disk call. Returns the wait status; the exit code is 0 when the save
 * succeeded, 1 when it failed with a message that names something in `out` and the full disk. */
static int save_with_fault(const char *variable, int call, const char *out, Model *m)
{
    pid_t child = fork();
    if (child == 0) {
        char number[16];
        Error e = {0};
        json_t *settings = json_object();
        TrainState state = state_at(20);
        snprintf(number, sizeof number, "%d", call);
        setenv(variable, number, 1);
        bool ok = checkpoint_save(out, m, &state, settings, meta_text, 1, &e);
        _exit(ok ? 0 : strstr(e.text, out) && strstr(e.text, "No space left") ? 1 : 2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* A whole checkpoint is there, and nothing without .tmp is damaged. Returns which of saved[3] it equals bit for bit. */
static int which_is_found(const char *out, Model *saved, Model *into)
{
    char path[PATH_SIZE], said[4096];
    json_t *trainer;
    Error e = {0};
    if (!find(out, path, &trainer, said, &e))
        fail_msg("%s", e.text);
    json_decref(trainer);
    find_and_load(out, strcmp(strrchr(path, '/'), "/step-20") == 0 ? 20 : 10, into, said);
    assert_string_equal(said, "");
    for (int i = 0; i < 3; i++)
        if (model_equal(&saved[i], into, true))
            return i;
    fail_msg("%s holds something that was never saved", path);
    return -1;
}

/* The fault at each call in turn, until a save runs through without having met it. Before the save there are step 10 of saved[0]
 * and, if twenty_exists, an older step 20 of saved[1]; it saves step 20 of saved[2] and keeps no other. What is found goes over
 * from the old to the new at one of the calls. Returns how many calls there are. */
static int fault_everywhere(const char *variable, bool twenty_exists)
{
    Model saved[3], into;
    for (int i = 0; i < 3; i++)
        model_make(&saved[i], &small, true, (uint32_t)i + 1);
    model_make(&into, &small, true, 4);
    int call = 0, status, before = twenty_exists ? 1 : 0;
    do {
        char out[PATH_SIZE], name[64];
        snprintf(name, sizeof name, "%s-%d-%d", variable, twenty_exists, call);
        folder(out, name);
        save(&saved[0], out, state_at(10), 2);
        if (twenty_exists)
            save(&saved[1], out, state_at(20), 2);
        status = save_with_fault(variable, ++call, out, &saved[2]);
        if (status != 0 && strcmp(variable, "TALLY_FAULT_KILL") == 0)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else if (status != 0)
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        int found = which_is_found(out, saved, &into);
        assert_true(found == before || found == 2);
        before = found;
        if (status != 0) /* the remains do not hinder the next save */
            assert_int_equal(save_with_fault(variable, 10000, out, &saved[2]), 0);
        assert_int_equal(which_is_found(out, saved, &into), 2);
        assert_string_equal(names_in(out), "step-20 ");
    } while (status != 0);
    for (int i = 0; i < 3; i++)
        model_free(&saved[i]);
    model_free(&into);
    return call - 1;
}

static void test_killed(void **unused)
{
    (void)unused;
    assert_true(fault_everywhere("TALLY_FAULT_KILL", false) > 70);
    assert_true(fault_everywhere("TALLY_FAULT_KILL", true) > 70);
}

static void test_full_disk(void **unused)
{
    (void)unused;
    assert_true(fault_everywhere("TALLY_FAULT_WRITE", false) > 70);
    assert_true(fault_everywhere("TALLY_FAULT_WRITE", true) > 70);
}

/* A file system with room for one checkpoint of about 52 KiB, but not for two. Exit code 77: this machine allows no mounting. */
static void test_full_filesystem(void **unused)
{
    (void)unused;
    char out[PATH_SIZE];
    folder(out, "tiny");
    Model saved[3], into;
    for (int i = 0; i < 3; i++)
        model_make(&saved[i], &small, true, (uint32_t)i + 1);
    model_make(&into, &small, true, 4);
    pid_t child = fork();
    if (child == 0) {
        Error e = {0};
        json_t *settings = json_object();
        TrainState state = state_at(20);
        if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            _exit(77);
        if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("tmpfs", out, "tmpfs", 0, "size=96k") != 0)
            _exit(77);
        save(&saved[0], out, state_at(10), 1);
        if (checkpoint_save(out, &saved[2], &state, settings, NULL, 1, &e))
            _exit(1);
        if (!strstr(e.text, "tiny/step-20.tmp/") || !strstr(e.text, "No space left"))
            _exit(2);
        _exit(which_is_found(out, saved, &into) == 0 && strcmp(names_in(out), "step-10 ") == 0 ? 0 : 3);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    for (int i = 0; i < 3; i++)
        model_free(&saved[i]);
    model_free(&into);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("SKIPPED: no right to mount a tmpfs here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* What a save is asked for cannot be had. */
static void test_save_refuses(void **unused)
{
    (void)unused;
    char out[PATH_SIZE];
    folder(out, "refuses");
    Model m;
    TrainState state = state_at(1);
    json_t *settings = json_object();
    Error e = {0};
    model_make(&m, &small, true, 1);
    put(in_folder(out, "file"), "");
    assert_false(checkpoint_save(in_folder(out, "file"), &m, &state, settings, NULL, 1, &e));
    assert_says(&e, "refuses/file: exists and is not a folder");
    e = (Error){0};
    error_set(&model_error, "an op has failed"); /* copies do nothing from then on: what they would give is not saved */
    assert_false(checkpoint_save(out, &m, &state, settings, NULL, 1, &e));
    assert_says(&e, "an op has failed");
    assert_string_equal(names_in(out), "file ");
    model_free(&m);
    model_make(&m, &small, false, 1);
    e = (Error){0};
    assert_false(checkpoint_save(out, &m, &state, settings, NULL, 1, &e));
    assert_says(&e, "not in training");
    json_decref(settings);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_full_filesystem),
        cmocka_unit_test(test_save_refuses),
    };
    return cmocka_run_group_tests_name("checkpoint faults", tests, temp_dir_make_in_memory, temp_dir_remove);
}
