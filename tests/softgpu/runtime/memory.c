/* Device memory: addresses, and what is known of them.
 *
 * A device address lies in a range of the process that is reserved without access, so host code that follows one faults at
 * once, in any thread. The bytes live in a second mapping at a constant distance, which only this library and the PTX machine
 * know. Addresses are given out once: one that was freed stays known as freed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/softgpu/runtime/runtime.h"

#define ARENA    (1ull << 42)   /* bytes of address space, far more than any test allocates */
#define GAP      4096           /* unused bytes between allocations: an index a little out of bounds hits none */
#define ALIGN    512            /* of every allocation, as the real runtime promises 256 */
#define CONTEXT  (400ull << 20) /* what a context takes of a card's memory before the program has any */
#define POISONED (1ull << 30)   /* larger allocations are not filled: it would touch all their pages */

static uint64_t arena, arena_top, host_distance;
static Allocation **table; /* by address */
static int count, room;
static uint64_t used, next_number = 1;
static Vm *vm;

/* ---- The machine ----------------------------------------------------------------------------------------------------- */

static void segv(int signal, siginfo_t *info, void *ignored)
{
    (void)ignored;
    if (memory_is_device(info->si_addr)) {
        char text[256];
        memory_describe(info->si_addr, text, sizeof text);
        say("HOST code touched device memory at %p: %s", info->si_addr, text);
    }
    sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL); /* and happens again on return */
}

static void arena_reserve(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *host = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, flags, -1, 0), *device = mmap(NULL, ARENA, PROT_NONE, flags, -1, 0);
    if (host == MAP_FAILED || device == MAP_FAILED) {
        say("cannot reserve twice %llu bytes of address space (ulimit -v, vm.overcommit_memory=2?)", ARENA);
        abort();
    }
    arena = arena_top = (uint64_t)device;
    host_distance = (uint64_t)host - (uint64_t)device;
}

/* The machine asks for the memory of a __device__ or __constant__ variable. */
static uint64_t place_variable(void *ignored, uint64_t bytes, uint64_t align, const char *name)
{
    (void)ignored;
    return align > ALIGN ? 0 : memory_new(bytes ? bytes : 1, MEMORY_VARIABLE, name);
}

static void describe_address(void *ignored, uint64_t address, char *text, size_t size)
{
    (void)ignored;
    memory_describe((void *)address, text, size);
}

Vm *machine(void)
{
    if (vm)
        return vm;
    VmOptions options;
    VmError error = {0};
    VmHooks hooks = {.place = place_variable, .describe = describe_address};
    if (vm_options_read(&options, &error)) {
        options.profile |= settings.race || getenv("SOFTGPU_PROFILE"); /* which sectors a kernel touched */
        vm = vm_new(&options, &hooks, &error);
    }
    if (!vm) {
        say("%s", error.text);
        exit(2);
    }
    sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = segv, .sa_flags = SA_SIGINFO}, NULL);
    return vm;
}

/* ---- Addresses ------------------------------------------------------------------------------------------------------- */

bool memory_is_device(const void *p)
{
    return arena && (uint64_t)p - arena < ARENA;
}

void *memory_host(const void *p)
{
    return memory_is_device(p) ? (char *)p + host_distance : (void *)p;
}

