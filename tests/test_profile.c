/* What the GPU's kernels cost, by the software GPU's counters (tests/softgpu): a table of every op in three types,
 * docs/profile.txt, and the limits that a memory-bound kernel keeps to where C is a multiple of 128:
 *
 *   touched    the sectors of 32 bytes that it reads or writes, each once, within 5 % of what the planner says the op must move
 *   sectors    a request: at most 1.05 times the fewest that can hold its bytes
 *   ways       of a bank conflict in shared memory, in the mean: at most 1.1
 *   a sector   warp instructions for each sector touched: no more than docs/profile.txt says, so they can only fall
 *
 * Attention does the products that the planner counts within 5 %, and its tiles are read without conflicts. Gathers and scatters
 * (the embedding, whose rows are where the tokens say) are exempt from the first; the head, whose op is products for the most
 * part, is held to the bytes of its kernel. `make profile` writes the table anew. */
#include "kernels/dry/dry.h"
#include "tests/half_tensors.h"

#include <unistd.h>

enum { ROWS = 1024, C = 768, HEAD_ROWS = 256, VOCABULARY = 8192, SEQUENCE = 2048, HEAD = 64 };

static char counters[] = "/tmp/tally-profile-XXXXXX"; /* SOFTGPU_PROFILE */
static const char *const table = "docs/profile.txt";

/* ---- Counters of an op: of all its launches together ---------------------------------------------------------------- */

static const char *const classes[] = {" fp32 add/mul/fma ", " fp32 other ",  " special function ", " integer ",
                                      " convert ",          " move ",        " control ",          " shuffle/vote ",
                                      " load global ",      " store global "};
enum { CLASSES = sizeof classes / sizeof *classes };

typedef struct Cost {
    double of_class[CLASSES]; /* warp instructions */
    double instructions, lanes, flops, tensor_flops, requested, touched, sectors, ideal, phases, conflicts, matrix_conflicts;
} Cost;

static void line_read(Cost *k, const char *line)
{
    double a, b, c, d;
    if (sscanf(line, "  %lf warp instructions, %lf lanes", &a, &b) == 2) {
        k->instructions += a;
        k->lanes += a * b;
        for (int i = 0; i < CLASSES; i++) {
            const char *count = strstr(line, classes[i]);
            k->of_class[i] += count ? strtod(count + strlen(classes[i]), NULL) : 0;
        }
    } else if (sscanf(line, "  %lf FLOPs and %lf in tensor cores; touched: read %lf bytes, written %lf", &a, &b, &c, &d) == 4) {
        k->flops += a;
        k->tensor_flops += b;
        k->touched += c + d;
    } else if (strncmp(line, "  global", 8) == 0 || strncmp(line, "  cp.async", 10) == 0) {
        if (sscanf(line + 15, " %lf requests, %lf bytes, %lf sectors a request (ideal %lf)", &a, &b, &c, &d) == 4) {
            k->requested += b;
            k->sectors += a * c;
            k->ideal += a * d;
        }
    }
    const char *phases = strstr(line, " phases, ");
    if (phases && line[2] != '*') {
        while (phases[-1] != ' ')
            phases--;
        if (sscanf(phases, "%lf phases, %lf bank conflicts", &a, &b) == 2) {
            k->phases += a;
            k->conflicts += b;
        }
    }
    if (strstr(line, "ldmatrix") && strstr(line, "-way bank conflict"))
        k->matrix_conflicts++;
}

/* What was counted since the last call. */
static Cost cost_read(void)
{
    Cost k = {0};
    char line[1024];
    FILE *file = fopen(counters, "r");
    while (file && fgets(line, sizeof line, file))
        line_read(&k, line);
    if (file)
        fclose(file);
    assert_return_code(truncate(counters, 0), 0);
    return k;
}

/* ---- The table ------------------------------------------------------------------------------------------------------- */

