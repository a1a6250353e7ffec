/* `tally plan`: the memory plan and the cost of a run, without running it. It takes the settings of `tally train`, so that
 * the same flags give the same plan. */
#include "tools/commands.h"

#include "model/ledger.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

static bool plan_print(const Trainer *t, Error *e)
{
    if (!t->options.json) {
        ledger_print(stdout, &t->model, t->options.verbose);
        return true;
    }
    json_t *object = ledger_json(&t->model);
    bool ok = object && json_dumpf(object, stdout, JSON_INDENT(1)) == 0;
    printf("\n");
    json_decref(object);
    return ok || error_set(e, "the plan cannot be written as JSON");
}

int plan_main(int argc, char **argv)
{
    Error e = {0};
    Trainer t;
    memset(&t, 0, sizeof t);
    t.options = train_options_default();
    bool ok = trainer_plan(&t, argc, argv, &e) && plan_print(&t, &e) && trainer_fits(&t, &e);
    trainer_close(&t);
    if (!ok)
        fprintf(stderr, "tally plan: %s\n", e.text);
    return ok ? 0 : e.usage ? 2 : 1;
}
