/* A libcudart of software: what its files share.
 *
 * A program built by nvcc with -cudart shared calls the functions of cuda_runtime_api.h and, in static initialisers, the
 * __cudaRegister functions. This library answers both on a machine without a GPU: kernels run on the PTX machine (../vm),
 * everything else is here. From the bottom up:
 *
 *   error.c     the lock, messages, the last error and the fatal one
 *   settings.c  the card that is played, the seed, the checks: environment variables
 *   memory.c    device addresses, the table of allocations
 *   queue.c     operations, what they wait for, the order in which they run
 *   race.c      operations of different streams that touch the same bytes with nothing ordering them
 *   graph.c     capture of a stream, graphs
 *   fatbin.c    the PTX in a fat binary; module.c: registration, kernels, variables; launch.c: kernels started
 *   device.c, allocate.c, copy.c, stream.c, event.c: the rest of the interface; library.c: what cublasLt's stand-in needs
 *
 * An interface function is: enter(), the work while no error came up, leave(). Everything between runs under one lock. */
#ifndef SOFTGPU_RUNTIME_H
#define SOFTGPU_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/softgpu/vm/vm.h"

/* ---- error.c ---- */

/* Begins an interface function: takes the lock, starts the context. Returns the fatal error that the context has met,
 * cudaErrorNotPermitted inside a host function of a stream, or success. leave() must follow in any case. */
cudaError_t enter(void);

/* Ends it: releases the lock, remembers e as this thread's last error unless it is success or cudaErrorNotReady, returns e. */
cudaError_t leave(cudaError_t e);

/* enter() for what works in spite of a fatal error. */
void enter_anyway(void);

