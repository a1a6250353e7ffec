/* See nvml.h. Functions are looked up when they are called: a library that is older than one of them answers NaN. The prototypes
 * are those of NVML's reference: each returns 0 or an error, and takes the handle of a GPU first. */
#include "kernels/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct Nvml {
    void *library;
};

typedef void (*Function)(void);

/* dlsym's object pointer is not one to a function in C, but in POSIX. */
static Function find(const Nvml *n, const char *name)
{
    Function f;
    *(void **)&f = dlsym(n->library, name);
    return f;
}

Nvml *nvml_open(Error *e)
{
    Nvml *n = memory_get(e, 1, sizeof *n, "NVML");
    if (!n)
        return NULL;
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library) {
        error_set(e, "the driver's library for measurements is not there: %s", dlerror());
        free(n);
        return NULL;
    }
    int (*init)(void) = (int (*)(void))find(n, "nvmlInit_v2");
    const char *(*words)(int) = (const char *(*)(int))find(n, "nvmlErrorString");
    int status = init ? init() : -1;
    if (status == 0)
        return n;
    error_set(e, "NVML does not start: %s", init && words ? words(status) : "it has no nvmlInit_v2");
    dlclose(n->library);
    free(n);
    return NULL;
}

void nvml_close(Nvml *n)
{
    if (!n)
        return;
    int (*shutdown)(void) = (int (*)(void))find(n, "nvmlShutdown");
    if (shutdown)
        shutdown();
    dlclose(n->library);
    free(n);
}

void nvml_driver(Nvml *n, char version[96], int *cuda, unsigned *gpus)
{
    int (*get_version)(char *, unsigned) = (int (*)(char *, unsigned))find(n, "nvmlSystemGetDriverVersion");
    int (*get_cuda)(int *) = (int (*)(int *))find(n, "nvmlSystemGetCudaDriverVersion_v2");
    int (*get_count)(unsigned *) = (int (*)(unsigned *))find(n, "nvmlDeviceGetCount_v2");
    if (!get_version || get_version(version, 96) != 0)
        version[0] = 0;
    if (!get_cuda || get_cuda(cuda) != 0)
        *cuda = 0;
    if (!get_count || get_count(gpus) != 0)
        *gpus = 0;
}

/* ---- A reading ------------------------------------------------------------------------------------------------------ */

/* Does f(gpu, out) succeed? */
static bool number_get(const Nvml *n, const char *function, void *gpu, void *out)
{
    int (*f)(void *, void *) = (int (*)(void *, void *))find(n, function);
    return f && f(gpu, out) == 0;
}

#define AT(field) offsetof(GpuReading, field)

/* f(gpu, &number), or, where there is one, f(gpu, argument, &number). */
static const struct {
    const char *function;
    int argument; /* -1: none */
    size_t at;
    double unit;
} numbers[] = {
    {"nvmlDeviceGetClockInfo", 1, AT(sm_mhz), 1},
    {"nvmlDeviceGetMaxClockInfo", 1, AT(sm_mhz_most), 1},
    {"nvmlDeviceGetClockInfo", 2, AT(memory_mhz), 1},
    {"nvmlDeviceGetMaxClockInfo", 2, AT(memory_mhz_most), 1},
    {"nvmlDeviceGetTemperature", 0, AT(celsius), 1},
    {"nvmlDeviceGetPowerUsage", -1, AT(watts), 1e-3},
    {"nvmlDeviceGetEnforcedPowerLimit", -1, AT(watts_most), 1e-3},
    {"nvmlDeviceGetPowerManagementDefaultLimit", -1, AT(watts_usual), 1e-3},
    {"nvmlDeviceGetCurrPcieLinkGeneration", -1, AT(link_generation), 1},
    {"nvmlDeviceGetMaxPcieLinkGeneration", -1, AT(link_generation_most), 1},
    {"nvmlDeviceGetCurrPcieLinkWidth", -1, AT(link_width), 1},
    {"nvmlDeviceGetMaxPcieLinkWidth", -1, AT(link_width_most), 1},
};

static void numbers_read(Nvml *n, void *gpu, GpuReading *r)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int (*f)(void *, int, unsigned *) = (int (*)(void *, int, unsigned *))find(n, numbers[i].function);
        unsigned value = 0;
        if (numbers[i].argument < 0 ? number_get(n, numbers[i].function, gpu, &value)
                                    : f && f(gpu, numbers[i].argument, &value) == 0)
            *(double *)((char *)r + numbers[i].at) = value * numbers[i].unit;
    }
}

