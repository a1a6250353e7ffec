/* Access patterns whose traffic can be counted by hand: test_vm_profile.c does. Blocks of 256 threads over 2048 floats at data (in)
 * and data + 4096 (out) unless it says otherwise. */

static __device__ int thread()
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

extern "C" __global__ void side_by_side(float *data)
{
    data[4096 + thread()] = data[thread()] + 1;
}

extern "C" __global__ void strided(float *data) /* every lane in a sector of its own */
{
    data[4096 + thread()] = data[thread() * 8 % 2048 + thread() / 256] + 1;
}

extern "C" __global__ void shifted(float *data) /* five sectors instead of four */
{
    data[4096 + thread()] = data[thread() + 1] + 1;
}

extern "C" __global__ void same(float *data)
{
    data[4096 + thread()] = data[blockIdx.x] + 1;
}

/* 32 x 32 floats through shared memory with rows of WIDTH: 32 ways into one bank at 32, none at 33. Blocks of 256. */
template <int WIDTH> static __device__ void transpose(float *data)
{
    __shared__ float s[32][WIDTH];
    int column = threadIdx.x % 32;
    for (int row = threadIdx.x / 32; row < 32; row += 8)
        s[row][column] = data[row * 32 + column];
    __syncthreads();
    for (int row = threadIdx.x / 32; row < 32; row += 8)
        data[4096 + row * 32 + column] = s[column][row];
}

extern "C" __global__ void transpose_32(float *data)
{
    transpose<32>(data);
}

extern "C" __global__ void transpose_33(float *data)
{
    transpose<33>(data);
}

/* 16 bytes a lane, STEP * 16 bytes apart; a warp. */
template <int STEP> static __device__ void quads(float *data)
{
    __shared__ float4 s[32 * STEP];
    const float4 *in = (const float4 *)data;
    float4 *out = (float4 *)(data + 4096);
    s[threadIdx.x * STEP] = in[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = s[(31 - threadIdx.x) * STEP];
}

extern "C" __global__ void quads_1(float *data)
{
    quads<1>(data);
}

extern "C" __global__ void quads_2(float *data)
{
    quads<2>(data);
}

extern "C" __global__ void quads_8(float *data)
{
    quads<8>(data);
}

/* A warp: 16 bytes a lane from global to shared memory, side by side. */
extern "C" __global__ void copied(float *data)
{
    __shared__ float4 s[32];
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(data + 4 * threadIdx.x) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
    data[4096 + threadIdx.x] = s[31 - threadIdx.x].x;
}

/* fma: two FLOPs a lane, ten of them; half of the lanes do ten more. */
extern "C" __global__ void counted(float *data)
{
    float x = data[threadIdx.x], y = x;
#pragma unroll
    for (int k = 0; k < 10; k++)
        y = fmaf(y, x, 1.0f);
    if (threadIdx.x & 1) {
#pragma unroll
        for (int k = 0; k < 10; k++)
            y = fmaf(y, x, 2.0f);
    }
    data[4096 + threadIdx.x] = y;
}
