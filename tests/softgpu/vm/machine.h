/* What the parts of the machine share: instruction, kernel, warp, block, launch.
 *
 * The idea is one array per virtual register. A 32-bit register of a warp is 32 numbers side by side, one a lane (two AVX-512
 * registers); a 64-bit register is 32 of 8 bytes, a predicate one word with a bit a lane; 16-bit values sit in 32-bit registers.
 * An instruction is a C function with one loop over the lanes, which the compiler vectorises; lanes that do not take part keep
 * their old value. The parser turns each PTX instruction into an Insn: the function and where its registers lie.
 *
 *     PTX text --ptx_lex--> tokens --ptx_parse, ptx_decode--> Insn[] --liveness--> slots --launch, block, exec--> ops_*.c
 */
#ifndef SOFTGPU_MACHINE_H
#define SOFTGPU_MACHINE_H

#include <pthread.h>

#include "tests/softgpu/vm/arena.h"
#include "tests/softgpu/vm/vm.h"

enum {
    LANES = 32,
    MAX_WARPS = 32,    /* of a block                                                                     */
    MAX_BARRIERS = 16, /* of a block                                                                     */
    SLOT_BYTES = 64,   /* a register begins at a multiple of this; a predicate has 1 slot, others 2 or 4 */
    MAX_OPERANDS = 14, /* mma.m16n8k16: 4 out, 4 + 2 + 4 in                                              */
    SHARED_GAP = 128,  /* unused bytes after each shared variable, so that leaving one is noticed        */
    SHADOW_BYTES = 2,  /* the races of shared and global memory are tracked for each 2 bytes             */
    SECTOR_BYTES = 32,
    MAX_LOCAL = 524288, /* bytes of a thread's frame                                                         */
    MAX_SHARED = 233472 /* the most that any card offers a block                                          */
};

/* The windows of generic addresses: the top four bits say which memory an address means; 0 is global. */
enum { WINDOW_SHIFT = 60, WINDOW_SHARED = 1, WINDOW_LOCAL = 2 };
#define WINDOW_MASK (15ull << WINDOW_SHIFT)

typedef enum Space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM } Space;
typedef enum Access { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC } Access;

/* ---- Instructions -------------------------------------------------------------------------------------------------- */

typedef struct Insn Insn;
typedef struct Warp Warp;
typedef struct Block Block;
typedef struct Launch Launch;
typedef void OpFn(Warp *w, const Insn *i);

/* How the run loop treats an instruction. */
typedef enum Flow {
    FLOW_PLAIN, /* runs for the lanes that are here                                     */
    FLOW_BRANCH,
    FLOW_EXIT,
    FLOW_SYNC,   /* waits until the lanes of its member mask are here                    */
    FLOW_WARP,   /* needs all 32 lanes                                                   */
    FLOW_BARRIER /* waits for the lanes of the warp, then for other warps of the block   */
} Flow;

/* FLOW_BARRIER's variants. Operands: output, number of the barrier, threads (0: all), predicate. */
typedef enum BarrierKind { BARRIER_SYNC, BARRIER_ARRIVE, BARRIER_POPC, BARRIER_AND, BARRIER_OR } BarrierKind;

struct Insn {
    OpFn *run;
    int64_t imm;                    /* the constant part of an address; what else is constant               */
    int32_t target;                 /* of a branch: an index into the code                                  */
    uint16_t guard;                 /* the predicate of @p, in slots like operand[]                         */
    uint16_t operand[MAX_OPERANDS]; /* registers: outputs first; before liveness: numbers of registers */
    uint8_t guard_negated, flow, space;
    uint8_t width;        /* bytes of one element of memory                                       */
    uint8_t count;        /* elements of a vector                                                 */
    uint8_t reg_width;    /* bytes of the registers that memory goes to or comes from             */
    uint8_t base;         /* which operand is the address                                         */
    uint8_t base_width;   /* bytes of that register: 4 or 8                                       */
    uint8_t variant;      /* which of the instruction's forms; each op's comment says             */
    uint8_t negate;       /* bit k: the k-th predicate input is negated; or a second variant      */
    uint8_t mask_operand; /* FLOW_SYNC: which operand is the member mask                          */
    uint8_t n_out, n_operands;
};

