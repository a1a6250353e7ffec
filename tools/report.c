/* `tally report`: a run, or a plan, as one HTML file that needs nothing else: its memory, its curves, its precisions, and the
 * command that does it again.
 *
 * Of a run it reads log.jsonl, whose first line has the settings, the model and the machine, and plans that run again. Should
 * another version of tally have taken other bytes than this one plans, the page says so. */
#include "tools/commands.h"
#include "tools/plan.h"
#include "tools/report.h"

#include "base/options.h"
#include "base/json.h"
#include "model/ledger.h"

#include <stdlib.h>
#include <string.h>

static const char template[] =
#include "report.inc"
    ;

static const char usage[] =
    "usage: tally report RUN_DIR [--out FILE] [--amp FILE]\n"
    "       tally report --plan [SETTINGS] [--out FILE] [--amp FILE]\n\n"
    "Writes one HTML file about a run (RUN_DIR/report.html) or a plan (plan.html): what is alive during a training step, at "
    "each\n"
    "recompute level, memory by category and layer, the curves of the log, and the settings.\n\n"
    "  RUN_DIR      the --out-dir of a `tally train`\n"
    "  --plan       the settings of a `tally plan`, as given to it (tally plan --help lists them)\n"
    "  --out FILE   where to write\n"
    "  --amp FILE   what `tally bench amp --json` has printed; default: RUN_DIR/bench-amp.json, if there is one\n";

/* ---- The command line ----------------------------------------------------------------------------------------------- */

typedef struct Arguments {
    bool plan, help;
    const char *dir, *out, *amp;
    int count; /* of the arguments that are left: argv[0] and those of the plan */
} Arguments;

/* The value of `--name value` or `--name=value` at argv[*i], or NULL when that is something else. */
static const char *value_at(const char *name, int *i, int argc, char **argv)
{
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0 || (argv[*i][n] && argv[*i][n] != '='))
        return NULL;
    return argv[*i][n] ? argv[*i] + n + 1 : *i + 1 < argc ? argv[++*i] : "";
}

/* Takes what is the report's own out of argv. */
static bool arguments_take(Arguments *a, int argc, char **argv, Error *e)
{
    args_dashes(argc, argv);
    *a = (Arguments){.count = 1};
    for (int i = 1; i < argc; i++) {
        const char *out = value_at("--out", &i, argc, argv), *amp = out ? NULL : value_at("--amp", &i, argc, argv);
        if ((out && !*out) || (amp && !*amp))
            return error_usage(e, "%s: needs a file", out ? "--out" : "--amp");
        a->out = out ? out : a->out;
        a->amp = amp ? amp : a->amp;
        if (strcmp(argv[i], "--plan") == 0)
            a->plan = true;
        else if (!out && !amp)
            argv[a->count++] = argv[i];
    }
    argv[a->count] = NULL;
    a->dir = !a->plan && a->count == 2 && argv[1][0] != '-' ? argv[1] : NULL;
    a->help = !a->plan && a->count == 2 && strcmp(argv[1], "--help") == 0;
    return a->plan || a->dir || a->help ||
           error_usage(e, "give one RUN_DIR, or --plan and settings; tally report --help says more");
}

/* ---- What is reported ----------------------------------------------------------------------------------------------- */

static bool levels_plan(Report *r, const ModelConfig *config, const ModelRun *run, const Target *target, Error *e)
{
    r->own = run->recompute;
    for (int i = 0; i < RECOMPUTE_COUNT; i++) {
        ModelRun at = *run;
        at.recompute = (Recompute)i;
        at.recompute_every = i == RECOMPUTE_BLOCK ? run->recompute_every : 1;
        if (!model_plan(&r->level[i], config, &at, target, e))
            return false;
    }
    return true;
}

