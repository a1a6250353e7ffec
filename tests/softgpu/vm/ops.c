/* All operations by name. */
#include "tests/softgpu/vm/ops.h"

static const OpDef *const tables[] = {integer_ops, float_ops, half_ops,   convert_ops,
                                      compare_ops, warp_ops,  tensor_ops, memory_ops};

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
    for (int t = 0; t < (int)(sizeof tables / sizeof *tables); t++)
        for (const OpDef *op = tables[t]; op->name != NULL; op++)
            *hash_place(op->name) = op;
}

const OpDef *op_find(const char *name)
{
    pthread_once(&hash_filled, hash_fill);
    return *hash_place(name);
}
