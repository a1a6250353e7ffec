/* `tally plan`: the memory plan and the cost of a run, without running it, for this machine or for a card that one does not have.
 * It takes the settings of `tally train`, so that the same flags give the same plan.
 *
 * --json is ledger_json's object with "memory" {"bytes", "of", "needed_bytes", "fits", "not_planned"}, and where they are asked
 * for "card" (card_json) and "what_if" (what_if_json). Exit code 2 when the plan does not fit; it is printed all the same. */
#include "tools/commands.h"
#include "tools/plan.h"

#include "base/json.h"
#include "model/ledger.h"
#include "model/what_if.h"

#include <stdio.h>
#include <string.h>

bool plan_room(Trainer *t, const Card **card, Error *e)
{
    const TrainOptions *o = &t->options;
    *card = NULL;
    if (o->card[0] && !(*card = card_find(o->card, e)))
        return false;
    if (*card) {
        t->card = card_target(*card);
        t->room.bytes = card_bytes(*card);
        snprintf(t->room.what, sizeof t->room.what, "of the %s", (*card)->name);
    } else if (o->vram > 0)
        t->card = (Target){.kind = DEVICE_CUDA,
                           .threads = 1,
                           .bf16_gemm = true,
                           .capability = 86,
                           .sm_count = 28,
                           .name = "a GPU of compute capability 8.6, 28 SMs"};
    if (o->vram > 0)
        t->room = (Room){o->vram, "of --vram", false};
    if (t->room.bytes > 0 && o->mem_cap > 0 && o->mem_cap < t->room.bytes)
        t->room = (Room){o->mem_cap, "there may be (--mem-cap)", false};
    return true;
}

/* ---- How fast a card could be -------------------------------------------------------------------------------------- */

/* Seconds that an optimizer step takes at least, and the units that multiply matrices. */
static double seconds_least(const Trainer *t, const Card *card, const char **units)
{
    const Plan *p = &t->model.plan;
    PlanRates rates = {card_gemm_peak(card, &t->model.run.precision, units), 1e12 * card->fp32, 1e9 * card->bandwidth_gbs};
    double micro = 0;
    for (int phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++)
        micro += plan_seconds(p, (Phase)phase, &rates);
    return (double)t->options.gradient_accumulation_steps * micro + plan_seconds(p, PHASE_OPTIMIZER, &rates);
}

double step_tokens(const Trainer *t)
{
    const TrainOptions *o = &t->options;
    return (double)o->batch_size * (double)o->block_size * (double)o->gradient_accumulation_steps;
}

static void card_print(const Trainer *t, const Card *card)
{
    const char *units;
    double seconds = seconds_least(t, card, &units);
    printf("  %s: %d SMs of compute capability %s, %.4g TFLOPS %s, %.4g GB/s: a step takes at least %.3g s, so at most %.3g "
           "tokens/s\n",
           card->name, card->sms, card->capability, card_gemm_peak(card, &t->model.run.precision, &units) / 1e12, units,
           card->bandwidth_gbs, seconds, step_tokens(t) / seconds);
}

static json_t *card_json(const Trainer *t, const Card *card)
{
    const char *units;
    double seconds = seconds_least(t, card, &units);
    return json_pack("{s:s, s:s, s:i, s:f, s:f, s:s, s:f, s:f, s:f}", "name", card->name, "compute_capability", card->capability,
                     "sms", card->sms, "memory_bytes", card_bytes(card), "bandwidth", 1e9 * card->bandwidth_gbs, "gemm_units",
                     units, "gemm_peak", card_gemm_peak(card, &t->model.run.precision, &units), "step_seconds_least", seconds,
                     "tokens_per_s_most", step_tokens(t) / seconds);
}

/* ---- Output -------------------------------------------------------------------------------------------------------- */

static void plan_print(const Trainer *t, const Card *card, const WhatIf *w)
{
    trainer_print_plan(stdout, t);
    if (card)
        card_print(t, card);
    if (!t->room.loader)
        printf("  not planned: driver and context, some hundred MiB of a card's memory (say what is left with --vram)\n");
    if (w)
        what_if_print(stdout, w, &t->room);
}

static bool plan_print_json(const Trainer *t, const Card *card, const WhatIf *w, Error *e)
{
    int64_t accumulation = t->options.gradient_accumulation_steps;
    json_t *object = ledger_json(&t->model, accumulation);
    Setting s = setting_of(&t->model, accumulation, &t->room);
    json_object_set_new(object, "memory",
                        json_pack("{s:f, s:s, s:f, s:b, s:o}", "bytes", t->room.bytes, "of", t->room.what, "needed_bytes",
                                  s.bytes, "fits", s.bytes <= t->room.bytes, "not_planned",
                                  t->room.loader ? json_null() : json_string("driver and context")));
    if (card)
        json_object_set_new(object, "card", card_json(t, card));
    if (w)
        json_object_set_new(object, "what_if", what_if_json(w, &t->model, &t->room));
    return json_print(object, e);
}

bool plan_command(int argc, char **argv, Error *e)
{
    Trainer t;
    WhatIf table, *w = NULL;
    const Card *card;
    memset(&t, 0, sizeof t);
    t.options = train_options_default();
    bool ok = trainer_settings(&t, NULL, argc, argv, e) && plan_room(&t, &card, e) && trainer_plan(&t, e);
    if (ok && t.options.what_if)
        what_if_make(w = &table, &t.model, t.options.gradient_accumulation_steps, &t.room);
    if (ok && t.options.json)
        ok = plan_print_json(&t, card, w, e);
    else if (ok)
        plan_print(&t, card, w);
    ok = ok && trainer_fits(&t, e);
    trainer_close(&t);
    return ok;
}