/* What only messages and counters need of an instruction. */
typedef struct InsnText {
    const char *text;
    int line;              /* of the PTX                                  */
    int file, source_line; /* of the CUDA source, from .loc; file 0: none */
    int caller, call_line; /* and where it was inlined                    */
    VmClass class;
    int flops; /* of one lane; of the warp for mma            */
} InsnText;

typedef struct Counter {
    uint64_t runs, lanes, divergent;
    VmTraffic traffic;
} Counter;

/* An operation by name, as the ops_*.c list them. Sizes: 0 predicate, 4, 8 bytes. */
typedef struct OpDef {
    const char *name;
    OpFn *run;
    uint8_t out, n_in, in[4];
    uint8_t class, flops;
} OpDef;

/* Finds "add.s32". NULL when there is no such operation. (ops.c) */
const OpDef *op_find(const char *name);

/* ---- Kernels ------------------------------------------------------------------------------------------------------- */

typedef enum RegisterKind { REGISTER_VARIABLE, REGISTER_CONSTANT, REGISTER_DYNAMIC, REGISTER_SPECIAL } RegisterKind;

/* A virtual register. CONSTANT: every lane holds value. DYNAMIC: value bytes after the beginning of dynamic shared memory.
 * SPECIAL: value says which (Special). */
typedef struct Register {
    RegisterKind kind;
    uint8_t size;  /* 0 predicate, 4, 8 */
    bool is_param; /* stands for a .param variable of a call: ld.param and st.param are moves */
    uint64_t value;
    int slot; /* given by liveness */
} Register;

typedef enum Special {
    TID_X,
    TID_Y,
    TID_Z,
    NTID_X,
    NTID_Y,
    NTID_Z,
    CTAID_X,
    CTAID_Y,
    CTAID_Z,
    NCTAID_X,
    NCTAID_Y,
    NCTAID_Z,
    LANEID,
    WARPID,
    LANEMASK_EQ,
    LANEMASK_LT,
    LANEMASK_LE,
    LANEMASK_GT,
    LANEMASK_GE,
    SPECIALS
} Special;

typedef struct SharedVariable {
    const char *name;
    uint32_t offset, bytes;
} SharedVariable;

struct VmKernel {
    VmModule *module;
    VmKernelInfo info;
    int first_token, end_token; /* of the body in the module's text, braces included */
    bool parsed;
    const char **param_names;

    Insn *code;
    InsnText *text;
    int n_code;
    Register *registers;
    int n_registers;
    int special[SPECIALS]; /* number of its register, or -1 */
    uint32_t register_bytes;

    SharedVariable *shared;
    int n_shared;
    uint32_t shared_end; /* offset of the first byte after static shared memory and its gaps: dynamic memory begins here */
    bool uses_dynamic;

    int *syncs; /* indices into code, for vm_sync_... */
    int n_syncs;
    OpFn *skipped_run; /* what the skipped instruction did */
    uint8_t skipped_flow;
    int skipped; /* index into syncs, or -1 */

    Counter *counters; /* n_code, of the last launch */
    VmProfile profile;
};

/* The register file begins with a predicate that is always true: the guard of instructions without one. */
enum { REGISTER_TRUE = 0 };

typedef struct Symbol {
    const char *name;
    Space space;
    uint64_t address; /* global: device address; local: offset in the frame */
    uint64_t bytes;
    uint32_t align;
    bool dynamic; /* extern .shared */
} Symbol;

/* A device function: calls of it are put in place (ptx_call.c). Results come first in names and sizes. */
enum { MAX_FUNCTION_PARAMS = 16 };
typedef struct Function {
    const char *name;
    const char *names[MAX_FUNCTION_PARAMS];
    int sizes[MAX_FUNCTION_PARAMS]; /* bytes of the registers: 4, 8 */
    int n_results, n_params;        /* n_params: all, results included */
    int body;                       /* its first token */
} Function;

