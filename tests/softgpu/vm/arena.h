/* Memory that is given out piece by piece and returned all at once: what the parser builds for a module. The host running out of
 * memory ends the process with a message: there is nothing that a test could do about it. */
#ifndef SOFTGPU_ARENA_H
#define SOFTGPU_ARENA_H

#include <stddef.h>

typedef struct ArenaChunk ArenaChunk;
typedef struct Arena {
    ArenaChunk *chunks;
} Arena;

/* `bytes` zeroed bytes, aligned to 64. */
void *arena_get(Arena *a, size_t bytes);
/* Room for one more element of `size` bytes behind n: the array itself, or a copy of twice the size when n has reached a power of
 * two. */
void *arena_grow(Arena *a, void *array, int n, size_t size);
/* A copy of n characters, ended by a zero byte. */
char *arena_text(Arena *a, const char *text, size_t n);
void arena_free(Arena *a);

/* calloc and realloc that do not return without memory. */
void *host_get(size_t n, size_t size);
void *host_resize(void *p, size_t n, size_t size);

#endif
