/* tally golden: every case must pass, and a case with one wrong number must not.
 *
 * The cases are tests/golden/g01 to g05, and those in the folders that TALLY_GOLDEN names, separated by colons: each the folder
 * of a case, or a folder of such folders. Kinds that cannot be run must be refused. None may be missing or skipped. Each
 * run is a process of its own, since the command may exit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/temp_dir.h"

#include "base/json.h"
#include "base/safetensors.h"
#include "tools/commands.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sys/wait.h>

/* ---- Running the command ------------------------------------------------------------------------------------------- */

static char output[1 << 16]; /* what the last run has printed, stdout and stderr */

/* tally golden DIR --out at("out"), with one more argument or NULL: then one thread. Returns the exit code, or -1 when the
 * process crashed. */
static int golden(const char *dir, const char *extra)
{
    char *argv[] = {"tally", "golden", (char *)dir, "--out", (char *)at("out"), extra ? (char *)extra : "--threads=1", NULL};
    int status;
    dir_remove(at("out"), &(Error){0});
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int fd = open(at("log"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        exit(tally_main(6, argv));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    FILE *f = fopen(at("log"), "r");
    assert_non_null(f);
    output[fread(output, 1, sizeof output - 1, f)] = 0;
    fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void assert_printed(const char *part)
{
    if (!strstr(output, part))
        fail_msg("wanted \"%s\" in:\n%s", part, output);
}

/* Runs a case; a GPT-2 must pass, any other kind must be refused. */
static void case_must_pass(const char *dir)
{
    char path[PATH_SIZE], *text = NULL;
    size_t n;
    Error e = {0};
    if (!path_join(path, dir, "case.json", &e) || !file_read_all(path, 1 << 26, &text, &n, &e))
        fail_msg("%s", e.text);
    bool known = strstr(text, "\"kind\": \"gpt2\"");
    free(text);
    int code = golden(dir, "--threads=2");
    if (known ? code != 0 : code < 1)
        fail_msg("%s: exit code %d:\n%s", dir, code, output);
    assert_int_equal(file_exists(at("out/result.json")), known);
}

static void test_cases(void **state)
{
    (void)state;
    for (int i = 1; i <= 5; i++) {
        char dir[64];
        snprintf(dir, sizeof dir, "tests/golden/g%02d", i);
        case_must_pass(dir);
    }
}

/* In 16 bits they must pass within what g07 allows, which fp32 keeps as well, and must not be fp32 in disguise. */
static void test_cases_in_16_bits(void **state)
{
    (void)state;
    static const char *const flags[] = {"--precision=bf16", "--precision=fp16"};
    for (int p = 0; p < 2; p++)
        for (int i = 1; i <= 5; i++) {
            char dir[64];
            snprintf(dir, sizeof dir, "tests/golden/g%02d", i);
            if (golden(dir, flags[p]) != 0)
                fail_msg("%s %s:\n%s", dir, flags[p], output);
            const char *row = strstr(output, "\ngradients (");
            double error = 0;
            assert_non_null(row);
            assert_int_equal(sscanf(row, " gradients (%*d of %*d) %*s %lf", &error), 1);
            assert_true(error > (p ? 5e-4 : 5e-3)); /* a worst tensor: half an ulp is 4.9e-4 in FP16, 3.9e-3 in BF16 */
        }
}

static bool is_case(const char *dir)
{
    char path[PATH_SIZE];
    return path_join(path, dir, "case.json", &(Error){0}) && file_exists(path);
}

static void folder_must_pass(const char *folder)
{
    if (is_case(folder)) {
        case_must_pass(folder);
        return;
    }
    DIR *d = opendir(folder);
    int cases = 0;
    if (!d)
        fail_msg("TALLY_GOLDEN: %s: no such folder", folder);
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[PATH_SIZE];
        if (entry->d_name[0] == '.' || !path_join(path, folder, entry->d_name, &(Error){0}) || !is_case(path))
            continue;
        case_must_pass(path);
        cases++;
    }
    closedir(d);
    if (!cases)
        fail_msg("TALLY_GOLDEN: %s: neither a case nor a folder of cases", folder);
}

static void test_more_cases(void **state)
{
    (void)state;
    char *list = strdup(getenv("TALLY_GOLDEN") ? getenv("TALLY_GOLDEN") : ""), *rest = list;
    for (char *folder; (folder = strsep(&rest, ":"));)
        if (*folder)
            folder_must_pass(folder);
    free(list);
}

/* ---- Cases with something wrong ------------------------------------------------------------------------------------ */

/* A copy of a case to spoil, made anew. */
static const char *copy_of(const char *name)
{
    char command[3 * PATH_SIZE];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r tests/golden/%s '%s'", at("case"), name, at("case"));
    assert_int_equal(system(command), 0);
    return at("case");
}

/* Multiplies the tensor in temp_dir/case/file by 1 + by; NaN as well. */
static void spoil(const char *file, const char *tensor, float by)
{
    char path[PATH_SIZE];
    Error e = {0};
    SafeTensors f;
    assert_true(path_join(path, at("case"), file, &e) && safetensors_open(&f, path, &e));
    const SafeTensor *t = safetensors_find(&f, tensor);
    assert_non_null(t);
    char *bytes = malloc(f.map.size);
    memcpy(bytes, f.map.data, f.map.size);
    float *values = (float *)(bytes + ((const char *)t->data - (const char *)f.map.data));
    for (size_t i = 0; i < t->bytes / 4; i++)
        values[i] *= 1 + by;
    assert_true(file_write_atomic(path, bytes, f.map.size, &e));
    free(bytes);
    safetensors_close(&f);
}

/* Replaces the first `from` in temp_dir/case/case.json, or another JSON file there. */
static void edit(const char *file, const char *from, const char *to)
{
    char path[PATH_SIZE], *text = NULL;
    size_t n;
    Error e = {0};
    assert_true(path_join(path, at("case"), file, &e) && file_read_all(path, 1 << 20, &text, &n, &e));
    char *place = strstr(text, from);
    assert_non_null(place);
    FILE *f = fopen(path, "w");
    fprintf(f, "%.*s%s%s", (int)(place - text), text, to, place + strlen(from));
    fclose(f);
    free(text);
}

/* One expected tensor off by a thousandth, fifty times what is allowed of a gradient: fails, and names what it is. (A gain's
 * change in two steps is 2e-3 of it; moments are allowed 4e-3.) */
static void test_wrong_values(void **state)
{
    (void)state;
    static const struct {
        const char *file, *tensor, *says;
        float by;
    } wrong[] = {
        {"grads.safetensors", "h.1.mlp.c_fc.weight", "gradients (28 of 28): h.1.mlp.c_fc.weight: error ", 1e-3f},
        {"grads.safetensors", "ln_f.bias", "gradients (28 of 28): ln_f.bias: error ", 1e-3f},
        {"grads.safetensors", "wpe.weight", "gradients (28 of 28): wpe.weight: error nan", NAN},
        {"logits.safetensors", "logits", "logits (1 of 1): logits: error ", 1e-3f},
        {"acts.safetensors", "h.1.attn", "activations (12 of 12): h.1.attn: error ", 1e-3f},
        {"adam_step2.safetensors", "wte.weight.v", "moments, step 2 (56 of 56): wte.weight.v: error ", 1e-2f},
        {"weights_step2.safetensors", "h.0.ln_1.weight", "weights, step 2 (28 of 28): h.0.ln_1.weight: error", 1e-4f},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        copy_of("g01");
        spoil(wrong[i].file, wrong[i].tensor, wrong[i].by);
        assert_int_equal(golden(at("case"), NULL), 1);
        assert_printed(wrong[i].says);
        assert_printed("(1 in all)");
    }
}

/* In 16 bits as well: a gradient off by a tenth in BF16, by a fiftieth in FP16, a loss by a hundredth, no clipping. */
static void test_wrong_in_16_bits(void **state)
{
    (void)state;
    static const struct {
        const char *flag, *says;
        float by;
    } wrong[] = {{"--precision=bf16", "gradients (28 of 28): h.1.mlp.c_fc.weight: error ", 0.1f},
                 {"--precision=fp16", "gradients (28 of 28): h.1.mlp.c_fc.weight: error ", 0.02f}};
    for (int i = 0; i < 2; i++) {
        copy_of("g01");
        spoil("grads.safetensors", "h.1.mlp.c_fc.weight", wrong[i].by);
        assert_int_equal(golden(at("case"), wrong[i].flag), 1);
        assert_printed(wrong[i].says);
        copy_of("g03");
        edit("case.json", "\"loss\": 5.597277865012192", "\"loss\": 5.65");
        assert_int_equal(golden(at("case"), wrong[i].flag), 1);
        assert_printed("loss: step 1: error");
        copy_of("g03");
        edit("case.json", "\"clip\": 1.0", "\"clip\": 0.0");
        assert_int_equal(golden(at("case"), wrong[i].flag), 1);
        assert_printed("clip_coef: step");
    }
}

static void test_wrong_scalars(void **state)
{
    (void)state;
    copy_of("g03");
    edit("case.json", "\"loss\": 5.597277865012192", "\"loss\": 5.59729");
    assert_int_equal(golden(at("case"), NULL), 1);
    assert_printed("loss: step 1: error");
    copy_of("g03");
    edit("case.json", "\"clip_coef\": 0.3356368719204566", "\"clip_coef\": 0.33565");
    assert_int_equal(golden(at("case"), NULL), 1);
    assert_printed("clip_coef: step 1: error");
    copy_of("g05");
    edit("case.json", "\"ln_f.bias\": 0.3723263157153325", "\"ln_f.bias\": 0.3724");
    assert_int_equal(golden(at("case"), NULL), 1);
    assert_printed("gradient norms: ln_f.bias: error");
}

/* The program must notice another model: the weights' update is one of the things that the case states. */
static void test_wrong_hyper(void **state)
{
    (void)state;
    copy_of("g03");
    edit("case.json", "\"weight_decay\": 0.1", "\"weight_decay\": 0.11");
    assert_int_equal(golden(at("case"), NULL), 1);
    assert_printed("weights, step 3");
    copy_of("g03");
    edit("case.json", "\"warmup_steps\": 2", "\"warmup_steps\": 3");
    assert_int_equal(golden(at("case"), NULL), 1);
    assert_printed("lr: step 5: error");
}

/* ---- Requests and files that make no sense ------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    copy_of("g01");
    edit("case.json", "\"kind\": \"gpt2\"", "\"kind\": \"llama\"");
    assert_int_equal(golden(at("case"), NULL), 2);
    assert_printed("kind: is \"llama\"; only \"gpt2\" can be run");
    assert_int_equal(golden("tests/golden/g06", NULL), 2);
    assert_printed("kind: is \"ops\"");
    assert_int_equal(golden("tests/golden/g01", "--precision=tf32"), 2);
    assert_printed("precision: tf32 is how a GPU's tensor cores multiply FP32 numbers; a CPU has no such unit");
    assert_int_equal(golden("tests/golden/g01", "--precision=fp8"), 2);
    assert_printed("precision: 'fp8' is none of fp32, tf32, bf16, fp16");
    assert_int_equal(golden("tests/golden/g01", "--device=dry"), 2);
    assert_printed("device: there is no 'dry'");
    assert_int_equal(golden("tests/golden/g01", "--threads=x"), 2);
    assert_int_equal(golden("tests/golden/g99", NULL), 1);
    assert_printed("g99/case.json");
    assert_int_equal(golden("tests/golden/g01", "g02"), 2);
}

static void test_own_folder_is_refused(void **state)
{
    (void)state;
    char command[2 * PATH_SIZE];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r tests/golden/g01 '%s'", at("out"), at("out"));
    assert_int_equal(system(command), 0);
    char *argv[] = {"tally", "golden", (char *)at("out"), "--out", (char *)at("out"), NULL};
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        freopen("/dev/null", "w", stderr);
        exit(tally_main(5, argv));
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    assert_false(file_exists(at("out/result.json")));
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *file, *from, *to, *says;
    } bad[] = {
        {"case.json", "\"kind\"", "\"kin\"", "case.json: kind: is missing"},
        {"case.json", "\"steps\": 10", "\"steps\": 0", "batch: steps: is 0"},
        {"case.json", "\"steps\": 10", "\"steps\": 11", "steps: needs to be a list of the 11 steps"},
        {"case.json", "\"B\": 2", "\"B\": 3", "tokens: needs to be there as I32 [10, 1, 3, 16]"},
        {"case.json", "\"T\": 16", "\"T\": 17", "batch: T: is 17; the model has 16 positions"},
        {"case.json", "\"B\": 2", "\"B\": \"2\"", "batch: B: is text"},
        {"case.json", "\"beta1\": 0.9,", "", "hyper: beta1: is missing"},
        {"case.json", "\"beta1\": 0.9", "\"beta1\": 1", "beta1 1"},
        {"case.json", "\"n_embd\": 32", "\"n_embd\": 33", "model: n_embd: is 33, in config.json 32"},
        {"case.json", "weights_step10.s", "weights_step11.s", "weights_step11.safetensors: the case has steps 1 to 10"},
        {"case.json", "\"kind\": \"file\"", "\"kind\": \"web\"", "init: kind: is \"web\""},
        {"case.json", "\"file\": \"model", "\"file\": \"../model", "init: file: is \"../model.safetensors\""},
        {"case.json", "\"cols\": [", "\"cols\": [ 40,", "noise_only: 0: needs a name and cols"},
        {"case.json", "\"micro_batches\": 1", "\"micro_batches\": 99999999", "batch: micro_batches: is 99999999"},
        {"config.json", "\"vocab_size\": 96", "\"vocab_size\": 95", "model: vocab_size: is 96, in config.json 95"},
        {"config.json", "\"n_inner\": null", "\"n_inner\": 64",
         "mlp.c_proj.weight: has shape [128, 32]; the model needs [64, 32]"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        copy_of("g01");
        edit(bad[i].file, bad[i].from, bad[i].to);
        int code = golden(at("case"), NULL);
        if (code != 1 && code != 2)
            fail_msg("%s: exit code %d", bad[i].to, code);
        assert_printed(bad[i].says);
    }
    copy_of("g04");
    edit("case.json", "\"name\": \"ln_f.bias\"", "\"name\": \"ln_f.bia\"");
    assert_int_equal(golden(at("case"), NULL), 1);
    assert_printed("init: tensors: ln_f.bias: is missing");
}

/* Sets one of the ids in the batches. */
static void id_set(const char *tensor, int element, int32_t value)
{
    char path[PATH_SIZE];
    Error e = {0};
    SafeTensors f;
    assert_true(path_join(path, at("case"), "batches.safetensors", &e) && safetensors_open(&f, path, &e));
    char *bytes = malloc(f.map.size);
    memcpy(bytes, f.map.data, f.map.size);
    const char *data = safetensors_find(&f, tensor)->data;
    memcpy(bytes + (data - (const char *)f.map.data) + 4 * element, &value, 4);
    assert_true(file_write_atomic(path, bytes, f.map.size, &e));
    free(bytes);
    safetensors_close(&f);
}

static void test_ids(void **state)
{
    (void)state;
    copy_of("g01");
    id_set("tokens", 7, 96);
    assert_int_equal(golden(at("case"), NULL), 1);
    assert_printed("tokens: element 7 is 96; the vocabulary has 96");
    copy_of("g01");
    id_set("targets", 3, -100);
    assert_int_equal(golden(at("case"), NULL), 1);
    assert_printed("targets: element 3 is -100");
    copy_of("g02"); /* the same case with -100 for what is ignored: -1 is out of range then */
    edit("case.json", "\"ignore_index\": -1", "\"ignore_index\": -100");
    assert_int_equal(golden(at("case"), NULL), 0);
}

/* ---- What is written ----------------------------------------------------------------------------------------------- */

/* Without any expected file and without expected scalars everything is dumped, nothing compared; and the dumps, taken for
 * expected values, agree with a second run. */
static void test_dump_only(void **state)
{
    (void)state;
    static const char *const files[] = {"acts.safetensors",          "grads.safetensors",         "logits.safetensors",
                                        "weights_step1.safetensors", "weights_step2.safetensors", "weights_step10.safetensors",
                                        "adam_step2.safetensors"};
    char command[4 * PATH_SIZE], path[PATH_SIZE];
    copy_of("g01");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_true(path_join(path, at("case"), files[i], &(Error){0}));
        assert_int_equal(unlink(path), 0);
    }
    edit("case.json", "\"steps\": [", "\"other\": [");
    edit("case.json", "\"tolerance_float32\"", "\"tolerances\"");
    edit("case.json", "\"grad_l2\"", "\"norms\"");
    assert_int_equal(golden(at("case"), NULL), 0);
    assert_printed("gradients                    not compared: the case has no grads.safetensors");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_true(path_join(path, at("out"), files[i], &(Error){0}));
        assert_true(file_exists(path));
    }
    edit("case.json", "\"tolerances\"", "\"tolerance_float32\"");
    snprintf(command, sizeof command, "cp '%s'/*.safetensors '%s'", at("out"), at("case"));
    assert_int_equal(system(command), 0);
    assert_int_equal(golden(at("case"), NULL), 0);
    assert_printed("weights, step 10 (28 of 28)  ln_f.bias                          0.00e+00");
}

