/* `tally doctor`: what there is of this machine for training, line by line: fine; worth a look (it may cost speed); or wrong (it
 * keeps the GPU from being used), and then what to do. Where there is no GPU it says why: none in the machine, one without a
 * driver, a container without it, a driver that is too old, one that is hidden, a build without CUDA.
 *
 * What is no fault is not called one: a link that is slow because the GPU is idle, a power cap under load, a display that is not
 * attached, a toolkit, NCCL or MPI that one GPU does not need.
 *
 * --json: {"checks": [{"name", "verdict": "fine", "look" or "wrong", "text", "advice"}], "device": "cpu" or "cuda", "wrong":
 * number} Exit code: 0, or 1 when something is wrong. */
#include "tools/commands.h"

#include "base/file.h"
#include "base/json.h"
#include "base/options.h"
#include "kernels/nvml.h"
#include "model/fit.h"
#include "model/ledger.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum Verdict { FINE, LOOK, WRONG } Verdict;
static const char *const verdict_names[] = {"fine", "look", "wrong"};

typedef struct Doctor {
    const char *root; /* in whose dev, proc, sys and usr to look: "" but for tests */
    bool json;
    json_t *checks;
    int wrong;
    bool hardware; /* there is an NVIDIA GPU, on the PCI bus or for the driver */
    Nvml *nvml;    /* NULL: it cannot be asked              */
    unsigned gpus; /* that the driver lists                 */
} Doctor;

/* A line. `advice` is what to do, or NULL. */
__attribute__((format(printf, 5, 6))) static void say(Doctor *d, Verdict v, const char *name, const char *advice,
                                                      const char *format, ...)
{
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    d->wrong += v == WRONG;
    json_array_append_new(
        d->checks, json_pack("{s:s, s:s, s:s, s:s?}", "name", name, "verdict", verdict_names[v], "text", text, "advice", advice));
    if (!d->json)
        printf("%-6s %-16s %s\n%s%s%s", verdict_names[v], name, text, advice ? "       -> " : "", advice ? advice : "",
               advice ? "\n" : "");
}

/* The first line of root/path, or "". */
static const char *line_of(const Doctor *d, const char *path, char text[256])
{
    char whole[PATH_SIZE];
    snprintf(whole, sizeof whole, "%s%s", d->root, path);
    FILE *f = fopen(whole, "r");
    text[0] = 0;
    if (f && !fgets(text, 256, f))
        text[0] = 0;
    if (f)
        fclose(f);
    text[strcspn(text, "\n")] = 0;
    return text;
}

/* ---- The GPU, from the outside in ------------------------------------------------------------------------------------ */

/* Display controllers (class 03....) of NVIDIA (vendor 10de). */
static void hardware_check(Doctor *d)
{
    char path[PATH_SIZE], vendor[256], class[256];
    int found = 0;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", d->root);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%.64s/vendor", entry->d_name);
        line_of(d, path, vendor);
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%.64s/class", entry->d_name);
        found += strcmp(vendor, "0x10de") == 0 && strncmp(line_of(d, path, class), "0x03", 4) == 0;
    }
    if (dir)
        closedir(dir);
    d->hardware = found > 0;
    if (found)
        say(d, FINE, "hardware", NULL, "%d NVIDIA GPU%s on the PCI bus", found, found == 1 ? "" : "s");
    else
        say(d, FINE, "hardware", NULL, "no NVIDIA GPU on the PCI bus%s: tally trains on the CPU",
            dir ? "" : ", which cannot be seen");
}

/* What is wrong where there is hardware is no fault where there is none. */
static Verdict fault(const Doctor *d)
{
    return d->hardware ? WRONG : FINE;
}

