/* Learning-rate schedules. */
#ifndef TALLY_TRAIN_SCHEDULE_H
#define TALLY_TRAIN_SCHEDULE_H

#include "base/error.h"

#include <stdint.h>

typedef enum ScheduleKind { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_WSD, SCHEDULE_CONSTANT } ScheduleKind;

/* Step s, 0-based, with warm-up W, end N, peak lr, floor min_lr:
 *   s <  W            lr (s+1) / W                             as in llm.c; nanoGPT divides by W+1
 *   s >= N            min_lr (constant: lr)
 *   else, with p = (s-W) / (N-W):
 *     cosine          min_lr + (lr - min_lr) (1 + cos(pi p)) / 2
 *     linear          lr + (min_lr - lr) p
 *     wsd             lr until the last `decay` share of N, then linear to min_lr ("warm-up, stable, decay")
 *     constant        lr                                                                                        */
typedef struct Schedule {
    ScheduleKind kind;
    int64_t warmup, end;
    double lr, min_lr, decay;
} Schedule;

/* "cosine", "linear", "wsd" or "constant". */
bool schedule_kind_parse(const char *text, ScheduleKind *kind);

/* The rate of step s, counted in optimizer steps. */
double schedule_rate(const Schedule *s, int64_t step);

#endif
