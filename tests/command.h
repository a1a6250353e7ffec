/* For tests of the command line: runs the built binary in a folder of its own, and looks at what it printed and wrote. Include
 * after cmocka.
 *
 * The binary is $TALLY, or the `tally` beside the folder of the test program. */
#ifndef TALLY_TESTS_COMMAND_H
#define TALLY_TESTS_COMMAND_H

#include "base/json.h"
#include "base/safetensors.h"
#include "tests/temp_dir.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* A model and data so small that a step takes a fraction of a millisecond; `data` is made by text_prepare. One thread: on a busy
 * machine two would wait for each other. */
#define TINY_MODEL "--model nano --n-layer 2 --n-embd 32 --n-head 2 --threads 1"
#define TINY       TINY_MODEL " --data data --block-size 16 --batch-size 2 --quiet"

static char command_path[PATH_SIZE];

/* What a command has done. */
typedef struct Output {
    int code; /* exit code, or 128 + the signal that ended it */
    char out[16384], err[4096];
    long peak_kib;      /* largest resident size */
    double cpu_seconds; /* of all its threads    */
} Output;

/* Group set-up: finds the binary, and makes the group's folder the working directory. */
static inline int command_begin(void **state)
{
    char self[PATH_SIZE] = "", *slash;
    const char *wish = getenv("TALLY");
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return -1;
    for (int up = 0; up < 2 && (slash = strrchr(self, '/')); up++)
        *slash = 0;
    if (snprintf(command_path, sizeof command_path, "%s", wish ? wish : strcat(self, "/tally")) >= PATH_SIZE)
        return -1;
    char *whole = realpath(command_path, NULL);
    if (!whole) {
        fprintf(stderr, "%s: there is no such binary; `make` builds it, TALLY=path names another\n", command_path);
        return -1;
    }
    snprintf(command_path, sizeof command_path, "%s", whole);
    free(whole);
    return temp_dir_make(state) || chdir(temp_dir);
}

static inline int command_end(void **state)
{
    return chdir("/") || temp_dir_remove(state);
}

/* Starts `tally LINE`, LINE split at blanks ('_' alone stands for an empty argument), its output in the files out and err. */
static inline pid_t command_start(const char *line)
{
    static char copy[4096];
    char *argv[128] = {command_path};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word && argc < 127; word = strtok(NULL, " "))
        argv[argc++] = strcmp(word, "_") == 0 ? "" : word;
    pid_t child = fork();
    if (child == 0) {
        int out = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600), err = open("err", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(open("/dev/null", O_RDONLY), 0);
        dup2(out, 1);
        dup2(err, 2);
        execv(command_path, argv);
        _exit(99);
    }
    return child;
}

static inline void file_head(char *to, size_t size, const char *path)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    to[fread(to, 1, size - 1, f)] = 0;
    fclose(f);
}

/* Waits for it, for at most two minutes. The result is good until the next call. */
static inline const Output *command_wait(pid_t child)
{
    static Output o;
    struct rusage usage;
    int status = 0, waited = 0;
    while (wait4(child, &status, WNOHANG, &usage) == 0 && waited++ < 120000)
        usleep(1000);
    if (waited >= 120000) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        fail_msg("a command did not end");
    }
    o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    o.peak_kib = usage.ru_maxrss;
    o.cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                    1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    file_head(o.out, sizeof o.out, "out");
    file_head(o.err, sizeof o.err, "err");
    return &o;
}

static inline const Output *command_run(const char *line)
{
    return command_wait(command_start(line));
}

/* Runs `tally LINE`, LINE in printf's form, which has to end with `code` and, in what it says, `part` ("" is in all). */
__attribute__((format(printf, 3, 4))) static inline const Output *ends(int code, const char *part, const char *format, ...)
{
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    const Output *o = command_run(line);
    if (o->code != code || !(strstr(o->err, part) || strstr(o->out, part)))
        fail_msg("tally %s: code %d, not %d with \"%s\"; printed \"%.1500s\", said \"%s\"", line, o->code, code, part, o->out,
                 o->err);
    return o;
}

/* The same for one that has to succeed. */
#define works(...) ends(0, "", __VA_ARGS__)

