/* What nvcc makes of C++ and of the math library (cases/library.cu), run on the machine, against the host's own results: to the
 * last bit, or within the ulp that CUDA's manual gives for the function. */
#include "tests/softgpu/vm_rig.h"

#include <math.h>

enum { N = 64, RESULTS = 16 };

static char *ptx;

static int load_ptx(void **state)
{
    (void)state;
    ptx = rig_case("library");
    return 0;
}

static int free_ptx(void **state)
{
    (void)state;
    free(ptx);
    return 0;
}

static uint64_t random_bits(void)
{
    static uint64_t x = 88172645463325252ull;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

static double random_number(void)
{
    return (double)((int64_t)random_bits() >> 40) / 65536; /* within 128 */
}

/* Runs the kernel on N inputs of `size` bytes each. */
static Rig *run(const char *kernel, const void *inputs, size_t size)
{
    if (ptx == NULL)
        skip();
    Rig *r = rig_open(rig_options(), RIG_BYTES);
    memcpy(r->data, inputs, N * size);
    rig_run(r, rig_kernel(rig_load(r, ptx), kernel), 1, N);
    return r;
}

/* How far apart two floats are, in steps between neighbours. */
static double ulps(double a, double b, int digits)
{
    if (a == b || (a != a && b != b))
        return 0;
    int exponent;
    frexp(b, &exponent);
    double ulp = ldexp(1, exponent - digits);
    double least = digits == 24 ? 0x1p-149 : 0x1p-1074;
    return fabs(a - b) / (ulp < least ? least : ulp);
}

static void test_floats(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double ulps; /* CUDA C++ Programming Guide, mathematical functions; 0: exact */
    } functions[] = {{"expf", 2}, {"logf", 1},  {"sinf", 2},   {"cosf", 2},   {"tanhf", 2}, {"erff", 2},
                     {"powf", 4}, {"fmodf", 0}, {"log1pf", 1}, {"rsqrtf", 2}, {"sqrtf", 0}, {"division", 0},
                     {"fmaf", 0}, {"round", 0}, {"minmax", 0}, {"exp2f", 2}};
    for (int round = 0; round < 20; round++) {
        float x[N];
        for (int i = 0; i < N; i++)
            x[i] = (float)random_number();
        Rig *r = run("floats", x, sizeof *x);
        const float *out = (const float *)r->data + N;
        for (int i = 0; i < N; i++) {
            float a = x[i], b = x[(i + 1) % N];
            double want[RESULTS] = {exp((double)(a * 0.01f)),
                                    log((double)(fabsf(a) + 0.1f)),
                                    sin(a),
                                    cos(a),
                                    tanh((double)(a * 0.1f)),
                                    erf((double)(a * 0.1f)),
                                    pow(fabs(a), (double)0.3f),
                                    fmodf(a, 3),
                                    log1p(fabs(a)),
                                    1 / sqrt((double)(fabsf(a) + 1)),
                                    sqrtf(fabsf(a)),
                                    a / b,
                                    fmaf(a, b, a),
                                    floorf(a) + 8 * ceilf(b) + 64 * truncf(a) + 512 * rintf(b),
                                    fmaf(3, fmaxf(a, b), fminf(a, b)), /* nvcc contracts */
                                    exp2((double)(a * 0.05f))};
            for (int k = 0; k < RESULTS; k++) /* half an ulp more: the host's value is not rounded to a float */
                if (ulps(out[RESULTS * i + k], want[k], 24) > functions[k].ulps + (functions[k].ulps ? 0.5 : 0))
                    fail_msg("%s of %.9g, %.9g: %.9g, not %.9g", functions[k].name, a, b, out[RESULTS * i + k], want[k]);
        }
        rig_close(r);
    }
}

static void test_doubles(void **state)
{
    (void)state;
    static const double limits[] = {2, 2, 1, 1, 0, 0, 0, 0, 0, 0};
    double x[N];
    for (int i = 0; i < N; i++)
        x[i] = random_number() + ldexp(random_number(), -30);
    Rig *r = run("doubles", x, sizeof *x);
    const double *out = (const double *)r->data + N;
    for (int i = 0; i < N; i++) {
        double a = x[i], b = x[(i + 1) % N];
        double want[] = {pow(fabs(a), b * 0.01), pow(0.999, i * 37),
                         exp(a * 0.01),          log(fabs(a) + 0.1),
                         sqrt(fabs(a)),          a / b,
                         fma(a, b, a),           (double)(int64_t)a + (double)(int)b,
                         floor(a) + ceil(b),     (double)(float)a};
        for (size_t k = 0; k < sizeof want / sizeof *want; k++)
            if (ulps(out[RESULTS * i + (int)k], want[k], 53) > limits[k])
                fail_msg("result %zu of %.17g, %.17g: %.17g, not %.17g", k, a, b, out[RESULTS * i + (int)k], want[k]);
    }
    rig_close(r);
}

