#include "train/checkpoint_tensors.h"
#include "base/safetensors.h"
#include "train/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_FLOATS = 1 << 20, NAME_SIZE = sizeof((Weight *)NULL)->name + sizeof "transformer." };

/* ---- What file and memory have in common ---------------------------------------------------------------------------- */

/* The part of a weight (or of its m or v) that a file holds: for the token embedding the rows of real tokens. */
static Tensor stored_part(const Model *m, const Weight *w, Tensor t)
{
    return w == &m->wte ? tensor_slice_rows(t, 0, m->config.vocab_size) : t;
}

/* "X.weight" -> "X.bias" for a linear layer or norm whose bias this model does not have. False: no such bias is wanted. */
static bool absent_bias(const Model *m, const Weight *w, char name[NAME_SIZE])
{
    if (m->config.bias || w == &m->wte || w == &m->wpe)
        return false;
    snprintf(name, NAME_SIZE, "%.*sbias", (int)(strlen(w->name) - strlen("weight")), w->name);
    return true;
}

/* Waits for the copies so far, so that their buffer may be used again; false when an op has failed. */
static bool copies_end(Ctx *c, Error *e)
{
    c->device->synchronize(c);
    return !c->error->set || error_set(e, "%s", c->error->text);
}

/* ---- Writing -------------------------------------------------------------------------------------------------------- */

/* Where the bytes of one entry come from. */
typedef struct Source {
    Ctx *ctx;
    Tensor from;   /* in device memory; absent: zeros     */
    float *buffer; /* [BUFFER_FLOATS], shared by all      */
    char name[NAME_SIZE];
} Source;

typedef struct Export {
    Ctx *ctx;
    float *buffer;
    Source *source;   /* [count] */
    SafeEntry *entry; /* [count] */
    size_t count;
} Export;

/* A SafePiece: the next bufferful of the tensor. */
static bool source_piece(void *user, size_t done, size_t left, const void **bytes, size_t *n, Error *e)
{
    Source *s = user;
    size_t size = dtype_size(s->from.dtype);
    *n = left < BUFFER_FLOATS * sizeof(float) ? left : BUFFER_FLOATS * sizeof(float);
    *bytes = s->buffer;
    if (!tensor_present(s->from)) {
        memset(s->buffer, 0, *n);
        return true;
    }
    copy_out(s->ctx, s->buffer, tensor_part(s->from, (int64_t)(done / size), (int64_t)(*n / size)));
    return copies_end(s->ctx, e);
}

/* Adds "NAME SUFFIX" with the tensor's shape; its data may be absent. */
static void export_add(Export *x, const char *name, const char *suffix, Tensor t)
{
    Source *s = &x->source[x->count];
    SafeEntry *entry = &x->entry[x->count++];
    *s = (Source){.ctx = x->ctx, .from = t, .buffer = x->buffer};
    snprintf(s->name, sizeof s->name, "%s%s", name, suffix);
    SafeDtype dtype = t.dtype == DTYPE_BF16 ? SAFE_BF16 : t.dtype == DTYPE_F16 ? SAFE_F16 : SAFE_F32;
    *entry = (SafeEntry){.name = s->name, .dtype = dtype, .ndim = t.ndim, .piece = source_piece, .user = s};
    for (int i = 0; i < t.ndim; i++)
        entry->shape[i] = t.shape[i];
}

/* The master where there is one: 16-bit weights are its rounding. The order of a forward pass, from embeddings to the last norm,
 * is the model's list from its end. */
static void export_weights(Export *x, const Model *m)
{
    char bias[NAME_SIZE];
    for (int i = m->n_weights - 1; i >= 0; i--) {
        const Weight *w = m->weight[i];
        export_add(x, w->name, "", stored_part(m, w, tensor_present(w->master) ? w->master : w->value));
        if (absent_bias(m, w, bias))
            export_add(x, bias, "", tensor_1d(NULL, DTYPE_F32, tensor_width(w->value)));
    }
}

static void export_moments(Export *x, const Model *m)
{
    for (int i = m->n_weights - 1; i >= 0; i--) {
        const Weight *w = m->weight[i];
        export_add(x, w->name, ".m", stored_part(m, w, w->m));
        export_add(x, w->name, ".v", stored_part(m, w, w->v));
    }
}