/* A text of so many words from a small vocabulary, 16 kinds of characters, in the file `text`, and its tokens in `data`. */
static inline void text_prepare(int words)
{
    static const char *const word[] = {"the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "far", "we", "see"};
    FILE *f = fopen("text", "w");
    uint32_t random = 1;
    assert_non_null(f);
    for (int i = 0; i < words; i++) {
        random = random * 1664525 + 1013904223;
        fprintf(f, "%s%c", word[(random >> 16) % 12], i % 8 == 7 ? '\n' : ' ');
    }
    fclose(f);
    works("data prepare text --tokenizer char --out data");
}

/* ---- What a run has written ----------------------------------------------------------------------------------------- */

static inline bool files_equal(const char *a, const char *b)
{
    FileMap x, y;
    Error e = {0};
    if (!file_map(&x, a, &e) || !file_map(&y, b, &e))
        fail_msg("%s", e.text);
    bool equal = x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
    file_unmap(&x);
    file_unmap(&y);
    return equal;
}

/* Have the checkpoints of step `step` in two out-dirs the same weights and moments, bit for bit? */
static inline bool steps_equal(const char *a, const char *b, int step)
{
    char x[PATH_SIZE], y[PATH_SIZE];
    bool equal = true;
    for (int i = 0; i < 2; i++) {
        snprintf(x, sizeof x, "%s/step-%d/%s.safetensors", a, step, i ? "optimizer" : "model");
        snprintf(y, sizeof y, "%s/step-%d/%s.safetensors", b, step, i ? "optimizer" : "model");
        equal = equal && files_equal(x, y);
    }
    return equal;
}

/* log.jsonl of an out-dir as a list of its objects, each of which has to be one; a new reference. */
static inline json_t *log_lines(const char *out_dir)
{
    char path[256], line[8192];
    json_t *list = json_array();
    snprintf(path, sizeof path, "%s/log.jsonl", out_dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_true(json_is_object(object) && strchr(line, '\n'));
        json_array_append_new(list, object);
    }
    fclose(f);
    return list;
}

/* Waits until the log of a run in progress has `lines` lines. */
static inline void log_wait(const char *out_dir, int lines)
{
    char path[256];
    snprintf(path, sizeof path, "%s/log.jsonl", out_dir);
    for (int waited = 0; waited < 60000; waited++) {
        FILE *f = fopen(path, "r");
        int seen = 0;
        for (int c; f && (c = getc(f)) != EOF;)
            seen += c == '\n';
        if (f)
            fclose(f);
        if (seen >= lines)
            return;
        usleep(1000);
    }
    fail_msg("%s never had %d lines", path, lines);
}

/* A number of the log's line `line`, the configuration being line 0; NaN when it is null or absent. */
static inline double log_number(const json_t *log, size_t line, const char *field)
{
    const json_t *value = json_object_get(json_array_get(log, line), field);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* The values of a tensor of a checkpoint, *count of them; free it. */
static inline float *tensor_of(const char *dir, const char *name, int64_t *count)
{
    SafeTensors m;
    Error e = {0};
    if (!safetensors_open_model(&m, dir, &e))
        fail_msg("%s", e.text);
    const SafeTensor *t = safetensors_find(&m, name);
    assert_non_null(t);
    *count = (int64_t)(t->bytes / sizeof(float));
    float *values = malloc(t->bytes);
    assert_true(safetensors_read_f32(t, 0, *count, values, &e));
    safetensors_close(&m);
    return values;
}

/* |a - b| over the weights of two checkpoints, without the key part of c_attn.bias, whose gradient is 0 but for rounding. */
static inline double weights_distance(const char *a, const char *b)
{
    SafeTensors m;
    Error e = {0};
    double sum = 0;
    assert_true(safetensors_open_model(&m, a, &e));
    for (size_t i = 0; i < m.count; i++) {
        const char *name = m.tensors[i].name;
        bool keys = strstr(name, "c_attn.bias") != NULL;
        int64_t n, n_b;
        float *x = tensor_of(a, name, &n), *y = tensor_of(b, name, &n_b);
        assert_int_equal(n, n_b);
        for (int64_t k = 0; k < n; k++)
            if (!keys || k < n / 3 || k >= 2 * n / 3)
                sum += ((double)x[k] - y[k]) * ((double)x[k] - y[k]);
        free(x);
        free(y);
    }
    safetensors_close(&m);
    return sqrt(sum);
}

/* The JSON object that the last command has printed; a new reference. */
static inline json_t *printed(void)
{
    Error e = {0};
    json_t *object = json_read("out", &e);
    if (!object)
        fail_msg("%s", e.text);
    return object;
}

/* The number of that name. */
static inline double number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_number(value))
        fail_msg("%s is no number", name);
    return json_number_value(value);
}

#endif