struct VmModule {
    Vm *vm;
    VmModule *next;
    const char *name;
    Arena arena; /* all that is reached from here lives in it */
    struct Token *tokens;
    int n_tokens;
    const char **files; /* by number; NULL where there is none */
    int n_files;
    Symbol *symbols;
    int n_symbols;
    Function *functions;
    int n_functions;
    VmKernel *kernels;
    int n_kernels;
};

/* ---- Memory -------------------------------------------------------------------------------------------------------- */

/* Who accessed memory when, in one word, since there are many: thread | its warp's time << 10; 0: nobody. */
typedef uint32_t Stamp;
enum { STAMP_SHIFT = 10, MAX_TIME = (1 << 22) - 1 };

/* Check mode's knowledge of SHADOW_BYTES of global memory. Blocks are numbered from 1. */
typedef struct GlobalCell {
    uint32_t launch;      /* of the rest; another launch's knowledge is void                        */
    uint32_t writer;      /* the last block that wrote, 0 none                                      */
    uint32_t fences;      /* how many fences the writer had executed before                         */
    uint32_t reader;      /* the block that has read since, 0 none, UINT32_MAX several              */
    Stamp write, read[2]; /* threads of the last block that wrote, and those that read, if one block did */
} GlobalCell;

/* What the last launch touched of an allocation: 1 for each sector, all between the first and the last. */
typedef struct Touched {
    uint64_t first, last; /* first > last: nothing */
    uint8_t sectors[];
} Touched;

typedef struct Allocation {
    uint64_t begin, end;
    uint8_t *host;
    char *name;
    uint8_t *written;      /* check: 1 for each byte that has been written */
    GlobalCell *cells;     /* check: for each SHADOW_BYTES                 */
    Touched *read, *write; /* profile                                */
} Allocation;

struct Vm {
    VmOptions options;
    VmHooks hooks;
    VmModule *modules;
    Allocation *allocations; /* by address, disjoint */
    int n_allocations, max_allocations;
    uint32_t launches;
};

/* The live allocation that holds the address, or NULL. (memory.c) */
const Allocation *allocation_find(const Vm *vm, uint64_t address);

/* ---- Execution ----------------------------------------------------------------------------------------------------- */

/* Lanes of a warp that stand at another place than the active ones. */
typedef struct Group {
    int pc;
    uint32_t lanes;
    bool blocked;          /* they wait in a collective for lanes that are elsewhere           */
    uint32_t blocked_live; /* ... since these lanes lived; when some exit, it is tried again   */
} Group;

/* A cp.async that has been issued and not waited for. */
typedef struct PendingCopy {
    uint32_t shared; /* destination */
    uint8_t bytes, source_bytes, lane;
    bool done;
    int group;
    const uint8_t *source;
    const Insn *insn;
} PendingCopy;

struct Warp {
    uint8_t *registers;
    uint32_t mask;       /* lanes that the instruction applies to                        */
    uint32_t active;     /* lanes at pc                                                  */
    uint32_t live, born; /* not yet exited; there at the start                           */
    int pc, stop;        /* stop: where the nearest other group stands                   */
    Group groups[LANES + 1];
    int n_groups;
    int rotating; /* > 0: another group has its turn, to let spinning lanes go on */
    Block *block;
    int id;
    const Insn *barrier; /* waiting there, or NULL                                       */
    uint8_t *local;      /* 32 frames of local_bytes                                     */
    uint64_t steps;
    float nudge[LANES]; /* what approximate results are multiplied with */

    PendingCopy *copies; /* in order of issue */
    int n_copies, max_copies;
    int copy_group[LANES]; /* groups committed  */

    uint32_t time;             /* check: how often its lanes have waited for each other, from 1 */
    uint32_t known[MAX_WARPS]; /* check: what came before that time of each warp came before now */
};

