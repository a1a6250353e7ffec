/* Which of two accesses of a block's threads came first, if that is certain: for shared memory and for global memory within a
 * block.
 *
 * Between warps a barrier orders (the second warp knows that the first one's time of the access has passed), within a warp
 * anything that makes its lanes wait for each other (its time has moved on). Lanes of a warp run in lockstep here and the result
 * would come out right; on a card it need not.
 *
 * Two readers are remembered, which is enough: a write is in order with all readers if it is in order with one of each kind,
 * another warp's and its own warp's, unless two other warps read and only one of them is ordered; then the order of warps or
 * another block finds it. */
#ifndef SOFTGPU_RACE_H
#define SOFTGPU_RACE_H

#include "tests/softgpu/vm/machine.h"

static inline int stamp_thread(Stamp s)
{
    return (int)(s & ((1u << STAMP_SHIFT) - 1));
}

static inline Stamp stamp_now(const Warp *w, int lane)
{
    return (uint32_t)(w->id * LANES + lane) | w->time << STAMP_SHIFT;
}

/* Did the access s happen before what the lane with the stamp `now` does? */
static inline bool ordered(const Warp *w, Stamp s, Stamp now)
{
    int v = stamp_thread(s) / LANES;
    uint32_t time = s >> STAMP_SHIFT;
    return s == 0 || stamp_thread(s) == stamp_thread(now) || (v == w->id ? time != w->time : w->known[v] >= time);
}

/* Remembers a reader: in a free place, the same thread's, or that of one of the own warp, so that another warp's stays. */
static inline void reader_add(const Warp *w, Stamp read[2], Stamp now)
{
    int r = 0;
    while (r < 2 && read[r] != 0 && stamp_thread(read[r]) != stamp_thread(now))
        r++;
    if (r == 2)
        r = stamp_thread(read[0]) / LANES == w->id && stamp_thread(read[1]) / LANES != w->id ? 0 : 1;
    read[r] = now;
}

#endif
