/* Attention by its definition, in double precision, a query at a time; and how far from it a 16-bit computation may be.
 *
 * An implementation on 16-bit numbers may round, besides the results, what it multiplies: the probabilities, and dS. With u half
 * the distance of neighbours relative to a number (2^-8 for BF16, 2^-11 for F16), a sum over j of P_ij v_jd is then off by at
 * most u times the sum of the magnitudes. D is made of att as the forward left it: it is off by |datt| times what att is off and
 * half the distance of the numbers near it. The reference adds these bounds up along with the sums. */
#ifndef TALLY_TESTS_ATTENTION_REFERENCE_H
#define TALLY_TESTS_ATTENTION_REFERENCE_H

#include "kernels/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct AttentionReference {
    AttentionShape s;
    Dropout drop;
    RandomKey bits;
    double u;     /* rounding of the factors of products, relative; 0 for FP32              */
    double least; /* and absolute: half the distance of the smallest numbers                */
    const double *qkv, *datt;
    double *att, *lse, *dqkv;   /* what is right                                            */
    double *att_off, *dqkv_off; /* by how much the roundings inside may be off              */
} AttentionReference;

static inline int64_t attention_width(AttentionShape s)
{
    return (s.NH + 2 * s.NKV) * s.hd;
}

/* The forward of query i of head h: probabilities into p, the dropout factors into z. */
static inline void reference_query_forward(AttentionReference *r, int64_t b, int64_t h, int64_t i, double *p, double *z)
{
    AttentionShape s = r->s;
    const int64_t w = attention_width(s), key = (s.NH + h / (s.NH / s.NKV)) * s.hd, head = b * s.NH + h;
    const double *q = r->qkv + (b * s.T + i) * w + h * s.hd;
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= i; j++) {
        p[j] = 0;
        for (int64_t d = 0; d < s.hd; d++)
            p[j] += q[d] * r->qkv[(b * s.T + j) * w + key + d] / sqrt((double)s.hd);
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j <= i; j++)
        sum += exp(p[j] - max);
    r->lse[head * s.T + i] = max + log(sum);
    double *att = r->att + (b * s.T + i) * s.NH * s.hd + h * s.hd, *off = r->att_off + (att - r->att);
    memset(att, 0, (size_t)s.hd * sizeof *att);
    memset(off, 0, (size_t)s.hd * sizeof *off);
    for (int64_t j = 0; j <= i; j++) {
        const bool kept = random_bits(r->bits, (uint64_t)((head * s.T + i) * s.T + j)) >= dropout_threshold(r->drop);
        const double *v = r->qkv + (b * s.T + j) * w + key + s.NKV * s.hd;
        p[j] = exp(p[j] - max) / sum;
        z[j] = kept ? 1 / (1 - (double)r->drop.p) : 0;
        for (int64_t d = 0; d < s.hd; d++) {
            att[d] += p[j] * z[j] * v[d];
            off[d] += (p[j] * r->u + r->least) * z[j] * fabs(v[d]);
        }
    }
}

/* Its backward. dp has room for i + 1 numbers. */
static inline void reference_query_backward(AttentionReference *r, int64_t b, int64_t h, int64_t i, const double *p,
                                            const double *z, double *dp)
{
    AttentionShape s = r->s;
    const int64_t w = attention_width(s), key = (s.NH + h / (s.NH / s.NKV)) * s.hd, value = key + s.NKV * s.hd;
    const int64_t row = b * s.T + i, out = row * s.NH * s.hd + h * s.hd, query = row * w + h * s.hd;
    const double *datt = r->datt + out, scale = 1 / sqrt((double)s.hd);
    double delta = 0, delta_off = 0;
    for (int64_t j = 0; j <= i; j++) {
        const int64_t at = (b * s.T + j) * w + value;
        dp[j] = 0;
        for (int64_t d = 0; d < s.hd; d++) {
            r->dqkv[at + d] += p[j] * z[j] * datt[d];
            r->dqkv_off[at + d] += (p[j] * r->u + r->least) * z[j] * fabs(datt[d]);
            dp[j] += z[j] * datt[d] * r->qkv[at + d];
        }
        delta += p[j] * dp[j];
    }
    for (int64_t d = 0; d < s.hd; d++)
        delta_off += fabs(datt[d]) * (r->att_off[out + d] + fabs(r->att[out + d]) * r->u + r->least);
    for (int64_t j = 0; j <= i; j++) {
        const int64_t at = (b * s.T + j) * w + key;
        const double ds = scale * p[j] * (dp[j] - delta), off = fabs(ds) * r->u + scale * (r->least + p[j] * delta_off);
        for (int64_t d = 0; d < s.hd; d++) {
            r->dqkv[query + d] += ds * r->qkv[at + d];
            r->dqkv[at + d] += ds * r->qkv[query + d];
            r->dqkv_off[query + d] += off * fabs(r->qkv[at + d]);
            r->dqkv_off[at + d] += off * fabs(r->qkv[query + d]);
        }
    }
}

/* All queries; p, z and dp have room for T numbers each. */
static inline void attention_reference(AttentionReference *r, double *room)
{
    AttentionShape s = r->s;
    const size_t n = (size_t)(s.B * s.T * attention_width(s));
    memset(r->dqkv, 0, n * sizeof *r->dqkv);
    memset(r->dqkv_off, 0, n * sizeof *r->dqkv_off);
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < s.NH; h++)
            for (int64_t i = 0; i < s.T; i++) {
                reference_query_forward(r, b, h, i, room, room + s.T);
                reference_query_backward(r, b, h, i, room, room + s.T, room + 2 * s.T);
            }
}

#endif
