/* For those who look at kernels: what they cost, and what happens when one of their barriers is left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/runtime/runtime.h"

static Kernel **timed;
static int timed_count, timed_room;

static void print_times(void)
{
    for (int i = 0; i < timed_count; i++)
        say("%8d launches %12.3f ms  %s", timed[i]->launches, timed[i]->ms, timed[i]->title);
}

/* SOFTGPU_PROFILE=FILE: the counters of every launch. SOFTGPU_TIMES=1: at exit, launches and time of each kernel. */
void profile_launch(Kernel *k)
{
    const char *path = getenv("SOFTGPU_PROFILE");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "== %s\n", k->title);
        vm_profile_print(file, k->code);
        fclose(file);
    }
    if (!getenv("SOFTGPU_TIMES") || k->launches > 1)
        return;
    if (!timed_count)
        atexit(print_times);
    timed = array_grow(timed, timed_count, &timed_room, sizeof *timed);
    timed[timed_count++] = k;
}

/* SOFTGPU_SYNCS=FILE: a line "KERNEL<tab>INDEX<tab>TEXT" for every barrier, fence and cp.async wait of the kernels launched.
 * SOFTGPU_SKIP=KERNEL:INDEX (the mangled name): that one does nothing. */
void mutation_apply(const Kernel *k)
{
    const char *path = getenv("SOFTGPU_SYNCS"), *skip = getenv("SOFTGPU_SKIP"), *colon = skip ? strrchr(skip, ':') : NULL;
    FILE *file = path ? fopen(path, "a") : NULL;
    for (int i = 0; file && i < vm_sync_count(k->code); i++)
        fprintf(file, "%s\t%d\t%s\n", k->name, i, vm_sync_text(k->code, i));
    if (file)
        fclose(file);
    if (colon && strlen(k->name) == (size_t)(colon - skip) && strncmp(k->name, skip, strlen(k->name)) == 0)
        vm_sync_skip(k->code, atoi(colon + 1));
}