/* An operation has failed: every later call answers e, until cudaDeviceReset. Says why, printf-style. */
void device_fault(cudaError_t e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The fatal error of the context, or success. */
cudaError_t fault_get(void);

/* Writes a line "softgpu: ..." to stderr, or to the file that SOFTGPU_LOG names. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* True while a host function of a stream runs: no CUDA call is permitted in it. */
void host_function_runs(bool runs);

/* calloc that stops the process with a message when there is nothing left. */
void *get(size_t n, size_t size);

/* Grows an array of `size`-byte elements so that it has room for one more than n; *room is its capacity. Returns the array. */
void *array_grow(void *array, int n, int *room, size_t size);

/* ---- settings.c ---- */

typedef struct Card {
    const char *key; /* what SOFTGPU_CARD names */
    char name[64];
    uint64_t memory; /* bytes */
    int sm_count, capability /* 10 * major + minor */, l2_bytes, shared_per_sm, shared_per_block /* opted in */;
    int clock_khz, memory_clock_khz, bus_bits;
} Card;

typedef enum Policy { POLICY_SUBMITTED, POLICY_ANY, POLICY_PRIORITY, POLICY_NEEDED } Policy;

typedef struct Settings {
    Card card;
    uint64_t seed;
    Policy policy;          /* which of the operations that could run is next: queue.c */
    int eager;              /* 0: none runs before a synchronisation; 1, 2: some do */
    bool race, trace, stop; /* look for races between streams; tell of every operation; abort() at the first fault */
    bool drop_waits;        /* a mutation: cudaStreamWaitEvent does nothing */
    uint64_t drop_wait;     /* or its call of this number does, counted from 1; 0: none */
    int poison;             /* what fresh device memory is filled with; -1: not at all */
} Settings;

extern Settings settings;

/* Reads them from the environment: once when the context starts, and again after cudaDeviceReset. */
void settings_read(void);

/* Warps that an SM of the card can hold. */
int card_warps(void);

/* The next of the random numbers that follow from the seed. */
uint64_t random_next(void);

/* ---- memory.c ---- */

/* The PTX machine of this context. */
Vm *machine(void);

typedef enum MemoryKind { MEMORY_DEVICE, MEMORY_PINNED, MEMORY_REGISTERED, MEMORY_VARIABLE } MemoryKind;

typedef struct Allocation {
    uint64_t address, bytes;
    MemoryKind kind;
    bool live;
    char name[64];
    struct Shadow *shadow; /* race.c: who touched which sector last; NULL: nobody yet */
} Allocation;

/* Makes an allocation of `bytes` > 0 bytes. Returns its address, 0 when there is no address space left. Whether the card
 * would have the memory is the caller's question. */
uint64_t memory_new(uint64_t bytes, MemoryKind kind, const char *name);

/* The same for memory that the program has: it becomes visible to kernels. */
void memory_register(void *host, uint64_t bytes);

/* Ends it. Its address stays known as freed, and is not given out again (registered memory: is forgotten). */
void memory_end(Allocation *a);

/* Ends all, for cudaDeviceReset. */
void memory_reset(void);

/* The allocation, live or freed, that the address lies in; NULL: none. */
Allocation *memory_find(const void *p);

/* True when bytes [p, p + bytes) lie within one live allocation. */
bool memory_holds(const void *p, uint64_t bytes);

/* True for any address that device memory could have. */
bool memory_is_device(const void *p);

/* Where this process can reach the bytes of a device address; of any other, the address itself. */
void *memory_host(const void *p);

/* Bytes of the card's memory in use, and still to be had. */
uint64_t memory_used(void);
uint64_t memory_free(void);

/* What there is at an address, in words: "64 bytes past the end of the live device allocation #3 of 4096 bytes". */
void memory_describe(const void *p, char *text, size_t size);

/* ---- race.c: the order that the program has made ---- */

enum { CHAINS = 64 };

/* A vector clock. Operations that follow one another by construction (those of a stream; of a graph, those captured from one
 * stream) form a chain, numbered 1, 2, ... in it. seen[c] = n: operation n of chain c and all before it come before this. */
typedef struct Clock {
    uint32_t seen[CHAINS];
} Clock;

/* A new chain. Above CHAINS they share numbers, which can hide a race but not invent one. */
int chain_new(void);

/* a = the later of a and b, chain by chain. */
void clock_join(Clock *a, const Clock *b);

struct Op;

/* Operation `op` touches [p, p + bytes). A race with an earlier one, unordered, is a fault. Does nothing unless asked for. */
void race_touch(const struct Op *op, const void *p, uint64_t bytes, bool write);

/* Forgets every operation. */
void race_reset(void);

/* ---- queue.c ---- */

typedef enum WorkKind { WORK_EMPTY, WORK_KERNEL, WORK_COPY, WORK_FILL, WORK_HOST } WorkKind;

/* What an operation does; a graph does it again at every launch, so it is counted who needs it. */
typedef struct Work {
    WorkKind kind;
    char name[192]; /* for messages */
    void (*run)(void *arg);
    void (*destroy)(void *arg);
    void *arg;
    int users;
} Work;

/* A new work with one user; run and destroy may be NULL. The name is printf-style. */
Work *work_new(WorkKind kind, void (*run)(void *), void (*destroy)(void *), void *arg, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
Work *work_keep(Work *w); /* one user more; returns w */
void work_drop(Work *w);  /* one less; freed with the last */

/* A point of the order: after operation `op` (0: after nothing), with all that comes before it. */
typedef struct Point {
    uint64_t op;
    Clock clock;
} Point;

typedef struct Stream {
    int id, chain, priority;
    bool blocking;  /* ordered against the legacy stream */
    bool destroyed; /* the handle is not valid any more */
    Point tail;     /* after everything submitted so far */
    uint64_t luck;  /* POLICY_PRIORITY: the highest runs first */
    struct Capture *capture;
    int lane;                            /* while captured: which of its streams this is */
    int *front, front_count, front_room; /* while captured: the nodes that the next one follows */
    struct Stream *next;
} Stream;

typedef struct Op {
    uint64_t id;
    Work *work;
    Stream *stream;
    int chain;      /* the chain that it belongs to, */
    uint32_t place; /* its number there, */
    Clock clock;    /* and what comes before it */
    int waits;      /* operations to be done before it can run */
    uint64_t *before;
    int before_count, before_room;
    struct Op **after; /* those that wait for it */
    int after_count, after_room;
    bool wanted; /* POLICY_NEEDED: the synchronisation under way needs it */
} Op;

/* All streams are a list that begins with the two special ones; destroyed ones stay in it. */
extern Stream stream_legacy, stream_thread;
Stream *stream_new(bool blocking, int priority);

/* The stream of a handle, NULL and the two special handles included. Returns cudaErrorInvalidResourceHandle for others. */
cudaError_t stream_find(cudaStream_t handle, Stream **stream);

/* An operation in three steps: made, told what it follows, handed over; op_submit returns the point after it. The operation
 * takes the work over. What the host knows to be done comes before it by itself. */
Op *op_new(Stream *stream, int chain, Work *work);
void op_follow(Op *op, const Point *point);
Point op_submit(Op *op);

/* Puts work on a stream, which takes it over, in any case; or into the graph that is captured from the stream. */
cudaError_t stream_submit(Stream *stream, Work *work);

/* Makes an operation follow what its stream has so far: the stream's own, and what the legacy stream's rule adds. */
void op_follow_stream(Op *op);

/* True when the operation at this point has run. */
bool point_passed(const Point *point);

/* Runs operations, in the order of the policy, until the one at the point is done; until all are. The host then knows. */
void queue_run_until(const Point *point);
void queue_run_all(void);

/* Runs one operation, if one can run: for questions about progress. The other for the moment after a submission, by the seed. */
void queue_progress(void);
void queue_eager(void);

/* The operation that runs now, NULL outside. */
const Op *op_running(void);

/* Milliseconds since some moment. */
double clock_ms(void);

/* Forgets all streams and operations. */
void queue_reset(void);

/* ---- graph.c ---- */

/* Puts work into the graph that is captured from the stream, which takes it over. */
cudaError_t capture_add(Stream *stream, Work *work);

/* Ends with an error, and spoils the capture, when a call is made that may not be made now: on a captured stream, or, with NULL,
 * anywhere in the program. */
cudaError_t capture_forbids(const Stream *stream);
/* The same for the legacy stream, on which work would have to wait for a captured one. */
cudaError_t capture_forbids_legacy(void);

/* For events: where the capture of a stream stands, and continuing from there on another stream. */
typedef struct CapturePoint {
    uint64_t id; /* of the capture; 0: none */
    int *front, count;
} CapturePoint;
cudaError_t capture_mark(const Stream *stream, CapturePoint *mark);
bool capture_active(const CapturePoint *mark);
cudaError_t capture_wait(Stream *stream, const CapturePoint *mark);
cudaError_t capture_spoil(const CapturePoint *mark, cudaError_t e); /* returns e */

/* Forgets captures and graphs. */
void graph_reset(void);

/* ---- stream.c, event.c ---- */

/* Has it been passed: success, or cudaErrorNotReady. Runs something first: whoever asks again and again must see progress. */
cudaError_t point_query(const Point *point);

void event_reset(void);

/* ---- fatbin.c ---- */

typedef struct Image {
    char *ptx;   /* text, NULL: none that the card can run; to be freed */
    char *name;  /* of the source file; to be freed */
    int sass;    /* machine-code images passed over */
    bool packed; /* PTX was there but could not be decompressed */
} Image;

/* Finds the PTX for the highest capability that is not above `capability` in a fat binary. */
Image fatbin_read(const void *fatbin, int capability);

/* ---- module.c, launch.c ---- */

typedef struct Kernel {
    struct Module *module;
    const void *host;         /* the stub of the host code, which names the kernel */
    const char *name, *title; /* mangled; for people */
    int dynamic_max;          /* bytes of dynamic shared memory opted into; -1: not asked */
    VmKernel *code;           /* NULL until its module is loaded */
    const VmKernelInfo *info;
    int launches;
    double ms; /* that they took */
} Kernel;

/* The kernel of a host stub or of a handle that __cudaGetKernel gave, its module loaded. */
cudaError_t kernel_find(const void *host, Kernel **kernel);

/* Address and size of a __device__ or __constant__ variable, from the host's shadow of it. */
cudaError_t variable_find(const void *host, uint64_t *address, uint64_t *bytes);

/* Forgets what was loaded, not what was registered. */
void module_reset(void);

/* ---- observe.c ---- */

/* After each launch, and when a kernel is loaded: what the environment asks for. */
void profile_launch(Kernel *k);
void mutation_apply(const Kernel *k);

#endif