static void test_result(void **state)
{
    (void)state;
    Error e = {0};
    double loss = 0, norm = 0, clip = 0, lr = 0;
    int64_t step = 0;
    assert_int_equal(golden("tests/golden/g03", "--threads=1"), 0);
    json_t *root = json_read(at("out/result.json"), &e), *steps = json_object_get(root, "steps");
    assert_int_equal(json_array_size(steps), 5);
    const json_t *last = json_array_get(steps, 4);
    assert_true(json_get_int(last, "step", 0, 10, &step, true, &e) && json_get_double(last, "loss", 0, 10, &loss, true, &e) &&
                json_get_double(last, "grad_norm", 0, 10, &norm, true, &e) &&
                json_get_double(last, "clip_coef", 0, 10, &clip, true, &e) && json_get_double(last, "lr", 0, 10, &lr, true, &e));
    assert_int_equal(step, 5);
    assert_true(fabs(lr - 0.0011) < 1e-12); /* lr_schedules.json, first table, values[4] */
    assert_true(fabs(clip - 1 / (norm + 1e-6)) < 1e-6 && norm > 1);
    json_decref(root);
    assert_int_equal(golden("tests/golden/g04", "--threads=1"), 0); /* no optimizer: no update, and no schedule */
    root = json_read(at("out/result.json"), &e);
    assert_true(json_get_double(json_array_get(json_object_get(root, "steps"), 0), "lr", 0, 10, &lr, true, &e));
    assert_true(lr == 0);
    json_decref(root);
}

