/* See generate.h. */
#include "model/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- One draw ------------------------------------------------------------------------------------------------------ */

static int likelier_first(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

int32_t token_draw(const float *logits, int64_t V, const GenerateOptions *o, double u, Candidate *candidates)
{
    float best = -INFINITY;
    int32_t likeliest = -1;
    for (int64_t i = 0; i < V; i++) {
        candidates[i] = (Candidate){logits[i], (int32_t)i};
        if (logits[i] != logits[i] || logits[i] == INFINITY)
            return -1;
        if (logits[i] > best) {
            best = logits[i];
            likeliest = (int32_t)i;
        }
    }
    if (o->temperature == 0 || likeliest < 0)
        return likeliest;
    bool sorted = (o->top_k > 0 && o->top_k < V) || o->top_p < 1;
    if (sorted)
        qsort(candidates, (size_t)V, sizeof *candidates, likelier_first);
    int64_t n = o->top_k > 0 && o->top_k < V ? o->top_k : V;
    double total = 0;
    for (int64_t i = 0; i < n; i++)
        total += exp((candidates[i].logit - best) / o->temperature);
    if (o->top_p < 1) { /* the shortest run of likeliest tokens that holds top_p of the probability */
        double kept = 0, enough = o->top_p * total;
        int64_t i = 0;
        while (i < n && (i == 0 || kept < enough))
            kept += exp((candidates[i++].logit - best) / o->temperature);
        n = i;
        total = kept;
    }
    double target = u * total, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += exp((candidates[i].logit - best) / o->temperature);
        if (sum > target)
            return candidates[i].id;
    }
    return candidates[n - 1].id; /* u * total rounded up to the sum */
}

/* ---- Generation ---------------------------------------------------------------------------------------------------- */

typedef struct Generator {
    Model *m;
    int64_t S, P;
    int32_t *history; /* [S, P + 1]: what the cache holds, and the token to be read next  */
    int64_t filled;   /* tokens of each sequence in history                               */
    int64_t cached;   /* of which the cache holds this many                               */
    int32_t *packed;  /* [S, chunk]                                                       */
    float *logits;    /* [S, Vp]                                                          */
    Candidate *scratch;
} Generator;

/* Reads history[cached .. filled) into the cache, a chunk at a time; the logits of the last position arrive on the host. */
static void cache_extend(Generator *g)
{
    Model *m = g->m;
    while (g->cached < g->filled) {
        int64_t chunk = m->decoder.tokens.shape[1], n = g->filled - g->cached < chunk ? g->filled - g->cached : chunk;
        for (int64_t s = 0; s < g->S; s++)
            memcpy(g->packed + s * n, g->history + s * (g->P + 1) + g->cached, (size_t)n * sizeof *g->packed);
        Tensor tokens = m->decoder.tokens;
        tokens.shape[1] = n;
        m->ctx.phase = PHASE_SAMPLING;
        copy_in(&m->ctx, tokens, g->packed);
        model_decode(m, n, g->cached);
        g->cached += n;
    }
    copy_out(&m->ctx, g->logits, m->decoder.logits);
    m->ctx.device->synchronize(&m->ctx);
}

/* Keeps the later half of a full context. */
static void context_shift(Generator *g)
{
    int64_t kept = g->P > 1 ? g->P / 2 : 1, dropped = g->filled - kept;
    for (int64_t s = 0; s < g->S; s++)
        memmove(g->history + s * (g->P + 1), g->history + s * (g->P + 1) + dropped, (size_t)kept * sizeof *g->history);
    g->filled = kept;
    g->cached = 0;
}

static bool sequences_extend(Generator *g, const GenerateOptions *o, int64_t step, GenerateSink *sink, void *user, bool *go_on,
                             Error *e)
{
    int64_t Vp = g->m->decoder.logits.shape[1];
    if (g->filled > g->P)
        context_shift(g);
    cache_extend(g);
    if (e->set)
        return false;
    for (int64_t s = 0; s < g->S; s++) {
        RandomKey key = random_key(o->seed, RANDOM_SAMPLE, (uint32_t)s, 0, 0);
        double u = (double)random_bits(key, (uint64_t)step) * 0x1p-32;
        int32_t token = token_draw(g->logits + s * Vp, g->m->config.vocab_size, o, u, g->scratch);
        if (token < 0)
            return error_set(e, "the model's logits are not finite: its weights are damaged or training has diverged");
        g->history[s * (g->P + 1) + g->filled] = token;
        *go_on = sink(user, s, token) && *go_on;
    }
    g->filled++;
    return true;
}

static bool generate_check(const Model *m, const int32_t *prompt, int64_t n, const GenerateOptions *o, Error *e)
{
    if (n < 1)
        return error_usage(e, "the prompt has no token; give one, if only a newline");
    for (int64_t i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= m->config.vocab_size)
            return error_usage(e, "token %lld of the prompt is %d; the model knows 0 to %lld", (long long)i, prompt[i],
                               (long long)m->config.vocab_size - 1);
    if (!(o->temperature >= 0) || o->temperature > 1e6)
        return error_usage(e, "temperature: is %g; needs to be 0 or more", o->temperature);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return error_usage(e, "top_p: is %g; needs to be more than 0 and at most 1", o->top_p);
    if (o->top_k < 0 || o->length < 0)
        return error_usage(e, "top_k and the number of tokens need to be 0 or more");
    return true;
}

bool model_generate(Model *m, const int32_t *prompt, int64_t n, const GenerateOptions *o, GenerateSink *sink, void *user,
                    Error *e)
{
    if (!generate_check(m, prompt, n, o, e))
        return false;
    int64_t S = m->run.sample_size, P = m->config.block_size, used = n < P ? n : P;
    Generator g = {.m = m, .S = S, .P = P, .filled = used};
    g.history = memory_get(e, (size_t)(S * (P + 1)), sizeof *g.history, "generated tokens");
    g.packed = memory_get(e, (size_t)(S * m->decoder.tokens.shape[1]), sizeof *g.packed, "generated tokens");
    g.logits = memory_get(e, (size_t)tensor_count(m->decoder.logits), sizeof *g.logits, "logits");
    g.scratch = memory_get(e, (size_t)m->config.vocab_size, sizeof *g.scratch, "candidates");
    bool ok = g.history && g.packed && g.logits && g.scratch, go_on = true;
    for (int64_t s = 0; ok && s < S; s++) /* the end of a prompt that is longer than the context */
        memcpy(g.history + s * (P + 1), prompt + n - used, (size_t)used * sizeof *prompt);
    for (int64_t step = 0; ok && go_on && step < o->length; step++)
        ok = sequences_extend(&g, o, step, sink, user, &go_on, e);
    free(g.history);
    free(g.packed);
    free(g.logits);
    free(g.scratch);
    return ok;
}
