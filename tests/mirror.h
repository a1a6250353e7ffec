/* A GPU for tests that keep their tensors in host memory. Each op is given host tensors: the mirror copies them to the device,
 * where every tensor lies at the same distance from the beginning, runs the op there, and copies them back. So the checks written
 * for the CPU are those of any device. While there is little memory, all of it is copied, so that a write beside a tensor shows
 * as well. The workspace is the device's alone, with whatever it holds.
 *
 * TALLY_TEST_DEVICE in the environment names the device, as --device does; without it, or with "cpu", nothing is mirrored. */
#ifndef TALLY_TESTS_MIRROR_H
#define TALLY_TESTS_MIRROR_H

#include "kernels/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIRROR_BYTES = 512 << 20, MIRROR_WORKSPACE = 128 << 20, MIRROR_WHOLE = 8 << 20, MIRROR_TENSORS = 16 };

static struct {
    const Device *real;
    Target target;
    char *host, *device, *workspace; /* MIRROR_BYTES of each of the first two */
    StepState *state;                /* the first of the host's memory: of tests without a model */
    size_t used;                     /* bytes of the tests' tensors */
    int arenas;                      /* of models, that have not been given back */
    Tensor tensor[MIRROR_TENSORS];   /* of the present op, in host memory */
    int tensors;
} mirror;

static inline bool mirror_wanted(void)
{
    const char *name = getenv("TALLY_TEST_DEVICE");
    return name && *name && strcmp(name, "cpu") != 0;
}

/* Memory of a tensor, zeroed, as the host sees it; NULL when there is no more. */
static inline void *mirror_memory(size_t bytes)
{
    size_t begin = mirror.used, size = (bytes + 255) / 256 * 256;
    if (size > MIRROR_BYTES - begin)
        return NULL;
    mirror.used = begin + size;
    return memset(mirror.host + begin, 0, size);
}

/* All tensors are gone. */
static inline void mirror_clear(void)
{
    mirror.used = 0;
    mirror.state = mirror_memory(sizeof *mirror.state);
}

/* Copies a tensor between the host's and the device's memory. */
static inline Tensor mirror_copy(Ctx *device, Tensor t, bool in)
{
    Tensor there = t;
    there.data = mirror.device + ((char *)t.data - mirror.host);
    if (in)
        mirror.real->copy_in(device, there, t.data);
    else
        mirror.real->copy_out(device, t.data, there);
    return there;
}

/* One of the present op's tensors, brought to the device: as it lies there. */
static inline Tensor on_device(Ctx *device, Tensor t)
{
    if (!t.data)
        return t;
    mirror.tensor[mirror.tensors++] = t;
    return mirror_copy(device, t, true);
}

/* The context of an op on the device, the same but for where things lie. The step's state is a copy, which mirror_end brings to
 * the test, or a model's tensor. */
static inline Ctx mirror_begin(const Ctx *c)
{
    Ctx device = *c;
    device.device = mirror.real;
    device.workspace = mirror.workspace;
    mirror.tensors = 0;
    if (mirror.arenas == 0)
        *mirror.state = *c->state;
    Tensor state = tensor_1d(mirror.arenas ? c->state : mirror.state, DTYPE_I32, sizeof(StepState) / 4);
    device.state = on_device(&device, state).data;
    if (mirror.used <= MIRROR_WHOLE)
        on_device(&device, tensor_1d(mirror.host, DTYPE_I32, (int64_t)(mirror.used / 4)));
    return device;
}

static inline void mirror_end(Ctx *device, StepState *state)
{
    while (mirror.tensors > 0)
        mirror_copy(device, mirror.tensor[--mirror.tensors], false);
    mirror.real->synchronize(device);
    if (mirror.arenas == 0)
        *state = *mirror.state;
}

/* ---- The ops -------------------------------------------------------------------------------------------------------- */

