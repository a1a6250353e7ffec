/* train/checkpoint: what is saved comes back bit for bit, the old goes, and the damaged is passed over. */
#include "tests/checkpoint_models.h"

/* ---- There and back ------------------------------------------------------------------------------------------------- */

static void test_round_trip(void **unused)
{
    (void)unused;
    char out[PATH_SIZE], path[PATH_SIZE], said[4096];
    folder(out, "round");
    Model a, b;
    model_make(&a, &small, true, 1);
    model_make(&b, &small, true, 2);
    TrainState saved = {.iter = 30,
                        .adam_t = 27,
                        .loader_position = INT64_C(1) << 40,
                        .tokens = 1234567890123,
                        .data_tokens = INT64_C(1) << 33,
                        .block_size = 8,
                        .evaluations = 3,
                        .skips = 3,
                        .skips_in_a_row = 1,
                        .loss_scale = 8192,
                        .scaler_good = 17,
                        .best_loss = 0.1 + 0.2,
                        .best_iter = 20};
    json_t *settings = json_pack("{s:i, s:[f, b]}", "batch_size", 4, "rest", 1e-3, 1), *trainer;
    Error e = {0};
    assert_true(checkpoint_save(out, &a, &saved, settings, meta_text, 1, &e));
    TrainState loaded = find_and_load(out, 30, &b, said);
    assert_string_equal(said, "");
    assert_true(model_equal(&a, &b, true));
    assert_memory_equal(&loaded, &saved, sizeof saved); /* thirteen fields of 8 bytes, no gaps */

    assert_true(find(out, path, &trainer, said, &e));
    assert_true(json_equal(json_object_get(trainer, "settings"), settings));
    assert_holds(in_folder(path, "meta.json"), meta_text);
    ModelConfig config;
    assert_true(model_config_load(path, &config, &e));
    assert_memory_equal(&config, &small, sizeof config);
    json_decref(trainer);
    json_decref(settings);

    saved.best_loss = INFINITY; /* no evaluation yet */
    saved.best_iter = -1;
    save(&a, out, saved, 1);
    loaded = find_and_load(out, 30, &b, said);
    assert_true(isinf(loaded.best_loss) && loaded.best_loss > 0 && loaded.best_iter == -1);
    assert_false(file_exists(in_folder(path, "meta.json"))); /* the folder is a new one */
    model_free(&a);
    model_free(&b);
}

/* A tensor larger than the copy buffer of 2^20 floats goes through it in pieces, the last one shorter. */
static void test_large_tensor(void **unused)
{
    (void)unused;
    char out[PATH_SIZE], said[4096];
    folder(out, "large");
    ModelConfig config = small;
    config.vocab_size = (1 << 17) + 3; /* x 16 = 2 x 2^20 + 48 */
    Model a, b;
    model_make(&a, &config, true, 1);
    model_make(&b, &config, true, 2);
    save(&a, out, state_at(1), 1);
    find_and_load(out, 1, &b, said);
    assert_true(model_equal(&a, &b, true));
    model_free(&a);
    model_free(&b);
}

/* The shape of a tensor of a file, "50x16". */
static const char *shape_in(const char *path, const char *name)
{
    static char text[64];
    SafeTensors f;
    Error e = {0};
    assert_true(safetensors_open(&f, path, &e));
    const SafeTensor *t = safetensors_find(&f, name);
    snprintf(text, sizeof text, "none");
    if (t)
        snprintf(text, sizeof text, t->ndim == 2 ? "%ldx%ld" : "%ld", t->shape[0], t->ndim == 2 ? t->shape[1] : 0);
    safetensors_close(&f);
    return text;
}

