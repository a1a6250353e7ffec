/* train/checkpoint: weights in every form in which Hugging Face's GPT-2 comes, and what is refused. */
#include "tests/checkpoint_models.h"

/* A folder as another program might have written it, from a model's weights. NULL and 0: as usual. */
typedef struct Variant {
    const char *prefix;    /* before every name                                               */
    SafeDtype dtype;       /* SAFE_F32, F16 or BF16 (SAFE_F64, which is 0, means F32)         */
    bool masks, head;      /* the buffers of old checkpoints; lm_head.weight written out      */
    float head_off;        /* added to the head's last element                                */
    const char *missing;   /* this tensor is left out                                         */
    const char *misshapen; /* this one has one row less                                       */
    const char *extra;     /* one more tensor of that name [1]                                */
    bool sharded;          /* in two files with an index                                      */
} Variant;

typedef struct Entries {
    SafeEntry entry[64];
    char name[64][80];
    void *bytes[64];
    size_t count;
} Entries;

/* Adds a tensor with the values x [n] in the wanted dtype. */
static void entry_add(Entries *list, const char *prefix, const char *name, SafeDtype dtype, Tensor shape, const float *x)
{
    size_t i = list->count++, n = (size_t)tensor_count(shape), width = dtype == SAFE_F32 ? 4 : 2;
    snprintf(list->name[i], sizeof list->name[i], "%s%s", prefix, name);
    unsigned char *bytes = list->bytes[i] = malloc(4 * n);
    for (size_t k = 0; k < n; k++) {
        _Float16 half = (_Float16)x[k];
        uint32_t bits;
        memcpy(&bits, &x[k], 4);
        bits >>= 16;
        memcpy(bytes + k * width, dtype == SAFE_F16 ? (void *)&half : dtype == SAFE_BF16 ? (void *)&bits : (void *)&x[k], width);
    }
    list->entry[i] = (SafeEntry){.name = list->name[i], .dtype = dtype, .ndim = shape.ndim, .data = bytes};
    memcpy(list->entry[i].shape, shape.shape, sizeof shape.shape);
}

static void entries_make(Entries *list, const Model *m, Variant v)
{
    const char *prefix = v.prefix ? v.prefix : "";
    SafeDtype dtype = v.dtype == SAFE_F64 ? SAFE_F32 : v.dtype;
    static const float zeros[64];
    list->count = 0;
    for (int i = 0; i < m->n_weights; i++) {
        const Weight *w = m->weight[i];
        Tensor shape = w->value;
        if (v.misshapen && strcmp(v.misshapen, w->name) == 0)
            shape.shape[0]--;
        if (!v.missing || strcmp(v.missing, w->name) != 0)
            entry_add(list, prefix, w->name, dtype, shape, w->value.data);
    }
    if (v.masks) {
        entry_add(list, prefix, "h.0.attn.bias", dtype, (Tensor){NULL, DTYPE_F32, 4, {1, 1, 8, 8}}, zeros);
        entry_add(list, prefix, "h.0.attn.masked_bias", dtype, (Tensor){0}, zeros);
    }
    if (v.head) {
        size_t n = (size_t)tensor_count(m->wte.value);
        float *head = malloc(n * sizeof *head);
        memcpy(head, m->wte.value.data, n * sizeof *head);
        head[n - 1] += v.head_off;
        entry_add(list, "", "lm_head.weight", dtype, m->wte.value, head);
        free(head);
    }
    if (v.extra)
        entry_add(list, "", v.extra, dtype, tensor_1d(NULL, DTYPE_F32, 1), zeros);
}

static void sharded_write(const char *dir, const Entries *list, Error *e)
{
    static const char *const shards[] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    size_t half = list->count / 2;
    json_t *map = json_object();
    for (size_t i = 0; i < list->count; i++)
        json_object_set_new(map, list->name[i], json_string(shards[i >= half]));
    json_t *index = json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 1, "weight_map", map);
    assert_true(safetensors_write(in_folder(dir, shards[0]), list->entry, half, NULL, e));
    assert_true(safetensors_write(in_folder(dir, shards[1]), list->entry + half, list->count - half, NULL, e));
    assert_true(json_write(in_folder(dir, "model.safetensors.index.json"), index, e));
    json_decref(index);
}

/* Writes the variant of `from` into a new folder and loads it into a new model of `config`; m is not freed when that works. */
static bool variant_load(Model *m, const ModelConfig *config, const Model *from, Variant v, Error *e)
{
    static Entries list;
    static int folders;
    char dir[PATH_SIZE], name[32];
    snprintf(name, sizeof name, "variant-%d", folders++);
    folder(dir, name);
    *e = (Error){0};
    entries_make(&list, from, v);
    if (v.sharded)
        sharded_write(dir, &list, e);
    else
        assert_true(safetensors_write(in_folder(dir, "model.safetensors"), list.entry, list.count, NULL, e));
    for (size_t i = 0; i < list.count; i++)
        free(list.bytes[i]);
    model_make(m, config, false, 99);
    bool ok = checkpoint_load_weights(m, dir, e);
    assert_true(ok || strstr(e->text, name)); /* every message says where */
    return ok;
}

static ModelConfig two_layers(void)
{
    ModelConfig c = small;
    c.n_layer = 2;
    return c;
}