/* The index of the last allocation that begins at or before the address; -1: none does. */
static int before(uint64_t address)
{
    int low = 0, high = count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (table[middle]->address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

Allocation *memory_find(const void *p)
{
    int i = before((uint64_t)p);
    return i >= 0 && (uint64_t)p - table[i]->address < table[i]->bytes ? table[i] : NULL;
}

bool memory_holds(const void *p, uint64_t bytes)
{
    const Allocation *a = memory_find(p);
    return a && a->live && bytes <= a->bytes - ((uint64_t)p - a->address);
}

/* ---- Allocations ----------------------------------------------------------------------------------------------------- */

/* What an allocation takes of the card: the driver hands out 2 MiB pages, and small pieces of one. */
static uint64_t charge(uint64_t bytes)
{
    uint64_t unit = bytes >= 1 << 20 ? 2 << 20 : ALIGN;
    return (bytes + unit - 1) / unit * unit;
}

static bool is_on_card(MemoryKind kind)
{
    return kind == MEMORY_DEVICE || kind == MEMORY_VARIABLE;
}

uint64_t memory_used(void)
{
    return used + CONTEXT;
}

uint64_t memory_free(void)
{
    return settings.card.memory > memory_used() ? settings.card.memory - memory_used() : 0;
}

/* Enters an allocation into the table and tells the machine. What the host has written counts as written. */
static Allocation *enter_table(uint64_t address, uint64_t bytes, MemoryKind kind, const char *name)
{
    Allocation *a = get(1, sizeof *a);
    *a = (Allocation){.address = address, .bytes = bytes, .kind = kind, .live = true};
    snprintf(a->name, sizeof a->name, "#%lu (%s)", next_number++, name);
    int at = before(address) + 1;
    table = array_grow(table, count, &room, sizeof *table);
    memmove(table + at + 1, table + at, (size_t)(count++ - at) * sizeof *table);
    table[at] = a;
    VmError error = {0};
    if (!vm_memory_add(machine(), address, bytes, memory_host((void *)address), a->name, &error)) {
        say("%s", error.text);
        abort();
    }
    if (kind != MEMORY_DEVICE)
        vm_memory_written(machine(), address, bytes);
    return a;
}

uint64_t memory_new(uint64_t bytes, MemoryKind kind, const char *name)
{
    if (!arena)
        arena_reserve();
    uint64_t address;
    if (is_on_card(kind)) {
        if (bytes > ARENA - (arena_top - arena) - 2 * GAP)
            return 0;
        address = (arena_top + GAP + ALIGN - 1) / ALIGN * ALIGN;
        arena_top = address + bytes;
        used += charge(bytes);
    } else {
        void *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (host == MAP_FAILED)
            return 0;
        address = (uint64_t)host;
    }
    if (kind != MEMORY_VARIABLE && settings.poison >= 0 && bytes <= POISONED)
        memset(memory_host((void *)address), settings.poison, bytes);
    enter_table(address, bytes, kind, name);
    return address;
}

void memory_register(void *host, uint64_t bytes)
{
    enter_table((uint64_t)host, bytes, MEMORY_REGISTERED, "registered");
}

static void forget(Allocation *a)
{
    int at = before(a->address);
    memmove(table + at, table + at + 1, (size_t)(--count - at) * sizeof *table);
    free(a->shadow);
    free(a);
}

void memory_end(Allocation *a)
{
    vm_memory_remove(machine(), a->address);
    a->live = false;
    if (is_on_card(a->kind)) {
        used -= charge(a->bytes);
        char *begin = memory_host((void *)((a->address + 4095) / 4096 * 4096)),
             *end = memory_host((void *)(a->address + a->bytes));
        if (end - begin >= 4096)
            madvise(begin, (size_t)(end - begin) / 4096 * 4096, MADV_DONTNEED);
        free(a->shadow);
        a->shadow = NULL;
        return;
    }
    if (a->kind == MEMORY_PINNED)
        munmap((void *)a->address, a->bytes);
    forget(a); /* the host may be given its address for something else */
}

void memory_reset(void)
{
    for (int i = count - 1; i >= 0; i--)
        if (table[i]->live)
            memory_end(table[i]);
    if (vm)
        vm_free(vm);
    vm = NULL;
}

/* ---- Words ----------------------------------------------------------------------------------------------------------- */

/* What the host has at an address, from the list of its mappings. */
static void describe_host(uint64_t address, char *text, size_t size)
{
    char line[512], path[256];
    FILE *maps = fopen("/proc/self/maps", "r");
    snprintf(text, size, address < 65536 ? "a null pointer plus %lu" : "address %#lx, which nothing is mapped at", address);
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long low, high;
        path[0] = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %255s", &low, &high, path) >= 2 && address >= low && address < high)
            snprintf(text, size, "HOST memory (%s)", path[0] ? path : "heap or mapping");
    }
    if (maps)
        fclose(maps);
}

void memory_describe(const void *p, char *text, size_t size)
{
    static const char *const kinds[] = {"device allocation", "pinned host allocation", "registered host memory", "variable"};
    uint64_t address = (uint64_t)p;
    int i = before(address);
    const Allocation *a = i < 0 ? NULL : table[i];
    bool inside = a && address - a->address < a->bytes;
    if (!inside && !memory_is_device(p))
        describe_host(address, text, size);
    else if (!inside && (!a || !memory_is_device((void *)a->address)))
        snprintf(text, size, "device memory that was never allocated");
    else
        snprintf(text, size, "%lu bytes %s the %s %s %s of %lu bytes",
                 inside ? address - a->address : address - a->address - a->bytes, inside ? "into" : "past the end of",
                 a->live ? "live" : "freed", kinds[a->kind], a->name, a->bytes);
}
