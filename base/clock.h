/* The time that has passed, for measuring how long things take. */
#ifndef TALLY_BASE_CLOCK_H
#define TALLY_BASE_CLOCK_H

#include <time.h>

/* Seconds on a clock that only goes forward. */
static inline double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
