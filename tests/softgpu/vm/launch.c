/* A launch: host threads that take block after block of the grid until none is left.
 *
 * Each thread has one Block with its warps' registers, shared memory and counters, used for all blocks it takes. */
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/vm/checks.h"
#include "tests/softgpu/vm/machine.h"
#include "tests/softgpu/vm/profile.h"

enum { MAX_THREADS = 64, PAGE = 4096 };

/* ---- A thread's block ---------------------------------------------------------------------------------------------- */

/* The value that a constant register has in every lane. */
static uint64_t constant_value(const Register *r, const VmKernel *k)
{
    return r->value + (r->kind == REGISTER_DYNAMIC ? k->shared_end : 0);
}

static void constants_fill(const VmKernel *k, uint8_t *registers)
{
    for (const Register *r = k->registers; r < k->registers + k->n_registers; r++) {
        if (r->kind != REGISTER_CONSTANT && r->kind != REGISTER_DYNAMIC)
            continue;
        uint8_t *to = registers + (size_t)r->slot * SLOT_BYTES;
        uint64_t value = constant_value(r, k);
        for (int l = 0; l < (r->size ? LANES : 1); l++)
            memcpy(to + l * (r->size ? r->size : 4), &value, r->size ? r->size : 4);
    }
}

static void warps_get(Block *b)
{
    static const float nudges[][2] = {[VM_NEAREST] = {1, 1},
                                      [VM_UP] = {1 + 0x1p-22f, 1 + 0x1p-22f},
                                      [VM_DOWN] = {1 - 0x1p-22f, 1 - 0x1p-22f},
                                      [VM_UP_AND_DOWN] = {1 + 0x1p-22f, 1 - 0x1p-22f}};
    const VmKernel *k = b->kernel;
    const float *nudge = nudges[b->launch->vm->options.approx];
    size_t bytes = (k->register_bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
    b->warps = host_get((size_t)b->n_warps, sizeof *b->warps);
    for (int v = 0; v < b->n_warps; v++) {
        Warp *w = &b->warps[v];
        w->block = b;
        w->id = v;
        w->registers = aligned_alloc(PAGE, bytes);
        if (w->registers == NULL)
            abort();
        memset(w->registers, 0xff, bytes);
        constants_fill(k, w->registers);
        if (k->info.local_bytes > 0)
            w->local = host_get(LANES, k->info.local_bytes);
        EACH (l)
            w->nudge[l] = nudge[l & 1];
    }
}

/* Static variables, each with a gap behind it, then dynamic memory. */
static void shared_get(Block *b)
{
    uint32_t begin = b->kernel->shared_end, dynamic = b->launch->dynamic_shared;
    b->dynamic = (SharedVariable){"dynamic shared memory", begin, dynamic};
    b->last_shared = &b->dynamic;
    b->shared_bytes = begin + dynamic;
    b->shared = aligned_alloc(PAGE, (b->shared_bytes + PAGE) & ~(size_t)(PAGE - 1));
    if (b->shared == NULL)
        abort();
    if (b->launch->vm->options.check)
        b->cells = host_get(b->shared_bytes / SHADOW_BYTES + 1, sizeof *b->cells);
}

static void block_free(Block *b)
{
    for (Warp *w = b->warps; w < b->warps + b->n_warps; w++) {
        free(w->registers);
        free(w->local);
        free(w->copies);
    }
    free(b->warps);
    free(b->counters);
    free(b->shared);
    free(b->cells);
    free(b->acquired);
}

static void counters_add(Launch *launch, const Block *b)
{
    pthread_mutex_lock(&launch->lock);
    launch->barriers += b->barriers_done;
    uint64_t *to = (uint64_t *)launch->kernel->counters;
    const uint64_t *from = (const uint64_t *)b->counters;
    for (size_t n = 0; n < (size_t)b->kernel->n_code * sizeof(Counter) / sizeof *to; n++)
        to[n] += from[n];
    pthread_mutex_unlock(&launch->lock);
}

/* ---- The grid ------------------------------------------------------------------------------------------------------ */

static uint64_t divisor(uint64_t a, uint64_t b)
{
    return b == 0 ? a : divisor(b, a % b);
}

/* Which block is the n-th to run: all of them in some order. Random: steps of a size that has no divisor in common with the
 * number. */
static uint64_t block_choose(const Launch *launch, uint64_t n)
{
    const VmOptions *o = &launch->vm->options;
    if (o->order == VM_REVERSE)
        return launch->n_blocks - 1 - n;
    if (o->order == VM_FORWARD)
        return n;
    uint64_t step = launch->n_blocks / 2 + 1 + o->seed % 7;
    while (divisor(step, launch->n_blocks) != 1)
        step++;
    return (n * step + o->seed) % launch->n_blocks;
}

static void *blocks_take(void *argument)
{
    Launch *launch = argument;
    const uint32_t *grid = launch->grid;
    Block b = {
        .launch = launch, .kernel = launch->kernel, .n_threads = (int)(launch->block[0] * launch->block[1] * launch->block[2])};
    b.n_warps = (b.n_threads + LANES - 1) / LANES;
    b.counters = host_get((size_t)b.kernel->n_code, sizeof *b.counters);
    warps_get(&b);
    shared_get(&b);
    while (!__atomic_load_n(&launch->stopped, __ATOMIC_RELAXED)) {
        uint64_t n = __atomic_fetch_add(&launch->next, 1, __ATOMIC_RELAXED);
        if (n >= launch->n_blocks)
            break;
        n = block_choose(launch, n);
        b.index[0] = (uint32_t)(n % grid[0]);
        b.index[1] = (uint32_t)(n / grid[0] % grid[1]);
        b.index[2] = (uint32_t)(n / grid[0] / grid[1]);
        block_run(&b);
    }
    counters_add(launch, &b);
    block_free(&b);
    return NULL;
}

static void threads_run(Launch *launch)
{
    const VmOptions *o = &launch->vm->options;
    uint64_t n = o->check ? 1 : (uint64_t)o->threads;
    n = n > MAX_THREADS ? MAX_THREADS : n;
    n = n > launch->n_blocks ? launch->n_blocks : n;
    pthread_t threads[MAX_THREADS];
    uint64_t started = 0;
    while (started + 1 < n && pthread_create(&threads[started], NULL, blocks_take, launch) == 0)
        started++;
    blocks_take(launch); /* this thread too: fewer threads than asked for do the same work */
    for (uint64_t t = 0; t < started; t++)
        pthread_join(threads[t], NULL);
}

/* ---- The launch ---------------------------------------------------------------------------------------------------- */

static bool launch_check(const VmKernel *k, const uint32_t grid[3], const uint32_t block[3], uint32_t dynamic, VmError *error)
{
    const VmKernelInfo *info = &k->info;
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (info->error != NULL)
        return vm_error_set(error, VM_BAD_PTX, "kernel %s: %s", info->name, info->error);
    if (threads == 0 || threads > info->max_threads || block[0] > 1024 || block[1] > 1024 || block[2] > 64)
        return vm_error_set(error, VM_BAD_LAUNCH, "kernel %s: a block of %u x %u x %u threads, at most %u are possible",
                            info->name, block[0], block[1], block[2], info->max_threads);
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535)
        return vm_error_set(error, VM_BAD_LAUNCH, "kernel %s: a grid of %u x %u x %u blocks", info->name, grid[0], grid[1],
                            grid[2]);
    if (info->required_threads[0] != 0 && memcmp(block, info->required_threads, sizeof info->required_threads) != 0)
        return vm_error_set(error, VM_BAD_LAUNCH, "kernel %s: a block of %u x %u x %u threads, not the required %u x %u x %u",
                            info->name, block[0], block[1], block[2], info->required_threads[0], info->required_threads[1],
                            info->required_threads[2]);
    if (dynamic > MAX_SHARED - info->shared_bytes)
        return vm_error_set(error, VM_BAD_LAUNCH, "kernel %s: %u bytes of static and %u of dynamic shared memory", info->name,
                            info->shared_bytes, dynamic);
    return true;
}

