/* `tally plan`: the memory plan and the cost of a run, without running it. It takes the settings of `tally train`, so that
 * the same flags give the same plan. */
#include "tools/commands.h"

#include "model/ledger.h"
#include "train/options.h"

#include <stdio.h>
#include <string.h>

static bool config_choose(TrainOptions *o, ModelConfig *config, Error *e)
{
    if (o->init_from[0] ? !model_config_load(o->init_from, config, e) : !model_config_preset(o->model, config, e))
        return false;
    if (!o->init_from[0] && o->block_size)
        config->block_size = o->block_size;
    train_options_model(o, config);
    o->block_size = o->block_size ? o->block_size : config->block_size;
    return true;
}

static bool plan(Model *m, TrainOptions *o, Error *e)
{
    ModelConfig config;
    Target target;
    if (!cpu_device(&target, (int)o->threads, e) || !config_choose(o, &config, e))
        return false;
    ModelRun run;
    return train_options_run(o, &run, e) && model_plan(m, &config, &run, &target, e);
}

int plan_main(int argc, char **argv)
{
    Error e = {0};
    Model m;
    memset(&m, 0, sizeof m);
    bool json = train_options_flag(&argc, argv, "--json");
    TrainOptions o = train_options_default();
    strcpy(o.model, "gpt2");
    char checkpoint[PATH_SIZE];
    json_t *trainer = NULL;
    bool ok = train_options_parse(&o, argc, argv, checkpoint, &trainer, &e) && plan(&m, &o, &e);
    if (ok && json) {
        json_t *object = ledger_json(&m);
        ok = object && json_dumpf(object, stdout, JSON_INDENT(1)) == 0;
        printf("\n");
        json_decref(object);
    } else if (ok) {
        ledger_print(stdout, &m, o.verbose);
    }
    ok = ok && ledger_check(&m, o.mem_cap, &e);
    model_free(&m);
    json_decref(trainer);
    if (!ok)
        fprintf(stderr, "tally plan: %s\n", e.text);
    return ok ? 0 : e.usage ? 2 : 1;
}
