/* Backward attention on tensor cores: dqkv from datt, without the T x T matrix. With P = softmax(S), S = q k' / sqrt(hd), Z the
 * dropout factors (0 or 1 / (1 - p); 1 without dropout) and dO = datt,
 *
 *   dV = (P o Z)' dO        dP = (dO V') o Z        D_i = sum_j P_ij dP_ij = sum_d dO_id att_id
 *   dS = P o (dP - D)       dQ = dS K / sqrt(hd)    dK = dS' Q / sqrt(hd)
 *
 * and P is made again as exp(S - lse). Two kernels, so that each sum belongs to one warp and no two add to the same number: the
 * bits are the same in every run.
 *
 * attention_query_kernel: a block owns 64 queries and walks over keys and values: S, dP, then dQ += dS K. 6 hd FLOPs per pair. It
 * also leaves lse log2(e) and D of its queries in workspace for the second.
 *
 * attention_key_kernel: a block owns 64 keys and walks over the queries from the first of them on, of every query head of its
 * key/value head: S', dP', then dV += (P o Z)' dO and dK += dS' Q. 8 hd FLOPs per pair. Above a head size of 128 the sums of 16
 * keys fill more registers than a thread has: two warps then share 16 keys, both make S' and dP', and each keeps half of the
 * columns of dK and dV.
 *
 * Rounded to 16 bits are P o Z and dS as left factors of products, and the gradients at the end. */
#include "kernels/cuda/attention_tile.cuh"

template <int HD> struct ByQuery {
    static constexpr int OWN = 16 * WARPS;                             /* queries of a block        */
    static constexpr int WALK = HD <= 64 ? 64 : (HD <= 192 ? 32 : 16); /* keys and values of a tile */
    static constexpr int SHARED = 2 * HD * (2 * OWN + 4 * WALK);       /* bytes: q, datt; two buffers of keys and of values */
};

template <int HD> struct ByKey {
    static constexpr int SPLIT = HD <= 128 ? 1 : 2; /* warps that share the columns of the same 16 keys */
    static constexpr int OWN = 16 * WARPS / SPLIT;  /* keys of a block                                  */
    static constexpr int WALK = HD <= 64 ? 64 : 32; /* queries of a tile                                */
    static constexpr int SHARED =
        2 * HD * (2 * OWN + 4 * WALK) + 4 * 4 * WALK; /* bytes: k, v; two buffers of q, datt, lse and D */
};

/* D of this lane's two queries: out is the first of the warp's 16 rows of datt and att. The four lanes of a row take chunks of 8
 * elements in turns. */
static __device__ __forceinline__ void delta_of_rows(float (&delta)[2], const AttentionCall &a, int64_t out, int rows)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = 0.0f;
        int64_t at = out + (int64_t)lane_row(half) * a.NH * a.hd;
        for (int d = threadIdx.x % 4 * 8; lane_row(half) < rows && d < a.hd; d += 32) {
            Floats<8> x = load<8>(Elements{(void *)a.datt, a.dtype}, at + d, at + a.hd);
            Floats<8> y = load<8>(Elements{a.att, a.dtype}, at + d, at + a.hd);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum += x.v[i] * y.v[i];
        }
        delta[half] = quad_sum(sum);
    }
}

/* What makes P of S for this lane's two queries, lse log2(e), and D: from memory, and into workspace. A query whose scores were
 * all minus infinity has lse = -Inf; 0 in its place makes its probabilities 0. */
static __device__ __forceinline__ void queries_begin(float (&lse)[2], float (&delta)[2], const AttentionCall &a, int64_t head,
                                                     int64_t out, int query)
{
    delta_of_rows(delta, a, out, a.T - query);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        bool exists = query + lane_row(half) < a.T;
        int64_t at = head * a.T + query + lane_row(half);
        float x = exists ? a.lse[at] : 0.0f;
        lse[half] = x == -INFINITY ? 0.0f : x * LOG2_E;
        if (exists && threadIdx.x % 4 == 0) {
            a.remake[at] = lse[half];
            a.delta[at] = delta[half];
        }
    }
}

