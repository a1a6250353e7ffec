#include "model/config.h"
#include "base/file.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { GPT2_VOCAB = 50257, GPT2_END_OF_TEXT = 50256 };

/* The GPT-2 family as published; its vocabulary is padded to 50304 rows, a width that every GEMM likes. The two recipes
 * are nanoGPT's for tinyshakespeare by characters, which has 65 kinds; they have no biases. */
static const ModelPreset presets[] = {
    {"gpt2",
     "GPT-2 small, 124M: 12 layers, 12 heads, width 768, context 1024",
     {12, 12, 12, 768, 3072, 1024, GPT2_VOCAB, 128, true, 0}},
    {"gpt2-medium",
     "GPT-2 medium, 355M: 24 layers, 16 heads, width 1024, context 1024",
     {24, 16, 16, 1024, 4096, 1024, GPT2_VOCAB, 128, true, 0}},
    {"gpt2-large",
     "GPT-2 large, 774M: 36 layers, 20 heads, width 1280, context 1024",
     {36, 20, 20, 1280, 5120, 1024, GPT2_VOCAB, 128, true, 0}},
    {"gpt2-xl",
     "GPT-2 XL, 1.6B: 48 layers, 25 heads, width 1600, context 1024",
     {48, 25, 25, 1600, 6400, 1024, GPT2_VOCAB, 128, true, 0}},
    {"shakespeare-char",
     "nanoGPT's recipe for a GPU, 10.7M: 6 layers, 6 heads, width 384, context 256, dropout 0.2",
     {6, 6, 6, 384, 1536, 256, 65, 1, false, 0.2}},
    {"shakespeare-cpu",
     "nanoGPT's recipe for a CPU, 0.8M: 4 layers, 4 heads, width 128, context 64",
     {4, 4, 4, 128, 512, 64, 65, 1, false, 0}},
    {"nano",
     "for a first try and for tests, 0.1M: 2 layers, 2 heads, width 64, context 64, bytes",
     {2, 2, 2, 64, 256, 64, 256, 1, true, 0}},
};

enum { PRESETS = sizeof presets / sizeof presets[0] };

const ModelPreset *model_presets(int *n)
{
    *n = PRESETS;
    return presets;
}

bool model_config_preset(const char *name, ModelConfig *out, Error *e)
{
    char names[256] = "";
    for (int i = 0; i < PRESETS; i++) {
        if (strcmp(name, presets[i].name) == 0) {
            *out = presets[i].config;
            return true;
        }
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", presets[i].name);
    }
    return error_usage(e, "model \"%.100s\": there is no preset of that name; there are %s", name, names);
}

/* ---- What can exist ------------------------------------------------------------------------------------------------ */

/* Parameters in 128 bits: with every factor below 2^31 and n_layer up to 2^10 nothing overflows on the way. */
static __int128 parameters_wide(const ModelConfig *c)
{
    __int128 C = c->n_embd, F = c->n_inner, b = c->bias, head_size = C / c->n_head;
    __int128 qkv = (c->n_head + 2 * c->n_kv_head) * head_size;
    __int128 norm = C + b * C;                                                  /* gain, bias               */
    __int128 attention = C * qkv + b * qkv                                      /* c_attn                   */
                         + C * C + b * C;                                       /* c_proj                   */
    __int128 mlp = C * F + b * F                                                /* c_fc                     */
                   + F * C + b * C;                                             /* c_proj                   */
    __int128 embeddings = model_config_padded_vocab(c) * C + c->block_size * C; /* wte, which is the head too; wpe */
    return embeddings + c->n_layer * (norm + attention + norm + mlp) + norm;
}

int64_t model_config_padded_vocab(const ModelConfig *c)
{
    return (c->vocab_size + c->vocab_multiple - 1) / c->vocab_multiple * c->vocab_multiple;
}

int64_t model_config_parameters(const ModelConfig *c)
{
    return (int64_t)parameters_wide(c);
}

