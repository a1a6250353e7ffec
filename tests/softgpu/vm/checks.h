/* The checks of memory accesses: bounds and alignment always; initialisation and races in check mode.
 *
 * Each function looks at the lanes of w->mask. It returns true when all is well, and false after it has recorded a fault. */
#ifndef SOFTGPU_CHECKS_H
#define SOFTGPU_CHECKS_H

#include "tests/softgpu/vm/machine.h"

/* Called around a launch and before each block, in any mode. */
void checks_launch(Launch *launch);
void checks_end(Launch *launch);
void checks_begin(Block *b);

/* Lane by lane: `bytes` at the address lie in one live allocation (one shared variable, the local frame), at a multiple of
 * `bytes`. The fast path of ops_memory.c has found that not all lanes lie in the same. (checks.c) */
bool global_bounds(Warp *w, const Insn *i, const uint64_t *address, int bytes, Access access);
bool shared_bounds(Warp *w, const Insn *i, const uint64_t *offset, int bytes);
bool local_bounds(Warp *w, const Insn *i, const uint64_t *offset, int bytes);

/* Check mode, shared memory. A cp.async writes twice: when it is issued (its target must then not be touched) and when its wait
 * is over. (race_shared.c) */
typedef enum SharedUse { SHARED_READ, SHARED_WRITE, SHARED_ATOMIC, SHARED_COPY_ISSUED, SHARED_COPY_DONE } SharedUse;
bool shared_race(Warp *w, const Insn *i, const uint64_t *offset, int bytes, SharedUse use);

/* Check mode, global memory. (race_global.c) */
bool global_race(Warp *w, const Insn *i, const uint64_t *address, int bytes, Access access);
/* A fence has been executed; an atomic on each lane's address comes, which may be generic. (race_global.c) */
void global_fence(Block *b);
void global_release(Warp *w, const uint64_t *address);

#endif
