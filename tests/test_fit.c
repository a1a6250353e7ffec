/* model/fit, model/what_if, tools/cards: what is chosen is the best of all there is, by trying all; and what is said is true. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/what_if.h"
#include "tests/model_rig.h"
#include "tools/cards.h"

/* ---- Choosing ------------------------------------------------------------------------------------------------------ */

enum { RUNGS = 7, DIVISORS = 6, SEQUENCES = 12, CASES = 6 };

static const struct {
    Recompute level;
    int64_t every;
} rungs[RUNGS] = {{RECOMPUTE_NONE, 1},  {RECOMPUTE_NORM, 1},  {RECOMPUTE_ATTENTION, 1}, {RECOMPUTE_BLOCK, 1},
                  {RECOMPUTE_BLOCK, 2}, {RECOMPUTE_BLOCK, 3}, {RECOMPUTE_BLOCK, 4}};

static Precision named(const char *name)
{
    Error e = {0};
    Precision p;
    if (!precision_parse(name, &p, &e))
        fail_msg("%s", e.text);
    return p;
}

/* 3 x 4 sequences a step; the last case is so deep that keeping the input of every second or third block saves memory. */
static void case_plan(Rig *r, int i)
{
    static const char *const policies[] = {"fp32", "bf16", "fp16"};
    static const int64_t layers[CASES] = {2, 4, 6, 8, 3, 72};
    rig_draws = (uint64_t)(100 * i);
    RigShape s = rig_small_shape();
    s.config.n_layer = layers[i];
    s.config.dropout = i % 2 ? 0.1 : 0;
    s.run.block_size = rig_between(9, 19);
    s.run.precision = named(policies[i % 3]);
    s.run.batch_size = 4;
    rig_plan(r, &s);
}

/* All settings that there are, planned one by one. */
static void all_plan(Setting all[RUNGS][DIVISORS], const Rig *r, bool loader)
{
    static const int64_t divisor[DIVISORS] = {1, 2, 3, 4, 6, 12};
    Target target = rig_target(r->m.ctx.target.threads);
    for (int k = 0; k < RUNGS; k++)
        for (int b = 0; b < DIVISORS; b++) {
            Error e = {0};
            Model m;
            ModelRun run = r->m.run;
            run.recompute = rungs[k].level;
            run.recompute_every = rungs[k].every;
            run.batch_size = divisor[b];
            if (!model_plan(&m, &r->m.config, &run, &target, &e))
                fail_msg("%s", e.text);
            int64_t flops = 0;
            for (int64_t i = 0; i < m.plan.log.count; i++) {
                const DryOp *op = &m.plan.log.op[i];
                if (op->phase == PHASE_FORWARD || op->phase == PHASE_RECOMPUTE || op->phase == PHASE_BACKWARD)
                    flops += op->gemm_flops + op->other_flops;
            }
            assert_int_equal(flops % divisor[b], 0);
            size_t tokens = loader ? 8 * (size_t)(run.block_size * (2 * SEQUENCES + divisor[b])) : 0;
            all[k][b] = (Setting){.recompute = rungs[k].level,
                                  .recompute_every = rungs[k].every,
                                  .batch_size = divisor[b],
                                  .accumulation = SEQUENCES / divisor[b],
                                  .bytes = (double)(plan_total_bytes(&m.plan) + tokens),
                                  .flops = flops / divisor[b]};
            model_free(&m);
        }
}

/* Fewest FLOPs, then the largest micro-batch; NULL when none fits. */
static const Setting *best_of(const Setting all[RUNGS][DIVISORS], double bytes)
{
    const Setting *best = NULL;
    for (int i = 0; i < RUNGS * DIVISORS; i++) {
        const Setting *s = &all[i / DIVISORS][i % DIVISORS];
        if (s->bytes <= bytes &&
            (!best || s->flops < best->flops || (s->flops == best->flops && s->batch_size > best->batch_size)))
            best = s;
    }
    return best;
}