typedef struct Row {
    char name[48];
    Cost cost;
    double planned; /* bytes; 0: not held to any */
    double planned_flops;
} Row;

static Row rows[64];
static int n_rows;

/* Warp instructions a sector that the table allows this row; 0 when it has no such row, any while it is written anew. */
static double allowed(const char *name)
{
    char line[256], known[64];
    double most = getenv("TALLY_PROFILE_OUT") ? INFINITY : 0, n;
    FILE *file = fopen(table, "r");
    while (most == 0 && file && fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %lf", known, &n) == 2 && strcmp(known, name) == 0)
            most = n;
    if (file)
        fclose(file);
    return most;
}

static double a_sector(const Cost *k)
{
    return k->instructions / (k->touched / 32);
}

static void row_add(const char *op, DType type, double planned, double planned_flops)
{
    Row *r = &rows[n_rows++];
    snprintf(r->name, sizeof r->name, "%s,%s", op, dtype_name(type));
    r->cost = cost_read();
    r->planned = planned;
    r->planned_flops = planned_flops;
}

/* The bytes that the planner counts for the op just logged. */
static double bytes_of(const DryOp *op)
{
    return (double)(op->bytes_read + op->bytes_written);
}

/* Runs CALL(c, ...) on the GPU and on the dry device, and adds the row. */
#define PROFILE(type, name, ...)                                                                                                 \
    do {                                                                                                                         \
        DryLog log = {0};                                                                                                        \
        Ctx dry = m->ctx;                                                                                                        \
        dry.device = dry_device();                                                                                               \
        dry.dry = &log;                                                                                                          \
        dry.target.kind = DEVICE_CUDA;                                                                                           \
        name(&m->ctx, __VA_ARGS__);                                                                                              \
        name(&dry, __VA_ARGS__);                                                                                                 \
        assert_false(m->error.set);                                                                                              \
        assert_int_equal(log.count, 1);                                                                                          \
        row_add(#name, type, bytes_of(log.op), (double)log.op->gemm_flops);                                                      \
        dry_log_free(&log);                                                                                                      \
    } while (0)

/* ---- The ops --------------------------------------------------------------------------------------------------------- */

static const Dropout none;

static Tensor tensor_of(Machine *m, DType type, int64_t n, int64_t width, uint32_t seed)
{
    return in_type(m, random_2d(m, n, width, seed), type);
}

static Tensor vector_of(Machine *m, DType type, int64_t n, uint32_t seed)
{
    return in_type(m, random_1d(m, n, seed), type);
}

/* Activations, weights and residual stream in that type; gradients, masters and moments in FP32. */
static void profile_memory_bound(Machine *m, DType type)
{
    Tensor x = tensor_of(m, type, ROWS, C, 1), y = tensor_of(m, type, ROWS, C, 2), out = tensor_of(m, type, ROWS, C, 3);
    Tensor w = vector_of(m, type, C, 4), b = vector_of(m, type, C, 5), dw = zeros_1d(m, C), db = zeros_1d(m, C);
    Tensor stats = zeros_2d(m, ROWS, 2), wide = zeros_2d(m, ROWS, C), z = tensor_of(m, type, ROWS, C, 8);
    PROFILE(type, norm_forward, out, stats, x, w, b);
    PROFILE(type, residual_norm_forward, out, z, stats, x, y, w, b, none);
    rows[n_rows - 1].planned += (double)tensor_bytes(out); /* read again from the cache, after it was written */
    PROFILE(type, residual_norm_backward, out, TENSOR_NONE, dw, db, y, z, x, stats, w, none);
    PROFILE(type, gelu_forward, out, x);
    PROFILE(type, gelu_backward, out, y, x);
    PROFILE(type, cast, wide, x);
    PROFILE(type, linear_backward, TENSOR_NONE, TENSOR_NONE, db, y, x, tensor_of(m, type, C, C, 9));
    rows[n_rows - 1].planned -= (double)(tensor_bytes(x) + (size_t)C * C * dtype_size(type)); /* x and w are not read */

    AdamW adam = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f};
    Tensor value = vector_of(m, type, ROWS * C, 10), master = type == DTYPE_F32 ? TENSOR_NONE : zeros_1d(m, ROWS * C);
    Tensor g = zeros_1d(m, ROWS * C), first = zeros_1d(m, ROWS * C), second = zeros_1d(m, ROWS * C);
    m->state.scaler.scale = m->state.clip_coef = m->state.grad_factor = m->state.bias_1 = m->state.bias_2 = 1;
    PROFILE(type, grad_norm, g, 1, &adam);
    PROFILE(type, adamw, value, master, g, first, second, &adam);

    Tensor ids = random_ids(m, 1, ROWS, VOCABULARY, 11), wte = tensor_of(m, type, VOCABULARY, C, 12);
    Tensor wpe = tensor_of(m, type, ROWS, C, 13), dwte = zeros_2d(m, VOCABULARY, C), dwpe = zeros_2d(m, ROWS, C);
    PROFILE(type, embedding_forward, out, ids, wte, wpe, 0, none);
    rows[n_rows - 1].planned = 0;
    PROFILE(type, embedding_backward, dwte, dwpe, x, ids, none);
    rows[n_rows - 1].planned = 0;

    Tensor losses = zeros_1d(m, HEAD_ROWS), logits = zeros_2d(m, HEAD_ROWS, VOCABULARY);
    Tensor targets = tensor_1d(ids.data, DTYPE_I32, HEAD_ROWS);
    x = tensor_slice_rows(x, 0, HEAD_ROWS), out = tensor_slice_rows(out, 0, HEAD_ROWS);
    m->state.inverse_count = 1.0f / HEAD_ROWS;
    PROFILE(type, head_loss_forward, losses, x, wte, targets, logits, VOCABULARY);
    rows[n_rows - 1].planned = (double)tensor_bytes(logits);
    PROFILE(type, head_loss_backward, out, TENSOR_NONE, losses, x, wte, targets, logits, VOCABULARY);
    rows[n_rows - 1].planned = (double)tensor_bytes(logits) + (double)HEAD_ROWS * VOCABULARY * (double)dtype_size(type);
}

static void profile_attention(Machine *m, DType type)
{
    AttentionShape s = {1, SEQUENCE, 1, 1, HEAD};
    Tensor qkv = tensor_of(m, type, SEQUENCE, 3 * HEAD, 1), att = tensor_of(m, type, SEQUENCE, HEAD, 2);
    Tensor datt = tensor_of(m, type, SEQUENCE, HEAD, 3), dqkv = tensor_of(m, type, SEQUENCE, 3 * HEAD, 4);
    Tensor lse = {.data = zeros_1d(m, SEQUENCE).data, .dtype = DTYPE_F32, .ndim = 3, .shape = {1, 1, SEQUENCE}};
    PROFILE(type, attention_forward, s, att, lse, qkv, none);
    PROFILE(type, attention_backward, s, dqkv, datt, att, lse, qkv, none);
}

static void profile_all(void)
{
    static Machine m;
    const DType types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int t = 0; t < 3; t++) {
        assert_true(machine_open(&m, "plain", 1));
        profile_memory_bound(&m, types[t]);
        machine_close(&m);
        assert_true(machine_open(&m, "plain", 1));
        if (types[t] != DTYPE_F32)
            profile_attention(&m, types[t]);
        machine_close(&m);
    }
}