typedef struct Barrier {
    uint32_t arrived, expected; /* threads; expected 0: all */
    uint32_t sum;               /* of bar.red               */
    uint32_t known[MAX_WARPS];  /* check: of those that have arrived */
} Barrier;

/* Check mode's knowledge of SHADOW_BYTES of shared memory. */
typedef struct SharedCell {
    Stamp write, read[2];
    uint32_t written : 1, pending : 1, write_line : 30; /* pending: the target of a cp.async under way */
} SharedCell;

/* A block in execution. Each host thread has one, and uses it again for block after block. */
struct Block {
    Launch *launch;
    const VmKernel *kernel;
    Counter *counters;
    uint8_t *shared;
    const SharedVariable *last_shared; /* the variable of the last access: usually the next one's too */
    SharedVariable dynamic;            /* dynamic shared memory, as if it were one */
    SharedCell *cells;                 /* check */
    uint32_t shared_bytes;
    uint32_t index[3], number;
    Warp *warps;
    int n_warps, n_threads;
    Barrier barriers[MAX_BARRIERS];
    uint64_t barriers_done;
    uint64_t random;
    const Allocation *last; /* the allocation of the last access: usually the next one's too */
    uint32_t fences;        /* check: executed so far                       */
    uint8_t *acquired;      /* check: bit b: what block b released is visible */
};

/* A word on which blocks have done atomics after a fence, and which ones. */
typedef struct ReleaseWord {
    uint64_t address;
    uint8_t *blocks;
} ReleaseWord;

struct Launch {
    Vm *vm;
    VmKernel *kernel;
    uint32_t grid[3], block[3];
    uint64_t n_blocks, next;
    uint32_t dynamic_shared;
    const uint8_t *params;
    uint64_t barriers;
    pthread_mutex_t lock; /* of error, barriers and the kernel's counters */
    VmError *error;
    int stopped;              /* 1 after a fault: every thread ends */
    uint32_t *release_fences; /* check: fences of each block before its last release */
    ReleaseWord *words;       /* check */
    int n_words;
};

/* Registers of operand k: an array of 32 T. A predicate is one uint32_t. */
#define REG(T, k) ((T *)(w->registers + (size_t)i->operand[k] * SLOT_BYTES))
/* For each lane; for each that takes part. */
#define EACH(l) for (int l = 0; l < LANES; l++)
#define EACH_ON(l)                                                                                                               \
    EACH (l)                                                                                                                     \
        if (w->mask >> l & 1)

static inline int first_lane(uint32_t mask)
{
    return __builtin_ctz(mask);
}

/* Records a fault of the lane at the instruction, with where it happened, and stops the launch. Returns false. (fault.c) */
bool fault(Warp *w, const Insn *i, int lane, VmFault kind, uint64_t address, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* " at layernorm.cu:57 in reduce.cuh:12" for the n-th instruction, or nothing, when the source is unknown. (fault.c) */
void source_text(const VmKernel *k, int n, char *text, size_t size);
/* Fills an error that has no kernel to speak of. Returns false. */
bool vm_error_set(VmError *e, VmFault kind, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Parses the kernel's body unless that has been done; what is wrong is in info.error. (ptx_parse.c) */
void kernel_parse(VmKernel *k);
/* Gives each register its slot, operands and guards of the code included. False when there are too many. (liveness.c) */
bool kernel_place_registers(VmKernel *k);

/* Random bits of a block's own sequence. (block.c) */
uint64_t block_random(Block *b);
/* Runs the block to its end, or to a fault. (block.c) */
void block_run(Block *b);

/* Runs a warp for `budget` instructions, or until it waits at a barrier, ends or faults. (exec.c) */
typedef enum RunEnd { RUN_SLICE, RUN_BARRIER, RUN_DONE, RUN_FAULT } RunEnd;
RunEnd warp_run(Warp *w, uint64_t budget);

/* An instruction that does nothing. (exec.c) */
OpFn op_nothing;

#endif
