/* The shape of a model, and its two outside forms: a named preset, and Hugging Face's config.json. */
#ifndef TALLY_MODEL_CONFIG_H
#define TALLY_MODEL_CONFIG_H

#include "base/error.h"

#include <jansson.h>
#include <stdint.h>

/* More than any published GPT has, and planned in a second: packing compares each tensor with those placed before it. */
enum { MODEL_MAX_LAYERS = 1024 };

typedef struct ModelConfig {
    int64_t n_layer;        /* L    blocks                                                                  */
    int64_t n_head;         /* NH   query heads; the head size is n_embd / n_head                           */
    int64_t n_kv_head;      /* NKV  key/value heads, each read by NH / NKV query heads                      */
    int64_t n_embd;         /* C    width of the residual stream                                            */
    int64_t n_inner;        /* F    width inside the MLP, usually 4C                                        */
    int64_t block_size;     /* P    positions: the longest context                                          */
    int64_t vocab_size;     /* V    tokens that exist                                                       */
    int64_t vocab_multiple; /*      the embedding has V rounded up to a multiple of this many rows; 1: V     */
    bool bias;              /*      do linear layers and norms have biases                                  */
    double dropout;         /*      probability of dropping, in [0, 1); the same at every place             */
} ModelConfig;

typedef struct ModelPreset {
    const char *name, *description; /* one line each */
    ModelConfig config;
} ModelPreset;

/* The presets, *n of them, for lists and help texts. */
const ModelPreset *model_presets(int *n);

/* Copies the preset of that name. An unknown name is a usage error that lists the names. */
bool model_config_preset(const char *name, ModelConfig *out, Error *e);

/* Can such a model exist: every size from 1 to 2^31 - 1 (n_layer to MODEL_MAX_LAYERS), n_embd a multiple of n_head, n_head one of
 * n_kv_head, dropout in [0, 1), and weights, gradients and moments (16 bytes a parameter) within 2^62 bytes, so that
 * sizes computed from a checked configuration never overflow. A usage error names field, value and what would work. */
bool model_config_check(const ModelConfig *c, Error *e);

/* Vp: vocab_size rounded up to a multiple of vocab_multiple. Of a checked configuration. */
int64_t model_config_padded_vocab(const ModelConfig *c);

/* Trainable numbers of a checked configuration. The head is the token embedding and counts once; padded rows count. */
int64_t model_config_parameters(const ModelConfig *c);

/* Reads and checks Hugging Face's config.json of a GPT-2, given its path or its folder's. What this engine computes
 * otherwise is refused: another model_type, activation or epsilon, an untied head, scaled attention variants.
 * Hugging Face has three dropout probabilities, this engine one: resid_pdrop is taken. Our own "tally" object adds bias
 * (default true) and vocab_multiple (default 1). Unknown fields are ignored. On error *out is untouched. */
bool model_config_load(const char *path, ModelConfig *out, Error *e);

/* The same for an object that has been read; messages name the field only. */
bool model_config_parse(const json_t *root, ModelConfig *out, Error *e);

/* Writes dir/config.json, which transformers loads as it is and model_config_load reads back equal. Fails for
 * n_kv_head != n_head, which a GPT-2 checkpoint cannot express. */
bool model_config_save(const char *dir, const ModelConfig *c, Error *e);

#endif