/* With just the memory that a setting needs, and a byte less, for every setting. */
static void test_fit_is_the_best(void **state)
{
    (void)state;
    Setting all[RUNGS][DIVISORS];
    for (int i = 0; i < CASES; i++) {
        Rig r;
        Room room = {.loader = i % 2};
        case_plan(&r, i);
        all_plan(all, &r, room.loader);
        bool deep = i == CASES - 1; /* and takes long to plan */
        for (int k = 0; k < 2 * RUNGS * (deep ? 1 : DIVISORS); k++) {
            Setting chosen;
            Error e = {0};
            room.bytes = all[k / 2 % RUNGS][k / 2 / RUNGS].bytes - k % 2;
            const Setting *best = best_of(all, room.bytes);
            assert_int_equal(fit_choose(&chosen, &r.m, 3, &room, &e), best != NULL);
            if (!best) {
                assert_true(e.usage && strstr(e.text, "nothing fits"));
                continue;
            }
            assert_true(chosen.bytes == best->bytes && chosen.flops == best->flops);
            assert_int_equal(chosen.batch_size, best->batch_size);
            assert_int_equal(chosen.accumulation, best->accumulation);
            assert_int_equal(chosen.recompute, best->recompute);
            assert_int_equal(chosen.recompute_every, best->recompute_every);
        }
        rig_free(&r);
    }
}

/* When nothing fits, the message names the setting that needs least, and how much: with so much it fits. */
static void test_nothing_fits(void **state)
{
    (void)state;
    Rig r;
    Room room = {.bytes = 1000, .what = "of the tin"};
    Setting all[RUNGS][DIVISORS], chosen;
    Error e = {0};
    case_plan(&r, 3);
    all_plan(all, &r, false);
    const Setting *least = &all[0][0];
    for (int k = 0; k < RUNGS; k++)
        least = all[k][0].bytes < least->bytes ? &all[k][0] : least;
    assert_false(fit_choose(&chosen, &r.m, 3, &room, &e));
    assert_non_null(strstr(e.text, "the 1000 B of the tin"));
    SettingText flags;
    assert_non_null(strstr(e.text, setting_text(flags, least)));
    room.bytes = least->bytes;
    e = (Error){0};
    assert_true(fit_choose(&chosen, &r.m, 3, &room, &e));
    assert_true(chosen.bytes == least->bytes);
    rig_free(&r);
}

/* 17 sequences: only 1 and 17 divide them. */
static void test_a_prime_number_of_sequences(void **state)
{
    (void)state;
    Rig r;
    RigShape s = rig_small_shape();
    s.run.batch_size = 17;
    rig_plan(&r, &s);
    Room room = {.bytes = (double)plan_total_bytes(&r.m.plan)};
    Setting chosen;
    Error e = {0};
    assert_true(fit_choose(&chosen, &r.m, 1, &room, &e));
    assert_int_equal(chosen.batch_size, 17);
    assert_int_equal(chosen.recompute, RECOMPUTE_NONE);
    room.bytes--;
    assert_true(fit_choose(&chosen, &r.m, 1, &room, &e));
    assert_int_equal(chosen.batch_size, 1);
    assert_int_equal(chosen.accumulation, 17);
    assert_int_equal(chosen.recompute, RECOMPUTE_NONE); /* no FLOPs are spent on a larger micro-batch */
    rig_free(&r);
}

/* ---- Advice -------------------------------------------------------------------------------------------------------- */

static void advice_get(Error *e, const Rig *r, double bytes)
{
    Room room = {.bytes = bytes, .what = "of the tin"};
    *e = (Error){0};
    assert_false(fit_check(&r->m, 3, &room, e));
    assert_true(e->usage && strstr(e->text, "of the tin"));
}