template <class T, int HD> static __global__ void __launch_bounds__(THREADS, 1) attention_query_kernel(const AttentionCall a)
{
    constexpr int OWN = ByQuery<HD>::OWN, WALK = ByQuery<HD>::WALK, N = WALK / 16;
    constexpr bool KEEP = HD <= 64; /* queries and their gradients, in registers */
    extern __shared__ __align__(16) unsigned char shared[];
    T *queries = (T *)shared, *grads = queries + OWN * HD, *keys = grads + OWN * HD, *values = keys + 2 * WALK * HD;
    int blocks = (a.T + OWN - 1) / OWN, first = (blocks - 1 - (int)(blockIdx.x % blocks)) * OWN; /* the longest walks first */
    int64_t head = blockIdx.x / blocks, out_width = (int64_t)a.NH * a.hd;
    HeadPlace at = head_place(a, head);
    const T *k = (const T *)a.qkv + at.key, *v = (const T *)a.qkv + at.value;
    int row = threadIdx.x / WARP * 16, query = first + row; /* the warp's first query, in the tile and in T */
    int tiles = (min(first + OWN, a.T) + WALK - 1) / WALK;
    float c = a.scale * LOG2_E, lse[2], delta[2];
    RandomKey random = dropout_key(a.drop, a.state);

    tile_load<T, HD, OWN>(queries, (const T *)a.qkv + at.query + first * a.width, a.width, a.T - first, a);
    tile_load<T, HD, OWN>(grads, (const T *)a.datt + at.out + first * out_width, out_width, a.T - first, a);
    tile_load<T, HD, WALK>(keys, k, a.width, a.T, a);
    tile_load<T, HD, WALK>(values, v, a.width, a.T, a);
    queries_begin(lse, delta, a, head, at.out + query * out_width, query);
    OwnRows<T, HD, KEEP> own = {queries, row}, own_grads = {grads, row};
    own_rows_wait<KEEP>();
    own.begin();
    own_grads.begin();
    Piece dq[HD / 16];
    pieces_zero(dq);
    for (int tile = 0; tile < tiles; tile++) {
        int key = tile * WALK, now = tile % 2 * WALK * HD, next = WALK * HD - now;
        copies_wait();
        __syncthreads(); /* this tile is here, and nobody reads the other buffer any more */
        if (tile + 1 < tiles) {
            tile_load<T, HD, WALK>(keys + next, k + (key + WALK) * a.width, a.width, a.T - key - WALK, a);
            tile_load<T, HD, WALK>(values + next, v + (key + WALK) * a.width, a.width, a.T - key - WALK, a);
        }
        if (key > query + 15)
            continue; /* all these keys come after the warp's queries */
        Piece s[N], dp[N];
        scores(s, own, keys + now);
        scores(dp, own_grads, values + now);
        if (key + WALK > query)
            mask_future_keys(s, query, key);
        uint32_t kept = ~0u;
        if (a.drop.active)
            kept = kept_by_query<N>(random, a.drop.threshold, (uint64_t)((head * a.T + query) * a.T + key), a.T);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float &x = s[n].v[i / 4][i % 4], z = is_kept_by_query(kept, n, i / 4, i % 4) ? a.drop.scale : 0.0f;
                x = exp2_approx(fmaf(x, c, -lse[i / 4])) * (dp[n].v[i / 4][i % 4] * z - delta[i / 4]);
            }
        accumulate<T, HD>(dq, s, keys + now, 0);
    }
    const float factor[2] = {a.scale, a.scale};
    own.end();
    tile_put<T, HD>(queries, row, 0, dq, factor);
    __syncthreads();
    tile_store<T, HD, OWN>((T *)a.dqkv + at.query + first * a.width, a.width, queries, a.T - first, a);
}

/* A tile on the walk of attention_key_kernel: of which query head, counted from the first that reads the block's keys, and from
 * which query on. */
struct WalkTile {
    int member, query;
};

/* Starts to bring the tile's queries, gradients and numbers per query. Queries beyond T get lse = D = 0 with q = datt = 0: P = 1,
 * dS = 0, and nothing is added to a sum. head, at: the first of the query heads. */
template <class T, int HD, int WALK>
static __device__ __forceinline__ void walk_load(const AttentionCall &a, WalkTile w, int64_t head, const HeadPlace &at,
                                                 T *queries, T *grads, float *lse, float *delta)
{
    int64_t out_width = (int64_t)a.NH * a.hd, member = (int64_t)w.member * a.hd;
    int i = threadIdx.x, rows = a.T - w.query;
    tile_load<T, HD, WALK>(queries, (const T *)a.qkv + at.query + member + w.query * a.width, a.width, rows, a);
    tile_load<T, HD, WALK>(grads, (const T *)a.datt + at.out + member + w.query * out_width, out_width, rows, a);
    if (i < WALK) {
        int64_t from = (head + w.member) * a.T + w.query + (i < rows ? i : 0);
        copy_async<uint32_t>(lse + i, a.remake + from, i < rows);
        copy_async<uint32_t>(delta + i, a.delta + from, i < rows);
    }
}

/* S' to (P o Z)' without Z's scale, and dP' to dS', in place. */
template <int N>
static __device__ __forceinline__ void gradient_tile(Piece (&s)[N], Piece (&dp)[N], const AttentionCall &a, const float *lse,
                                                     const float *delta, const KeptByKey &kept)
{
    float c = a.scale * LOG2_E;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int column = 16 * n + lane_column() + e;
            float shift = lse[column], d = delta[column];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float p = exp2_approx(fmaf(s[n].v[half][e], c, -shift));
                bool keep = is_kept_by_key(kept, n, half, e);
                s[n].v[half][e] = keep ? p : 0.0f;
                dp[n].v[half][e] = p * (dp[n].v[half][e] * (keep ? a.drop.scale : 0.0f) - d);
            }
        }
}

