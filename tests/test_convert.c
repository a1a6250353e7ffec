/* Conversions between FP32 and 16 bits, scalar and by the op `cast` of every build: against the compiler's own half precision,
 * and for BF16 against the two neighbours, compared in double. */
#include "base/convert.h"
#include "tests/cpu_machine.h"

typedef enum Half { BF16, F16 } Half;
static const DType dtypes[] = {DTYPE_BF16, DTYPE_F16};
static const char *const isas[] = {"plain", "v3", "v4"};

static float widened(Half h, uint16_t x)
{
    return h == BF16 ? bf16_to_f32(x) : f16_to_f32(x);
}

static uint16_t nearest(Half h, float x)
{
    return h == BF16 ? f32_to_bf16(x) : f32_to_f16(x);
}

static uint16_t at_random(Half h, float x, uint32_t random)
{
    return h == BF16 ? f32_to_bf16_random(x, random) : f32_to_f16_random(x, random);
}

static bool is_nan(Half h, uint16_t x)
{
    return h == BF16 ? (x & 0x7FFF) > 0x7F80 : (x & 0x7FFF) > 0x7C00;
}

/* ---- References ----------------------------------------------------------------------------------------------------- */

/* A 16-bit number of either type as a double, by the definition: sign, exponent, mantissa. */
static double value_of(Half h, uint16_t x)
{
    int mantissa_bits = h == BF16 ? 7 : 10, bias = h == BF16 ? 127 : 15, largest = h == BF16 ? 255 : 31;
    int exponent = (x & 0x7FFF) >> mantissa_bits, mantissa = x & ((1 << mantissa_bits) - 1);
    double magnitude = exponent == largest ? (mantissa ? (double)NAN : (double)INFINITY)
                       : exponent          ? ldexp(1 + ldexp(mantissa, -mantissa_bits), exponent - bias)
                                           : ldexp(mantissa, 1 - bias - mantissa_bits);
    return x & 0x8000 ? -magnitude : magnitude;
}

static uint16_t f16_reference(float x)
{
    _Float16 half = (_Float16)x;
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}

/* The upper half of x's bits is the neighbour towards 0, one more the other; beyond the last finite number that is 2^128. */
static uint16_t bf16_reference(float x)
{
    uint32_t bits = float_bits(x), low = bits >> 16;
    if (isnan(x))
        return (uint16_t)(low | 0x40);
    if (isinf(x))
        return (uint16_t)low;
    double below = fabs((double)bits_float(low << 16));
    double above = (low & 0x7FFF) == 0x7F7F ? 0x1p128 : fabs((double)bits_float((low + 1) << 16));
    double down = fabs((double)x) - below, up = above - fabs((double)x);
    return (uint16_t)(down < up || (down == up && low % 2 == 0) ? low : low + 1);
}

/* ---- All numbers ---------------------------------------------------------------------------------------------------- */

static void test_every_16_bit_value(void **state)
{
    (void)state;
    for (int h = BF16; h <= F16; h++)
        for (uint32_t i = 0; i < 65536; i++) {
            uint16_t x = (uint16_t)i;
            float wide = widened((Half)h, x);
            if (is_nan((Half)h, x)) {
                assert_true(isnan(wide) && is_nan((Half)h, nearest((Half)h, wide)));
                assert_int_equal(nearest((Half)h, wide) >> 15, x >> 15);
                assert_true(is_nan((Half)h, at_random((Half)h, wide, ~0u)));
                continue;
            }
            assert_true((double)wide == value_of((Half)h, x) && !signbit(wide) == !(x >> 15));
            assert_int_equal(nearest((Half)h, wide), x);
            for (uint32_t random = 0; random < 3; random++) /* what is exact is not rounded */
                assert_int_equal(at_random((Half)h, wide, random - 1), x);
        }
}

/* Patterns a stride apart: 17 in a usual run, in a quick one 61 times that, in a long one all. Odd, so that all low bits occur.
 */