/* a must be a multiple of b; otherwise the neighbours that would be are told. */
static bool multiple_check(const char *name_a, int64_t a, const char *name_b, int64_t b, Error *e)
{
    int64_t below = a / b * b;
    if (a == below)
        return true;
    if (below == 0)
        return error_usage(e, "%s: is %ld, which must be a multiple of %s = %ld, such as %ld", name_a, a, name_b, b, b);
    return error_usage(e, "%s: is %ld, which must be a multiple of %s = %ld, such as %ld or %ld", name_a, a, name_b, b, below,
                       below + b);
}

bool model_config_check(const ModelConfig *c, Error *e)
{
    const struct {
        const char *name;
        int64_t value, max;
    } sizes[] = {
        {"n_layer", c->n_layer, MODEL_MAX_LAYERS}, {"n_head", c->n_head, INT32_MAX},
        {"n_kv_head", c->n_kv_head, INT32_MAX},    {"n_embd", c->n_embd, INT32_MAX},
        {"n_inner", c->n_inner, INT32_MAX},        {"block_size", c->block_size, INT32_MAX},
        {"vocab_size", c->vocab_size, INT32_MAX},  {"vocab_multiple", c->vocab_multiple, INT32_MAX},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].max)
            return error_usage(e, "%s: is %ld; must be from 1 to %ld", sizes[i].name, sizes[i].value, sizes[i].max);
    if (!multiple_check("n_embd", c->n_embd, "n_head", c->n_head, e) ||
        !multiple_check("n_head", c->n_head, "n_kv_head", c->n_kv_head, e))
        return false;
    if (!(c->dropout >= 0 && c->dropout < 1))
        return error_usage(e, "dropout: is %g; must be at least 0 and below 1", c->dropout);
    if (model_config_padded_vocab(c) > INT32_MAX)
        return error_usage(e, "vocab_multiple: is %ld, which rounds vocab_size = %ld up beyond %d", c->vocab_multiple,
                           c->vocab_size, INT32_MAX);
    if (parameters_wide(c) > (__int128)1 << 58)
        return error_usage(
            e,
            "n_embd: is %ld: with n_layer = %ld, n_inner = %ld, block_size = %ld and vocab_size = %ld the model would "
            "have more than 2^58 parameters; make some of them smaller",
            c->n_embd, c->n_layer, c->n_inner, c->block_size, c->vocab_size);
    return true;
}

/* ---- config.json --------------------------------------------------------------------------------------------------- */

/* A switch of Hugging Face's configuration that this engine knows in one position only. */
static bool switch_check(const json_t *root, const char *field, bool only, Error *e)
{
    bool value = only;
    if (!json_get_bool(root, field, &value, false, e))
        return false;
    return value == only ||
           error_set(e, "%s: is %s; only models with %s can be run", field, value ? "true" : "false", only ? "true" : "false");
}

/* Does the file describe the function that this engine computes? */
static bool architecture_check(const json_t *root, Error *e)
{
    const char *type, *activation = "gelu_new";
    double epsilon = 1e-5;
    if (!json_get_string(root, "model_type", &type, true, e))
        return false;
    if (strcmp(type, "gpt2") != 0)
        return error_set(e, "model_type: is \"%.60s\"; only \"gpt2\" can be run", type);
    if (!json_get_string(root, "activation_function", &activation, false, e))
        return false;
    if (strcmp(activation, "gelu_new") != 0 && strcmp(activation, "gelu_pytorch_tanh") != 0) /* two names of one formula */
        return error_set(e, "activation_function: is \"%.60s\"; only \"gelu_new\" (GELU by tanh) can be run", activation);
    if (!json_get_double(root, "layer_norm_epsilon", -1e300, 1e300, &epsilon, false, e))
        return false;
    if (epsilon != 1e-5)
        return error_set(e, "layer_norm_epsilon: is %g; only 1e-05 can be run", epsilon);
    return switch_check(root, "tie_word_embeddings", true, e) && switch_check(root, "scale_attn_weights", true, e) &&
           switch_check(root, "scale_attn_by_inverse_layer_idx", false, e) &&
           switch_check(root, "reorder_and_upcast_attn", false, e) && switch_check(root, "add_cross_attention", false, e);
}