/* The first level that helps, and the largest micro-batch that does; both at once where neither is enough. */
static void test_advice(void **state)
{
    (void)state;
    Rig r;
    RigShape s = rig_small_shape();
    Error e = {0};
    s.config.n_layer = 6;
    s.run.batch_size = 4;
    rig_plan(&r, &s);
    Setting all[RUNGS][DIVISORS];
    all_plan(all, &r, false);
    Room exact = {.bytes = (double)plan_total_bytes(&r.m.plan), .what = "of the tin"};
    assert_true(fit_check(&r.m, 3, &exact, &e));
    advice_get(&e, &r, exact.bytes - 1);
    assert_non_null(strstr(e.text, "--recompute norm fits, and so does --batch-size 3 ("));
    assert_non_null(strstr(e.text, "1 B more than"));
    advice_get(&e, &r, all[1][3].bytes - 1);
    assert_non_null(strstr(e.text, "--recompute attention fits, and so does --batch-size 2 ("));
    double little = all[0][0].bytes < all[3][3].bytes ? all[0][0].bytes : all[3][3].bytes;
    for (int k = 4; k < RUNGS; k++)
        little = all[k][3].bytes < little ? all[k][3].bytes : little;
    advice_get(&e, &r, little - 1);
    long long batch, accumulation;
    char level[16];
    const char *flags = strstr(e.text, "--batch-size ");
    assert_non_null(flags);
    assert_int_equal(
        sscanf(flags, "--batch-size %lld --gradient-accumulation-steps %lld --recompute %15s fits", &batch, &accumulation, level),
        3);
    Setting both = setting_of(&r.m, accumulation, &exact);
    both.batch_size = batch;
    assert_true(recompute_parse(level, &both.recompute));
    setting_plan(&both, &r.m, &exact);
    assert_true(both.bytes < little && both.recompute > RECOMPUTE_NONE && batch * accumulation >= SEQUENCES);
    advice_get(&e, &r, 1000);
    assert_non_null(strstr(e.text, "no batch_size fits at any recompute level"));
    assert_non_null(strstr(e.text, "the largest part is "));
    rig_free(&r);
}

/* ---- What if ------------------------------------------------------------------------------------------------------- */

static void test_what_if(void **state)
{
    (void)state;
    static WhatIf w;
    Rig r;
    RigShape s = rig_small_shape();
    s.run.batch_size = 6;
    s.run.precision = named("bf16");
    s.run.precision.grad = DTYPE_BF16; /* none of the named policies */
    rig_plan(&r, &s);
    Room room = {.bytes = (double)plan_total_bytes(&r.m.plan), .what = "of the tin"};
    what_if_make(&w, &r.m, 2, &room);
    static const int64_t batch[] = {1, 3, 6, 12, 24};
    assert_int_equal(w.n_precisions, 4);
    assert_int_equal(w.n_batches, 5);
    for (int p = 0; p < 4; p++)
        for (int level = 0; level < RECOMPUTE_COUNT; level++)
            for (int b = 0; b < 5; b++) {
                const Setting *x = &w.setting[p][level][b];
                assert_int_equal(x->batch_size, batch[b]);
                assert_int_equal(x->recompute, level);
                assert_true(b == 0 || x->bytes > x[-1].bytes);
                assert_true(x->flops == w.setting[0][level][0].flops);
                assert_true(level == 0 || x->flops > w.setting[p][level - 1][b].flops);
            }
    const Setting *run = &w.setting[3][RECOMPUTE_NONE][2];
    assert_true(run->bytes == room.bytes);
    json_t *list = what_if_json(&w, &r.m, &room), *row;
    size_t i;
    assert_int_equal(json_array_size(list), 4 * 4 * 5);
    json_array_foreach(list, i, row)
    {
        const Setting *x = &w.setting[i / 20][i / 5 % 4][i % 5];
        assert_true(json_number_value(json_object_get(row, "bytes")) == x->bytes);
        assert_int_equal(json_is_true(json_object_get(row, "fits")), x->bytes <= room.bytes);
        assert_true(json_real_value(json_object_get(row, "flops_relative")) >= 1);
        assert_true(json_real_value(json_object_get(row, "flops_per_token")) == (double)x->flops / 13);
    }
    json_decref(list);
    rig_free(&r);
}