static uint64_t stride(void)
{
    return getenv("LONG") && !getenv("SANITIZED") ? 1 : getenv("QUICK") || getenv("SANITIZED") ? 17 * 61 : 17;
}

enum { CHUNK = 32768 };

typedef struct Patterns {
    float x[CHUNK];
    uint16_t want[2][CHUNK];
    int64_t n;
} Patterns;

/* The next patterns from *at on, and what becomes of them by the scalar functions, which are held against the references. */
static void patterns_next(Patterns *p, uint64_t *at)
{
    for (p->n = 0; p->n < CHUNK && *at < (uint64_t)1 << 32; p->n++, *at += stride())
        p->x[p->n] = bits_float((uint32_t)*at);
    for (int64_t i = 0; i < p->n; i++) {
        uint16_t f16 = f16_reference(p->x[i]), bf16 = bf16_reference(p->x[i]);
        p->want[F16][i] = f32_to_f16(p->x[i]);
        p->want[BF16][i] = f32_to_bf16(p->x[i]);
        bool ok = p->want[BF16][i] == bf16 && (p->want[F16][i] == f16 || (is_nan(F16, f16) && is_nan(F16, p->want[F16][i])));
        if (!ok)
            fail_msg("%08x: bf16 %04x, not %04x; f16 %04x, not %04x", float_bits(p->x[i]), p->want[BF16][i], bf16,
                     p->want[F16][i], f16);
    }
}

static void test_fp32_patterns(void **state)
{
    (void)state;
    static Machine m[3];
    static Patterns p;
    static uint16_t got[CHUNK];
    bool runs[3];
    for (int i = 0; i < 3; i++)
        runs[i] = machine_open(&m[i], isas[i], 1);
    for (uint64_t at = 0; at < (uint64_t)1 << 32;) {
        patterns_next(&p, &at);
        for (int i = 0; i < 3; i++)
            for (int h = BF16; runs[i] && h <= F16; h++) {
                cast(&m[i].ctx, tensor_1d(got, dtypes[h], p.n), tensor_1d(p.x, DTYPE_F32, p.n));
                assert_memory_equal(got, p.want[h], (size_t)p.n * sizeof *got);
            }
    }
    for (int i = 0; i < 3; i++)
        if (runs[i])
            machine_close(&m[i]);
}

/* ---- The op --------------------------------------------------------------------------------------------------------- */

/* A tensor of random numbers, some subnormal, infinite or NaN, in any type. */
static Tensor numbers(Machine *m, DType t, int64_t n)
{
    Tensor x = random_1d(m, n, 7);
    for (int64_t i = 0; i < n; i++)
        floats(x)[i] = i % 13 == 5 ? INFINITY : i % 13 == 7 ? -NAN : ldexpf(floats(x)[i], (int)(i % 40) - 30);
    if (t == DTYPE_F32)
        return x;
    uint16_t *narrow = x.data;
    for (int64_t i = 0; i < n; i++)
        narrow[i] = nearest(t == DTYPE_BF16 ? BF16 : F16, floats(x)[i]);
    x.dtype = t;
    return x;
}

static float number_at(Tensor t, int64_t i)
{
    return t.dtype == DTYPE_F32 ? floats(t)[i] : widened(t.dtype == DTYPE_BF16 ? BF16 : F16, ((uint16_t *)t.data)[i]);
}

/* From each type to each, in lengths that fit no vector; the element after the last stays as it is. */
static void cast_each(Machine *m)
{
    static const int64_t sizes[] = {1, 7, 8, 9, 15, 33, 511, 512, 513, 50001};
    static const DType types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int s = 0; s < 10; s++)
        for (int from = 0; from < 3; from++)
            for (int to = 0; to < 3; to++) {
                Tensor x = numbers(m, types[from], sizes[s]), y = tensor_1d(zeros_1d(m, sizes[s] + 1).data, types[to], sizes[s]);
                memset((char *)y.data + tensor_bytes(y), 0xA5, 2);
                cast(&m->ctx, y, x);
                for (int64_t i = 0; i < sizes[s]; i++) {
                    float wide = number_at(x, i);
                    uint16_t half = types[to] == DTYPE_F32 ? 0 : ((uint16_t *)y.data)[i];
                    if (types[to] == DTYPE_F32)
                        assert_int_equal(float_bits(floats(y)[i]), float_bits(wide));
                    else
                        assert_int_equal(half, nearest(types[to] == DTYPE_BF16 ? BF16 : F16, wide));
                }
                assert_memory_equal((char *)y.data + tensor_bytes(y), "\xA5\xA5", 2);
            }
}