/* Those with types of their own. */
static void others_read(Nvml *n, void *gpu, GpuReading *r)
{
    struct {
        unsigned long long total, free, used;
    } memory;
    struct {
        unsigned gpu, memory;
    } share;
    int major, minor, now, pending;
    unsigned long long bits, millijoules;
    int (*name)(void *, char *, unsigned) = (int (*)(void *, char *, unsigned))find(n, "nvmlDeviceGetName");
    int (*capability)(void *, int *, int *) = (int (*)(void *, int *, int *))find(n, "nvmlDeviceGetCudaComputeCapability");
    int (*ecc)(void *, int *, int *) = (int (*)(void *, int *, int *))find(n, "nvmlDeviceGetEccMode");
    if (!name || name(gpu, r->name, sizeof r->name) != 0)
        strcpy(r->name, "GPU");
    if (capability && capability(gpu, &major, &minor) == 0)
        r->capability = 10 * major + minor;
    if (number_get(n, "nvmlDeviceGetMemoryInfo", gpu, &memory))
        r->memory_total = (double)memory.total, r->memory_free = (double)memory.free;
    if (number_get(n, "nvmlDeviceGetUtilizationRates", gpu, &share))
        r->busy = share.gpu, r->memory_busy = share.memory;
    if (number_get(n, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu, &bits))
        r->throttle = (double)bits;
    if (number_get(n, "nvmlDeviceGetTotalEnergyConsumption", gpu, &millijoules))
        r->joules = 1e-3 * (double)millijoules;
    if (ecc && ecc(gpu, &now, &pending) == 0)
        r->ecc = now;
}

/* Who holds memory. Inside a container the library may know this process by another number, or none: then nothing is known. */
static void processes_read(Nvml *n, void *gpu, GpuReading *r)
{
    static const char *const kinds[] = {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"};
    enum { MOST = 256 };
    struct Process {
        unsigned pid;
        unsigned long long bytes;
        unsigned gpu_instance, compute_instance;
    } list[2 * MOST];
    unsigned count = 0;
    double own = NAN, other = 0;
    for (int kind = 0; kind < 2; kind++) {
        int (*get)(void *, unsigned *, void *) = (int (*)(void *, unsigned *, void *))find(n, kinds[kind]);
        unsigned more = MOST;
        if (!get || get(gpu, &more, list + count) != 0)
            return;
        count += more;
    }
    for (unsigned i = 0; i < count; i++) {
        bool again = false; /* one that computes and draws is in both lists */
        for (unsigned k = 0; k < i; k++)
            again |= list[k].pid == list[i].pid;
        if (list[i].bytes == ~0ull)
            return;
        if (list[i].pid == (unsigned)getpid())
            own = (double)list[i].bytes;
        else if (!again)
            other += (double)list[i].bytes;
    }
    if (!isnan(own))
        r->own_bytes = own, r->other_bytes = other;
}

bool nvml_read(Nvml *n, unsigned index, const char *bus, GpuReading *r)
{
    void *gpu = NULL;
    for (size_t i = 0; i < sizeof *r / sizeof(double); i++) /* the name too, which is written over */
        ((double *)r)[i] = NAN;
    if (!n)
        return false;
    int (*by_index)(unsigned, void **) = (int (*)(unsigned, void **))find(n, "nvmlDeviceGetHandleByIndex_v2");
    int (*by_bus)(const char *, void **) = (int (*)(const char *, void **))find(n, "nvmlDeviceGetHandleByPciBusId_v2");
    if (bus ? !by_bus || by_bus(bus, &gpu) != 0 : !by_index || by_index(index, &gpu) != 0)
        return false;
    numbers_read(n, gpu, r);
    others_read(n, gpu, r);
    processes_read(n, gpu, r);
    return true;
}

const char *throttle_text(ThrottleText text, double bits)
{
    static const char *const names[] = {"idle",
                                        "clocks set by an application",
                                        "power cap",
                                        "hardware slowdown",
                                        "sync boost",
                                        "heat (software)",
                                        "heat (hardware)",
                                        "power brake",
                                        "display clock"};
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && !isnan(bits); i++)
        if ((unsigned long long)bits >> i & 1)
            used += (size_t)snprintf(text + used, sizeof(ThrottleText) - used, "%s%s", used ? ", " : "", names[i]);
    if (!used)
        strcpy(text, isnan(bits) ? "unknown" : "nothing");
    return text;
}
