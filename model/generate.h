/* Text generation: token by token through a key/value cache, for several continuations of one prompt at once. */
#ifndef TALLY_MODEL_GENERATE_H
#define TALLY_MODEL_GENERATE_H

#include "model/model.h"

typedef struct GenerateOptions {
    double temperature; /* logits are divided by it; 0: always the likeliest token                       */
    int64_t top_k;      /* only the k likeliest tokens can be drawn; 0: all                              */
    double top_p;       /* only the likeliest tokens that together have this probability; 1: all          */
    uint64_t seed;      /* same seed, same text                                                          */
    int64_t length;     /* tokens to generate for each sequence                                          */
} GenerateOptions;

/* Called for each token as it is drawn. False stops the generation. */
typedef bool GenerateSink(void *user, int64_t sequence, int32_t token);

/* Continues `prompt` [n >= 1] in each of m's run.sample_size sequences. Only the vocabulary proper can be drawn, never ids that
 * pad it. When the context is full, its later half is kept and read again (positions are absolute, so the cache cannot be
 * shifted). False: an id out of range, logits that are not finite, a wrong option, no host memory. */
bool model_generate(Model *m, const int32_t *prompt, int64_t n, const GenerateOptions *o, GenerateSink *sink, void *user,
                    Error *e);

/* Draws from softmax(logits [V] / temperature) as `o` restricts it, with one random number u in [0, 1). candidates [V] is
 * scratch. -1 when no logit is finite. */
typedef struct Candidate {
    float logit;
    int32_t id;
} Candidate;
int32_t token_draw(const float *logits, int64_t V, const GenerateOptions *o, double u, Candidate *candidates);

#endif
