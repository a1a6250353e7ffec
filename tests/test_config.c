/* model/config: the published sizes, what cannot exist, and Hugging Face's config.json in and out. */
#include "model/config.h"
#include "base/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/temp_dir.h"

/* ---- Presets and counts -------------------------------------------------------------------------------------------- */

static ModelConfig preset(const char *name)
{
    ModelConfig c;
    Error e = {0};
    assert_true(model_config_preset(name, &c, &e));
    return c;
}

/* Parameters as published for the GPT-2 family, and as nanoGPT prints them for its recipes (which leaves the position
 * embeddings out: 10.65M and 0.80M). */
static void test_presets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t n_layer, n_head, n_embd, block_size, vocab_size;
        bool bias;
        double dropout;
        int64_t parameters; /* without padded rows */
    } published[] = {
        {"gpt2", 12, 12, 768, 1024, 50257, true, 0, 124439808},
        {"gpt2-medium", 24, 16, 1024, 1024, 50257, true, 0, 354823168},
        {"gpt2-large", 36, 20, 1280, 1024, 50257, true, 0, 774030080},
        {"gpt2-xl", 48, 25, 1600, 1024, 50257, true, 0, 1557611200},
        {"shakespeare-char", 6, 6, 384, 256, 65, false, 0.2, 10646784 + 256 * 384},
        {"shakespeare-cpu", 4, 4, 128, 64, 65, false, 0, 795904 + 64 * 128},
    };
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        ModelConfig c = preset(published[i].name);
        assert_int_equal(c.n_layer, published[i].n_layer);
        assert_int_equal(c.n_head, published[i].n_head);
        assert_int_equal(c.n_kv_head, published[i].n_head);
        assert_int_equal(c.n_embd, published[i].n_embd);
        assert_int_equal(c.n_inner, 4 * published[i].n_embd);
        assert_int_equal(c.block_size, published[i].block_size);
        assert_int_equal(c.vocab_size, published[i].vocab_size);
        assert_int_equal(c.bias, published[i].bias);
        assert_true(c.dropout == published[i].dropout);
        c.vocab_multiple = 1;
        assert_int_equal(model_config_parameters(&c), published[i].parameters);
    }
}

static void test_presets_listed(void **state)
{
    (void)state;
    int n;
    const ModelPreset *list = model_presets(&n);
    Error unknown = {0};
    ModelConfig c;
    assert_false(model_config_preset("gpt-2", &c, &unknown));
    assert_true(unknown.usage);
    assert_says(&unknown, "\"gpt-2\"");
    for (int i = 0; i < n; i++) {
        Error e = {0};
        assert_true(model_config_check(&list[i].config, &e));
        assert_says(&unknown, list[i].name);
        assert_true(strlen(list[i].description) > 10);
        assert_null(strchr(list[i].description, '\n'));
    }
}

static void test_padded_vocab(void **state)
{
    (void)state;
    ModelConfig c = preset("gpt2");
    c.vocab_multiple = 128;
    assert_int_equal(model_config_padded_vocab(&c), 50304);
    assert_int_equal(model_config_parameters(&c), 124475904);
    c.vocab_multiple = 1;
    assert_int_equal(model_config_padded_vocab(&c), 50257);
    c.vocab_multiple = 50257;
    assert_int_equal(model_config_padded_vocab(&c), 50257);
    c.vocab_multiple = 50258;
    assert_int_equal(model_config_padded_vocab(&c), 50258);
}

/* One block of C = 4, F = 6, V = 5, P = 3, 2 heads on 1 key/value head, added up by hand. */
static void test_parameters(void **state)
{
    (void)state;
    ModelConfig c = {1, 2, 1, 4, 6, 3, 5, 1, false, 0};
    int64_t matrices = 5 * 4 + 3 * 4 + 4 * 8 + 4 * 4 + 4 * 6 + 6 * 4, gains = 3 * 4;
    assert_int_equal(model_config_parameters(&c), matrices + gains);
    c.bias = true;
    assert_int_equal(model_config_parameters(&c), matrices + gains + 3 * 4 + 8 + 4 + 6 + 4);
}

/* ---- What cannot exist --------------------------------------------------------------------------------------------- */

