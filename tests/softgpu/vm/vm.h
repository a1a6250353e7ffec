/* The PTX machine: runs the PTX text that nvcc embeds in a program, a warp of 32 lanes at a time, on the CPU.
 *
 * It is the part of the software GPU that executes; the stand-in of libcudart (tests/softgpu/runtime) owns memory, streams and
 * errors as a program sees them, and calls the machine through this header alone:
 *
 *     Vm *vm = vm_new(&options, &hooks, &e);
 *     vm_memory_add(vm, address, bytes, host, "x", &e);            whenever an allocation becomes live
 *     VmModule *m = vm_module_load(vm, ptx_text, "model.cu", &e);
 *     VmKernel *k = vm_kernel_find(m, "_Z4axpyPfS_f");
 *     vm_launch(k, grid, block, 0, params, &e);
 *
 * Addresses: a device address is a number below 2^60, and belongs to a range that vm_memory_add has named. Its bytes live at
 * `host`, wherever that is; the two may be equal. Every access is checked against these ranges and for alignment, always.
 *
 * Failure: a function that can fail takes a VmError, fills it and returns false or NULL. Nothing is printed, nothing exits. A
 * failed launch may have written some of its results.
 *
 * Threads: calls for one Vm must not overlap; a launch uses threads of its own and returns when all blocks are done. */
#ifndef SOFTGPU_VM_H
#define SOFTGPU_VM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Vm Vm;
typedef struct VmModule VmModule;
typedef struct VmKernel VmKernel;

/* ---- Errors ------------------------------------------------------------------------------------------------------- */

typedef enum VmFault {
    VM_NO_FAULT,
    VM_BAD_PTX,       /* text that the machine does not know: syntax, directive or instruction              */
    VM_BAD_LAUNCH,    /* a grid, a block or shared memory that no card takes                                */
    VM_NO_MEMORY,     /* the host has none left for registers or shadows                                    */
    VM_OUT_OF_BOUNDS, /* an access outside every allocation, shared variable or local frame                 */
    VM_MISALIGNED,    /* an address that is no multiple of the access's size                                */
    VM_UNINITIALISED, /* check mode: memory read before it was written                                      */
    VM_RACE,          /* check mode: two accesses that nothing orders                                       */
    VM_BAD_SYNC,      /* divergent or incomplete barrier, wrong member mask, cp.async that nobody waits for */
    VM_TRAP,          /* the kernel executed trap                                                           */
    VM_ENDLESS        /* a warp ran more than max_steps instructions                                        */
} VmFault;

typedef struct VmError {
    VmFault fault;
    uint64_t address; /* the address at fault, or 0                                                              */
    char text[2048];  /* what, kernel, block, thread, PTX line and text, source file and line; no final newline  */
} VmError;

/* ---- The machine and its settings --------------------------------------------------------------------------------- */

typedef enum VmOrder { VM_FORWARD, VM_REVERSE, VM_RANDOM } VmOrder;            /* of warps in a block and blocks in a grid */
typedef enum VmCopy { VM_COPY_LATE, VM_COPY_EARLY, VM_COPY_RANDOM } VmCopy;    /* cp.async: at its wait, at its issue      */
typedef enum VmApprox { VM_NEAREST, VM_UP, VM_DOWN, VM_UP_AND_DOWN } VmApprox; /* approximate instructions: moved by 2 ulp */

typedef struct VmOptions {
    int threads;        /* host threads of a launch; check mode always uses one, to be deterministic        */
    bool check;         /* find uninitialised reads and races                                               */
    bool profile;       /* count sectors, bank conflicts and touched memory (vm_profile, vm_touched)        */
    VmOrder order;      /* VM_RANDOM: warps run slices of random length                                     */
    uint64_t seed;      /* of VM_RANDOM and VM_COPY_RANDOM                                                  */
    VmCopy copy;        /* when a cp.async copies                                                           */
    VmApprox approx;    /* VM_UP_AND_DOWN: by odd and even lane                                             */
    uint64_t max_steps; /* instructions of one warp before a launch counts as endless                       */
} VmOptions;