static void test_cast_each(void **state)
{
    (void)state;
    machine_each(cast_each);
}

/* ---- Stochastic rounding -------------------------------------------------------------------------------------------- */

/* The mean of n roundings is the number itself within five deviations, and each is one of its two neighbours. */
static void unbiased(Half h, float x, int n, uint32_t stream)
{
    uint16_t low = at_random(h, x, 0), high = at_random(h, x, ~0u);
    double below = value_of(h, low), above = value_of(h, high), gap = above - below, share = ((double)x - below) / gap;
    int ups = 0;
    assert_int_equal(high, low + 1); /* the next in magnitude */
    assert_true(fabs(below) <= fabs((double)x) && fabs((double)x) <= fabs(above) && share > 0 && share < 1);
    RandomKey key = random_key(5, RANDOM_ROUNDING, stream, 0, 0);
    for (int i = 0; i < n; i++) {
        uint16_t y = at_random(h, x, random_bits(key, (uint64_t)i));
        assert_true(y == low || y == high);
        ups += y == high;
    }
    double deviation = sqrt(share * (1 - share) / n);
    if (!(fabs((double)ups / n - share) <= 5 * deviation))
        fail_msg("%s of %g: up in %g of all cases, not %g +- %g", dtype_name(dtypes[h]), (double)x, (double)ups / n, share,
                 deviation);
}

static void test_stochastic_rounding(void **state)
{
    (void)state;
    static const float values[] = {1.001f,   -1.001f,   0.1f,      -3.14159f, 1.9999f,   65.03f,        -1e4f / 3,
                                   6.2e-5f,  -6.09e-5f, 1e-6f / 3, -1.7e-7f,  5e-8f,     -1.3e-8f,      1.00390625f,
                                   60001.0f, 1.0e-4f,   -2e-3f,    0x1p-25f,  -0x3p-26f, 0x1.ffffcp-15f};
    int n = getenv("QUICK") || getenv("SANITIZED") ? 20000 : 400000;
    for (uint32_t i = 0; i < sizeof values / sizeof *values; i++) {
        unbiased(F16, i == 13 ? 1.0004f : values[i], n, i);
        unbiased(BF16, i == 13 || i >= 17 ? 1e-39f * (float)(i + 1) : values[i], n, 100 + i); /* the last are subnormal there */
    }
}

/* Far too large numbers become infinite, as to nearest; the smallest FP32 numbers become 0 or the smallest 16-bit ones. */
static void test_stochastic_extremes(void **state)
{
    (void)state;
    for (uint32_t random = 0; random < 0xF0000000u; random += 0x01234567u) {
        assert_int_equal(f32_to_f16_random(1e6f, random), 0x7C00);
        assert_int_equal(f32_to_f16_random(-INFINITY, random), 0xFC00);
        assert_int_equal(f32_to_bf16_random(INFINITY, random), 0x7F80);
        assert_int_equal(f32_to_bf16_random(0.0f, random), 0);
        assert_int_equal(f32_to_f16_random(-0.0f, random), 0x8000);
        assert_true(f32_to_f16_random(1e-45f, random) <= 1);
        assert_true(f32_to_bf16_random(1e-45f, random) <= 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_16_bit_value),  cmocka_unit_test(test_fp32_patterns),       cmocka_unit_test(test_cast_each),
        cmocka_unit_test(test_stochastic_rounding), cmocka_unit_test(test_stochastic_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
