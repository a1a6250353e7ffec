/* The CPU as a device: which build of the op table this processor can run, how many threads there are, and its memory. */
#include "kernels/cpu/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Memory -------------------------------------------------------------------------------------------------------- */

static size_t pages_round(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return ((bytes ? bytes : 1) + page - 1) / page * page;
}

/* Fresh pages, which the kernel gives zeroed on first touch. Large ranges begin at a huge page, so that all of it can be
 * huge pages; the last, partial huge page stays in small ones, and nothing beyond `bytes` ever becomes resident. */
void *cpu_memory_take(size_t bytes, const char *what, Error *e)
{
    const size_t huge = (size_t)2 << 20, size = pages_round(bytes), spare = size >= huge ? huge : 0;
    char *p = size < bytes || size + spare < size
                  ? MAP_FAILED
                  : mmap(NULL, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        error_set(e, "out of memory: the system gave no %zu bytes for %s", bytes, what);
        return NULL;
    }
    if (spare) {
        size_t skip = (huge - (size_t)p % huge) % huge;
        if (skip)
            munmap(p, skip);
        if (skip < spare)
            munmap(p + skip + size, spare - skip);
        p += skip;
        madvise(p, size, MADV_HUGEPAGE); /* a wish: without it only time is lost */
    }
    return p;
}

void cpu_memory_give(void *p, size_t bytes)
{
    if (p)
        munmap(p, pages_round(bytes));
}

/* Every op has ended when its call returns. */
void cpu_synchronize(Ctx *c)
{
    (void)c;
}

void *cpu_host_take(size_t bytes, const char *what, Error *e)
{
    return memory_get(e, bytes, 1, what);
}

void cpu_host_give(void *p)
{
    free(p);
}

/* ---- The processor -------------------------------------------------------------------------------------------------- */

/* The highest build that this processor runs. The names are those of the x86-64-v3 and v4 feature sets. */
static Isa isa_supported(void)
{
#if defined(__x86_64__)
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
              __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return v4 ? ISA_X86_V4 : v3 ? ISA_X86_V3 : ISA_PLAIN;
#else
    return ISA_PLAIN;
#endif
}

static const char *const isa_flag[] = {"plain", "v3", "v4"}, *const isa_label[] = {"plain C", "AVX2", "AVX-512"};

/* The build to run: the best, or the lower one that TALLY_ISA asks for. */
static bool isa_choose(Isa *isa, Error *e)
{
    const char *wish = getenv("TALLY_ISA");
    Isa best = isa_supported();
    *isa = best;
    if (!wish || !*wish)
        return true;
    for (int i = ISA_PLAIN; i <= ISA_X86_V4; i++)
        if (!strcmp(wish, isa_flag[i])) {
            *isa = (Isa)i;
            return i <= (int)best || error_usage(e, "TALLY_ISA=%s: this processor runs at most %s", wish, isa_flag[best]);
        }
    return error_usage(e, "TALLY_ISA=%s: expected plain, v3 or v4", wish);
}

/* Processors that this process may use. */
static int threads_available(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? n : 1;
}

/* The processor's name as Linux knows it, or "CPU". */
static void processor_name(char *name, size_t size)
{
    char line[256];
    snprintf(name, size, "CPU");
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        char *value = strncmp(line, "model name", 10) ? NULL : strchr(line, ':');
        if (value) {
            value += 1 + strspn(value + 1, " \t");
            value[strcspn(value, "\n")] = 0;
            snprintf(name, size, "%s", value);
            break;
        }
    }
    if (f)
        fclose(f);
}

const Device *cpu_device(Target *target, int threads, Error *e)
{
    static const Device *const table[] = {
        &cpu_table_plain,
#if defined(__x86_64__)
        &cpu_table_v3,
        &cpu_table_v4,
#endif
    };
    char name[36];
    Isa isa;
    if (threads < 0 || threads > 1024) {
        error_usage(e, "%d threads: expected 1 to 1024, or 0 for one per core", threads);
        return NULL;
    }
    if (!isa_choose(&isa, e))
        return NULL;
    *target = (Target){.kind = DEVICE_CPU,
                       .threads = threads ? threads : threads_available(),
                       .isa = isa,
                       .bf16_gemm = gemm_native_bf16(),
                       .total_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE)};
    processor_name(name, sizeof name);
    snprintf(target->name, sizeof target->name, "%s, %d thread%s, %s", name, target->threads, target->threads == 1 ? "" : "s",
             isa_label[isa]);
    return table[isa];
}