static void test_padded_vocabulary(void **unused)
{
    (void)unused;
    char out[PATH_SIZE], said[4096];
    folder(out, "padded");
    ModelConfig padded = small;
    padded.vocab_multiple = 128;
    Model a, b, plain;
    model_make(&a, &padded, true, 1);
    save(&a, out, state_at(5), 1);
    assert_string_equal(shape_in(in_folder(out, "step-5/model.safetensors"), "wte.weight"), "50x16");
    assert_string_equal(shape_in(in_folder(out, "step-5/optimizer.safetensors"), "wte.weight.v"), "50x16");

    padded.vocab_multiple = 64; /* into 64 rows that hold something else, padding included */
    model_make(&b, &padded, true, 2);
    fill(&b, b.wte.value, 64, 77);
    fill(&b, b.wte.m, 64, 77);
    fill(&b, b.wte.v, 64, 77);
    find_and_load(out, 5, &b, said);
    model_make(&plain, &small, true, 1); /* the same numbers without padding */
    find_and_load(out, 5, &plain, said);
    Tensor loaded[] = {b.wte.value, b.wte.m, b.wte.v}, wanted[] = {a.wte.value, a.wte.m, a.wte.v};
    Tensor unpadded[] = {plain.wte.value, plain.wte.m, plain.wte.v};
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(loaded[i].data, wanted[i].data, 64 * 16 * 4);
        assert_memory_equal(unpadded[i].data, wanted[i].data, 50 * 16 * 4);
    }
    for (int i = 50 * 16; i < 64 * 16; i++)
        assert_true(((const float *)b.wte.value.data)[i] == 0);
    model_free(&a);
    model_free(&b);
    model_free(&plain);
}

static void test_no_bias(void **unused)
{
    (void)unused;
    char out[PATH_SIZE], said[4096];
    folder(out, "nobias");
    ModelConfig bare = small, config;
    bare.bias = false;
    Model a, b, full;
    Error e = {0};
    model_make(&a, &bare, true, 1);
    model_make(&b, &bare, true, 2);
    model_make(&full, &small, true, 3);
    save(&a, out, state_at(5), 1);
    assert_string_equal(shape_in(in_folder(out, "step-5/model.safetensors"), "h.0.attn.c_attn.bias"), "48");
    assert_string_equal(shape_in(in_folder(out, "step-5/model.safetensors"), "ln_f.bias"), "16");
    assert_string_equal(shape_in(in_folder(out, "step-5/optimizer.safetensors"), "ln_f.bias.m"), "none");
    find_and_load(out, 5, &b, said);
    assert_true(model_equal(&a, &b, true));
    assert_true(model_config_load(in_folder(out, "step-5"), &config, &e) && !config.bias);

    assert_true(checkpoint_load_weights(&full, in_folder(out, "step-5"), &e)); /* with zero biases */
    assert_true(tensor_equal(full.block[0].c_fc.w.value, a.block[0].c_fc.w.value));
    for (int i = 0; i < 64; i++)
        assert_true(((const float *)full.block[0].c_fc.b.value.data)[i] == 0);

    model_free(&full);
    model_make(&full, &small, true, 3);
    save(&full, out, state_at(6), 1);
    assert_false(checkpoint_load_weights(&a, in_folder(out, "step-6"), &e)); /* biases that are not zero */
    assert_says(&e, "/step-6: ln_f.bias: is ");
    assert_says(&e, "the model has no biases");
    model_free(&a);
    model_free(&b);
    model_free(&full);
}

/* Rewrites the optimizer.safetensors in `dir` without its first `skip` tensors and, with `extra`, with one more of that name. */
static void moments_rewrite(const char *dir, size_t skip, const char *extra)
{
    SafeTensors f;
    Error e = {0};
    SafeEntry entry[64];
    size_t n = 0;
    assert_true(safetensors_open(&f, in_folder(dir, "optimizer.safetensors"), &e));
    for (size_t i = skip; i < f.count; i++) {
        const SafeTensor *t = &f.tensors[i];
        entry[n] = (SafeEntry){.name = t->name, .dtype = t->dtype, .ndim = t->ndim, .data = t->data};
        memcpy(entry[n++].shape, t->shape, sizeof t->shape);
    }
    if (extra)
        entry[n++] = (SafeEntry){.name = extra, .dtype = SAFE_F32, .ndim = 1, .shape = {1}, .data = f.data};
    assert_true(safetensors_write(in_folder(dir, "new"), entry, n, NULL, &e));
    safetensors_close(&f);
    assert_int_equal(rename(in_folder(dir, "new"), in_folder(dir, "optimizer.safetensors")), 0);
}

