/* Between FP32 and the 16-bit types, one number at a time, to nearest, ties to even (IEEE 754; BF16 is the upper half of an
 * FP32). NaN stays NaN, subnormals are kept, what is too large becomes infinite. Exact in the widening direction. */
#ifndef TALLY_BASE_CONVERT_H
#define TALLY_BASE_CONVERT_H

#include "base/host_device.h"

#include <stdint.h>
#include <string.h>

static inline HOST_DEVICE uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline HOST_DEVICE float bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline HOST_DEVICE float bf16_to_f32(uint16_t h)
{
    return bits_float((uint32_t)h << 16);
}

static inline HOST_DEVICE uint16_t f32_to_bf16(float x)
{
    uint32_t bits = float_bits(x), nearest = (bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? (bits >> 16) | 0x40u : nearest);
}

/* Half precision: sign, 5 exponent bits (bias 15), 10 of mantissa. A subnormal is its mantissa times 2^-24. */
static inline HOST_DEVICE float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7FFFu;
    if (rest >= 0x7C00u) /* infinite or NaN */
        return bits_float(sign | 0x7F800000u | (rest & 0x3FFu) << 13 | (rest > 0x7C00u ? 0x400000u : 0));
    float magnitude = rest < 0x400u ? (float)rest * 0x1p-24f : bits_float((rest << 13) + 0x38000000u);
    return bits_float(float_bits(magnitude) | sign);
}

static inline HOST_DEVICE uint16_t f32_to_f16(float x)
{
    uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
    if (magnitude >= 0x477FF000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7C00u);
    if (magnitude < 0x38800000u) /* below 2^-14: the sum's last bit is 2^-24, so the addition rounds as it should */
        return (uint16_t)(sign | (float_bits(bits_float(magnitude) + 0.5f) - 0x3F000000u));
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1)) >> 13));
}

/* Stochastic rounding: up in magnitude with probability (what is cut off) / (distance of the two neighbours), decided by 32
 * random bits. Infinite and NaN as above. */
static inline HOST_DEVICE uint16_t f32_to_bf16_random(float x, uint32_t random)
{
    uint32_t bits = float_bits(x), finite = (bits & 0x7F800000u) != 0x7F800000u;
    return finite ? (uint16_t)((bits + (random & 0xFFFFu)) >> 16) : f32_to_bf16(x);
}

static inline HOST_DEVICE uint16_t f32_to_f16_random(float x, uint32_t random)
{
    uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    if (magnitude >= 0x477FF000u)
        return f32_to_f16(x);
    if (magnitude < 0x38800000u) { /* subnormal: a whole number of 2^-24 and a rest */
        float scaled = bits_float(magnitude) * 0x1p24f;
        uint32_t whole = (uint32_t)scaled;
        return (uint16_t)(sign | (whole + (scaled - (float)whole >= 1 - (float)(random >> 8) * 0x1p-24f)));
    }
    return (uint16_t)(sign | ((magnitude - 0x38000000u + (random & 0x1FFFu)) >> 13));
}

#endif
