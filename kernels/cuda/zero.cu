/* Filling, copying, converting, counting.
 *
 * A copy from or to pageable host memory is staged by the runtime: when copy_in returns, the host may reuse its memory; what
 * copy_out fetches is there after the device has been waited for. */
#include "kernels/cuda/common.cuh"

extern "C" void cuda_copy_in(Ctx *c, Tensor to, const void *from)
{
    cuda_check(c, OP_copy_in, cudaMemcpyAsync(to.data, from, tensor_bytes(to), cudaMemcpyHostToDevice, stream_of(c)), "copy");
}

extern "C" void cuda_copy_out(Ctx *c, void *to, Tensor from)
{
    cuda_check(c, OP_copy_out, cudaMemcpyAsync(to, from.data, tensor_bytes(from), cudaMemcpyDeviceToHost, stream_of(c)), "copy");
}

extern "C" void cuda_zero(Ctx *c, Tensor t)
{
    cuda_check(c, OP_zero, cudaMemsetAsync(t.data, 0, tensor_bytes(t), stream_of(c)), "memset");
}

template <int N> static __global__ void cast_kernel(Elements to, Elements from, int64_t n)
{
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (at < n)
        store<N>(to, at, n, load<N>(from, at, n));
}

extern "C" void cuda_cast(Ctx *c, Tensor to, Tensor from)
{
    enum { N = 4, THREADS = 256 };
    int64_t n = tensor_count(to);
    if (n == 0)
        return;
    cast_kernel<N><<<(unsigned)blocks_of(n, N * THREADS), THREADS, 0, stream_of(c)>>>(elements(to), elements(from), n);
    launch_check(c, OP_cast);
}

static __global__ void micro_next_kernel(StepState *s)
{
    s->micro++;
}

extern "C" void cuda_micro_next(Ctx *c)
{
    micro_next_kernel<<<1, 1, 0, stream_of(c)>>>(c->state);
    launch_check(c, OP_micro_next);
}

extern "C" int cuda_code_status(void)
{
    cudaFuncAttributes ignored;
    return cudaFuncGetAttributes(&ignored, micro_next_kernel);
}