static void driver_check(Doctor *d)
{
    char text[256], version[96] = "";
    int cuda = 0, build = cuda_version();
    bool module = line_of(d, "/proc/driver/nvidia/version", text)[0];
    Error why = {0};
    d->nvml = nvml_open(&why);
    if (!d->nvml && !module) {
        say(d, fault(d), "driver",
            d->hardware ? "install NVIDIA's driver (Debian: nvidia-driver), or, in a container, start it with "
                          "--gpus all"
                        : NULL,
            "there is no NVIDIA driver");
        return;
    }
    if (!d->nvml) {
        say(d, fault(d), "driver", "restart the machine if the driver was just updated; else install its libraries again",
            "the driver's module is loaded (%.120s), but %s", text, why.text);
        return;
    }
    nvml_driver(d->nvml, version, &cuda, &d->gpus);
    d->hardware |= d->gpus > 0;
    if (cuda && build && cuda / 1000 < build / 1000)
        say(d, WRONG, "driver", "update the driver, or build tally with the CUDA that it can run",
            "%s can run CUDA up to %d.%d, and this build is made with %d.%d", version, cuda / 1000, cuda % 1000 / 10,
            build / 1000, build % 1000 / 10);
    else if (cuda && cuda < build)
        say(d, LOOK, "driver", "update the driver if tally says that it has no code for the GPU",
            "%s can run CUDA %d.%d itself, and of the build's %d.%d all that is machine code: it does not translate its PTX",
            version, cuda / 1000, cuda % 1000 / 10, build / 1000, build % 1000 / 10);
    else
        say(d, FINE, "driver", NULL, "%s, for CUDA up to %d.%d, with %u GPU%s", version, cuda / 1000, cuda % 1000 / 10, d->gpus,
            d->gpus == 1 ? "" : "s");
}

static void build_check(Doctor *d)
{
    int build = cuda_version();
    char path[PATH_SIZE];
    const char *toolkit = NULL;
    Error none = {0};
    snprintf(path, sizeof path, "%s/usr/local/cuda/version.json", d->root);
    json_t *file = file_exists(path) ? json_read(path, &none) : NULL;
    toolkit = json_string_value(json_object_get(json_object_get(file, "cuda"), "version"));
    if (build)
        say(d, FINE, "build", NULL, "tally is made with CUDA %d.%d, and carries what it needs of it but cuBLASLt", build / 1000,
            build % 1000 / 10);
    else
        say(d, fault(d), "build", d->hardware ? "install the CUDA toolkit (nvcc) and make again" : NULL,
            "tally is built without CUDA: for the CPU alone");
    say(d, FINE, "toolkit", NULL, toolkit ? "CUDA %s in /usr/local/cuda" : "none%s: only building for a GPU needs one",
        toolkit ? toolkit : "");
    json_decref(file);
}

static void nodes_check(Doctor *d)
{
    static const char *const names[] = {"nvidiactl", "nvidia-uvm", "nvidia0"};
    char path[PATH_SIZE], bad[200] = "";
    int missing = 0, denied = 0;
    size_t used = 0;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/dev/%s", d->root, names[i]);
        if (access(path, R_OK | W_OK) == 0)
            continue;
        *(errno == ENOENT ? &missing : &denied) += 1;
        used += (size_t)snprintf(bad + used, sizeof bad - used, "%s/dev/%s (%s)", used ? ", " : "", names[i], strerror(errno));
    }
    snprintf(path, sizeof path, "%s/dev/dxg", d->root);
    if (access(path, R_OK | W_OK) == 0)
        say(d, FINE, "device nodes", NULL, "/dev/dxg: Windows has the GPU, and lends it");
    else if (!missing && !denied)
        say(d, FINE, "device nodes", NULL, "/dev/nvidiactl, /dev/nvidia-uvm and /dev/nvidia0 can be opened");
    else if (missing == 3 && !d->hardware)
        say(d, FINE, "device nodes", NULL, "no /dev/nvidia*");
    else
        say(d, WRONG, "device nodes",
            denied ? "give this user the group that owns them (often video), or, in a container, the devices"
                   : "in a container, start it with --gpus all; elsewhere `nvidia-modprobe -u -c 0` makes them",
            "%s", bad);
}

static void visible_check(Doctor *d)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible)
        say(d, FINE, "visible devices", NULL, "CUDA_VISIBLE_DEVICES is not set: all GPUs are visible");
    else if (!*visible || strncmp(visible, "-1", 2) == 0)
        say(d, fault(d), "visible devices", "unset CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES='%s' hides every GPU", visible);
    else
        say(d, FINE, "visible devices", NULL, "CUDA_VISIBLE_DEVICES='%s': only these, counted from 0 in this order", visible);
}

