/* The device that a user names. */
#include "kernels/device.h"

#include <stdlib.h>
#include <string.h>

const Device *device_open(const char *name, int threads, Target *target, Error *e)
{
    const Device *device = cpu_device(target, threads, e);
    const char *number = strncmp(name, "cuda:", 5) == 0 ? name + 5 : "0";
    char *end;
    long index = strtol(number, &end, 10);
    if (!device || strcmp(name, "cpu") == 0)
        return device;
    if ((number == name + 5 || strcmp(name, "cuda") == 0) && end != number && !*end && index >= 0 && index < 1024)
        return cuda_device(target, (int)index, e);
    error_usage(e, "device: there is no '%s': cpu, cuda (the first GPU) and cuda:N are", name);
    return NULL;
}
