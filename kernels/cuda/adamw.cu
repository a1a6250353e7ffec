/* AdamW over a range of parameters in one pass:
 *
 *   g' = g grad_factor,  m = b1 m + (1-b1) g',  v = b2 v + (1-b2) g'^2
 *   w  = w (1 - lr wd)  where decayed,  then  w -= lr (m / bias_1) / (sqrt(v / bias_2) + eps)
 *
 * Everything that changes from step to step is in the step's state: the learning rate, the bias corrections, the clip
 * coefficient, and whether the gradient is finite at all: if not, nothing is written. The ranges that are decayed are part of the
 * shapes and travel with the launch, DECAY_RANGES at most; a model with more matrices takes several launches, one after the
 * other. */
#include "kernels/cuda/common.cuh"

enum { N = 4, THREADS = 256, DECAY_RANGES = 128 };

struct Update {
    Elements w, master, g, m, v; /* master may be absent */
    int64_t first, end;          /* of this launch; first is a multiple of N */
    float beta1, one_beta1, beta2, one_beta2, eps, weight_decay;
    const StepState *state;
    int n_decay;
    DecayRange decay[DECAY_RANGES]; /* ascending; none ends before first */
};

/* What all threads of a block need, made by one: factors of the formulas, and random keys of w, m and v. */
struct Factors {
    float scale, inverse_bias_1, inverse_bias_2, lr, keep;
    RandomKey rounding[3];
    int range; /* the first decay range that ends behind the block's first element */
};

static __device__ void factors_make(Factors *f, const Update &u, int64_t block_first)
{
    const StepState *s = u.state;
    f->scale = s->grad_factor;
    f->inverse_bias_1 = 1 / s->bias_1;
    f->inverse_bias_2 = 1 / s->bias_2;
    f->lr = s->learning_rate;
    f->keep = 1 - s->learning_rate * u.weight_decay;
    for (uint32_t i = 0; i < 3; i++)
        f->rounding[i] = random_key(s->seed, RANDOM_ROUNDING, i, (uint64_t)s->step, 0);
    for (f->range = 0; f->range < u.n_decay && u.decay[f->range].end <= block_first; f->range++)
        ;
}

/* t = x: FP32 as it is; a 16-bit type up or down with the probability that makes the mean exact. */
static __device__ __forceinline__ void store_random(Elements t, int64_t at, int64_t end, const Floats<N> &x, RandomKey key)
{
    if (t.dtype == DTYPE_F32) {
        store<N>(t, at, end, x);
        return;
    }
    Words<N> random = random_words<N>(key, at), rounded;
    uint32_t half[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        half[i] = t.dtype == DTYPE_BF16 ? f32_to_bf16_random(x.v[i], random.word[i]) : f32_to_f16_random(x.v[i], random.word[i]);
    rounded.word[0] = half[0] | half[1] << 16;
    rounded.word[1] = half[2] | half[3] << 16;
    put<N>(t, at, end, rounded);
}

static __global__ void __launch_bounds__(THREADS) adamw_kernel(const __grid_constant__ Update u)
{
    __shared__ Factors f;
    int64_t block_first = u.first + (int64_t)blockIdx.x * THREADS * N, at = block_first + threadIdx.x * N;
    if (u.state->nonfinite)
        return;
    if (threadIdx.x == 0)
        factors_make(&f, u, block_first);
    __syncthreads();
    if (at >= u.end)
        return;
    Elements parameter = u.master.data ? u.master : u.w;
    Words<N> w_words = fetch<N>(parameter, at, u.end), g_words = fetch<N>(u.g, at, u.end), m_words = fetch<N>(u.m, at, u.end),
             v_words = fetch<N>(u.v, at, u.end);
    Floats<N> w = widen<N>(w_words, parameter.dtype), g = widen<N>(g_words, u.g.dtype), m = widen<N>(m_words, u.m.dtype),
              v = widen<N>(v_words, u.v.dtype);
    int range = f.range;
#pragma unroll
    for (int i = 0; i < N; i++) {
        while (range < u.n_decay && u.decay[range].end <= at + i)
            range++;
        float d = g.v[i] * f.scale, keep = range < u.n_decay && u.decay[range].begin <= at + i ? f.keep : 1.0f;
        m.v[i] = u.beta1 * m.v[i] + u.one_beta1 * d;
        v.v[i] = u.beta2 * v.v[i] + u.one_beta2 * (d * d);
        w.v[i] = w.v[i] * keep - f.lr * (m.v[i] * f.inverse_bias_1) / (sqrtf(v.v[i] * f.inverse_bias_2) + u.eps);
    }
    store_random(u.m, at, u.end, m, f.rounding[1]);
    store_random(u.v, at, u.end, v, f.rounding[2]);
    if (u.master.data) {
        store<N>(u.master, at, u.end, w);
        store<N>(u.w, at, u.end, w);
    } else {
        store_random(u.w, at, u.end, w, f.rounding[0]);
    }
}

/* The next launch after u's, from u.end on: the ranges from number `next` on that it has room for, and up to the N elements in
 * which the first one without room begins. Returns that one's number. */
static int launch_next(Update *u, const AdamW *adam, int next, int64_t n)
{
    u->first = u->end;
    u->n_decay = 0;
    while (next > 0 && adam->decay[next - 1].end > u->first)
        next--; /* its last elements are among these N */
    while (next < adam->n_decay && u->n_decay < DECAY_RANGES)
        u->decay[u->n_decay++] = adam->decay[next++];
    u->end = next < adam->n_decay ? adam->decay[next].begin / N * N : n;
    return next;
}

extern "C" void cuda_adamw(Ctx *c, Tensor w, Tensor master, Tensor g, Tensor m, Tensor v, const AdamW *adam)
{
    int64_t n = tensor_count(w);
    Update u = {elements(w), elements(master), elements(g), elements(m), elements(v)};
    u.beta1 = (float)adam->beta1, u.one_beta1 = (float)(1 - adam->beta1);
    u.beta2 = (float)adam->beta2, u.one_beta2 = (float)(1 - adam->beta2);
    u.eps = adam->eps, u.weight_decay = adam->weight_decay;
    u.state = c->state;
    for (int next = 0; u.end < n;) {
        next = launch_next(&u, adam, next, n);
        adamw_kernel<<<(unsigned)blocks_of(u.end - u.first, THREADS * N), THREADS, 0, stream_of(c)>>>(u);
        if (!launch_check(c, OP_adamw))
            return;
    }
}