static uint64_t reversed(uint64_t x)
{
    uint64_t r = 0;
    for (int i = 0; i < 64; i++)
        r |= (x >> i & 1) << (63 - i);
    return r;
}

static uint32_t bytes_permuted(uint32_t x, uint32_t y, uint32_t selector)
{
    uint8_t bytes[8];
    uint32_t r = 0;
    memcpy(bytes, &x, 4);
    memcpy(bytes + 4, &y, 4);
    for (int i = 0; i < 4; i++)
        r |= (uint32_t)bytes[selector >> 4 * i & 7] << 8 * i;
    return r;
}

static void integers_reference(int64_t a, int64_t b, int64_t want[RESULTS])
{
    uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    int32_t s = (int32_t)a, t = (int32_t)b, n = t & 31;
    uint32_t us = (uint32_t)s, ut = (uint32_t)t;
    const int64_t values[RESULTS] = {b ? a / b : 0,
                                     b ? a % b : 0,
                                     ub ? (int64_t)(ua / ub) : 0,
                                     t && t != -1 ? s / t : 0,
                                     ut ? us % ut : 0,
                                     (int64_t)((unsigned __int128)ua * ub >> 64),
                                     (int64_t)s * t >> 32,
                                     __builtin_popcountll(ua) + 100 * (ua ? __builtin_clzll(ua) : 64) +
                                         10000 * __builtin_ffsll(a),
                                     (int64_t)reversed(ua),
                                     bytes_permuted(us, ut, 0x3715),
                                     n ? ut << n | us >> (32 - n) : ut,
                                     (int64_t)((uint64_t)(a >> (b & 63)) + (ua << (b & 63)) + (ua >> (b & 63))),
                                     (int64_t)(int8_t)a + 3 * (uint8_t)b + 5 * (int16_t)a + 7 * (uint16_t)b,
                                     (int64_t)((uint64_t)llabs(a) + (uint64_t)(int64_t)(s < t ? s : t) + (ua > ub ? ua : ub)),
                                     (int64_t)((uint64_t)(us / 7 + (uint32_t)(s / 10)) + ua / 1000003),
                                     (int64_t)((double)a * 0.5) + (int32_t)((float)t * 0.25f)};
    memcpy(want, values, sizeof values);
}

static void test_integers(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        int64_t x[N], want[RESULTS];
        for (int i = 0; i < N; i++) /* all sizes, small ones and -1 among them */
            x[i] = i < 8 ? i - 4 : (int64_t)random_bits() >> (i % 8 * 8);
        Rig *r = run("integers", x, sizeof *x);
        const int64_t *out = (const int64_t *)r->data + N;
        for (int i = 0; i < N; i++) {
            integers_reference(x[i], x[(i + 1) % N], want);
            for (int k = 0; k < RESULTS; k++)
                if (out[RESULTS * i + k] != want[k])
                    fail_msg("result %d of %#llx, %#llx: %#llx, not %#llx", k, (unsigned long long)x[i],
                             (unsigned long long)x[(i + 1) % N], (unsigned long long)out[RESULTS * i + k],
                             (unsigned long long)want[k]);
        }
        rig_close(r);
    }
}

/* The nearest number with so many bits and no smaller exponent, ties to even: by scaling, unlike the machine. */
static double nearest(double x, int digits, int least)
{
    int exponent;
    frexp(x, &exponent);
    int shift = exponent - digits < least ? least : exponent - digits;
    return ldexp(rint(ldexp(x, -shift)), shift);
}

static double half(double x)
{
    return nearest(x, 11, -24);
}

static double bfloat(double x)
{
    return nearest(x, 8, -133);
}