static void test_check(void **state)
{
    (void)state;
    const struct {
        ModelConfig c;
        const char *message;
    } cases[] = {
        /*  L  NH NKV C   F   P   V  multiple */
        {{0, 2, 2, 8, 32, 16, 64, 1, true, 0}, "n_layer: is 0; must be from 1 to 1024"},
        {{-1, 2, 2, 8, 32, 16, 64, 1, true, 0}, "n_layer: is -1"},
        {{1025, 2, 2, 8, 32, 16, 64, 1, true, 0}, "n_layer: is 1025; must be from 1 to 1024"},
        {{2, 0, 2, 8, 32, 16, 64, 1, true, 0}, "n_head: is 0; must be from 1 to 2147483647"},
        {{2, 2, 0, 8, 32, 16, 64, 1, true, 0}, "n_kv_head: is 0"},
        {{2, 2, 2, 0, 32, 16, 64, 1, true, 0}, "n_embd: is 0"},
        {{2, 2, 2, 8, 0, 16, 64, 1, true, 0}, "n_inner: is 0"},
        {{2, 2, 2, 8, -32, 16, 64, 1, true, 0}, "n_inner: is -32"},
        {{2, 2, 2, 8, 32, 0, 64, 1, true, 0}, "block_size: is 0"},
        {{2, 2, 2, 8, 32, 16, 0, 1, true, 0}, "vocab_size: is 0"},
        {{2, 2, 2, 8, 32, 16, 64, 0, true, 0}, "vocab_multiple: is 0"},
        {{2, 3, 3, 8, 32, 16, 64, 1, true, 0}, "n_embd: is 8, which must be a multiple of n_head = 3, such as 6 or 9"},
        {{2, 9, 9, 8, 32, 16, 64, 1, true, 0}, "n_embd: is 8, which must be a multiple of n_head = 9, such as 9"},
        {{2, 4, 3, 8, 32, 16, 64, 1, true, 0}, "n_head: is 4, which must be a multiple of n_kv_head = 3, such as 3 or 6"},
        {{2, 2, 2, 8, 32, 16, 64, 1, true, -0.1}, "dropout: is -0.1; must be at least 0 and below 1"},
        {{2, 2, 2, 8, 32, 16, 64, 1, true, 1}, "dropout: is 1;"},
        {{2, 2, 2, 8, 32, 16, 64, 1, true, NAN}, "dropout: is "},
        {{INT64_MAX, 2, 2, 8, 32, 16, 64, 1, true, 0}, "n_layer: is 9223372036854775807"},
        {{INT64_MIN, 2, 2, 8, 32, 16, 64, 1, true, 0}, "n_layer: is -9223372036854775808"},
        {{2, INT64_MAX, 2, 8, 32, 16, 64, 1, true, 0}, "n_head: is 9223372036854775807"},
        {{2, 2, INT64_MAX, 8, 32, 16, 64, 1, true, 0}, "n_kv_head: is 9223372036854775807"},
        {{2, 2, 2, INT64_MAX, 32, 16, 64, 1, true, 0}, "n_embd: is 9223372036854775807"},
        {{2, 2, 2, 8, INT64_MAX, 16, 64, 1, true, 0}, "n_inner: is 9223372036854775807"},
        {{2, 2, 2, 8, 32, INT64_MAX, 64, 1, true, 0}, "block_size: is 9223372036854775807"},
        {{2, 2, 2, 8, 32, 16, INT64_MAX, 1, true, 0}, "vocab_size: is 9223372036854775807"},
        {{2, 2, 2, 8, 32, 16, 64, INT64_MAX, true, 0}, "vocab_multiple: is 9223372036854775807"},
        {{2, 2, 2, 8, 32, 16, 2147483600, 2147483000, true, 0}, "vocab_multiple: is 2147483000, which rounds vocab_size"},
        {{1, 1, 1, 2147483647, 1, 1, 1, 1, true, 0}, "more than 2^58 parameters"},
        {{1024, 1, 1, 2147483647, 2147483647, 2147483647, 2147483647, 1, true, 0}, "more than 2^58 parameters"},
        {{1024, 1, 1, 1073741824, 2147483647, 1, 1, 1, true, 0}, "more than 2^58 parameters"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Error e = {0};
        assert_false(model_config_check(&cases[i].c, &e));
        assert_true(e.usage);
        assert_says(&e, cases[i].message);
    }
    static const ModelConfig fine[] = {
        {1, 1, 1, 1, 1, 1, 1, 1, false, 0},
        {1024, 8, 2, 8, 7, 16, 64, 100, true, 0.99},
        {1, 1, 1, 1, 2147483647, 2147483647, 2147483647, 1, true, 0},
    };
    for (size_t i = 0; i < 3; i++) {
        Error e = {0};
        assert_true(model_config_check(&fine[i], &e));
        assert_true(model_config_parameters(&fine[i]) > 0);
    }
}

/* ---- config.json --------------------------------------------------------------------------------------------------- */

#define SIZES "\"n_layer\":3,\"n_head\":2,\"n_embd\":8,\"n_positions\":16,\"vocab_size\":64"
#define GPT2  "\"model_type\":\"gpt2\"," SIZES

static bool parse(const char *text, ModelConfig *c, Error *e)
{
    json_t *j = json_parse(text, strlen(text), "x", e);
    assert_non_null(j);
    bool ok = model_config_parse(j, c, e);
    json_decref(j);
    return ok;
}

static void test_parse(void **state)
{
    (void)state;
    ModelConfig c;
    Error e = {0};
    assert_true(parse("{" GPT2 "}", &c, &e)); /* the rest is Hugging Face's defaults */
    assert_memory_equal(&c, &((ModelConfig){3, 2, 2, 8, 32, 16, 64, 1, true, 0.1}), offsetof(ModelConfig, bias));
    assert_true(c.bias && c.dropout == 0.1);
    assert_true(parse("{" GPT2 ",\"n_inner\":20,\"n_ctx\":16,\"activation_function\":\"gelu_pytorch_tanh\",\"resid_pdrop\":0.25,"
                      "\"attn_pdrop\":0.5,\"layer_norm_epsilon\":1e-5,\"tie_word_embeddings\":true,\"unknown\":[],"
                      "\"tally\":{\"bias\":false,\"vocab_multiple\":48}}",
                      &c, &e));
    assert_int_equal(c.n_inner, 20);
    assert_int_equal(c.vocab_multiple, 48);
    assert_int_equal(model_config_padded_vocab(&c), 96);
    assert_true(!c.bias && c.dropout == 0.25);
    assert_true(parse("{" GPT2 ",\"n_inner\":null}", &c, &e));
    assert_int_equal(c.n_inner, 32);
}

static void test_parse_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{" SIZES "}", "model_type: is missing"},
        {"{\"model_type\":\"llama\"," SIZES "}", "model_type: is \"llama\"; only \"gpt2\""},
        {"{\"model_type\":3," SIZES "}", "model_type: is an integer; text"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_head\":2,\"n_positions\":16,\"vocab_size\":64}", "n_embd: is missing"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":0,\"n_head\":2,\"n_embd\":8,\"n_positions\":16,\"vocab_size\":64}",
         "n_layer: is 0; must be from 1"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_head\":-2,\"n_embd\":8,\"n_positions\":16,\"vocab_size\":64}",
         "n_head: is -2; must be from 1"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_head\":0,\"n_embd\":8,\"n_positions\":16,\"vocab_size\":64}",
         "n_head: is 0; must be from 1"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_head\":3,\"n_embd\":8,\"n_positions\":16,\"vocab_size\":64}",
         "n_embd: is 8, which must be a multiple of n_head = 3"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_head\":1,\"n_embd\":9223372036854775807,\"n_positions\":16,\"vocab_size\":"
         "64}",
         "n_embd: is 9223372036854775807; must be from 1"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_head\":1,\"n_embd\":2147483647,\"n_positions\":16,\"vocab_size\":64}",
         "n_inner: is 8589934588; must be from 1"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":3.0,\"n_head\":1,\"n_embd\":8,\"n_positions\":16,\"vocab_size\":64}",
         "n_layer: is a fraction; an integer"},
        {"{" GPT2 ",\"n_ctx\":32}", "n_ctx: is 32; must be equal to n_positions = 16"},
        {"{" GPT2 ",\"n_inner\":0}", "n_inner: is 0; must be from 1"},
        {"{" GPT2 ",\"activation_function\":\"relu\"}", "activation_function: is \"relu\"; only \"gelu_new\""},
        {"{" GPT2 ",\"activation_function\":\"gelu\"}", "activation_function: is \"gelu\""},
        {"{" GPT2 ",\"layer_norm_epsilon\":1e-6}", "layer_norm_epsilon: is 1e-06; only 1e-05"},
        {"{" GPT2 ",\"resid_pdrop\":1.5}", "resid_pdrop: is 1.5"},
        {"{" GPT2 ",\"resid_pdrop\":1}", "dropout: is 1"},
        {"{" GPT2 ",\"tie_word_embeddings\":false}", "tie_word_embeddings: is false; only models with true"},
        {"{" GPT2 ",\"scale_attn_weights\":false}", "scale_attn_weights: is false"},
        {"{" GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}",
         "scale_attn_by_inverse_layer_idx: is true; only models with false"},
        {"{" GPT2 ",\"reorder_and_upcast_attn\":true}", "reorder_and_upcast_attn: is true"},
        {"{" GPT2 ",\"add_cross_attention\":true}", "add_cross_attention: is true"},
        {"{" GPT2 ",\"add_cross_attention\":0}", "add_cross_attention: is an integer; true or false"},
        {"{" GPT2 ",\"tally\":3}", "tally: is an integer; an object"},
        {"{" GPT2 ",\"tally\":{\"bias\":1}}", "tally: bias: is an integer"},
        {"{" GPT2 ",\"tally\":{\"vocab_multiple\":0}}", "tally: vocab_multiple: is 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ModelConfig c = {.n_layer = 99};
        Error e = {0};
        assert_false(parse(cases[i].text, &c, &e));
        assert_says(&e, cases[i].message);
        assert_false(e.usage);
        assert_int_equal(c.n_layer, 99);
    }
}