/* ---- Limits ---------------------------------------------------------------------------------------------------------- */

static int wrong;

static void limit(const Row *r, const char *what, double is, double least, double most)
{
    if (is >= least && is <= most)
        return;
    print_message("%s: %s is %.3f, has to be %.3f to %.3f\n", r->name, what, is, least, most);
    wrong++;
}

static void row_check(const Row *r)
{
    const Cost *k = &r->cost;
    bool attention = strncmp(r->name, "attention", 9) == 0, scattered = strncmp(r->name, "embedding_backward", 18) == 0;
    if (attention) {
        limit(r, "tensor FLOPs against the plan's", k->tensor_flops / r->planned_flops, 0.95, 1.05);
        limit(r, "ldmatrix instructions with conflicts", k->matrix_conflicts, 0, 0);
        return;
    }
    if (r->planned > 0)
        limit(r, "bytes touched against the plan's", k->touched / r->planned, 0.95, 1.05);
    if (!scattered) {
        limit(r, "sectors a request against the fewest", k->sectors / k->ideal, 0, 1.05); /* lanes may share a number */
        limit(r, "ways of bank conflicts", 1 + (k->phases > 0 ? k->conflicts / k->phases : 0), 1, 1.1);
    }
    limit(r, "warp instructions a sector", a_sector(k), 0, 1.005 * allowed(r->name));
}

