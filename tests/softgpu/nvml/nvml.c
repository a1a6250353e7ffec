/* A libnvidia-ml.so.1 of software: one GPU with the numbers that the environment variable FAKE_NVML gives, "key=value,key=value":
 * the keys are those of the table below. `fail=FUNCTION` makes one function fail, `init=CODE` the start. A key that is absent has
 * the table's value; "none" makes its function answer "not supported".
 *
 * The memory that this process holds is what the CUDA runtime beside it (the software GPU's) has given, less own_less bytes; that
 * of other processes is other_bytes. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, UNKNOWN = 999 };

static const char *const defaults[][2] = {
    {"driver", "580.65.06"},
    {"cuda", "13000"},
    {"gpus", "1"},
    {"name", "Faked GPU"},
    {"capability", "80"},
    {"total", "42949672960"},
    {"sm", "1410"},
    {"sm_most", "1410"},
    {"memory", "1215"},
    {"memory_most", "1215"},
    {"celsius", "50"},
    {"milliwatts", "250000"},
    {"limit", "400000"},
    {"limit_usual", "400000"},
    {"busy", "97"},
    {"memory_busy", "40"},
    {"throttle", "0"},
    {"millijoules", "0"},
    {"ecc", "1"},
    {"generation", "4"},
    {"generation_most", "4"},
    {"width", "16"},
    {"width_most", "16"},
    {"own_less", "0"},
    {"other_bytes", "0"},
    {"init", "0"},
    {"fail", "nothing"},
};

/* The text of a key; NULL: "none". */
static const char *text(const char *key)
{
    static char found[8][128];
    static int next;
    const char *all = getenv("FAKE_NVML"), *value = NULL;
    size_t n = strlen(key);
    for (const char *at = all; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, key, n) == 0 && at[n] == '=')
            value = at + n + 1;
    for (size_t i = 0; !value && i < sizeof defaults / sizeof *defaults; i++)
        if (strcmp(defaults[i][0], key) == 0)
            value = defaults[i][1];
    if (!value)
        exit(99); /* a key of no kind */
    char *copy = found[next++ % 8];
    snprintf(copy, sizeof found[0], "%.*s", (int)strcspn(value, ","), value);
    return strcmp(copy, "none") == 0 ? NULL : copy;
}

static int number(const char *function, const char *key, unsigned long long *value)
{
    const char *is = text(key);
    if (strcmp(text("fail"), function) == 0)
        return UNKNOWN;
    if (!is)
        return NOT_SUPPORTED;
    *value = strtoull(is, NULL, 0);
    return OK;
}

static int small(const char *function, const char *key, unsigned *value)
{
    unsigned long long n = 0;
    int status = number(function, key, &n);
    *value = status ? *value : (unsigned)n;
    return status;
}

static int copy(const char *function, const char *key, char *to, unsigned size)
{
    const char *is = text(key);
    if (strcmp(text("fail"), function) == 0 || !is)
        return UNKNOWN;
    snprintf(to, size, "%s", is);
    return OK;
}

int nvmlInit_v2(void)
{
    return (int)strtol(text("init"), NULL, 0);
}

int nvmlShutdown(void)
{
    return OK;
}

const char *nvmlErrorString(int status)
{
    return status == 9 ? "Driver Not Loaded" : status == 18 ? "Driver/library version mismatch" : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *to, unsigned size)
{
    return copy(__func__, "driver", to, size);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return small(__func__, "cuda", (unsigned *)version);
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    return small(__func__, "gpus", count);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu)
{
    *gpu = (void *)defaults;
    return index < strtoul(text("gpus"), NULL, 0) && strcmp(text("fail"), __func__) != 0 ? OK : NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **gpu)
{
    *gpu = (void *)defaults;
    return strcmp(bus, "0000:00:00.0") == 0 ? OK : NOT_FOUND; /* where the software GPU says that it sits */
}

int nvmlDeviceGetName(void *gpu, char *to, unsigned size)
{
    (void)gpu;
    return copy(__func__, "name", to, size);
}

int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor)
{
    unsigned both = 0;
    int status = small(__func__, "capability", &both);
    (void)gpu;
    *major = (int)both / 10;
    *minor = (int)both % 10;
    return status;
}

/* Bytes that the CUDA runtime of this process has given. */
static unsigned long long own_bytes(void)
{
    size_t free_bytes = 0, total = 0;
    int (*info)(size_t *, size_t *);
    *(void **)&info = dlsym(RTLD_DEFAULT, "cudaMemGetInfo");
    return info && info(&free_bytes, &total) == 0 ? total - free_bytes - strtoull(text("own_less"), NULL, 0) : 0;
}

int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long memory[3])
{
    int status = number(__func__, "total", &memory[0]);
    (void)gpu;
    memory[2] = own_bytes() + strtoull(text("other_bytes"), NULL, 0);
    memory[1] = memory[0] - memory[2];
    return status;
}

struct Process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

/* This process and another one. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, struct Process *list)
{
    unsigned long long other = 0;
    int status = number(__func__, "other_bytes", &other);
    (void)gpu;
    if (*count < 2)
        return 7;
    *count = 2;
    list[0] = (struct Process){.pid = 1, .bytes = other};
    list[1] = (struct Process){.pid = (unsigned)getpid(), .bytes = own_bytes()};
    return status;
}

/* The other one draws, too. */
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *gpu, unsigned *count, struct Process *list)
{
    unsigned long long other = 0;
    int status = number(__func__, "other_bytes", &other);
    (void)gpu;
    *count = 1;
    list[0] = (struct Process){.pid = 1, .bytes = other};
    return status;
}

int nvmlDeviceGetClockInfo(void *gpu, int which, unsigned *mhz)
{
    (void)gpu;
    return small(__func__, which == 1 ? "sm" : "memory", mhz);
}

int nvmlDeviceGetMaxClockInfo(void *gpu, int which, unsigned *mhz)
{
    (void)gpu;
    return small(__func__, which == 1 ? "sm_most" : "memory_most", mhz);
}

int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *celsius)
{
    (void)gpu, (void)sensor;
    return small(__func__, "celsius", celsius);
}

int nvmlDeviceGetUtilizationRates(void *gpu, unsigned share[2])
{
    (void)gpu;
    int status = small(__func__, "busy", &share[0]);
    return status ? status : small(__func__, "memory_busy", &share[1]);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *bits)
{
    (void)gpu;
    return number(__func__, "throttle", bits);
}

/* "millijoules" more at every call. */
int nvmlDeviceGetTotalEnergyConsumption(void *gpu, unsigned long long *millijoules)
{
    static unsigned long long calls;
    int status = number(__func__, "millijoules", millijoules);
    (void)gpu;
    *millijoules *= ++calls;
    return status;
}

int nvmlDeviceGetEccMode(void *gpu, int *now, int *pending)
{
    (void)gpu;
    *pending = 0;
    return small(__func__, "ecc", (unsigned *)now);
}

#define NUMBER(function, key)                                                                                                    \
    int function(void *gpu, unsigned *value)                                                                                     \
    {                                                                                                                            \
        (void)gpu;                                                                                                               \
        return small(__func__, key, value);                                                                                      \
    }

NUMBER(nvmlDeviceGetPowerUsage, "milliwatts")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "limit")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "limit_usual")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "generation")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "generation_most")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "width")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "width_most")