/* Moments are taken as they were saved or not at all. */
static void test_moments_refused(void **unused)
{
    (void)unused;
    char out[PATH_SIZE], dir[PATH_SIZE], said[4096];
    folder(out, "moments");
    ModelConfig shorter = small;
    shorter.block_size = 6;
    Model m, other;
    json_t *trainer;
    Error e = {0};
    model_make(&m, &small, true, 1);
    model_make(&other, &shorter, true, 2);
    save(&m, out, state_at(5), 1);
    assert_true(find(out, dir, &trainer, said, &e));
    assert_true(checkpoint_load_weights(&other, dir, &e)); /* weights of fewer positions, yes */
    assert_false(checkpoint_load_moments(&other, dir, &e));
    assert_says(&e, "step-5/optimizer.safetensors: wpe.weight.m: has shape [8, 16]; the model needs [6, 16]");
    e = (Error){0};
    moments_rewrite(dir, 0, "h.0.ln_3.weight.m");
    assert_false(checkpoint_load_moments(&m, dir, &e));
    assert_says(&e, "step-5/optimizer.safetensors: holds 33 tensors; the model has 32 moments");
    e = (Error){0};
    moments_rewrite(dir, 1, NULL);
    assert_false(checkpoint_load_moments(&m, dir, &e));
    assert_says(&e, "step-5/optimizer.safetensors: h.0.attn.c_attn.bias.m: is missing");
    json_decref(trainer);
    model_free(&m);
    model_free(&other);
}

/* ---- What stays ----------------------------------------------------------------------------------------------------- */

static void test_keep_and_best(void **unused)
{
    (void)unused;
    char out[PATH_SIZE];
    folder(out, "keep");
    Model m;
    model_make(&m, &small, true, 1);
    assert_int_equal(mkdir(in_folder(out, "step-3.tmp"), 0700), 0); /* left by a crash */
    put(in_folder(out, "step-3.tmp/model.safetensors.tmp"), "half");
    put(in_folder(out, "step-x"), "not ours");
    put(in_folder(out, "step-007"), "not ours");
    for (int64_t iter = 10; iter <= 60; iter += 10) {
        TrainState s = state_at(iter);
        s.best_iter = iter < 20 ? 10 : 20;
        s.best_loss = 1;
        save(&m, out, s, 2);
    }
    assert_string_equal(names_in(out), "step-007 step-20 step-50 step-60 step-x ");
    TrainState s = state_at(70); /* a new best, not yet saved: the old best goes */
    s.best_iter = 65;
    save(&m, out, s, 1);
    assert_string_equal(names_in(out), "step-007 step-70 step-x ");
    save(&m, out, state_at(40), 1); /* another run's later ones are not ours to remove */
    assert_string_equal(names_in(out), "step-007 step-40 step-70 step-x ");
    model_free(&m);
}

/* An old checkpoint that cannot be removed is named; half removed, it does not bear the name of a whole one. */
static void test_cannot_remove(void **unused)
{
    (void)unused;
    char out[PATH_SIZE], said[4096];
    folder(out, "stuck");
    Model m;
    Error e = {0};
    TrainState state = state_at(20);
    json_t *settings = json_object();
    model_make(&m, &small, true, 1);
    save(&m, out, state_at(10), 1);
    assert_int_equal(mkdir(in_folder(out, "step-10/of-someone"), 0700), 0);
    assert_false(checkpoint_save(out, &m, &state, settings, NULL, 1, &e));
    assert_says(&e, "stuck/step-10.tmp/of-someone: cannot remove");
    assert_string_equal(names_in(out), "step-10.tmp step-20 ");
    find_and_load(out, 20, &m, said);
    json_decref(settings);
    model_free(&m);
}