static void table_write(FILE *out)
{
    fprintf(out,
            "# What each op's kernels cost, by the software GPU's counters: made by `make profile`, held to its limits by\n"
            "# tests/test_profile.c. %d rows of %d channels, the head %d rows of %d; attention of one head of %d, T %d. "
            "cuBLASLt's products\n"
            "# are not counted. instr.: warp instructions a sector of 32 bytes touched; touched: bytes against the plan's; "
            "sectors: a request,\n"
            "# against the fewest; ways: of a bank conflict; lanes: active; then requested MB, FLOPs, those in tensor cores, and "
            "of the\n"
            "# instructions the percentage that is FP32 add, mul, fma; other FP32; special function; integer; convert; move; "
            "control;\n"
            "# shuffle; global load; global store (the rest: shared memory and tensor cores).\n"
            "%-29s %7s %7s %7s %5s %5s %8s %9s %9s\n",
            ROWS, C, HEAD_ROWS, VOCABULARY, HEAD, SEQUENCE, "# op,type", "instr.", "touched", "sectors", "ways", "lanes", "MB",
            "FLOPs", "tensor");
    for (const Row *r = rows; r < rows + n_rows; r++) {
        const Cost *k = &r->cost;
        char touched[16] = "-";
        if (r->planned > 0)
            snprintf(touched, sizeof touched, "%.3f", k->touched / r->planned);
        fprintf(out, "%-29s %7.3f %7s %7.3f %5.2f %5.1f %8.2f %9.3g %9.3g ", r->name, a_sector(k), touched, k->sectors / k->ideal,
                1 + (k->phases > 0 ? k->conflicts / k->phases : 0), k->lanes / k->instructions, k->requested / 1e6, k->flops,
                k->tensor_flops);
        for (int i = 0; i < CLASSES; i++)
            fprintf(out, " %2.0f", 100 * k->of_class[i] / k->instructions);
        fprintf(out, "\n");
    }
}

static void test_profile(void **state)
{
    (void)state;
    const char *gpu = getenv("LD_LIBRARY_PATH");
    if (!mirror_wanted() || !gpu || !strstr(gpu, "softgpu")) {
        print_message("SKIPPED: counters are the software GPU's; TALLY_TEST_DEVICE=cuda asks for it\n");
        skip();
    }
    int file = mkstemp(counters);
    assert_return_code(file, 0);
    close(file);
    setenv("SOFTGPU_PROFILE", counters, 1); /* read when the GPU is opened */
    profile_all();
    unlink(counters);
    if (getenv("TALLY_PROFILE_OUT")) {
        FILE *out = fopen(getenv("TALLY_PROFILE_OUT"), "w");
        assert_non_null(out);
        table_write(out);
        assert_int_equal(fclose(out), 0);
    }
    for (int i = 0; i < n_rows; i++)
        row_check(&rows[i]);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_profile)};
    return cmocka_run_group_tests_name("profile", tests, NULL, NULL);
}