/* ---- The GPU itself -------------------------------------------------------------------------------------------------- */

/* By compute capability: Turing multiplies FP16 on tensor cores, Ampere BF16 and TF32 too, Ada and Hopper FP8. */
static void types_check(Doctor *d, const GpuReading *r, const char *name)
{
    int cc = isnan(r->capability) ? 0 : (int)r->capability;
    const char *types = cc >= 89   ? "FP16, BF16, TF32 and FP8 (which tally does not use)"
                        : cc >= 80 ? "FP16, BF16 and TF32; FP8 begins with 8.9"
                        : cc >= 70 ? "FP16 alone; BF16 and TF32 begin with 8.0"
                                   : "nothing: they begin with 7.0";
    if (cc)
        say(d, FINE, name, NULL, "%s, compute capability %d.%d: tensor cores multiply %s", r->name, cc / 10, cc % 10, types);
    else
        say(d, LOOK, name, NULL, "%s; its compute capability cannot be read", r->name);
}

static void memory_check(Doctor *d, const GpuReading *r, const char *name)
{
    double G = 0x1p30, all = r->memory_total, gone = all - r->memory_free;
    const char *ecc = isnan(r->ecc) ? "no ECC" : r->ecc > 0 ? "ECC on" : "ECC off";
    if (isnan(all))
        say(d, LOOK, name, NULL, "its size cannot be read");
    else
        say(d, gone > all / 2 ? LOOK : FINE, name, gone > all / 2 ? "nvidia-smi lists the programs that hold it" : NULL,
            "%.2f GiB (%.2f GB), of which %.2f GiB are free; %s", all / G, all / 1e9, r->memory_free / G, ecc);
}

/* An idle GPU lets its link's generation fall; its width stays. */
static void link_check(Doctor *d, const GpuReading *r, const char *name)
{
    bool slow = r->link_generation < r->link_generation_most, narrow = r->link_width < r->link_width_most;
    bool idle = r->busy < 10 || (!isnan(r->throttle) && (int64_t)r->throttle & THROTTLE_IDLE);
    if (isnan(r->link_generation + r->link_width + r->link_generation_most + r->link_width_most))
        say(d, FINE, name, NULL, "cannot be read: there is none, or the machine is virtual");
    else
        say(d, narrow || (slow && !idle) ? LOOK : FINE, name,
            narrow ? "try another slot, or look into the BIOS: some x16 slots have 4 or 8 lanes. Training on one GPU hardly uses "
                     "them"
            : slow && !idle ? "look at it again while a run is under way"
                            : NULL,
            "PCIe generation %.0f x%.0f; at most %.0f x%.0f%s", r->link_generation, r->link_width, r->link_generation_most,
            r->link_width_most, slow && idle ? ": an idle GPU lowers it" : "");
}

static void clocks_check(Doctor *d, const GpuReading *r, const char *name)
{
    ThrottleText text;
    int64_t bits = isnan(r->throttle) ? 0 : (int64_t)r->throttle;
    bool held = bits & THROTTLE_HARDWARE, capped = r->watts_most < r->watts_usual;
    say(d, held ? LOOK : FINE, name, held ? "look at cooling and power supply: the card protects itself" : NULL,
        "SM %.0f of %.0f MHz, memory %.0f of %.0f MHz, %.0f C; held back by: %s", r->sm_mhz, r->sm_mhz_most, r->memory_mhz,
        r->memory_mhz_most, r->celsius, throttle_text(text, r->throttle));
    say(d, capped ? LOOK : FINE, "power", capped ? "nvidia-smi -pl sets the limit" : NULL,
        "%.0f W now; the limit is %.0f W, and %.0f W when nobody changes it", r->watts, r->watts_most, r->watts_usual);
}

