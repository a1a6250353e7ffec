/* libFuzzer: any bytes as a safetensors file. What is accepted must be what the header file promises, and readable to the
 * last byte. */
#include "base/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Touches all bytes of a tensor, and checks that it is found and lies inside the file; returns its size. */
static size_t tensor_visit(const SafeTensors *f, const SafeTensor *t, const uint8_t *end)
{
    Error e = {0};
    const uint8_t *data = t->data;
    int64_t count = 1;
    for (int i = 0; i < t->ndim; i++)
        count *= t->shape[i];
    require(safetensors_find(f, t->name) == t);
    require(data <= end && t->bytes <= (size_t)(end - data));
    void *copy = malloc(t->bytes + 1);
    memcpy(copy, data, t->bytes);
    free(copy);
    float *numbers = malloc((size_t)count * sizeof *numbers + 1);
    require(safetensors_read_f32(t, 0, count, numbers, &e) || e.set);
    free(numbers);
    return t->bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    SafeTensors f;
    Error e = {0};
    if (safetensors_open_memory(&f, bytes, size, "fuzz", &e)) {
        size_t total = 0;
        for (size_t i = 0; i < f.count; i++)
            total += tensor_visit(&f, &f.tensors[i], bytes + size);
        require(f.data + total == bytes + size && !e.set);
    } else {
        require(e.set && f.count == 0);
    }
    safetensors_close(&f);
    return 0;
}