static bool get_size(const json_t *object, const char *field, int64_t *out, bool required, Error *e)
{
    return json_get_int(object, field, 1, INT32_MAX, out, required, e);
}

bool model_config_parse(const json_t *root, ModelConfig *out, Error *e)
{
    ModelConfig c = {.vocab_multiple = 1, .bias = true, .dropout = 0.1 /* Hugging Face's default */};
    json_t *extras = NULL;
    if (!architecture_check(root, e) || !get_size(root, "n_layer", &c.n_layer, true, e) ||
        !get_size(root, "n_head", &c.n_head, true, e) || !get_size(root, "n_embd", &c.n_embd, true, e) ||
        !get_size(root, "n_positions", &c.block_size, true, e) || !get_size(root, "vocab_size", &c.vocab_size, true, e))
        return false;
    c.n_kv_head = c.n_head;
    c.n_inner = 4 * c.n_embd;
    int64_t n_ctx = c.block_size;
    if (!get_size(root, "n_inner", &c.n_inner, false, e) || !get_size(root, "n_ctx", &n_ctx, false, e) ||
        !json_get_double(root, "resid_pdrop", 0, 1, &c.dropout, false, e) || !json_get_object(root, "tally", &extras, false, e))
        return false;
    if (n_ctx != c.block_size)
        return error_set(e, "n_ctx: is %ld; must be equal to n_positions = %ld", n_ctx, c.block_size);
    if (extras &&
        (!json_get_bool(extras, "bias", &c.bias, false, e) || !get_size(extras, "vocab_multiple", &c.vocab_multiple, false, e)))
        return error_prefix(e, "tally");
    if (!model_config_check(&c, e)) {
        e->usage = false; /* a bad file, not a bad flag */
        return false;
    }
    *out = c;
    return true;
}

bool model_config_load(const char *path, ModelConfig *out, Error *e)
{
    char file[PATH_SIZE];
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (!path_join(file, path, "config.json", e))
            return false;
        path = file;
    }
    json_t *root = json_read(path, e);
    if (!root)
        return false;
    bool ok = model_config_parse(root, out, e) || error_prefix(e, "%s", path);
    json_decref(root);
    return ok;
}

bool model_config_save(const char *dir, const ModelConfig *c, Error *e)
{
    char path[PATH_SIZE];
    if (!path_join(path, dir, "config.json", e))
        return false;
    if (c->n_kv_head != c->n_head)
        return error_set(e, "%s: n_kv_head = %ld differs from n_head = %ld, for which GPT-2's format has no field", path,
                         c->n_kv_head, c->n_head);
    bool gpt2_vocab = c->vocab_size == GPT2_VOCAB;
    json_t *end = gpt2_vocab ? json_integer(GPT2_END_OF_TEXT) : json_null();
    json_t *inner = c->n_inner == 4 * c->n_embd ? json_null() : json_integer(c->n_inner);
    json_t *root = json_pack("{s:s, s:[s], s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:b, s:s, s:O, s:o, "
                             "s:{s:b, s:I}}", /* clang-format off */
        "model_type", "gpt2", "architectures", "GPT2LMHeadModel",
        "n_layer", (json_int_t)c->n_layer, "n_head", (json_int_t)c->n_head, "n_embd", (json_int_t)c->n_embd, "n_inner", inner,
        "n_positions", (json_int_t)c->block_size, "n_ctx", (json_int_t)c->block_size, "vocab_size", (json_int_t)c->vocab_size,
        "activation_function", "gelu_new", "layer_norm_epsilon", 1e-5,
        "attn_pdrop", c->dropout, "embd_pdrop", c->dropout, "resid_pdrop", c->dropout,
        "tie_word_embeddings", 1, "torch_dtype", "float32", "bos_token_id", end, "eos_token_id", end,
        "tally", "bias", (int)c->bias, "vocab_multiple", (json_int_t)c->vocab_multiple); /* clang-format on */
    bool ok = root ? json_write(path, root, e) : error_set(e, "%s: out of memory", path);
    json_decref(root);
    return ok;
}