/* ---- Cards --------------------------------------------------------------------------------------------------------- */

/* Each line of gpus.csv, read here in another way than the build does. */
static void test_cards_are_the_file(void **state)
{
    (void)state;
    FILE *f = fopen("tools/gpus.csv", "r");
    char line[1024];
    int rows = 0, names = 1;
    Error e = {0}, unknown = {0};
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#' || strncmp(line, "name,", 5) == 0)
            continue;
        char *rest = line, *field = strsep(&rest, ",\n");
        const Card *c = card_find(field, &e);
        assert_non_null(c);
        rows++;
        const double number[] = {atof(c->capability),
                                 c->sms,
                                 c->boost_mhz,
                                 c->vram_gib,
                                 c->bandwidth_gbs,
                                 c->l2_mib,
                                 c->fp32,
                                 c->tf32,
                                 c->fp16_acc32,
                                 c->fp16_acc16,
                                 c->bf16,
                                 c->fp8,
                                 c->int8,
                                 c->headline,
                                 c->nvlink_gbs,
                                 c->pcie_generation,
                                 c->pcie_lanes,
                                 (double)c->watts};
        assert_string_equal(field, c->name);
        for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
            field = strsep(&rest, ",\n");
            assert_non_null(field);
            assert_true(number[i] == (*field ? atof(field) : 0));
        }
        assert_string_equal(rest, "");
    }
    fclose(f);
    assert_null(card_find("none", &unknown)); /* "... in the list: GTX 1060 6GB, ..., B200. For another one say --vram" */
    for (const char *at = strstr(unknown.text, "list: "); (at = strstr(at + 1, ", "));)
        names++;
    assert_int_equal(rows, names);
}

static void test_cards(void **state)
{
    (void)state;
    Error e = {0};
    const char *units;
    const Card *c = card_find("rtx 4060", &e), *pascal = card_find("GTX 1060 6gb", &e), *volta = card_find("V100-SXM2-32GB", &e);
    assert_true(c && pascal && volta);
    Precision fp32 = named("fp32"), bf16 = named("bf16"), fp16 = named("fp16"), mixed = bf16;
    mixed.act = DTYPE_F32;
    assert_string_equal(c->name, "RTX 4060");
    assert_true(card_bytes(c) == 8 * 0x1p30);
    assert_true(card_gemm_peak(c, &fp32, &units) == 15.1e12 && strcmp(units, "fp32") == 0);
    assert_true(card_gemm_peak(c, &bf16, &units) == 30.2e12 && strcmp(units, "bf16") == 0);
    assert_true(card_gemm_peak(c, &fp16, &units) == 30.2e12 && strcmp(units, "fp16") == 0); /* added up in FP32: not 60.5 */
    assert_true(card_gemm_peak(c, &mixed, &units) == 15.1e12 && strcmp(units, "fp32") == 0);
    assert_true(card_gemm_peak(volta, &bf16, &units) == 15.67e12 && strcmp(units, "fp32") == 0); /* there are no such units */
    assert_true(card_gemm_peak(pascal, &fp16, &units) == 4.37e12 && strcmp(units, "fp32") == 0);
    assert_null(card_find("RTX 9999", &e));
    assert_true(e.usage && strstr(e.text, "RTX 9999") && strstr(e.text, "GTX 1060 6GB, ") && strstr(e.text, ", B200. "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit_is_the_best),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_a_prime_number_of_sequences),
        cmocka_unit_test(test_advice),
        cmocka_unit_test(test_what_if),
        cmocka_unit_test(test_cards_are_the_file),
        cmocka_unit_test(test_cards),
    };
    return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
