/* Matrix products by oneDNN, of types that the processor multiplies: the only file that knows the library. (The `any`-format
 * weights that its primitives could pack once a step would be a second function here, beside gemm_run.)
 *
 * A oneDNN primitive is code generated for one shape, one layout and one number of threads. Making it takes about 0.3 ms
 * and running a small one 0.1 ms, so primitives are kept in a table by their Gemm. Scratch is ours ("user" mode): the plan
 * has sized it by gemm_scratch, and gemm_run refuses less. Both are for one thread of control at a time, as is all of a Ctx. */
#include "kernels/cpu/gemm.h"

#include <dnnl.h>
#include <omp.h>
#include <string.h>

enum { TABLE_SIZE = 1024, TABLE_MAX = 512 };                    /* slots; primitives kept at most, then all are dropped */
enum { ARG_A, ARG_B, ARG_C, ARG_SCRATCH, ARG_BIAS, ARG_COUNT }; /* the bias last: not all have one */

typedef struct Product {
    Gemm shape;
    int threads;
    bool used;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[ARG_COUNT]; /* without data until it runs */
    size_t scratch;                  /* bytes */
} Product;

static Product table[TABLE_SIZE]; /* open addressing, linear probing */
static int table_count;
static dnnl_engine_t engine;
static dnnl_stream_t stream;

/* A Gemm has no padding: as bytes it is hashed and compared. */
static uint64_t gemm_hash(const Gemm *g, int threads)
{
    uint64_t part[8], h = (uint64_t)threads;
    _Static_assert(sizeof part == sizeof *g && sizeof *g == 6 * sizeof(int64_t) + 4 * sizeof(bool) + 3 * sizeof(DType),
                   "padding");
    memcpy(part, g, sizeof part);
    for (int i = 0; i < 8; i++)
        h = (h ^ (h >> 32) ^ part[i]) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 32);
}

static void product_free(Product *p)
{
    for (int i = 0; i < ARG_COUNT; i++)
        if (p->memory[i])
            dnnl_memory_destroy(p->memory[i]);
    if (p->primitive)
        dnnl_primitive_destroy(p->primitive);
    *p = (Product){0};
}

static dnnl_data_type_t library_type(DType t)
{
    return t == DTYPE_F32 ? dnnl_f32 : t == DTYPE_BF16 ? dnnl_bf16 : dnnl_f16;
}

/* The matrix [rows, width] with row stride ld, or its transpose [width, rows] in memory read as [rows, width]. */
static dnnl_status_t matrix_layout(dnnl_memory_desc_t *d, int64_t rows, int64_t width, int64_t ld, bool transposed, DType type)
{
    dnnl_dims_t dims = {rows, width}, strides = {transposed ? 1 : ld, transposed ? ld : 1};
    return dnnl_memory_desc_init_by_strides(d, 2, dims, library_type(type), strides);
}

/* User-managed scratch, and C added to where the product accumulates. */
static dnnl_status_t attributes_make(dnnl_primitive_attr_t *attr, bool accumulate)
{
    dnnl_post_ops_t sum = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(attr);
    if (!s)
        s = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (!s && accumulate) {
        s = dnnl_post_ops_create(&sum);
        if (!s)
            s = dnnl_post_ops_append_sum(sum, 1.0f);
        if (!s)
            s = dnnl_primitive_attr_set_post_ops(*attr, sum);
        dnnl_post_ops_destroy(sum);
    }
    return s;
}

