/* A model's weights as one lookup, whether they lie in one safetensors file or in the shards of an index. */
#include "base/json.h"
#include "base/safetensors.h"

#include <stdlib.h>
#include <string.h>

static int compare_model_names(const void *a, const void *b)
{
    const SafeModelTensor *x = a, *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

static bool model_open_single(SafeModel *m, const char *path, Error *e)
{
    m->files = memory_get(e, 1, sizeof *m->files, path);
    if (!m->files || !safetensors_open(m->files, path, e))
        return false;
    m->file_count = 1;
    m->count = m->files->count;
    m->tensors = memory_get(e, m->count, sizeof *m->tensors, path);
    for (size_t i = 0; m->tensors && i < m->count; i++)
        m->tensors[i] = (SafeModelTensor){&m->files->tensors[i], m->files};
    return m->tensors != NULL;
}

/* The file of that name in `dir`, opened when it is the first time. shards: file name -> its number in m->files. NULL on error.
 */
static const SafeTensors *shard_get(SafeModel *m, const char *dir, const char *file, json_t *shards, Error *e)
{
    char path[PATH_SIZE];
    const json_t *known = json_object_get(shards, file);
    if (known)
        return &m->files[json_integer_value(known)];
    if (json_object_set_new(shards, file, json_integer((json_int_t)m->file_count)) != 0) {
        error_set(e, "out of memory for the list of shards");
        return NULL;
    }
    SafeTensors *shard = &m->files[m->file_count++];
    return path_join(path, dir, file, e) && safetensors_open(shard, path, e) ? shard : NULL;
}

/* Finds each tensor of the map in its shard. */
static bool shards_read(SafeModel *m, const char *dir, const json_t *weight_map, json_t *shards, Error *e)
{
    const char *name;
    json_t *value;
    size_t n = json_object_size(weight_map); /* there are not more files than tensors */
    m->files = memory_get(e, n, sizeof *m->files, "the shards");
    m->tensors = memory_get(e, n, sizeof *m->tensors, "the list of tensors");
    if (!m->files || !m->tensors)
        return false;
    json_object_foreach((json_t *)weight_map, name, value)
    {
        const char *file = json_string_value(value);
        if (!file || !*file || strchr(file, '/') || strcmp(file, "..") == 0 || strcmp(file, ".") == 0)
            return error_set(e, "weight_map: %.200s: \"%.200s\" is not the name of a file in the same folder", name,
                             file ? file : "");
        const SafeTensors *shard = shard_get(m, dir, file, shards, e);
        const SafeTensor *t = shard ? safetensors_find(shard, name) : NULL;
        if (!t)
            return error_set(e, "weight_map: %.200s is not in %.200s", name, file);
        m->tensors[m->count++] = (SafeModelTensor){t, shard};
    }
    qsort(m->tensors, m->count, sizeof *m->tensors, compare_model_names);
    return true;
}

static bool model_open_sharded(SafeModel *m, const char *dir, const char *index_path, Error *e)
{
    json_t *index = json_read(index_path, e), *weight_map = NULL, *shards = json_object();
    bool ok = index != NULL;
    if (ok && !(json_get_object(index, "weight_map", &weight_map, true, e) && shards_read(m, dir, weight_map, shards, e)))
        ok = error_prefix(e, "%s", index_path);
    json_decref(shards);
    json_decref(index);
    return ok;
}

bool safetensors_open_model(SafeModel *m, const char *dir, Error *e)
{
    char single[PATH_SIZE], index[PATH_SIZE];
    *m = (SafeModel){0};
    bool ok = path_join(single, dir, "model.safetensors", e) && path_join(index, dir, "model.safetensors.index.json", e);
    if (ok && file_exists(single))
        ok = model_open_single(m, single, e);
    else if (ok && file_exists(index))
        ok = model_open_sharded(m, dir, index, e);
    else if (ok)
        ok = error_set(e, "%s: holds neither model.safetensors nor model.safetensors.index.json", dir);
    if (!ok)
        safetensors_close_model(m);
    return ok;
}

void safetensors_close_model(SafeModel *m)
{
    for (size_t i = 0; m->files && i < m->file_count; i++)
        safetensors_close(&m->files[i]);
    free(m->files);
    free(m->tensors);
    *m = (SafeModel){0};
}

const SafeModelTensor *safetensors_find_in_model(const SafeModel *m, const char *name)
{
    SafeTensor wanted = {.name = name};
    SafeModelTensor key = {.tensor = &wanted};
    return m->count ? bsearch(&key, m->tensors, m->count, sizeof key, compare_model_names) : NULL;
}