/* Writes dir/name with the entries that `list` adds, at most two for each weight. */
static bool export_write(const char *dir, const char *name, Model *m, void (*list)(Export *, const Model *), Error *e)
{
    char path[PATH_SIZE];
    size_t most = 2 * (size_t)m->n_weights;
    Export x = {.ctx = &m->ctx,
                .buffer = memory_get(e, BUFFER_FLOATS, sizeof(float), "a copy buffer"),
                .source = memory_get(e, most, sizeof(Source), "the list of tensors"),
                .entry = memory_get(e, most, sizeof(SafeEntry), "the list of tensors")};
    bool ok = x.buffer && x.source && x.entry && path_join(path, dir, name, e);
    if (ok) {
        list(&x, m);
        ok = safetensors_write(path, x.entry, x.count, NULL, e);
    }
    free(x.buffer);
    free(x.source);
    free(x.entry);
    return ok;
}

bool checkpoint_write_weights(const char *dir, Model *m, Error *e)
{
    return export_write(dir, "model.safetensors", m, export_weights, e);
}

bool checkpoint_write_moments(const char *dir, Model *m, Error *e)
{
    if (!m->run.training)
        return error_set(e, "%s: a model that is not in training has no moments to save", dir);
    return export_write(dir, "optimizer.safetensors", m, export_moments, e);
}

/* ---- Reading a tensor ----------------------------------------------------------------------------------------------- */

/* Has the file's tensor the shape of t, or with more_rows at least as many rows? */
static bool shape_check(const SafeTensor *from, Tensor t, bool more_rows, Error *e)
{
    bool same = from->ndim == t.ndim;
    for (int i = 0; same && i < t.ndim; i++)
        same = from->shape[i] == t.shape[i] || (i == 0 && more_rows && from->shape[i] > t.shape[i]);
    if (same)
        return true;
    ShapeText has, needs;
    return error_set(e, "%.200s: has shape %s; the model needs %s", from->name, shape_text(has, from->ndim, from->shape),
                     shape_text(needs, t.ndim, t.shape));
}

/* t = the first elements of the file's tensor, whose shape has been checked; of a weight's value (w), the master too. */
static bool tensor_fill(Model *m, Tensor t, const Weight *w, const SafeTensor *from, float *buffer, Error *e)
{
    int64_t total = tensor_count(t), n;
    for (int64_t done = 0; done < total; done += n) {
        n = total - done < BUFFER_FLOATS ? total - done : BUFFER_FLOATS;
        if (!safetensors_read_f32(from, done, n, buffer, e))
            return false;
        if (w)
            weight_store(m, w, done, n, buffer);
        else
            tensor_store(m, t, done, n, buffer);
        if (!copies_end(&m->ctx, e))
            return false;
    }
    return true;
}

/* Fills the stored part of t, which is w's value, m or v; rows that only pad the vocabulary become 0. */
static bool stored_part_fill(Model *m, const Weight *w, Tensor t, const SafeTensor *from, float *buffer, Error *e)
{
    Tensor stored = stored_part(m, w, t);
    bool value = t.data == w->value.data;
    if (!shape_check(from, stored, w == &m->wpe && value, e))
        return false;
    Tensor padded[2] = {t, value ? w->master : TENSOR_NONE};
    int64_t rows = stored.shape[0];
    for (int i = 0; i < 2; i++)
        if (w == &m->wte && tensor_present(padded[i]) && t.shape[0] > rows)
            zero(&m->ctx, tensor_slice_rows(padded[i], rows, t.shape[0] - rows));
    return tensor_fill(m, stored, value ? w : NULL, from, buffer, e);
}

/* ---- Reading weights ------------------------------------------------------------------------------------------------ */

typedef struct Import {
    SafeTensors file;
    bool *used;    /* [file.count]: this tensor has been asked for */
    float *buffer; /* [BUFFER_FLOATS]                              */
} Import;

/* The tensor of that name, with or without "transformer.", or NULL. */
static const SafeTensor *import_find(Import *in, const char *name)
{
    char prefixed[2 * NAME_SIZE];
    const SafeTensor *t = safetensors_find(&in->file, name);
    if (!t) {
        snprintf(prefixed, sizeof prefixed, "transformer.%s", name);
        t = safetensors_find(&in->file, prefixed);
    }
    if (t)
        in->used[t - in->file.tensors] = true;
    return t;
}

/* A bias that the model does not have may be in the file when it changes nothing. */
static bool bias_is_zero(Import *in, const SafeTensor *t, int64_t width, Error *e)
{
    if (!shape_check(t, tensor_1d(NULL, DTYPE_F32, width), false, e))
        return false;
    for (int64_t done = 0, n; done < width; done += n) {
        n = width - done < BUFFER_FLOATS ? width - done : BUFFER_FLOATS;
        if (!safetensors_read_f32(t, done, n, in->buffer, e))
            return false;
        for (int64_t i = 0; i < n; i++)
            if (in->buffer[i] != 0)
                return error_set(e, "%.200s: is %g at %ld, and the model has no biases; it needs some to load this file", t->name,
                                 (double)in->buffer[i], done + i);
    }
    return true;
}