/* Settings from the environment: SOFTGPU_THREADS (default: the cores), SOFTGPU_CHECK=1, SOFTGPU_COUNT=1 (profile),
 * SOFTGPU_ORDER=forward|reverse|random, SOFTGPU_SEED, SOFTGPU_COPY=late|early|random, SOFTGPU_APPROX=nearest|up|down|both,
 * SOFTGPU_MAX_STEPS (default 10^9). Returns false with VM_BAD_LAUNCH and the variable's name for a value that is none of these.
 */
bool vm_options_read(VmOptions *options, VmError *error);

/* What the machine asks of the one who owns memory. */
typedef struct VmHooks {
    void *context;
    /* Finds device memory for a variable of a module (__device__, __constant__), tells the machine of it with vm_memory_add, and
     * returns its address, a multiple of `align`; 0 when there is none. */
    uint64_t (*place)(void *context, uint64_t bytes, uint64_t align, const char *name);
    /* Writes what is known of an address that belongs to no live allocation ("64 bytes past the end of #3, freed at ..."). May be
     * NULL: then the machine names the nearest range of its own table. */
    void (*describe)(void *context, uint64_t address, char *text, size_t size);
} VmHooks;

/* A machine with a copy of both structs. NULL without memory. vm_free frees its modules and shadows too. */
Vm *vm_new(const VmOptions *options, const VmHooks *hooks, VmError *error);
void vm_free(Vm *vm);

/* ---- Memory ------------------------------------------------------------------------------------------------------- */

/* Device addresses [address, address + bytes) are live from now on; their bytes are at `host`. In check mode they count as
 * uninitialised. name is copied and appears in messages. False without memory, or when the range overlaps a live one. */
bool vm_memory_add(Vm *vm, uint64_t address, uint64_t bytes, void *host, const char *name, VmError *error);

/* The range that begins at `address` is no longer live. Nothing happens when there is none. */
void vm_memory_remove(Vm *vm, uint64_t address);

/* The bytes have been written from outside (a copy, a memset, a library). A range that is not live is ignored. */
void vm_memory_written(Vm *vm, uint64_t address, uint64_t bytes);

/* Finds bytes in check mode that nobody has written yet. True and *first = the first such address, or false. */
bool vm_memory_unwritten(const Vm *vm, uint64_t address, uint64_t bytes, uint64_t *first);

/* ---- Modules and kernels ------------------------------------------------------------------------------------------ */

/* Reads one PTX text, ended by a zero byte, and places its variables. NULL with VM_BAD_PTX when it is no PTX or its declarations
 * are wrong. What is wrong inside one kernel (an unknown instruction) is that kernel's: see VmKernelInfo.error. */
VmModule *vm_module_load(Vm *vm, const char *ptx, const char *name, VmError *error);
void vm_module_free(VmModule *module);

typedef struct VmParam {
    uint32_t offset, bytes;
} VmParam;

typedef struct VmKernelInfo {
    const char *name;      /* as in the PTX, mangled                                                    */
    const VmParam *params; /* n_params, in order: where vm_launch expects each                          */
    int n_params;
    uint32_t param_bytes;         /* of the whole block of parameters                                          */
    uint32_t shared_bytes;        /* static                                                                    */
    uint32_t local_bytes;         /* of one thread                                                             */
    uint32_t max_threads;         /* of a block: .maxntid, 1024 without it                                     */
    uint32_t required_threads[3]; /* .reqntid, or zeros                                                       */
    uint32_t registers;           /* most 32-bit registers live at once, before ptxas                          */
    const char *error;            /* NULL, or why it cannot be launched: line, text of the PTX                 */
} VmKernelInfo;

/* A kernel by its name, or the index-th of the module: NULL when there is none. Its body is read at the first call. Both results
 * live as long as the module. */
VmKernel *vm_kernel_find(VmModule *module, const char *name);
VmKernel *vm_kernel_at(VmModule *module, int index);
const VmKernelInfo *vm_kernel_info(const VmKernel *kernel);