static void assert_same(const ModelConfig *a, const ModelConfig *b)
{
    assert_memory_equal(a, b, offsetof(ModelConfig, bias)); /* the sizes; there are no gaps between them */
    assert_int_equal(a->bias, b->bias);
    assert_true(a->dropout == b->dropout);
}

static void test_save_and_load(void **state)
{
    (void)state;
    int n;
    const ModelPreset *list = model_presets(&n);
    Error e = {0};
    ModelConfig back;
    for (int i = 0; i < n; i++) {
        assert_true(model_config_save(temp_dir, &list[i].config, &e));
        assert_true(model_config_load(temp_dir, &back, &e));
        assert_same(&back, &list[i].config);
    }
    const ModelConfig odd = {3, 3, 3, 9, 10, 7, 11, 5, false, 1.0 / 3};
    assert_true(model_config_save(temp_dir, &odd, &e));
    assert_true(model_config_load(at("config.json"), &back, &e));
    assert_same(&back, &odd);
    assert_false(e.set);

    ModelConfig grouped = odd;
    grouped.n_kv_head = 1;
    assert_false(model_config_save(temp_dir, &grouped, &e));
    assert_says(&e, "n_kv_head = 1 differs from n_head = 3");
}

/* What transformers reads from it. */
static void test_saved_fields(void **state)
{
    (void)state;
    Error e = {0};
    ModelConfig c = preset("gpt2");
    assert_true(model_config_save(temp_dir, &c, &e));
    json_t *got = json_read(at("config.json"), &e);
    json_t *wanted = json_pack("{s:s, s:[s], s:i, s:i, s:i, s:n, s:i, s:i, s:i, s:s, s:f, s:f, s:f, s:f, s:b, s:s, s:i, s:i}",
                               "model_type", "gpt2", "architectures", "GPT2LMHeadModel", "n_layer", 12, "n_head", 12, "n_embd",
                               768, "n_inner", "n_positions", 1024, "n_ctx", 1024, "vocab_size", 50257, "activation_function",
                               "gelu_new", "layer_norm_epsilon", 1e-5, "attn_pdrop", 0.0, "embd_pdrop", 0.0, "resid_pdrop", 0.0,
                               "tie_word_embeddings", 1, "torch_dtype", "float32", "bos_token_id", 50256, "eos_token_id", 50256);
    json_object_del(got, "tally");
    assert_non_null(wanted);
    assert_true(json_equal(got, wanted));
    json_decref(got);
    json_decref(wanted);

    c.vocab_size = 65; /* no end of text; an inner width of its own */
    c.n_inner = 100;
    assert_true(model_config_save(temp_dir, &c, &e));
    got = json_read(at("config.json"), &e);
    assert_true(json_is_null(json_object_get(got, "bos_token_id")) && json_is_null(json_object_get(got, "eos_token_id")));
    assert_int_equal(json_integer_value(json_object_get(got, "n_inner")), 100);
    json_decref(got);
}

