/* What `tally plan` shares with `tally report --plan` and `tally bench`. */
#ifndef TALLY_TOOLS_PLAN_H
#define TALLY_TOOLS_PLAN_H

#include "tools/cards.h"
#include "train/trainer.h"

/* Puts the memory of --vram or --card into t->room, when one is asked for, and the card, or NULL, into *card. The loader's tokens
 * lie in the host's memory then. An unknown card is a usage error that lists the known ones. */
bool plan_room(Trainer *t, const Card **card, Error *e);

/* Tokens of an optimizer step. */
double step_tokens(const Trainer *t);

#endif