/* A variable of the module. False when there is none. */
bool vm_symbol_find(const VmModule *module, const char *name, uint64_t *address, uint64_t *bytes);

/* Runs a whole grid. params: info->param_bytes bytes. Grid and block must not be empty, and a block has at most 1024 threads. */
bool vm_launch(VmKernel *kernel, const uint32_t grid[3], const uint32_t block[3], uint32_t dynamic_shared, const void *params,
               VmError *error);

/* ---- Mutation ------------------------------------------------------------------------------------------------------
 * The barriers, fences and cp.async waits of a kernel, in the order of its text, so that a test can leave out one at a time. */
int vm_sync_count(const VmKernel *kernel);
/* "bar.sync 0; at layernorm.cu:57 (ptx line 310)", valid as long as the module; NULL for an index out of range. */
const char *vm_sync_text(const VmKernel *kernel, int index);
/* From now on the instruction does nothing. -1: all work again. */
void vm_sync_skip(VmKernel *kernel, int index);

/* ---- Counting ------------------------------------------------------------------------------------------------------ */

typedef enum VmClass {
    VM_FP32,       /* add, sub, mul, fma in fp32 or 16 bits: what a FLOP is       */
    VM_FP32_OTHER, /* min, max, abs, compare                                      */
    VM_FP64,
    VM_TENSOR,  /* mma                                                         */
    VM_SPECIAL, /* ex2, lg2, rcp, sqrt, sin, tanh                              */
    VM_INTEGER,
    VM_CONVERT,
    VM_MOVE,    /* mov, ld.param, pack and unpack                              */
    VM_CONTROL, /* branches, barriers                                          */
    VM_WARP,    /* shfl, vote, match, redux                                    */
    VM_LOAD_GLOBAL,
    VM_STORE_GLOBAL,
    VM_LOAD_SHARED, /* ldmatrix too                                                */
    VM_STORE_SHARED,
    VM_LOCAL,
    VM_ATOMIC,
    VM_COPY_ASYNC,
    VM_CLASSES
} VmClass;

/* Traffic of one kind over a launch. A request is one warp instruction; a sector is 32 aligned bytes. */
typedef struct VmTraffic {
    uint64_t requests, bytes; /* bytes: as the lanes asked for                                               */
    uint64_t sectors;         /* distinct sectors of each request, added up (global memory)                  */
    uint64_t ideal_sectors;   /* ... if all bytes of a request lay side by side                              */
    uint64_t phases;          /* shared memory: a request of 4, 8, 16 bytes a lane takes 1, 2, 4             */
    uint64_t conflicts;       /* ... and this many more, because words of one bank differ                    */
} VmTraffic;

typedef struct VmProfile {
    uint64_t instructions[VM_CLASSES]; /* of warps                                                           */
    uint64_t lanes;                    /* active lanes, added up over all instructions                       */
    uint64_t flops, tensor_flops;
    uint64_t branches, divergent;           /* divergent: the lanes went two ways                                 */
    uint64_t barriers;                      /* completed, of blocks                                               */
    uint64_t sectors_read, sectors_written; /* different ones over the whole launch                          */
    VmTraffic load, store, copy;            /* global memory: ld with atomics, st, cp.async                       */
    VmTraffic shared_load, shared_store;
} VmProfile;

/* Of the kernel's last launch. Instructions, lanes, FLOPs and barriers are always counted, the rest with options.profile. */
const VmProfile *vm_profile(VmKernel *kernel);

/* The same for people, with the lines of the PTX and the source whose accesses are scattered or in conflict. */
void vm_profile_print(FILE *out, VmKernel *kernel);

/* With options.profile: calls visit for each live range that the last launch read (written = false) or wrote, with the part of it
 * from the first to the last byte touched: sectors[i] is 1 when the launch touched bytes [32 i, 32 i + 32) of the part. */
typedef void VmVisit(void *context, uint64_t address, uint64_t bytes, const uint8_t *sectors, uint64_t n_sectors, bool written);
void vm_touched(const Vm *vm, VmVisit *visit, void *context);

#ifdef __cplusplus
}
#endif
#endif