static bool plan_gather(Report *r, Trainer *t, int argc, char **argv, Error *e)
{
    const Card *card;
    if (!trainer_settings(t, NULL, argc, argv, e) || !plan_room(t, &card, e) || !trainer_plan(t, e))
        return false;
    if (t->options.json || t->options.what_if)
        return error_usage(e, "json and what_if are for tally plan; a report has its data in it, and all recompute levels");
    r->room = t->room;
    r->accumulation = t->options.gradient_accumulation_steps;
    r->settings = json_incref(t->settings);
    return levels_plan(r, &t->model.config, &t->model.run, &t->model.ctx.target, e);
}

typedef struct Field {
    const char *name;
    int64_t *at;
    int64_t least;
} Field;

static bool fields_read(const json_t *object, const Field *field, size_t n, Error *e)
{
    for (size_t i = 0; i < n; i++)
        if (!json_get_int(object, field[i].name, field[i].least, INT32_MAX, field[i].at, true, e))
            return false;
    return true;
}

/* The model of the run, as its log has it. */
static bool config_read(ModelConfig *f, const json_t *model, Error *e)
{
    const Field field[] = {{"n_layer", &f->n_layer, 1},       {"n_head", &f->n_head, 1},
                           {"n_kv_head", &f->n_kv_head, 1},   {"n_embd", &f->n_embd, 1},
                           {"n_inner", &f->n_inner, 1},       {"block_size", &f->block_size, 1},
                           {"vocab_size", &f->vocab_size, 1}, {"vocab_multiple", &f->vocab_multiple, 1}};
    return fields_read(model, field, sizeof field / sizeof *field, e) && json_get_bool(model, "bias", &f->bias, true, e) &&
           json_get_double(model, "dropout", 0, 1, &f->dropout, true, e);
}

/* Its machine. */
static bool target_read(Target *t, const json_t *configuration, Error *e)
{
    int64_t kind, threads, isa, capability, sm_count;
    const Field field[] = {{"kind", &kind, DEVICE_CPU},
                           {"threads", &threads, 1},
                           {"isa", &isa, ISA_PLAIN},
                           {"capability", &capability, 0},
                           {"sm_count", &sm_count, 0}};
    const char *name;
    json_t *machine;
    if (!json_get_object(configuration, "machine", &machine, true, e) ||
        !json_get_string(configuration, "target", &name, true, e) ||
        !fields_read(machine, field, sizeof field / sizeof *field, e) ||
        !json_get_bool(machine, "bf16_gemm", &t->bf16_gemm, true, e) || !json_get_bool(machine, "tf32", &t->tf32, true, e))
        return false;
    if ((kind != DEVICE_CPU && kind != DEVICE_CUDA) || isa > ISA_X86_V4 || threads > 4096 || (kind == DEVICE_CUDA && !sm_count))
        return error_set(e, "machine: there is none of kind %ld with %ld threads, isa %ld and %ld multiprocessors", kind, threads,
                         isa, sm_count);
    t->kind = (DeviceKind)kind;
    t->threads = (int)threads;
    t->isa = (Isa)isa;
    t->capability = (int)capability;
    t->sm_count = (int)sm_count;
    snprintf(t->name, sizeof t->name, "%s", name);
    return true;
}

static bool run_gather(Report *r, TrainOptions *o, Error *e)
{
    json_t *model;
    ModelConfig config;
    ModelRun run;
    Target target = {0};
    if (!log_read(&r->log, r->dir, e))
        return false;
    bool ok = json_get_object(r->log.configuration, "settings", &r->settings, true, e) && json_incref(r->settings) &&
              json_get_object(r->log.configuration, "model", &model, true, e) && config_read(&config, model, e) &&
              target_read(&target, r->log.configuration, e) && train_options_from_json(o, r->settings, "settings", e);
    o->block_size = ok && !o->block_size ? config.block_size : o->block_size;
    r->accumulation = o->gradient_accumulation_steps;
    ok = ok && train_options_run(o, &run, e) && levels_plan(r, &config, &run, &target, e);
    return ok || error_prefix(e, "%s/log.jsonl:1", r->dir);
}

