/* Races between streams, found whatever the order in which operations happened to run: two operations touch the same bytes,
 * one writes, and nothing that the program did orders them.
 *
 * Order comes from streams, event waits, graph edges, and from the host having waited for the one before it submitted the
 * other. It is kept as a vector clock on each operation (runtime.h, Clock): a comes before b when b has seen a's place in a's
 * chain. Each 32-byte sector of memory remembers who wrote it last and who has read it since: of readers that nothing orders
 * among themselves it keeps two, so with three the first is forgotten. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/runtime/runtime.h"

#define SECTOR 32

/* What is remembered of an operation: its number here is what sectors store. 0: none. */
typedef struct Past {
    int chain, stream;
    uint32_t place;
    uint64_t op;
    char *name; /* a copy: its work may hold as much memory as it moves */
} Past;

typedef struct Shadow {
    uint32_t writer, readers[2];
} Shadow;

static Past *past;
static int past_count, past_room;

/* The number of the operation that runs. */
static uint32_t number_of(const Op *op)
{
    if (past_count && past[past_count - 1].op == op->id)
        return (uint32_t)past_count - 1;
    if (!past_count) {
        past = array_grow(past, past_count, &past_room, sizeof *past);
        past[past_count++] = (Past){0};
    }
    past = array_grow(past, past_count, &past_room, sizeof *past);
    past[past_count++] = (Past){op->chain, op->stream->id, op->place, op->id, strdup(op->work->name)};
    return (uint32_t)past_count - 1;
}

static bool comes_before(uint32_t earlier, const Op *op)
{
    return !earlier || op->clock.seen[past[earlier].chain] >= past[earlier].place;
}

/* Compares with the sector's past, then becomes part of it. Returns the operation that this one races with, or 0. */
static uint32_t sector_touch(Shadow *s, const Op *op, uint32_t number, bool write)
{
    uint32_t foe = comes_before(s->writer, op) ? 0 : s->writer;
    for (int i = 0; write && i < 2; i++)
        if (!comes_before(s->readers[i], op))
            foe = s->readers[i];
    if (write)
        *s = (Shadow){.writer = number};
    else
        s->readers[!comes_before(s->readers[0], op)] = number;
    return foe;
}

void race_touch(const Op *op, const void *p, uint64_t bytes, bool write)
{
    Allocation *a = memory_find(p);
    if (!settings.race || !bytes || !a)
        return;
    uint64_t offset = (uint64_t)p - a->address, end = (offset + bytes + SECTOR - 1) / SECTOR;
    if (!a->shadow)
        a->shadow = get(a->bytes / SECTOR + 1, sizeof *a->shadow);
    uint32_t number = number_of(op), foe = 0;
    for (uint64_t i = offset / SECTOR; i < end && !foe; i++) {
        foe = sector_touch(&a->shadow[i], op, number, write);
        offset = i * SECTOR;
    }
    if (foe)
        device_fault(cudaErrorLaunchFailure,
                     "race between streams at byte %lu of %s: %s on stream %d, and %s on stream %d, which %s it. "
                     "Nothing orders the two",
                     offset, a->name, past[foe].name, past[foe].stream, op->work->name, op->stream->id,
                     write ? "writes" : "reads");
}

void race_reset(void)
{
    for (int i = 1; i < past_count; i++)
        free(past[i].name);
    past_count = 0;
}
