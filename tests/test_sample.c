/* tally sample as a command, and the drawing of a token: the same seed, the same text; greedy text is the argmax of the whole
 * forward; nothing but the vocabulary is ever drawn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/generate.h"
#include "tests/command.h"
#include "train/checkpoint.h"

enum { CONTEXT = 16 };

/* run/step-100 and run/step-150, of a model with a context of 16. */
static int make_run(void **state)
{
    if (command_begin(state) != 0)
        return -1;
    text_prepare(600);
    works("train " TINY
          " --max-iters 150 --checkpoint-interval 50 --keep 2 --dropout 0.1 --learning-rate 1e-2 --vocab-multiple 64 "
          "--out-dir run");
    return 0;
}

/* What `tally sample` prints for the run's latest checkpoint: a copy, to be freed. */
__attribute__((format(printf, 1, 2))) static char *sample(const char *format, ...)
{
    char flags[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(flags, sizeof flags, format, arguments);
    va_end(arguments);
    return strdup(works("sample --out-dir run --threads 1 %s", flags)->out);
}

static void assert_same(char *a, char *b, bool same)
{
    if ((strcmp(a, b) == 0) != same)
        fail_msg("\"%s\" and \"%s\" should %s", a, b, same ? "be the same" : "differ");
    free(a);
    free(b);
}

/* ---- Drawing one token ---------------------------------------------------------------------------------------------- */

/* Which part of the numbers u in [0, 1) draws each of the three tokens, in 1/8400. */
static void shares(const float logits[3], GenerateOptions o, int share[3])
{
    Candidate scratch[3];
    memset(share, 0, 3 * sizeof *share);
    for (int i = 0; i < 8400; i++) {
        int32_t token = token_draw(logits, 3, &o, (i + 0.5) / 8400, scratch);
        assert_in_range(token, 0, 2);
        share[token]++;
    }
}

static void test_draw(void **state)
{
    (void)state;
    /* probabilities 1/7, 4/7, 2/7; tokens beyond V would win */
    const float logits[5] = {0, 2 * (float)M_LN2, (float)M_LN2, 100, INFINITY};
    static const struct {
        GenerateOptions o;
        int share[3];
    } cases[] = {
        {{.temperature = 1, .top_p = 1}, {1200, 4800, 2400}},
        {{.temperature = 1, .top_p = 1, .top_k = 3}, {1200, 4800, 2400}},
        {{.temperature = 1, .top_p = 1, .top_k = 99}, {1200, 4800, 2400}},
        {{.temperature = 1, .top_p = 1, .top_k = 2}, {0, 5600, 2800}},
        {{.temperature = 1, .top_p = 1, .top_k = 1}, {0, 8400, 0}},
        {{.temperature = 0.5, .top_p = 1}, {400, 6400, 1600}}, /* 1 : 16 : 4 */
        {{.temperature = 1, .top_p = 0.57}, {0, 8400, 0}},     /* 4/7 = 0.5714 */
        {{.temperature = 1, .top_p = 0.58}, {0, 5600, 2800}},
        {{.temperature = 1, .top_p = 0.86}, {1200, 4800, 2400}},      /* 6/7 = 0.8571 */
        {{.temperature = 1, .top_p = 0.6, .top_k = 2}, {0, 8400, 0}}, /* 2/3 of what top_k leaves */
        {{.temperature = 1, .top_p = 1e-9}, {0, 8400, 0}},
        {{.temperature = 1e-300, .top_p = 1}, {0, 8400, 0}},
        {{.temperature = 0, .top_p = 1}, {0, 8400, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int share[3];
        shares(logits, cases[i].o, share);
        for (int k = 0; k < 3; k++)
            if (abs(share[k] - cases[i].share[k]) > 1) /* a logit is a float */
                fail_msg("case %zu: token %d has %d of 8400, not %d", i, k, share[k], cases[i].share[k]);
    }
}

static void test_draw_extremes(void **state)
{
    (void)state;
    const GenerateOptions greedy = {.temperature = 0, .top_p = 1}, one = {.temperature = 1, .top_p = 1};
    Candidate scratch[4];
    const float ties[] = {1, 3, 3, 2}, none[] = {-INFINITY, -INFINITY}, some[] = {-INFINITY, 5, -INFINITY, 5};
    const float nan_one[] = {0, NAN}, inf_one[] = {0, INFINITY}, huge[] = {-1e38f, 3e38f};
    assert_int_equal(token_draw(ties, 4, &greedy, 0.99, scratch), 1);
    assert_int_equal(token_draw(none, 2, &one, 0.5, scratch), -1);
    assert_int_equal(token_draw(nan_one, 2, &one, 0.5, scratch), -1);
    assert_int_equal(token_draw(inf_one, 2, &greedy, 0.5, scratch), -1);
    assert_int_equal(token_draw(some, 4, &one, 0, scratch), 1); /* probability 0 is never drawn, not even by u = 0 */
    assert_int_equal(token_draw(some, 4, &one, 0.75, scratch), 3);
    assert_int_equal(token_draw(some, 4, &one, 1 - 0x1p-53, scratch), 3);
    assert_int_equal(token_draw(huge, 2, &one, 0.999, scratch), 1);
}

/* ---- Text ----------------------------------------------------------------------------------------------------------- */

static void test_seeds(void **state)
{
    (void)state;
    assert_same(sample("--max-new-tokens 200"), sample("--max-new-tokens 200"), true);
    assert_same(sample("--max-new-tokens 200 --seed 1337"), sample("--max-new-tokens 200 --seed 5"), false);
    assert_same(sample("--max-new-tokens 200 --temperature 0"), sample("--max-new-tokens 200 --temperature 0 --seed 5"), true);
    assert_same(sample("--max-new-tokens 200 --temperature 0"), sample("--max-new-tokens 200"), false);
    assert_same(sample("--max-new-tokens 50"), sample("--max_new_tokens 50 --checkpoint run/step-150"), true);
    assert_same(sample("--max-new-tokens 50"), sample("--max-new-tokens 50 --checkpoint run/step-100"), false);
}

/* The text that always takes the likeliest token, through the whole forward of the training code: no cache, no chunks. */
static void greedy_text(char *text, int32_t *window, int64_t filled, int count, const char *characters)
{
    Error e = {0};
    Target target;
    ModelConfig config;
    const Device *device = cpu_device(&target, 1, &e);
    assert_true(device && model_config_load("run/step-150", &config, &e));
    for (int i = 0; i < count; i++) {
        if (filled > CONTEXT) { /* a full context: the later half is read again */
            memmove(window, window + filled - CONTEXT / 2, CONTEXT / 2 * sizeof *window);
            filled = CONTEXT / 2;
        }
        Model m;
        ModelRun run = model_run_default();
        run.training = false;
        run.batch_size = 1;
        run.block_size = filled;
        assert_true(model_plan(&m, &config, &run, &target, &e) && model_allocate(&m, device, &e) &&
                    checkpoint_load_weights(&m, "run/step-150", &e));
        copy_in(&m.ctx, m.tokens, window);
        model_forward(&m, PHASE_EVALUATION);
        assert_false(e.set);
        const float *out = (const float *)m.ln_f_out.data + (filled - 1) * config.n_embd, *wte = m.wte.value.data;
        int32_t best = 0;
        double best_logit = -INFINITY;
        for (int32_t v = 0; v < config.vocab_size; v++) {
            double logit = 0;
            for (int64_t c = 0; c < config.n_embd; c++)
                logit += (double)out[c] * wte[v * config.n_embd + c];
            if (logit > best_logit) {
                best_logit = logit;
                best = v;
            }
        }
        text[i] = characters[best];
        window[filled++] = best;
        model_free(&m);
    }
    text[count] = 0;
}

static const char characters[] = "\n acdefghmnorstw"; /* in the order of their ids: that of their codes */

static void test_greedy_is_argmax(void **state)
{
    (void)state;
    int32_t window[CONTEXT + 1];
    char expected[64];
    const char prompt[] = "the";
    for (int i = 0; i < 3; i++)
        window[i] = (int32_t)(strchr(characters, prompt[i]) - characters);
    strcpy(expected, prompt);
    greedy_text(expected + 3, window, 3, 50, characters); /* the context is full twice on the way */
    strcat(expected, "\n");
    static const char *const ways[] = {"--temperature 0", "--top-k 1", "--top-p 1e-6", "--temperature 1e-9 --seed 3"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        assert_same(sample("--prompt the --max-new-tokens 50 %s", ways[i]), strdup(expected), true);
}

static void test_lengths(void **state)
{
    (void)state;
    char *text = sample("--max-new-tokens 300 --prompt the"); /* and a final newline */
    assert_int_equal(strlen(text), 3 + 300 + 1);
    assert_int_equal(strspn(text, characters), strlen(text));
    free(text);
    text = sample("--max-new-tokens 0 --prompt the");
    assert_string_equal(text, "the\n");
    free(text);
    /* of a long prompt the end counts: its last 16 characters */
    char *a = sample("--max-new-tokens 20 --prompt aaaaaaaaaaaaaacatcatcatcatcatcat"), *b;
    b = sample("--max-new-tokens 20 --prompt sssscatcatcatcatcatcat");
    assert_string_equal(a + 32, b + 22);
    free(a);
    free(b);
}

static void test_several_samples(void **state)
{
    (void)state;
    char *three = sample("--num-samples 3 --max-new-tokens 60 --prompt the"), *one = sample("--max-new-tokens 60 --prompt the");
    char texts[3][80], *at_text = three;
    for (int i = 0; i < 3; i++) {
        char head[32];
        snprintf(head, sizeof head, "---- sample %d\n", i);
        assert_memory_equal(at_text, head, strlen(head));
        at_text += strlen(head);
        memcpy(texts[i], at_text, 64);
        texts[i][64] = 0;
        at_text += 64;
    }
    assert_string_equal(at_text, "");
    assert_true(strcmp(texts[0], texts[1]) != 0 && strcmp(texts[1], texts[2]) != 0 && strcmp(texts[0], texts[2]) != 0);
    assert_string_equal(texts[0], one);
    free(three);
    free(one);
}

/* ---- The vocabulary, and nothing else ------------------------------------------------------------------------------- */

static bool in_vocabulary(void *user, int64_t sequence, int32_t token)
{
    int *count = user;
    assert_int_equal(sequence, count[3] % 2);
    count[3]++;
    assert_in_range(token, 0, 2);
    count[token]++;
    return true;
}

/* FIELD-CASES 25. Three tokens padded to 64; in memory the padding is given logits that would always win. */
static void test_padding_is_never_drawn(void **state)
{
    (void)state;
    Error e = {0};
    Target target;
    const Device *device = cpu_device(&target, 1, &e);
    ModelConfig config = {.n_layer = 1,
                          .n_head = 2,
                          .n_kv_head = 2,
                          .n_embd = 8,
                          .n_inner = 32,
                          .block_size = 5,
                          .vocab_size = 3,
                          .vocab_multiple = 64,
                          .bias = true};
    Model m;
    ModelRun run = model_run_default();
    run.training = false;
    run.sample_size = 2;
    assert_true(model_plan(&m, &config, &run, &target, &e) && model_allocate(&m, device, &e) && model_initialize(&m, 1, &e));
    float *bias = m.ln_f.b.value.data, *wte = m.wte.value.data;
    for (int i = 0; i < 8; i++)
        bias[i] = 1; /* so that a row of sevens has the logit 56 and more, a row about 0 one about 0 */
    for (int i = 3 * 8; i < 64 * 8; i++)
        wte[i] = 7;
    static const GenerateOptions ways[] = {{.temperature = 1, .top_p = 1, .length = 300},
                                           {.temperature = 1, .top_p = 0.9, .length = 300},
                                           {.temperature = 1, .top_p = 1, .top_k = 50, .length = 300},
                                           {.temperature = 0, .top_p = 1, .length = 20}};
    for (int i = 0; i < 4; i++) {
        int count[4] = {0};
        assert_true(model_generate(&m, (const int32_t[]){1}, 1, &ways[i], in_vocabulary, count, &e));
        assert_int_equal(count[3], 2 * ways[i].length);
        assert_true(i > 0 || (count[0] > 50 && count[1] > 50 && count[2] > 50));
    }
    model_free(&m);
}

/* ---- What is refused ------------------------------------------------------------------------------------------------ */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *flags, *says;
    } bad[] = {
        {2, "--prompt Quiet", "prompt: character 'Q' U+0051 at byte offset 0 is not in the vocabulary of 16 characters"},
        {2, "--prompt _", "prompt: is empty"},
        {2, "--temperature -1", "temperature: is -1"},
        {2, "--temperature nan", "temperature: 'nan' is not a number"},
        {2, "--temperature warm", "temperature: 'warm' is not a number"},
        {2, "--top-p 0", "top_p: is 0"},
        {2, "--top-p 1.5", "top_p: is 1.5"},
        {2, "--top-k -1", "top-k: '-1' is not a whole number"},
        {2, "--num-samples 0", "num-samples: '0' is not a whole number from 1"},
        {2, "--num-samples 100000", "num-samples: '100000' is not a whole number from 1 to 65536"},
        {2, "--seed x", "seed: 'x'"},
        {2, "--threads 5000", "threads: '5000'"},
        {2, "words", "'words' is not a flag"},
        {2, "--tokenizer byte --prompt the", "token 0 of the prompt is 116; the model knows 0 to 15"},
        {1, "--tokenizer nowhere", "nowhere: cannot open"},
        {1, "--checkpoint nowhere", "nowhere: cannot read the folder"},
        {1, "--checkpoint data", "data: there is no checkpoint"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const Output *o = ends(bad[i].code, bad[i].says, "sample --out-dir run --threads 1 %s", bad[i].flags);
        assert_true(getenv("SANITIZED") || o->peak_kib < 100 * 1024);
    }
}

static void test_damaged(void **state)
{
    (void)state;
    assert_int_equal(system("cp -r run damaged && truncate -s 4096 damaged/step-150/model.safetensors"), 0);
    const Output *o = works("sample --out-dir damaged --threads 1 --max-new-tokens 50");
    assert_non_null(strstr(o->err, "step-150 is damaged and passed over"));
    assert_same(strdup(o->out), sample("--max-new-tokens 50 --checkpoint run/step-100"), true);
    ends(1, "damaged/step-150/model.safetensors: ", "sample --checkpoint damaged/step-150 --threads 1");
    assert_int_equal(unlink("damaged/step-100/meta.json"), 0);
    ends(2, "has no meta.json", "sample --checkpoint damaged/step-100 --threads 1");
    works("sample --checkpoint damaged/step-100 --tokenizer data --threads 1 --max-new-tokens 3");
    put("damaged/step-100/config.json", "{}");
    ends(1, "damaged/step-100/config.json: ", "sample --checkpoint damaged/step-100 --tokenizer data --threads 1");
    put("damaged/step-100/config.json", "{\"model_type\": \"gpt2\", \"n_layer\": 48, \"n_head\": 25, \"n_embd\": 1600, "
                                        "\"n_positions\": 10000000, \"vocab_size\": 16}");
    o = ends(2, "the plan needs", "sample --checkpoint damaged/step-100 --tokenizer data --threads 1"); /* a cache of 6 TB */
    assert_true(getenv("SANITIZED") || o->peak_kib < 100 * 1024);
}

/* A text in one line has no line end, and so no token for one, with which prompts begin by default. */
static void test_one_line(void **state)
{
    (void)state;
    FILE *f = fopen("line.txt", "w");
    for (int i = 0; i < 600; i++)
        fputs("hello world, ", f);
    fclose(f);
    works("data prepare line.txt --tokenizer char --out line");
    works("train " TINY_MODEL " --data line --block-size 16 --batch-size 2 --max-iters 2 --sample-interval 2 --out-dir line-run");
    const Output *o = works("sample --out-dir line-run --threads 1 --max-new-tokens 20");
    assert_int_equal(strlen(o->out), 1 + 20 + 1);
    assert_int_equal(strspn(o->out + 1, "helo wrd,"), 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draw),
        cmocka_unit_test(test_draw_extremes),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_greedy_is_argmax),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_several_samples),
        cmocka_unit_test(test_padding_is_never_drawn),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_one_line),
    };
    return cmocka_run_group_tests(tests, make_run, command_end);
}