#define MIRROR(op, parameters, ...)                                                                                              \
    static void mirror_##op parameters                                                                                           \
    {                                                                                                                            \
        Ctx d = mirror_begin(c);                                                                                                 \
        mirror.real->op(&d, ##__VA_ARGS__);                                                                                      \
        mirror_end(&d, c->state);                                                                                                \
    }
#define ON(t) on_device(&d, t)

MIRROR(copy_in, (Ctx * c, Tensor to, const void *from), ON(to), from)
MIRROR(zero, (Ctx * c, Tensor t), ON(t))
MIRROR(cast, (Ctx * c, Tensor to, Tensor from), ON(to), ON(from))
MIRROR(micro_next, (Ctx * c))
MIRROR(embedding_forward, (Ctx * c, Tensor x, Tensor tokens, Tensor wte, Tensor wpe, int64_t first, Dropout drop), ON(x),
       ON(tokens), ON(wte), ON(wpe), first, drop)
MIRROR(embedding_backward, (Ctx * c, Tensor dwte, Tensor dwpe, Tensor dx, Tensor tokens, Dropout drop), ON(dwte), ON(dwpe),
       ON(dx), ON(tokens), drop)
MIRROR(norm_forward, (Ctx * c, Tensor y, Tensor stats, Tensor x, Tensor w, Tensor b), ON(y), ON(stats), ON(x), ON(w), ON(b))
MIRROR(residual_norm_forward,
       (Ctx * c, Tensor x_out, Tensor y, Tensor stats, Tensor x_in, Tensor branch, Tensor w, Tensor b, Dropout drop), ON(x_out),
       ON(y), ON(stats), ON(x_in), ON(branch), ON(w), ON(b), drop)
MIRROR(residual_norm_backward,
       (Ctx * c, Tensor dx, Tensor dbranch, Tensor dw, Tensor db, Tensor dskip, Tensor dy, Tensor x, Tensor stats, Tensor w,
        Dropout drop),
       ON(dx), ON(dbranch), ON(dw), ON(db), ON(dskip), ON(dy), ON(x), ON(stats), ON(w), drop)
MIRROR(linear_forward, (Ctx * c, Tensor y, Tensor x, Tensor w, Tensor b), ON(y), ON(x), ON(w), ON(b))
MIRROR(linear_backward, (Ctx * c, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w), ON(dx), ON(dw), ON(db), ON(dy),
       ON(x), ON(w))
MIRROR(linear_gelu_backward, (Ctx * c, Tensor dpre, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w, Tensor pre), ON(dpre),
       ON(dw), ON(db), ON(dy), ON(x), ON(w), ON(pre))
MIRROR(gelu_forward, (Ctx * c, Tensor y, Tensor x), ON(y), ON(x))
MIRROR(gelu_backward, (Ctx * c, Tensor dx, Tensor dy, Tensor x), ON(dx), ON(dy), ON(x))
MIRROR(attention_forward, (Ctx * c, AttentionShape s, Tensor att, Tensor lse, Tensor qkv, Dropout drop), s, ON(att), ON(lse),
       ON(qkv), drop)
MIRROR(attention_backward,
       (Ctx * c, AttentionShape s, Tensor dqkv, Tensor datt, Tensor att, Tensor lse, Tensor qkv, Dropout drop), s, ON(dqkv),
       ON(datt), ON(att), ON(lse), ON(qkv), drop)
MIRROR(attention_cached, (Ctx * c, AttentionShape s, Tensor att, Tensor cache, Tensor qkv, int64_t first), s, ON(att), ON(cache),
       ON(qkv), first)
MIRROR(head_loss_forward, (Ctx * c, Tensor losses, Tensor x, Tensor wte, Tensor targets, Tensor logits, int64_t V), ON(losses),
       ON(x), ON(wte), ON(targets), ON(logits), V)
MIRROR(head_loss_backward,
       (Ctx * c, Tensor dx, Tensor dwte, Tensor losses, Tensor x, Tensor wte, Tensor targets, Tensor logits, int64_t V), ON(dx),
       ON(dwte), ON(losses), ON(x), ON(wte), ON(targets), ON(logits), V)
MIRROR(head_logits, (Ctx * c, Tensor logits, Tensor x, Tensor wte), ON(logits), ON(x), ON(wte))
MIRROR(grad_norm, (Ctx * c, Tensor grads, float clip, const AdamW *adam), ON(grads), clip, adam)
MIRROR(adamw, (Ctx * c, Tensor w, Tensor master, Tensor g, Tensor m, Tensor v, const AdamW *adam), ON(w), ON(master), ON(g),
       ON(m), ON(v), adam)

/* The tensors are in host memory. */
static void mirror_copy_out(Ctx *c, void *to, Tensor from)
{
    (void)c;
    memmove(to, from.data, tensor_bytes(from));
}

static void *mirror_take(size_t bytes, const char *what, Error *e)
{
    void *p = mirror_memory(bytes);
    if (!p)
        error_set(e, "the mirror has no %zu bytes for %s", bytes, what);
    mirror.arenas += p != NULL;
    return p;
}

/* Memory is free again when the last arena has been given back. */
static void mirror_give(void *p, size_t bytes)
{
    (void)bytes;
    if (p && --mirror.arenas == 0)
        mirror_clear();
}

static void mirror_synchronize(Ctx *c)
{
    (void)c;
}

/* The device that the environment names, seen through the mirror. NULL with a message. */
static inline const Device *mirror_device(Target *target, Error *e)
{
    static const Device device = {.name = "mirror",
                                  .memory_take = mirror_take,
                                  .memory_give = mirror_give,
                                  .synchronize = mirror_synchronize,
#define X(op) .op = mirror_##op,
                                  TALLY_OPS(X)
#undef X
    };
    if (!mirror.real) {
        mirror.real = device_open(getenv("TALLY_TEST_DEVICE"), 1, &mirror.target, e);
        mirror.host = aligned_alloc(256, MIRROR_BYTES);
        if (!mirror.real || !mirror.host || !(mirror.device = mirror.real->memory_take(MIRROR_BYTES, "the mirror", e)) ||
            !(mirror.workspace = mirror.real->memory_take(MIRROR_WORKSPACE, "the mirror's workspace", e)))
            return NULL;
        mirror_clear();
    }
    *target = mirror.target;
    return &device;
}

/* The same; all tensors of an earlier test are gone. */
static inline const Device *mirror_open(Target *target, Error *e)
{
    const Device *device = mirror_device(target, e);
    if (device)
        mirror_clear();
    return device;
}

#endif