bool vm_launch(VmKernel *kernel, const uint32_t grid[3], const uint32_t block[3], uint32_t dynamic_shared, const void *params,
               VmError *error)
{
    *error = (VmError){0};
    kernel_parse(kernel);
    if (!launch_check(kernel, grid, block, dynamic_shared, error))
        return false;
    Launch launch = {.vm = kernel->module->vm,
                     .kernel = kernel,
                     .n_blocks = (uint64_t)grid[0] * grid[1] * grid[2],
                     .dynamic_shared = dynamic_shared,
                     .params = params,
                     .error = error};
    memcpy(launch.grid, grid, sizeof launch.grid);
    memcpy(launch.block, block, sizeof launch.block);
    pthread_mutex_init(&launch.lock, NULL);
    checks_launch(&launch);
    profile_begin(&launch);
    threads_run(&launch);
    profile_end(&launch);
    checks_end(&launch);
    pthread_mutex_destroy(&launch.lock);
    return error->fault == VM_NO_FAULT;
}

/* ---- Mutation ------------------------------------------------------------------------------------------------------ */

int vm_sync_count(const VmKernel *kernel)
{
    return kernel->n_syncs;
}

const char *vm_sync_text(const VmKernel *kernel, int index)
{
    if (index < 0 || index >= kernel->n_syncs)
        return NULL;
    int at = kernel->syncs[index];
    char source[512], text[1024];
    source_text(kernel, at, source, sizeof source);
    int n = snprintf(text, sizeof text, "%s%s (PTX line %d)", kernel->text[at].text, source, kernel->text[at].line);
    return arena_text(&kernel->module->arena, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void vm_sync_skip(VmKernel *kernel, int index)
{
    if (kernel->skipped >= 0) {
        Insn *i = &kernel->code[kernel->syncs[kernel->skipped]];
        i->run = kernel->skipped_run;
        i->flow = kernel->skipped_flow;
    }
    kernel->skipped = index >= 0 && index < kernel->n_syncs ? index : -1;
    if (kernel->skipped >= 0) {
        Insn *i = &kernel->code[kernel->syncs[kernel->skipped]];
        kernel->skipped_run = i->run;
        kernel->skipped_flow = i->flow;
        i->run = op_nothing;
        i->flow = FLOW_PLAIN;
    }
}
