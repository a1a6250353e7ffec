#include "tests/softgpu/vm/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, CHUNK = 1 << 16 };

struct ArenaChunk {
    ArenaChunk *next;
    size_t used, size; /* bytes, this header included */
};

static void *or_end(void *p)
{
    if (p == NULL) {
        fprintf(stderr, "softgpu: the host has no memory left\n");
        abort();
    }
    return p;
}

void *host_get(size_t n, size_t size)
{
    return or_end(calloc(n ? n : 1, size));
}

void *host_resize(void *p, size_t n, size_t size)
{
    return or_end(reallocarray(p, n ? n : 1, size));
}

void *arena_get(Arena *a, size_t bytes)
{
    bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    ArenaChunk *c = a->chunks;
    if (c == NULL || c->size - c->used < bytes) {
        size_t size = ALIGN + (bytes > CHUNK ? bytes : CHUNK);
        c = or_end(aligned_alloc(ALIGN, size));
        *c = (ArenaChunk){a->chunks, ALIGN, size};
        a->chunks = c;
    }
    void *p = (char *)c + c->used;
    c->used += bytes;
    return memset(p, 0, bytes);
}

void *arena_grow(Arena *a, void *array, int n, size_t size)
{
    if ((n & (n - 1)) != 0)
        return array;
    void *larger = arena_get(a, (n ? 2 * (size_t)n : 1) * size);
    if (n > 0)
        memcpy(larger, array, (size_t)n * size);
    return larger;
}

char *arena_text(Arena *a, const char *text, size_t n)
{
    char *copy = arena_get(a, n + 1);
    memcpy(copy, text, n);
    return copy;
}

void arena_free(Arena *a)
{
    for (ArenaChunk *c = a->chunks, *next; c != NULL; c = next) {
        next = c->next;
        free(c);
    }
    a->chunks = NULL;
}