/* The comparison of precisions: the file that --amp names, or the run's own, if there is one. */
static bool amp_gather(Report *r, const char *file, Error *e)
{
    char path[PATH_SIZE] = "";
    if (!file && r->dir && !path_join(path, r->dir, "bench-amp.json", e))
        return false;
    if (file || (*path && file_exists(path)))
        r->amp = json_read(file ? file : path, e);
    return !e->set;
}

/* ---- The page ------------------------------------------------------------------------------------------------------- */

static void data_write(FILE *out, Report *r)
{
    json_t *levels = json_array();
    for (int i = 0; i < RECOMPUTE_COUNT; i++)
        json_array_append_new(levels, ledger_json(&r->level[i], r->accumulation));
    json_object_set_new(r->data, "levels", levels);
    json_object_set_new(r->data, "own", json_integer(r->own));
    json_object_set(r->data, "settings", r->settings);
    json_object_set(r->data, "amp", r->amp);
    html_data(out, r->data, r->error);
}

/* Fills in the template: <!--name--> is replaced by what the part of that name writes; from the "if" of an absent part up to the
 * next <!--end--> all is left out. */
static void template_fill(FILE *out, Report *r)
{
    const struct {
        const char *name;
        void (*write)(FILE *, Report *); /* NULL: the beginning of a part that may be absent */
        bool absent;
    } part[] = {{"title", report_title, false},
                {"summary", report_summary, false},
                {"facts", report_facts, false},
                {"levels", report_levels, false},
                {"mountains", report_mountains, false},
                {"legend", report_legend, false},
                {"split", report_split, false},
                {"if log", NULL, r->log.count == 0},
                {"curves", report_curves, false},
                {"if amp", NULL, json_array_size(json_object_get(r->amp, "precisions")) == 0},
                {"amp", report_amp, false},
                {"command", report_again, false},
                {"data", data_write, false}};
    const char *at = template, *hole;
    while ((hole = strstr(at, "<!--"))) {
        fwrite(at, 1, (size_t)(hole - at), out);
        at = strstr(hole, "-->") + 3;
        for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
            size_t n = strlen(part[i].name);
            if (strncmp(hole + 4, part[i].name, n) != 0 || hole + 4 + n + 3 != at)
                continue;
            if (part[i].write)
                part[i].write(out, r);
            else if (part[i].absent)
                at = strstr(at, "<!--end-->");
        }
    }
    fputs(at, out);
}

static bool page_write(Report *r, const char *path, Error *e)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    r->error = e;
    r->data = json_object();
    if (out && r->data)
        template_fill(out, r);
    if (!out || !r->data || ferror(out) || fclose(out) != 0)
        error_set(e, "out of memory for the page");
    bool ok = !e->set && file_write_atomic(path, text, size, e);
    free(text);
    if (ok)
        printf("%s, %.2f MiB\n", path, (double)size / 0x1p20);
    return ok;
}

static void report_free(Report *r)
{
    for (int i = 0; i < RECOMPUTE_COUNT; i++)
        model_free(&r->level[i]);
    log_free(&r->log);
    json_decref(r->settings);
    json_decref(r->amp);
    json_decref(r->data);
}

bool report_command(int argc, char **argv, Error *e)
{
    Arguments a;
    Trainer t;
    Report r;
    char path[PATH_SIZE] = "plan.html";
    memset(&t, 0, sizeof t);
    memset(&r, 0, sizeof r);
    t.options = train_options_default();
    bool ok = arguments_take(&a, argc, argv, e);
    if (ok && a.help) {
        fputs(usage, stdout);
        return true;
    }
    r.dir = a.dir;
    r.words = argv + 1;
    if (ok && a.dir)
        ok = run_gather(&r, &t.options, e) && path_join(path, a.dir, "report.html", e);
    else if (ok)
        ok = plan_gather(&r, &t, a.count, argv, e);
    ok = ok && amp_gather(&r, a.amp, e) && page_write(&r, a.out ? a.out : path, e);
    trainer_close(&t);
    report_free(&r);
    return ok;
}