static dnnl_status_t product_make(Product *p, const Gemm *g)
{
    dnnl_memory_desc_t layout[ARG_COUNT];
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_dims_t bias_dims = {1, g->N};
    dnnl_status_t s = dnnl_success;
    if (!engine)
        s = dnnl_engine_create(&engine, dnnl_cpu, 0);
    if (!s && !stream)
        s = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    if (!s)
        s = matrix_layout(&layout[ARG_A], g->M, g->K, g->lda, g->transpose_a, g->type_a);
    if (!s)
        s = matrix_layout(&layout[ARG_B], g->K, g->N, g->ldb, g->transpose_b, g->type_b);
    if (!s)
        s = matrix_layout(&layout[ARG_C], g->M, g->N, g->ldc, false, g->type_c);
    if (!s)
        s = dnnl_memory_desc_init_by_tag(&layout[ARG_BIAS], 2, bias_dims, library_type(g->type_b), dnnl_ab);
    if (!s)
        s = dnnl_matmul_desc_init(&desc, &layout[ARG_A], &layout[ARG_B], g->bias ? &layout[ARG_BIAS] : NULL, &layout[ARG_C]);
    if (!s)
        s = attributes_make(&attr, g->accumulate);
    if (!s)
        s = dnnl_primitive_desc_create(&pd, &desc, attr, engine, NULL);
    if (!s)
        s = dnnl_primitive_create(&p->primitive, pd);
    if (!s) {
        layout[ARG_SCRATCH] = *dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        p->scratch = dnnl_memory_desc_get_size(&layout[ARG_SCRATCH]);
    }
    for (int i = 0; !s && i < ARG_COUNT; i++)
        s = dnnl_memory_create(&p->memory[i], &layout[i], engine, DNNL_MEMORY_NONE);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return s;
}

/* The product of a shape on a number of threads, made when it is not in the table. On failure *status says why and the
 * result is NULL. The library must already have been told the number of threads. */
static Product *product_find(const Gemm *g, int threads, dnnl_status_t *status)
{
    if (table_count == TABLE_MAX) {
        for (int i = 0; i < TABLE_SIZE; i++)
            product_free(&table[i]);
        table_count = 0;
    }
    uint64_t slot = gemm_hash(g, threads) % TABLE_SIZE;
    while (table[slot].used && !(table[slot].threads == threads && memcmp(&table[slot].shape, g, sizeof *g) == 0))
        slot = (slot + 1) % TABLE_SIZE;
    Product *p = &table[slot];
    *status = dnnl_success;
    if (p->used)
        return p;
    *status = product_make(p, g);
    if (*status) {
        product_free(p);
        return NULL;
    }
    p->shape = *g;
    p->threads = threads;
    p->used = true;
    table_count++;
    return p;
}

/* Runs p on its operands. */
static dnnl_status_t product_run(Product *p, void *const data[ARG_COUNT])
{
    static const int name[ARG_COUNT] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD, DNNL_ARG_BIAS};
    dnnl_exec_arg_t args[ARG_COUNT];
    dnnl_status_t s = dnnl_success;
    int count = p->shape.bias ? ARG_COUNT : ARG_BIAS;
    for (int i = 0; !s && i < count; i++) {
        args[i] = (dnnl_exec_arg_t){name[i], p->memory[i]};
        s = dnnl_memory_set_data_handle(p->memory[i], data[i]);
    }
    if (!s)
        s = dnnl_primitive_execute(p->primitive, stream, count, args);
    return s ? s : dnnl_stream_wait(stream);
}

/* oneDNN reads a plain B in place, unless it is transposed or its width is a power of two beyond 256: then it first copies
 * pieces of it to where they lie densely. In place is slow, by half where the rows of B are a multiple of 4 KiB apart and
 * fall on the same few cache sets (3072 floats: the widest matrix of GPT-2). So a wide product is cut into pieces of C's
 * columns whose widths are powers of two, and a rest. A transposed A is copied once for each piece, so there it pays later. */
static int64_t piece_width(const Gemm *g, int64_t left)
{
    const int64_t smallest = 512, worthwhile = g->transpose_a ? 1024 : smallest, least_rest = 64;
    if (g->transpose_b || g->N < worthwhile || left < smallest || g->type_b != DTYPE_F32)
        return left;
    int64_t width = smallest;
    while (2 * width <= left)
        width *= 2;
    return left - width < least_rest ? left : width;
}

