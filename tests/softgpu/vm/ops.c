/* All operations by name, in the build for this processor. */
#include <string.h>

#include "tests/softgpu/vm/machine.h"

#define DECLARE_TABLES(isa)                                                                                                      \
    extern const OpDef integer_ops_##isa[], float_ops_##isa[], half_ops_##isa[], convert_ops_##isa[], compare_ops_##isa[],       \
        warp_ops_##isa[], tensor_ops_##isa[], memory_ops_##isa[];                                                                \
    static const OpDef *const tables_##isa[] = {integer_ops_##isa, float_ops_##isa, half_ops_##isa,   convert_ops_##isa,         \
                                                compare_ops_##isa, warp_ops_##isa,  tensor_ops_##isa, memory_ops_##isa};

DECLARE_TABLES(plain)
enum { N_TABLES = sizeof tables_plain / sizeof *tables_plain };

#if defined(__x86_64__)
DECLARE_TABLES(v3)
DECLARE_TABLES(v4)

static const OpDef *const *tables(void)
{
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
              __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return v4 ? tables_v4 : v3 ? tables_v3 : tables_plain;
}
#else
static const OpDef *const *tables(void)
{
    return tables_plain;
}
#endif

/* A hash table over the names, filled at the first question. */
enum { HASH_SIZE = 4096 };
static const OpDef *hash[HASH_SIZE];
static pthread_once_t hash_filled = PTHREAD_ONCE_INIT;

/* Where the name is, or the empty place where it would be. */
static const OpDef **hash_place(const char *name)
{
    uint32_t h = 0;
    for (const char *s = name; *s != 0; s++)
        h = h * 31 + (unsigned char)*s;
    while (hash[h % HASH_SIZE] != NULL && strcmp(hash[h % HASH_SIZE]->name, name) != 0)
        h++;
    return &hash[h % HASH_SIZE];
}

static void hash_fill(void)
{
    for (int t = 0; t < N_TABLES; t++)
        for (const OpDef *op = tables()[t]; op->name != NULL; op++)
            *hash_place(op->name) = op;
}

const OpDef *op_find(const char *name)
{
    pthread_once(&hash_filled, hash_fill);
    return *hash_place(name);
}