static void test_load_refuses(void **state)
{
    (void)state;
    Error e = {0};
    ModelConfig c;
    assert_true(dir_make(at("none"), &e));
    assert_false(model_config_load(at("none"), &c, &e));
    assert_says(&e, "none/config.json: cannot open");
    e = (Error){0};
    assert_false(model_config_load(at("absent"), &c, &e));
    assert_says(&e, "absent: cannot open");
    e = (Error){0};
    put(at("none/config.json"), "{\n" GPT2 ",}");
    assert_false(model_config_load(at("none"), &c, &e));
    assert_says(&e, "none/config.json:2:");
    e = (Error){0};
    put(at("none/config.json"), "{" GPT2 ",\"n_ctx\":5}");
    assert_false(model_config_load(at("none"), &c, &e));
    assert_says(&e, "none/config.json: n_ctx: is 5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets),       cmocka_unit_test(test_presets_listed), cmocka_unit_test(test_padded_vocab),
        cmocka_unit_test(test_parameters),    cmocka_unit_test(test_check),          cmocka_unit_test(test_parse),
        cmocka_unit_test(test_parse_refuses), cmocka_unit_test(test_save_and_load),  cmocka_unit_test(test_saved_fields),
        cmocka_unit_test(test_load_refuses),
    };
    return cmocka_run_group_tests_name("config", tests, temp_dir_make, temp_dir_remove);
}
