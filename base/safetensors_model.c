/* A model's weights as one list, whether they lie in one safetensors file or in the shards of an index. */
#include "base/json.h"
#include "base/safetensors.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
    const SafeTensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The file of that name in `dir`, opened when it is the first time. numbers: file name -> its number in f->shard. NULL on error.
 */
static const SafeTensors *shard_get(SafeTensors *f, const char *dir, const char *file, json_t *numbers, Error *e)
{
    char path[PATH_SIZE];
    const json_t *known = json_object_get(numbers, file);
    if (known)
        return &f->shard[json_integer_value(known)];
    if (json_object_set_new(numbers, file, json_integer((json_int_t)f->shards)) != 0) {
        error_set(e, "out of memory for the list of shards");
        return NULL;
    }
    SafeTensors *shard = &f->shard[f->shards++];
    return path_join(path, dir, file, e) && safetensors_open(shard, path, e) ? shard : NULL;
}

/* Finds each tensor of the map in its shard. */
static bool shards_read(SafeTensors *f, const char *dir, const json_t *weight_map, json_t *numbers, Error *e)
{
    const char *name;
    json_t *value;
    size_t n = json_object_size(weight_map); /* there are not more files than tensors */
    f->shard = memory_get(e, n, sizeof *f->shard, "the shards");
    f->tensors = memory_get(e, n, sizeof *f->tensors, "the list of tensors");
    if (!f->shard || !f->tensors)
        return false;
    json_object_foreach((json_t *)weight_map, name, value)
    {
        const char *file = json_string_value(value);
        if (!file || !*file || strchr(file, '/') || strcmp(file, "..") == 0 || strcmp(file, ".") == 0)
            return error_set(e, "weight_map: %.200s: \"%.200s\" is not the name of a file in the same folder", name,
                             file ? file : "");
        const SafeTensors *shard = shard_get(f, dir, file, numbers, e);
        const SafeTensor *t = shard ? safetensors_find(shard, name) : NULL;
        if (!t)
            return error_set(e, "weight_map: %.200s is not in %.200s", name, file);
        f->tensors[f->count++] = *t;
    }
    qsort(f->tensors, f->count, sizeof *f->tensors, compare_names);
    return true;
}

static bool index_open(SafeTensors *f, const char *dir, const char *path, Error *e)
{
    json_t *index = json_read(path, e), *weight_map = NULL, *numbers = json_object();
    bool ok =
        index && ((json_get_object(index, "weight_map", &weight_map, true, e) && shards_read(f, dir, weight_map, numbers, e)) ||
                  error_prefix(e, "%s", path));
    json_decref(numbers);
    json_decref(index);
    if (!ok)
        safetensors_close(f);
    return ok;
}

bool safetensors_open_model(SafeTensors *f, const char *dir, Error *e)
{
    char single[PATH_SIZE], index[PATH_SIZE];
    *f = (SafeTensors){.map = {"", 0}};
    if (!path_join(single, dir, "model.safetensors", e) || !path_join(index, dir, "model.safetensors.index.json", e))
        return false;
    if (file_exists(single))
        return safetensors_open(f, single, e);
    if (file_exists(index))
        return index_open(f, dir, index, e);
    return error_set(e, "%s: holds neither model.safetensors nor model.safetensors.index.json", dir);
}
