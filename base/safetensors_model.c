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

/* Opens each file that the map names, once. shards: file name -> its number in m->files. */
static bool shards_open(SafeModel *m, const char *dir, const json_t *weight_map, json_t *shards, Error *e)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)weight_map, name, value)
    {
        const char *file = json_string_value(value);
        if (!file || !*file || strchr(file, '/') || strcmp(file, "..") == 0 || strcmp(file, ".") == 0)
            return error_set(e, "weight_map: %.200s: \"%.200s\" is not the name of a file in the same folder", name,
                             file ? file : "");
        if (!json_object_get(shards, file) && json_object_set_new(shards, file, json_integer((json_int_t)m->file_count++)) != 0)
            return error_set(e, "out of memory for the list of shards");
    }
    if (!(m->files = memory_get(e, m->file_count, sizeof *m->files, "the shards")))
        return false;
    json_object_foreach(shards, name, value)
    {
        char path[PATH_SIZE];
        if (!path_join(path, dir, name, e) || !safetensors_open(&m->files[json_integer_value(value)], path, e))
            return false;
    }
    return true;
}

/* Finds each tensor of the map in its shard. */
static bool shards_list(SafeModel *m, const json_t *weight_map, const json_t *shards, Error *e)
{
    const char *name;
    json_t *value;
    m->tensors = memory_get(e, json_object_size(weight_map), sizeof *m->tensors, "the list of tensors");
    if (!m->tensors)
        return false;
    json_object_foreach((json_t *)weight_map, name, value)
    {
        const char *shard = json_string_value(value);
        const SafeTensors *file = &m->files[json_integer_value(json_object_get(shards, shard))];
        const SafeTensor *t = safetensors_find(file, name);
        if (!t)
            return error_set(e, "weight_map: %.200s is not in %.200s", name, shard);
        m->tensors[m->count++] = (SafeModelTensor){t, file};
    }
    qsort(m->tensors, m->count, sizeof *m->tensors, compare_model_names);
    return true;
}

static bool model_open_sharded(SafeModel *m, const char *dir, const char *index_path, Error *e)
{
    json_t *index = json_read(index_path, e), *weight_map = NULL, *shards = json_object();
    bool ok = index != NULL;
    if (ok && !(json_get_object(index, "weight_map", &weight_map, true, e) && shards_open(m, dir, weight_map, shards, e) &&
                shards_list(m, weight_map, shards, e)))
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