static void test_nothing_to_find(void **unused)
{
    (void)unused;
    char out[PATH_SIZE], path[PATH_SIZE], said[4096];
    folder(out, "none");
    json_t *trainer;
    Error e = {0};
    assert_false(find(out, path, &trainer, said, &e));
    assert_says(&e, "none: there is no checkpoint");
    assert_null(trainer);
    assert_false(checkpoint_present(out));
    assert_false(checkpoint_present(in_folder(out, "absent")));
    assert_int_equal(mkdir(in_folder(out, "step-3.tmp"), 0700), 0);
    assert_false(checkpoint_present(out));
    assert_int_equal(mkdir(in_folder(out, "step-3"), 0700), 0); /* empty: damaged, but there */
    assert_true(checkpoint_present(out));
    e = (Error){0};
    assert_false(find(in_folder(out, "absent"), path, &trainer, said, &e));
    assert_says(&e, "none/absent: cannot read the folder: No such file");
}

/* ---- Damage --------------------------------------------------------------------------------------------------------- */

/* With the newest of two damaged, the one before it is found and loads; the report names what is wrong. */
static void assert_passed_over(const char *out, const char *wrong, const Model *before, Model *into)
{
    char said[4096];
    find_and_load(out, 10, into, said);
    assert_true(model_equal(before, into, true));
    if (!strstr(said, "step-20 is damaged and passed over") || !strstr(said, wrong))
        fail_msg("wanted \"%s\" in \"%s\"", wrong, said);
}

/* A whole step-10 of `a` and a whole step-20 of `b`, with a meta.json in both. */
static void save_two(const char *out, Model *a, Model *b)
{
    Error e = {0};
    json_t *settings = json_object();
    TrainState older = state_at(10), newer = state_at(20);
    assert_true(checkpoint_save(out, a, &older, settings, meta_text, 2, &e));
    assert_true(checkpoint_save(out, b, &newer, settings, meta_text, 2, &e));
    json_decref(settings);
}

static void test_damaged_files(void **unused)
{
    (void)unused;
    static const char *const names[] = {"config.json", "model.safetensors", "optimizer.safetensors", "meta.json", "trainer.json"};
    static const char zeros[200];
    char out[PATH_SIZE], path[PATH_SIZE], said[4096], *bytes;
    folder(out, "damaged");
    Model a, b, into;
    model_make(&a, &small, true, 1);
    model_make(&b, &small, true, 2);
    model_make(&into, &small, true, 3);
    save_two(out, &a, &b);
    Error e = {0};
    size_t n, cuts = 0;
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s", in_folder(in_folder(out, "step-20"), names[i]));
        assert_true(file_read_all(path, 1 << 20, &bytes, &n, &e));
        for (size_t cut = 0; cut < n; cut += 4096, cuts++) {
            assert_int_equal(truncate(path, (off_t)cut), 0);
            assert_passed_over(out, path, &a, &into);
            put_bytes(path, bytes, n);
        }
        put_bytes(path, bytes, n - 2); /* of trainer.json the last bracket; its final newline alone is no loss */
        assert_passed_over(out, path, &a, &into);
        FILE *f = fopen(path, "r+"); /* the right size, but the first block never reached the disk */
        fwrite(zeros, 1, sizeof zeros, f);
        fwrite(bytes + sizeof zeros, 1, n > sizeof zeros ? n - sizeof zeros : 0, f);
        fclose(f);
        assert_passed_over(out, path, &a, &into);
        assert_int_equal(unlink(path), 0);
        assert_passed_over(out, path, &a, &into);
        put_bytes(path, bytes, n);
        free(bytes);
    }
    assert_true(cuts >= 3 + 4 + 8); /* the safetensors files have 17 and 33 KiB */
    find_and_load(out, 20, &into, said);
    assert_string_equal(said, "");
    assert_true(model_equal(&b, &into, true));

    assert_int_equal(truncate(path, 1), 0); /* a run that goes on from 10 saves over the damaged 20 */
    save(&b, out, state_at(20), 2);
    find_and_load(out, 20, &into, said);
    assert_true(model_equal(&b, &into, true));
    json_t *trainer;
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(truncate(in_folder(out, "step-10/config.json"), 0), 0);
    assert_false(find(out, path, &trainer, said, &e));
    assert_says(&e, "damaged: none of its 2 checkpoints is whole");
    model_free(&a);
    model_free(&b);
    model_free(&into);
}