static void test_halves(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        float x[N];
        for (int i = 0; i < N; i++)
            x[i] = (float)(random_number() * 0.5);
        Rig *r = run("halves", x, sizeof *x);
        const float *out = (const float *)r->data + N;
        for (int i = 0; i < N; i++) {
            double a = half(x[i]), b = half(x[(i + 1) % N]), c = bfloat(x[i]), d = bfloat(x[(i + 1) % N]);
            double want[] = {half(a + b),   half(a * b),       half(a * b + a), a > b ? a : b, bfloat(c + d),
                             bfloat(c * d), bfloat(c * d + c), a > b,           rint(a),       (double)(float)(a + d)};
            for (size_t k = 0; k < sizeof want / sizeof *want; k++)
                if ((double)out[RESULTS * i + (int)k] != want[k])
                    fail_msg("result %zu of %g, %g: %.9g, not %.9g", k, x[i], x[(i + 1) % N], out[RESULTS * i + (int)k], want[k]);
        }
        rig_close(r);
    }
}

typedef struct Options {
    int a;
    float b;
    double c;
    short d[5];
} Options;

static float control_reference(int i, const Options *o)
{
    int local[8];
    for (int k = 0; k < 8; k++)
        local[k * 3 & 7] = k * i;
    float r = (float)o->a + o->b + (float)o->c + o->d[i % 5];
    for (int k = 0; k < 8; k++)
        r += (float)(local[(i + k) & 7] * (k + 1));
    int c = i % 9;
    r = c == 0 ? r + 1 : c == 1 ? r * 2 : c == 3 ? r - 5 : c == 5 ? 9 - r : c == 6 ? r + 9 : c == 8 ? r * 3 : r;
    for (int k = 0; k < i % 5 && k < 3; k++)
        r += i & 8 ? 0 : (float)k;
    return r;
}

static void test_control(void **state)
{
    (void)state;
    if (ptx == NULL)
        skip();
    struct {
        uint64_t data;
        Options o;
        int n;
    } params = {RIG_ADDRESS, {3, 1.5f, 2.25, {10, 20, 30, 40, 50}}, 3};
    Rig *r = rig_open(rig_options(), RIG_BYTES);
    VmKernel *k = rig_kernel(rig_load(r, ptx), "control");
    const VmKernelInfo *info = vm_kernel_info(k);
    assert_int_equal(info->n_params, 3);
    assert_int_equal(info->params[1].offset, offsetof(__typeof__(params), o));
    assert_int_equal(info->params[2].offset, offsetof(__typeof__(params), n));
    const uint32_t grid[3] = {1, 1, 1}, block[3] = {N, 1, 1};
    if (!vm_launch(k, grid, block, 0, &params, &r->error))
        fail_msg("%s", r->error.text);
    for (int i = 0; i < N; i++)
        assert_float_equal(((float *)r->data)[i], control_reference(i, &params.o), 0);
    rig_close(r);
}

static void test_generic(void **state)
{
    (void)state;
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    Rig *r = run("generic", x, sizeof *x);
    for (int i = 0; i < N; i++) {
        int bin = i % 16, sum = 4 * bin + 16 * (0 + 1 + 2 + 3);
        float other = i & 1 ? 100.0f + (float)(N - 1 - i) : (float)(N - 1 - i);
        assert_float_equal(((float *)r->data)[N + i], other + (float)sum, 0);
    }
    rig_close(r);
}

static void test_variables(void **state)
{
    (void)state;
    float x[N] = {0};
    Rig *r = run("variables", x, sizeof *x);
    for (int i = 0; i < N; i++)
        assert_float_equal(((float *)r->data)[i], (float)(i % 4 + 1), 0);
    rig_close(r);
    r = rig_open(rig_options(), RIG_BYTES);
    VmModule *m = rig_load(r, ptx);
    uint64_t address, bytes;
    int value;
    assert_true(vm_symbol_find(m, "counter", &address, &bytes));
    assert_int_equal(bytes, 4);
    rig_run(r, rig_kernel(m, "variables"), 2, N);
    memcpy(&value, r->variables + (address - RIG_MODULE), sizeof value);
    assert_int_equal(value, 5 + 2 * 2016);
    assert_false(vm_symbol_find(m, "nothing", &address, &bytes));
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats),    cmocka_unit_test(test_doubles), cmocka_unit_test(test_integers),
        cmocka_unit_test(test_halves),    cmocka_unit_test(test_control), cmocka_unit_test(test_generic),
        cmocka_unit_test(test_variables),
    };
    return cmocka_run_group_tests(tests, load_ptx, free_ptx);
}
