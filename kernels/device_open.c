/* The device that a user names. */
#include "kernels/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The N of "cuda:N", 0 of "cuda" and "auto"; -1 when name is none of these. */
static int gpu_index(const char *name)
{
    char *end;
    if (strcmp(name, "cuda") == 0 || strcmp(name, "auto") == 0)
        return 0;
    long index = strncmp(name, "cuda:", 5) == 0 && name[5] >= '0' && name[5] <= '9' ? strtol(name + 5, &end, 10) : -1;
    return index >= 0 && index < 1024 && !*end ? (int)index : -1;
}

const Device *device_open(const char *name, int threads, Target *target, Error *e)
{
    const Device *cpu = cpu_device(target, threads, e), *gpu = NULL;
    Target with_gpu = *target;
    Error why = {0};
    int index = gpu_index(name);
    if (!cpu || strcmp(name, "cpu") == 0)
        return cpu;
    if (index < 0) {
        error_usage(e, "device: there is no '%s': auto, cpu, cuda (the first GPU) and cuda:N are", name);
        return NULL;
    }
    gpu = cuda_device(&with_gpu, index, &why);
    if (gpu) {
        *target = with_gpu;
        return gpu;
    }
    if (strcmp(name, "auto") == 0) {
        snprintf(target->note, sizeof target->note, "%.191s", why.text);
        return cpu;
    }
    error_usage(e, "device: %s: %s; --device cpu needs none", name, why.text);
    return NULL;
}
