/* A GPU for tests that keep their tensors in host memory. Each op is given host tensors: the mirror copies all of the tests'
 * memory to the device, where every tensor lies at the same distance from the beginning, runs the op there, and copies all of it
 * back. So the checks written for the CPU are those of any device. The workspace is the device's alone, with whatever it holds.
 *
 * TALLY_TEST_DEVICE in the environment names the device, as --device does; without it, or with "cpu", nothing is mirrored. */
#ifndef TALLY_TESTS_MIRROR_H
#define TALLY_TESTS_MIRROR_H

#include "kernels/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIRROR_BYTES = 256 << 20, MIRROR_WORKSPACE = 128 << 20 };

static struct {
    const Device *real;
    Target target;
    char *host, *device, *workspace; /* MIRROR_BYTES of each of the first two */
    StepState *state;                /* the device's */
    size_t used;                     /* bytes of the tests' tensors */
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

/* The tensor where it lies on the device. */
static inline Tensor on_device(Tensor t)
{
    if (t.data)
        t.data = mirror.device + ((char *)t.data - mirror.host);
    return t;
}

/* Copies between the host's and the device's memory, all of it and the step's state. */
static inline void mirror_copy(Ctx *device, StepState *state, bool in)
{
    Tensor all = tensor_1d(mirror.device, DTYPE_I32, (int64_t)(mirror.used / 4));
    Tensor step = tensor_1d(mirror.state, DTYPE_I32, sizeof(StepState) / 4);
    if (in) {
        mirror.real->copy_in(device, all, mirror.host);
        mirror.real->copy_in(device, step, state);
    } else {
        mirror.real->copy_out(device, mirror.host, all);
        mirror.real->copy_out(device, state, step);
        mirror.real->synchronize(device);
    }
}

/* The context of the op on the device: the same but for where things lie. */
static inline Ctx mirror_begin(Ctx *c)
{
    Ctx device = *c;
    device.device = mirror.real;
    device.state = mirror.state;
    device.workspace = mirror.workspace;
    mirror_copy(&device, c->state, true);
    return device;
}

/* ---- The ops -------------------------------------------------------------------------------------------------------- */

#define MIRROR(op, parameters, ...)                                                                                              \
    static void mirror_##op parameters                                                                                           \
    {                                                                                                                            \
        Ctx d = mirror_begin(c);                                                                                                 \
        mirror.real->op(&d, __VA_ARGS__);                                                                                        \
        mirror_copy(&d, c->state, false);                                                                                        \
    }
#define ON(t) on_device(t)

MIRROR(copy_in, (Ctx * c, Tensor to, const void *from), ON(to), from)
MIRROR(zero, (Ctx * c, Tensor t), ON(t))
MIRROR(cast, (Ctx * c, Tensor to, Tensor from), ON(to), ON(from))
MIRROR(micro_next, (Ctx * c, int32_t by), by)
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

/* To a host address that may lie among the tensors: after these have come back. */
static void mirror_copy_out(Ctx *c, void *to, Tensor from)
{
    Ctx d = mirror_begin(c);
    mirror_copy(&d, c->state, false);
    memmove(to, from.data, tensor_bytes(from));
}

static void *mirror_take(size_t bytes, const char *what, Error *e)
{
    void *p = mirror_memory(bytes);
    if (!p)
        error_set(e, "the mirror has no %zu bytes for %s", bytes, what);
    return p;
}

static void mirror_give(void *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}

static void mirror_synchronize(Ctx *c)
{
    (void)c;
}

/* The device that the environment names, seen through the mirror; all tensors of an earlier test are gone. NULL with a message.
 */
static inline const Device *mirror_open(Target *target, Error *e)
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
            !(mirror.workspace = mirror.real->memory_take(MIRROR_WORKSPACE, "the mirror's workspace", e)) ||
            !(mirror.state = mirror.real->memory_take(sizeof(StepState), "the mirror's state", e)))
            return NULL;
    }
    mirror.used = 0;
    *target = mirror.target;
    return &device;
}

#endif