/* trainer.json is JSON, but not what was written. */
static void test_damaged_fields(void **unused)
{
    (void)unused;
    static const struct {
        const char *where, *field, *value, *message; /* value NULL: the field is taken away */
    } cases[] = {
        {"", "version", "2", "version: is 2; must be from 1 to 1"},
        {"", "state", NULL, "state: is missing"},
        {"", "settings", "[]", "settings: is a list"},
        {"", "files", "{}", "files: config.json: is missing"},
        {"state", "iter", "21", "state: iter: is 21, in the folder of step 20"},
        {"state", "iter", "-1", "state: iter: is -1"},
        {"state", "iter", "9223372036854775807", "state: iter: is 9223372036854775807"},
        {"state", "adam_t", "21", "state: adam_t: is 21; must be at most iter = 20"},
        {"state", "adam_t", "1.5", "state: adam_t: is a fraction"},
        {"state", "skips", "21", "state: skips: is 21; must be at most iter = 20"},
        {"state", "skips_in_a_row", "1", "state: skips_in_a_row: is 1; must be at most skips = 0"},
        {"state", "best_iter", "-2", "state: best_iter: is -2"},
        {"state", "best_iter", "21", "state: best_iter: is 21; must be at most iter = 20"},
        {"state", "best_loss", "-1", "state: best_loss: is -1"},
        {"state", "best_loss", "\"inf\"", "state: best_loss: is text"},
        {"state", "tokens", "null", "state: tokens: is missing"},
        {"state", "loader_position", "true", "state: loader_position: is true/false"},
        {"files", "model.safetensors", "-5", "files: model.safetensors: is -5"},
        {"files", "model.safetensors", "17", "model.safetensors: has "},
    };
    char out[PATH_SIZE], path[PATH_SIZE];
    folder(out, "fields");
    Model a, b, into;
    Error e = {0};
    model_make(&a, &small, true, 1);
    model_make(&b, &small, true, 2);
    model_make(&into, &small, true, 3);
    save_two(out, &a, &b);
    snprintf(path, sizeof path, "%s", in_folder(out, "step-20/trainer.json"));
    json_t *whole = json_read(path, &e);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *bad = json_deep_copy(whole), *in = *cases[i].where ? json_object_get(bad, cases[i].where) : bad;
        if (cases[i].value)
            json_object_set_new(in, cases[i].field, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        else
            json_object_del(in, cases[i].field);
        assert_true(json_write(path, bad, &e));
        json_decref(bad);
        assert_passed_over(out, cases[i].message, &a, &into);
    }
    json_decref(whole);
    model_free(&a);
    model_free(&b);
    model_free(&into);
}

/* ---- Running -------------------------------------------------------------------------------------------------------- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_large_tensor),    cmocka_unit_test(test_padded_vocabulary),
        cmocka_unit_test(test_no_bias),        cmocka_unit_test(test_moments_refused), cmocka_unit_test(test_cannot_remove),
        cmocka_unit_test(test_keep_and_best),  cmocka_unit_test(test_nothing_to_find), cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_damaged_fields),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, temp_dir_make_in_memory, temp_dir_remove);
}
