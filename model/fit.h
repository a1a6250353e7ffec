/* What fits: the memory that a run has to do with, the same run in other settings, and the one to take.
 *
 * Other settings are planned like the run itself, which takes milliseconds: what is said about them is what would be allocated.
 */
#ifndef TALLY_MODEL_FIT_H
#define TALLY_MODEL_FIT_H

#include "model/model.h"

#include <stdio.h>

/* The memory that a run has to fit into. */
typedef struct Room {
    double bytes;
    char what[80]; /* for people, after the bytes: "there is free", "of the RTX 4060" */
    bool loader;   /* the loader's tokens lie there too: on the CPU, not on a card    */
} Room;

/* The target's, that of this machine or of its GPU: what is free, or `cap` bytes (0: none) if that is less. */
Room room_here(const Target *target, double cap);

/* Where a run may differ and still be the same training: accumulation x batch_size sequences a step. */
typedef struct Setting {
    Precision precision;
    Recompute recompute;
    int64_t recompute_every;
    int64_t batch_size, accumulation;

    double bytes;  /* that it needs in all; infinite when there can be no such run               */
    int64_t flops; /* executed for one sequence: forward, recomputation, backward; 0 when none   */
} Setting;

/* That of a planned training run. */
Setting setting_of(const Model *m, int64_t accumulation, const Room *room);

/* Plans m's run in the setting on m's target: fills in bytes and flops. */
void setting_plan(Setting *s, const Model *m, const Room *room);

/* Does the planned run fit? If not, a usage error: by how much, which category is largest, and the nearest settings that fit. */
bool fit_check(const Model *m, int64_t accumulation, const Room *room, Error *e);

/* Among the settings with as many sequences a step, in m's precision, that fit: the one with the fewest executed FLOPs, and among
 * equals with the largest micro-batch. The micro-batch divides the step's sequences. False with a usage error that says what the
 * most frugal one needs when none fits. */
bool fit_choose(Setting *best, const Model *m, int64_t accumulation, const Room *room, Error *e);

/* "--batch-size 4 --gradient-accumulation-steps 3 --recompute block", into text, which is returned. */
typedef char SettingText[160];
const char *setting_text(SettingText text, const Setting *s);

#endif