/* One primitive, its shape as it is. */
static void product_do(Ctx *c, const Gemm *g, void *C, const void *A, const void *B, const void *bias, void *scratch)
{
    dnnl_status_t status;
    Product *p = product_find(g, c->target.threads, &status);
    size_t offset = (size_t)((char *)scratch - (char *)c->workspace);
    if (p && p->scratch + offset > c->workspace_bytes)
        error_set(c->error, "matrix product %lld x %lld x %lld: needs %zu bytes of workspace, the plan gave %zu", (long long)g->M,
                  (long long)g->N, (long long)g->K, p->scratch + offset, c->workspace_bytes);
    else if (p)
        status = product_run(p, (void *[ARG_COUNT]){(void *)A, (void *)B, C, scratch, (void *)bias});
    if (status)
        error_set(c->error, "matrix product %lld x %lld x %lld: oneDNN failed with status %d", (long long)g->M, (long long)g->N,
                  (long long)g->K, (int)status);
}

void gemm_run(Ctx *c, const Gemm *g, void *C, const void *A, const void *B, const void *bias, void *scratch)
{
    if (gemm_is_empty(g))
        return;
    int threads_before = omp_get_max_threads();
    omp_set_num_threads(c->target.threads);
    for (int64_t at = 0, width; at < g->N; at += width) {
        Gemm piece = *g;
        piece.N = width = piece_width(g, g->N - at);
        product_do(c, &piece, (void *)gemm_element(C, g->type_c, at), A, gemm_element(B, g->type_b, at),
                   g->bias ? gemm_element(bias, g->type_b, at) : NULL, scratch); /* a transposed B is not cut: at = 0 */
    }
    omp_set_num_threads(threads_before);
}

static size_t native_scratch(const Gemm *g, const Target *t)
{
    size_t most = 0;
    for (int64_t at = 0, width; at < g->N; at += width) {
        Gemm piece = *g;
        piece.N = width = piece_width(g, g->N - at);
        dnnl_status_t status;
        Product *p = product_find(&piece, t->threads, &status);
        if (p && p->scratch > most)
            most = p->scratch;
    }
    return most;
}

/* ---- Which products, and what they need ------------------------------------------------------------------------------- */

bool gemm_native_bf16(void)
{
    unsigned features = (unsigned)dnnl_get_effective_cpu_isa(), needed = dnnl_cpu_isa_avx512_core_bf16; /* sets of bits */
    return (features & needed) == needed;
}

bool gemm_is_native(const Gemm *g, const Target *t)
{
    bool f32 = g->type_a == DTYPE_F32 && g->type_b == DTYPE_F32 && g->type_c == DTYPE_F32;
    bool bf16 = g->type_a == DTYPE_BF16 && g->type_b == DTYPE_BF16 && g->type_c != DTYPE_F16;
    return f32 || (bf16 && t->bf16_gemm);
}

/* Beside the FP32 copies what the neediest block takes: of the inner ones and those at the far edges, first along K or later. */
static size_t widened_scratch(const Gemm *g, const Target *t)
{
    GemmBlocks b = gemm_blocks(g);
    size_t most = 0;
    for (int shape = 0; shape < 16; shape++) {
        Gemm piece =
            gemm_block(g, shape & 1 ? g->M % b.M : b.M, shape & 2 ? g->N % b.N : b.N, shape & 4 ? g->K % b.K : b.K, shape & 8);
        size_t bytes = gemm_scratch(&piece, t);
        most = bytes > most ? bytes : most;
    }
    return b.floats * sizeof(float) + most;
}

size_t gemm_scratch(const Gemm *g, const Target *t)
{
    if (gemm_is_empty(g))
        return 0;
    int threads_before = omp_get_max_threads();
    omp_set_num_threads(t->threads);
    size_t bytes = gemm_is_native(g, t) ? native_scratch(g, t) : widened_scratch(g, t);
    omp_set_num_threads(threads_before);
    return bytes;
}