static void test_accepted(void **unused)
{
    (void)unused;
    const Variant variants[] = {
        {0},
        {.prefix = "transformer."},
        {.masks = true},
        {.prefix = "transformer.", .masks = true, .head = true},
        {.dtype = SAFE_F16},
        {.dtype = SAFE_BF16, .head = true},
        {.sharded = true},
        {.prefix = "transformer.", .dtype = SAFE_BF16, .masks = true, .head = true, .sharded = true},
    };
    ModelConfig config = two_layers();
    Model from, m;
    Error e;
    model_make(&from, &config, false, 1);
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        if (!variant_load(&m, &config, &from, variants[i], &e))
            fail_msg("variant %zu: %s", i, e.text);
        assert_true(model_equal(&from, &m, false));
        model_free(&m);
    }
    model_free(&from);
}

static void test_refused(void **unused)
{
    (void)unused;
    const struct {
        Variant variant;
        const char *message;
    } cases[] = {
        {{.missing = "h.1.attn.c_proj.bias"}, ": h.1.attn.c_proj.bias: is missing"},
        {{.missing = "wte.weight", .head = true}, ": wte.weight: is missing"},
        {{.prefix = "transformer.", .missing = "ln_f.weight"}, ": ln_f.weight: is missing"},
        {{.prefix = "model."}, ".bias: is missing"},
        {{.misshapen = "h.0.mlp.c_fc.weight"}, ": h.0.mlp.c_fc.weight: has shape [15, 64]; the model needs [16, 64]"},
        {{.misshapen = "wpe.weight"}, ": wpe.weight: has shape [7, 16]; the model needs [8, 16]"},
        {{.misshapen = "wte.weight"}, ": wte.weight: has shape [49, 16]; the model needs [50, 16]"},
        {{.prefix = "transformer.", .misshapen = "ln_f.bias"}, ": transformer.ln_f.bias: has shape [15]; the model needs [16]"},
        {{.extra = "h.0.attn.q_norm.weight"}, ": h.0.attn.q_norm.weight: is not a tensor of this model of 2 layers"},
        {{.extra = "transformer.ln_f.bias"}, ": transformer.ln_f.bias: is not a tensor of this model"}, /* there twice */
        {{.extra = "h.0.attn.biased"}, ": h.0.attn.biased: is not"},
        {{.extra = "h.x.attn.bias"}, ": h.x.attn.bias: is not"},
        {{.extra = "h.0.attn.c_attn.bias.m", .sharded = true}, ": h.0.attn.c_attn.bias.m: is not"},
        {{.head = true, .head_off = 1}, ": lm_head.weight: differs from wte.weight"},
        {{.extra = "lm_head.weight"}, ": lm_head.weight: differs from wte.weight"},
    };
    ModelConfig config = two_layers();
    Model from, m;
    Error e;
    model_make(&from, &config, false, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_false(variant_load(&m, &config, &from, cases[i].variant, &e));
        assert_says(&e, cases[i].message);
        model_free(&m);
    }
    model_free(&from);
}

/* Another model than the file's: fewer positions are fine, anything else is not. */
static void test_other_shapes(void **unused)
{
    (void)unused;
    Model from, m;
    Error e;
    ModelConfig config = two_layers();
    model_make(&from, &config, false, 1);
    config.block_size = 5;
    assert_true(variant_load(&m, &config, &from, (Variant){0}, &e));
    assert_memory_equal(m.wpe.value.data, from.wpe.value.data, 5 * 16 * 4);
    assert_true(tensor_equal(m.wte.value, from.wte.value));
    model_free(&m);

    config.block_size = 9;
    assert_false(variant_load(&m, &config, &from, (Variant){0}, &e));
    assert_says(&e, "wpe.weight: has shape [8, 16]; the model needs [9, 16]");
    model_free(&m);
    config = two_layers();
    config.n_layer = 1;
    assert_false(variant_load(&m, &config, &from, (Variant){0}, &e));
    assert_says(&e, ": h.1.attn.c_attn.bias: is not a tensor of this model of 1 layers");
    model_free(&m);
    config.n_layer = 3;
    assert_false(variant_load(&m, &config, &from, (Variant){0}, &e));
    assert_says(&e, ": h.2.mlp.c_proj.bias: is missing");
    model_free(&m);
    config = two_layers();
    config.vocab_size = 64;
    assert_false(variant_load(&m, &config, &from, (Variant){0}, &e));
    assert_says(&e, ": wte.weight: has shape [50, 16]; the model needs [64, 16]");
    model_free(&m);
    config.vocab_size = 40;
    assert_false(variant_load(&m, &config, &from, (Variant){0}, &e));
    assert_says(&e, ": wte.weight: has shape [50, 16]; the model needs [40, 16]");
    model_free(&m);
    model_free(&from);
}

static void test_not_a_model(void **unused)
{
    (void)unused;
    char dir[PATH_SIZE];
    Error e = {0};
    Model m;
    folder(dir, "empty");
    model_make(&m, &small, false, 1);
    assert_false(checkpoint_load_weights(&m, dir, &e));
    assert_says(&e, "empty: holds neither model.safetensors nor model.safetensors.index.json");
    e = (Error){0};
    put(in_folder(dir, "model.safetensors"), "12345678");
    assert_false(checkpoint_load_weights(&m, dir, &e));
    assert_says(&e, "empty/model.safetensors");
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_other_shapes),
        cmocka_unit_test(test_not_a_model),
    };
    return cmocka_run_group_tests_name("checkpoints of Hugging Face", tests, temp_dir_make_in_memory, temp_dir_remove);
}
