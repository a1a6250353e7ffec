/* Counters of what a launch does: instructions by class always, memory traffic with options.profile. */
#ifndef SOFTGPU_PROFILE_H
#define SOFTGPU_PROFILE_H

#include "tests/softgpu/vm/machine.h"

/* Zeroes the kernel's counters and the touched sectors; adds up the counters into kernel->profile. */
void profile_begin(Launch *launch);
void profile_end(Launch *launch);

/* Counts one request of the lanes in w->mask: `bytes` a lane at the device address, or at the offset in shared memory. */
void count_global(Warp *w, const Insn *i, const uint64_t *address, int bytes, bool writes);
void count_shared(Warp *w, const Insn *i, const uint64_t *offset, int bytes);
/* Of the same only the phases and conflicts. */
void count_banks(Warp *w, const Insn *i, const uint64_t *offset, int bytes);

#endif