static bool weights_read(Import *in, Model *m, Error *e)
{
    char bias[NAME_SIZE];
    for (int i = 0; i < m->n_weights; i++) {
        Weight *w = m->weight[i];
        const SafeTensor *t = import_find(in, w->name);
        if (!t)
            return error_set(e, "%s: is missing", w->name);
        if (!stored_part_fill(m, w, w->value, t, in->buffer, e))
            return false;
        t = absent_bias(m, w, bias) ? import_find(in, bias) : NULL;
        if (t && !bias_is_zero(in, t, tensor_width(w->value), e))
            return false;
    }
    return true;
}

/* Constants that older checkpoints carry along: "h.N.attn.bias", the causal mask, and "h.N.attn.masked_bias", a number. */
static bool is_mask(const char *name)
{
    int layer, end = 0;
    if (strncmp(name, "transformer.", strlen("transformer.")) == 0)
        name += strlen("transformer.");
    return sscanf(name, "h.%d.attn.%n", &layer, &end) == 1 && end &&
           (strcmp(name + end, "bias") == 0 || strcmp(name + end, "masked_bias") == 0);
}

/* A head that is written out, though it is the token embedding. */
static bool head_is_tied(Import *in, const SafeTensor *head, Error *e)
{
    const SafeTensor *wte = import_find(in, "wte.weight");
    if (head->dtype == wte->dtype && head->bytes == wte->bytes && memcmp(head->data, wte->data, head->bytes) == 0)
        return true;
    return error_set(e, "%.200s: differs from wte.weight; only a head that is the token embedding can be run", head->name);
}

/* Is everything that weights_read did not want known to be without effect? */
static bool rest_check(Import *in, const Model *m, Error *e)
{
    for (size_t i = 0; i < in->file.count; i++) {
        const SafeTensor *t = &in->file.tensors[i];
        if (in->used[i] || is_mask(t->name))
            continue;
        if (strcmp(t->name, "lm_head.weight") != 0)
            return error_set(e, "%.200s: is not a tensor of this model of %ld layers", t->name, m->config.n_layer);
        if (!head_is_tied(in, t, e))
            return false;
    }
    return true;
}

bool checkpoint_load_weights(Model *m, const char *dir, Error *e)
{
    Import in = {0};
    if (!safetensors_open_model(&in.file, dir, e))
        return false;
    in.used = memory_get(e, in.file.count, sizeof *in.used, "the list of tensors");
    in.buffer = memory_get(e, BUFFER_FLOATS, sizeof *in.buffer, "a copy buffer");
    bool ok = in.used && in.buffer && weights_read(&in, m, e) && rest_check(&in, m, e) && copies_end(&m->ctx, e);
    if (!ok)
        error_prefix(e, "%s", dir);
    safetensors_close(&in.file);
    free(in.used);
    free(in.buffer);
    return ok;
}

/* ---- Reading moments ------------------------------------------------------------------------------------------------ */

static bool moment_read(Model *m, const Weight *w, const char *suffix, Tensor t, const SafeTensors *file, float *buffer, Error *e)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "%s%s", w->name, suffix);
    const SafeTensor *from = safetensors_find(file, name);
    return from ? stored_part_fill(m, w, t, from, buffer, e) : error_set(e, "%s: is missing", name);
}

bool checkpoint_load_moments(Model *m, const char *dir, Error *e)
{
    char path[PATH_SIZE];
    SafeTensors file;
    if (!path_join(path, dir, "optimizer.safetensors", e) || !safetensors_open(&file, path, e))
        return false;
    float *buffer = memory_get(e, BUFFER_FLOATS, sizeof *buffer, "a copy buffer");
    bool ok = buffer != NULL;
    for (int i = 0; ok && i < m->n_weights; i++) {
        const Weight *w = m->weight[i];
        ok = moment_read(m, w, ".m", w->m, &file, buffer, e) && moment_read(m, w, ".v", w->v, &file, buffer, e);
    }
    if (ok && file.count != 2 * (size_t)m->n_weights) /* all that are wanted are there, so some are not wanted */
        ok = error_set(e, "holds %zu tensors; the model has %d moments", file.count, 2 * m->n_weights);
    ok = ok && copies_end(&m->ctx, e);
    if (!ok)
        error_prefix(e, "%s", path);
    safetensors_close(&file);
    free(buffer);
    return ok;
}