template <class T, int HD> static __global__ void __launch_bounds__(THREADS, 1) attention_key_kernel(const AttentionCall a)
{
    constexpr int OWN = ByKey<HD>::OWN, WALK = ByKey<HD>::WALK, N = WALK / 16, SPLIT = ByKey<HD>::SPLIT, M = HD / 16 / SPLIT;
    extern __shared__ __align__(16) unsigned char shared[];
    T *keys = (T *)shared, *values = keys + OWN * HD, *queries = values + OWN * HD, *grads = queries + 2 * WALK * HD;
    float *lse = (float *)(grads + 2 * WALK * HD), *delta = lse + 2 * WALK;
    int blocks = (a.T + OWN - 1) / OWN, first = (int)(blockIdx.x % blocks) * OWN, group = a.NH / a.NKV;
    int64_t unit = blockIdx.x / blocks, head = unit * group; /* b * NKV + key/value head; its first query head */
    HeadPlace at = head_place(a, head);
    int warp = threadIdx.x / WARP, row = warp / SPLIT * 16, key = first + row; /* the warp's first key, in the tile and in T */
    int columns = warp % SPLIT * M;                                            /* and the first 16 columns of its sums */
    int tiles = (a.T - first + WALK - 1) / WALK, steps = tiles * group;
    RandomKey random = dropout_key(a.drop, a.state);

    tile_load<T, HD, OWN>(keys, (const T *)a.qkv + at.key + first * a.width, a.width, a.T - first, a);
    tile_load<T, HD, OWN>(values, (const T *)a.qkv + at.value + first * a.width, a.width, a.T - first, a);
    walk_load<T, HD, WALK>(a, WalkTile{0, first}, head, at, queries, grads, lse, delta);
    OwnRows<T, HD, false> own_keys = {keys, row}, own_values = {values, row};
    Piece dk[M], dv[M];
    pieces_zero(dk);
    pieces_zero(dv);
    for (int step = 0; step < steps; step++) {
        WalkTile w = {step / tiles, first + step % tiles * WALK};
        int now = step % 2, next = 1 - now;
        copies_wait();
        __syncthreads(); /* this tile is here, and nobody reads the other buffer any more */
        if (step + 1 < steps)
            walk_load<T, HD, WALK>(a, WalkTile{(step + 1) / tiles, first + (step + 1) % tiles * WALK}, head, at,
                                   queries + next * WALK * HD, grads + next * WALK * HD, lse + next * WALK, delta + next * WALK);
        if (w.query + WALK <= key)
            continue; /* all these queries come before the warp's keys */
        Piece s[N], dp[N];
        scores(s, own_keys, queries + now * WALK * HD);
        scores(dp, own_values, grads + now * WALK * HD);
        if (w.query < key + 15)
            mask_past_queries(s, key, w.query);
        KeptByKey kept = {{~0u, ~0u}};
        if (a.drop.active)
            kept = kept_by_key<N>(random, a.drop.threshold, (uint64_t)(((head + w.member) * a.T + w.query) * a.T + key), a.T);
        gradient_tile(s, dp, a, lse + now * WALK, delta + now * WALK, kept);
        accumulate<T, HD>(dv, s, grads + now * WALK * HD, columns);
        accumulate<T, HD>(dk, dp, queries + now * WALK * HD, columns);
    }
    const float factor_k[2] = {a.scale, a.scale}, factor_v[2] = {a.drop.scale, a.drop.scale};
    __syncthreads(); /* another warp may still read these keys */
    tile_put<T, HD>(keys, row, columns, dk, factor_k);
    tile_put<T, HD>(values, row, columns, dv, factor_v);
    __syncthreads();
    tile_store<T, HD, OWN>((T *)a.dqkv + at.key + first * a.width, a.width, keys, a.T - first, a);
    tile_store<T, HD, OWN>((T *)a.dqkv + at.value + first * a.width, a.width, values, a.T - first, a);
}

size_t attention_backward_shared(int hd)
{
    size_t bytes = 0;
    with_head_size(hd, [&](auto size) {
        constexpr int HD = decltype(size)::value;
        bytes = ByQuery<HD>::SHARED > ByKey<HD>::SHARED ? ByQuery<HD>::SHARED : ByKey<HD>::SHARED;
    });
    return bytes;
}

void attention_backward_mma(Ctx *c, const AttentionCall &call)
{
    with_head_size(call.hd, [&](auto size) {
        constexpr int HD = decltype(size)::value;
        with_half_type(call.dtype, [&](auto number) {
            using T = decltype(number);
            const OpId op = OP_attention_backward;
            int64_t units = call.heads / call.NH * call.NKV;
            if (attention_launch(c, op, attention_query_kernel<T, HD>, call.heads * blocks_of(call.T, ByQuery<HD>::OWN), THREADS,
                                 ByQuery<HD>::SHARED, call))
                attention_launch(c, op, attention_key_kernel<T, HD>, units * blocks_of(call.T, ByKey<HD>::OWN), THREADS,
                                 ByKey<HD>::SHARED, call);
        });
    });
}