/* A model without biases: "bias": false in case.json. Its gradients are those of the model whose biases are 0, without these. */
static void test_no_bias(void **state)
{
    (void)state;
    copy_of("g05");
    for (const char *end = "\"scale\": 0.0625"; strstr(end, "scale");) { /* every bias to 0: those have this scale */
        char path[PATH_SIZE], *text = NULL;
        size_t n;
        assert_true(path_join(path, at("case"), "case.json", &(Error){0}) &&
                    file_read_all(path, 1 << 20, &text, &n, &(Error){0}));
        bool more = strstr(text, end) != NULL;
        free(text);
        if (!more)
            break;
        edit("case.json", end, "\"scale\": 0.0");
    }
    edit("case.json", "\"steps\": [", "\"other\": [");
    edit("case.json", "\"grad_l2\"", "\"norms\"");
    char command[3 * PATH_SIZE];
    snprintf(command, sizeof command, "rm '%s'/grads.safetensors '%s'/logits.safetensors", at("case"), at("case"));
    assert_int_equal(system(command), 0);
    assert_int_equal(golden(at("case"), NULL), 0);
    snprintf(command, sizeof command, "mv '%s'/logits.safetensors '%s'", at("out"), at("case"));
    assert_int_equal(system(command), 0);
    edit("case.json", "\"n_layer\": 2", "\"bias\": false, \"n_layer\": 2");
    assert_int_equal(golden(at("case"), NULL), 0);
    assert_printed("logits (1 of 1)              logits");
    SafeTensors f;
    assert_true(safetensors_open(&f, at("out/grads.safetensors"), &(Error){0}));
    assert_int_equal(f.count, 15); /* 2 x (4 matrices + 2 gains), ln_f's, two embeddings */
    safetensors_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_cases_in_16_bits),
        cmocka_unit_test(test_more_cases),
        cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_wrong_in_16_bits),
        cmocka_unit_test(test_wrong_scalars),
        cmocka_unit_test(test_wrong_hyper),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_own_folder_is_refused),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_dump_only),
        cmocka_unit_test(test_result),
        cmocka_unit_test(test_no_bias),
    };
    return cmocka_run_group_tests_name("golden", tests, temp_dir_make, temp_dir_remove);
}