static void gpus_check(Doctor *d)
{
    GpuReading r;
    for (unsigned i = 0; i < d->gpus; i++) {
        char name[32];
        snprintf(name, sizeof name, "GPU %u", i);
        if (!nvml_read(d->nvml, i, NULL, &r)) {
            say(d, WRONG, name, "it may have fallen off the bus: restart the machine, look into dmesg for Xid",
                "the driver lists it, but it does not answer");
            continue;
        }
        types_check(d, &r, name);
        memory_check(d, &r, "memory");
        link_check(d, &r, "link");
        clocks_check(d, &r, "clocks");
    }
}

/* ---- The rest of the machine ----------------------------------------------------------------------------------------- */

static void libraries_check(Doctor *d)
{
    int version = 0, (*get)(int *);
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL), *mpi = dlopen("libmpi.so.40", RTLD_NOW | RTLD_LOCAL);
    *(void **)&get = nccl ? dlsym(nccl, "ncclGetVersion") : NULL;
    if (get && get(&version) == 0)
        say(d, FINE, "NCCL", NULL, "%d.%d.%d; one GPU does not need it", version / 10000, version / 100 % 100, version % 100);
    else
        say(d, FINE, "NCCL", NULL, "none; one GPU does not need it");
    say(d, FINE, "MPI", NULL, "%s; one machine does not need it", mpi ? "Open MPI" : "none");
    if (nccl)
        dlclose(nccl);
}

static void cpu_check(Doctor *d)
{
    Target t;
    Error e = {0};
    BytesText all, free_bytes;
    if (!device_open("cpu", 0, &t, &e)) {
        say(d, WRONG, "CPU", NULL, "%s", e.text);
        return;
    }
    bool plain = t.isa == ISA_PLAIN;
    say(d, plain ? LOOK : FINE, "CPU", plain ? "a processor with AVX2 or AVX-512 is several times as fast" : NULL,
        "%s (%ld processors are online); BF16 is %s", t.name, sysconf(_SC_NPROCESSORS_ONLN),
        t.bf16_gemm ? "multiplied as such" : "widened to FP32");
    say(d, FINE, "CPU memory", NULL, "%s, of which %s are free for a run", bytes_text(all, (double)t.total_bytes),
        bytes_text(free_bytes, room_here(&t, 0).bytes));
}

/* What `tally train` would take, which is the proof of all above. Returns its device's name. */
static const char *choice_check(Doctor *d)
{
    Target t;
    Error e = {0};
    const Device *device = device_open("auto", 0, &t, &e);
    bool gpu = device && t.kind == DEVICE_CUDA;
    if (gpu)
        say(d, FINE, "tally", NULL, "takes the GPU (%s): CUDA starts, and this binary has code for it", t.name);
    else
        say(d, fault(d), "tally", d->hardware ? "see above; then run tally doctor again" : NULL, "takes the CPU: %s",
            device ? t.note : e.text);
    return gpu ? "cuda" : "cpu";
}

/* ---- The command ----------------------------------------------------------------------------------------------------- */

#define AT_TYPE Doctor
static const OptionRow rows[] = {
    OPTION(0, "json", OPTION_FLAG, json, 0, 0, NULL, "the checks as a JSON object"),
    OPTION(0, "root", OPTION_WORD, root, 0, 0, "DIR",
           "look into DIR/dev, DIR/proc, DIR/sys, DIR/usr instead of the machine's, as tests do"),
};

bool doctor_command(int argc, char **argv, Error *e)
{
    static const OptionTable options = {
        rows, sizeof rows / sizeof *rows, NULL,
        "`tally doctor` says what this machine has for training, what is wrong with it, and what to do. Exit code 1: "
        "something is wrong."};
    Doctor d = {.root = "", .checks = json_array()};
    if (!options_parse(&options, &d, argc, argv, e))
        return false;
    hardware_check(&d);
    driver_check(&d);
    build_check(&d);
    nodes_check(&d);
    visible_check(&d);
    gpus_check(&d);
    cpu_check(&d);
    libraries_check(&d);
    const char *device = choice_check(&d);
    nvml_close(d.nvml);
    bool ok = !d.json || json_print(json_pack("{s:O, s:s, s:i}", "checks", d.checks, "device", device, "wrong", d.wrong), e);
    json_decref(d.checks);
    return ok && d.wrong == 0;
}
