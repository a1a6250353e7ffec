/* Where the resident memory of this process belongs, from /proc/self/smaps: a list of mappings, each with a first line
 * "start-end perms offset device inode path" and fields, of which "Rss:" counts. */
#include "model/ledger.h"

#include <malloc.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* An address in the stack of each thread of the OpenMP team: the mapping that holds one is a stack. */
typedef struct Stacks {
    size_t address[256];
    int count;
} Stacks;

static Stacks stacks_find(int threads)
{
    Stacks s = {.count = threads < 256 ? threads : 256};
#pragma omp parallel num_threads(threads)
    {
        int here;
        if (omp_get_thread_num() < s.count)
            s.address[omp_get_thread_num()] = (size_t)&here;
    }
    return s;
}

/* Bytes of [begin, begin + bytes) that are in memory, in whole pages. Not taken from the mappings: the kernel may merge an arena
 * with an anonymous neighbour into one. */
static size_t pages_present(const void *begin, size_t bytes)
{
    unsigned char present[4096];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page, count = 0;
    for (size_t done = 0; done < pages; done += sizeof present) {
        size_t n = pages - done < sizeof present ? pages - done : sizeof present;
        if (mincore((char *)begin + done * page, n * page, present) != 0)
            return 0;
        for (size_t i = 0; i < n; i++)
            count += present[i] & 1;
    }
    return count * page;
}

static bool is_stack(const Stacks *s, size_t start, size_t end, const char *path)
{
    bool yes = strncmp(path, "[stack", 6) == 0;
    for (int i = 0; i < s->count; i++)
        yes |= s->address[i] >= start && s->address[i] < end;
    return yes;
}

/* The field of *r that a mapping belongs to; anonymous memory that is nothing else is the heap's until others claim it. */
static size_t *mapping_owner(Resident *r, const Stacks *s, size_t start, size_t end, const char *perms, const char *path)
{
    size_t length = strlen(path);
    if (is_stack(s, start, end, path))
        return &r->stacks;
    if (length > 4 && strcmp(path + length - 4, ".bin") == 0)
        return &r->tokens;
    if (path[0] == '/' || strcmp(path, "[vdso]") == 0 || strcmp(path, "[vvar]") == 0)
        return &r->files;
    return strchr(perms, 'x') ? &r->code : &r->heap;
}

/* Bytes that malloc has from the system, in all its arenas: the last "system current" and "mmap total" of its own report. */
static size_t malloc_bytes(void)
{
    char *text = NULL;
    size_t size = 0, system_bytes = 0, mapped = 0, value;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return 0;
    malloc_info(0, f);
    fclose(f);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (sscanf(line, "<system type=\"current\" size=\"%zu\"", &value) == 1)
            system_bytes = value;
        if (sscanf(line, "<total type=\"mmap\" count=\"%*u\" size=\"%zu\"", &value) == 1)
            mapped = value;
    }
    free(text);
    return system_bytes + mapped;
}

bool resident_read(Resident *r, const Model *m)
{
    *r = (Resident){0};
    Stacks stacks = stacks_find(m->ctx.target.threads);
    FILE *f = fopen("/proc/self/smaps", "r");
    if (!f)
        return false;
    char line[4352], perms[8], path[4200];
    size_t start, end, kib, *owner = NULL;
    while (fgets(line, sizeof line, f)) {
        path[0] = 0;
        if (sscanf(line, "%zx-%zx %7s %*s %*s %*s %4199[^\n]", &start, &end, perms, path) >= 3)
            owner = mapping_owner(r, &stacks, start, end, perms, path);
        else if (owner && sscanf(line, "Rss: %zu kB", &kib) == 1) {
            *owner += kib * 1024;
            r->total += kib * 1024;
        }
    }
    fclose(f);
    r->persistent = pages_present(m->persistent, m->plan.persistent_bytes);
    r->step = pages_present(m->step, m->plan.step_bytes);
    size_t arenas = r->persistent + r->step, known = malloc_bytes();
    r->heap -= arenas < r->heap ? arenas : r->heap;
    r->unexplained = r->heap > known ? r->heap - known : 0;
    r->heap -= r->unexplained;
    return true;
}

static void part_print(FILE *out, const char *name, double bytes, double total)
{
    BytesText text;
    fprintf(out, "  %-44s %12s   %5.2f %%\n", name, bytes_text(text, bytes), total > 0 ? 100 * bytes / total : 0.0);
}

void resident_print(FILE *out, const Resident *r, const Model *m)
{
    BytesText a, b;
    const Plan *p = &m->plan;
    double total = (double)r->total;
    fprintf(out, "Resident after the first step: %s (planned: %s)\n", bytes_text(a, total),
            bytes_text(b, (double)plan_total_bytes(p)));
    fprintf(out, "  %-44s %12s   planned %s\n", "persistent arena", bytes_text(a, (double)r->persistent),
            bytes_text(b, (double)p->persistent_bytes));
    fprintf(out, "  %-44s %12s   planned %s\n", "step arena, as far as touched", bytes_text(a, (double)r->step),
            bytes_text(b, (double)p->step_bytes));
    part_print(out, "program and libraries (mapped files)", (double)r->files, total);
    part_print(out, "token files (mapped)", (double)r->tokens, total);
    part_print(out, "machine code made at run time (oneDNN)", (double)r->code, total);
    part_print(out, "stacks of all threads", (double)r->stacks, total);
    part_print(out, "malloc: libraries, loader, tables", (double)r->heap, total);
    part_print(out, "unexplained", (double)r->unexplained, total);
}

GpuLedger gpu_ledger(const Model *m, double free_bytes, double own, double others, double libraries, double context)
{
    const Target *t = &m->ctx.target;
    GpuLedger l = {.total = (double)t->total_bytes,
                   .persistent = (double)m->plan.persistent_bytes,
                   .step = (double)m->plan.step_bytes,
                   .libraries = libraries,
                   .others = isnan(own) ? NAN : others,
                   .free = free_bytes};
    double planned = l.persistent + l.step + l.libraries;
    l.context = !isnan(context) ? context : isnan(own) ? l.total - (double)t->free_bytes : own - planned;
    l.remainder = l.total - planned - l.context - l.free - (isnan(l.others) ? 0 : l.others);
    return l;
}

void gpu_ledger_print(FILE *out, const GpuLedger *l)
{
    BytesText text;
    bool known = !isnan(l->others);
    fprintf(out, "Memory of the GPU after the warm-up: %s\n", bytes_text(text, l->total));
    part_print(out, "persistent arena", l->persistent, l->total);
    part_print(out, "step arena", l->step, l->total);
    part_print(out, "libraries (cuBLASLt)", l->libraries, l->total);
    part_print(out, known ? "runtime and context, kernels, graphs" : "context, and all of other programs", l->context, l->total);
    if (known)
        part_print(out, "other programs", l->others, l->total);
    part_print(out, "free", l->free, l->total);
    part_print(out, known ? "remainder" : "remainder: kernels and graphs, rounding", l->remainder, l->total);
}
