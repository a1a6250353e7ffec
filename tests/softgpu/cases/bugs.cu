/* Kernels with a planted bug each, and their correct siblings (_ok): what the machine's checks must find, and must not. All take
 * 64 floats, all 2, in blocks of 64 threads; test_vm_checks.c says what is expected of each. */

extern "C" __global__ void shared_write_beyond(float *x)
{
    __shared__ float s[64];
    s[threadIdx.x + (x[0] < 0 ? 0 : 1)] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x];
}

extern "C" __global__ void shared_read_beyond(float *x)
{
    __shared__ float s[2][32];
    s[threadIdx.x / 32][threadIdx.x % 32] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[(int)x[0]][threadIdx.x % 32];
}

extern "C" __global__ void dynamic_beyond(float *x) /* with 252 bytes of dynamic shared memory */
{
    extern __shared__ float dynamic[];
    dynamic[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = dynamic[63 - threadIdx.x];
}

extern "C" __global__ void both_shared_ok(float *x) /* with 256 bytes of dynamic shared memory */
{
    extern __shared__ float dynamic[];
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    dynamic[threadIdx.x] = 1;
    __syncthreads();
    x[threadIdx.x] = s[63 - threadIdx.x] + dynamic[63 - threadIdx.x];
}

extern "C" __global__ void straddles_end(float *x) /* 16 bytes of which 8 lie in s */
{
    __shared__ __align__(16) float s[66];
    for (int i = threadIdx.x; i < 66; i += 64)
        s[i] = x[threadIdx.x];
    __syncthreads();
    float4 v = *reinterpret_cast<float4 *>(s + 4 * (threadIdx.x % 17));
    x[threadIdx.x] = v.x + v.y + v.z + v.w;
}

extern "C" __global__ void global_beyond(float *x)
{
    x[threadIdx.x + 1] = 2.f;
}

extern "C" __global__ void global_before(float *x)
{
    x[(int)threadIdx.x - 1] = 2.f;
}

extern "C" __global__ void misaligned(float *x)
{
    float4 v = *reinterpret_cast<float4 *>(x + threadIdx.x % 8 * 4 + 1);
    x[threadIdx.x] = v.x + v.y + v.z + v.w;
}

extern "C" __global__ void host_pointer(float *x) /* x[2..3] is a pointer */
{
    float *h = *(float **)&x[2];
    x[0] = h[0];
}

extern "C" __global__ void uninitialised(float *x)
{
    __shared__ float s[65];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x + 1];
}

extern "C" __global__ void divergent_barrier(float *x)
{
    if (threadIdx.x < 32) {
        x[threadIdx.x] = 1;
        __syncthreads();
    } else {
        __syncthreads();
    }
}

extern "C" __global__ void half_a_warp_at_barrier(float *x)
{
    if (threadIdx.x % 32 < 16) {
        x[threadIdx.x] = 1;
        __syncthreads();
    }
}

extern "C" __global__ void exit_before_barrier(float *x)
{
    if (threadIdx.x >= 50)
        return;
    __syncthreads();
    x[threadIdx.x] = 1;
}

extern "C" __global__ void warp_exits_before_barrier(float *x)
{
    if (threadIdx.x >= 32)
        return;
    __syncthreads();
    x[threadIdx.x] = 1;
}

extern "C" __global__ void wrong_mask(float *x)
{
    if (threadIdx.x < 16)
        x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1);
}

extern "C" __global__ void exited_lanes_in_mask(float *x)
{
    int i = threadIdx.x;
    if (i >= 40)
        return;
    float v = x[i];
    for (int o = 16; o; o >>= 1)
        v += __shfl_down_sync(0xffffffffu, v, o);
    if (i % 32 == 0)
        x[i] = v;
}

extern "C" __global__ void half_mask_ok(float *x)
{
    if (threadIdx.x % 32 < 16)
        x[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, x[threadIdx.x], 1);
}

template <bool SYNC> static __device__ void neighbour(float *x)
{
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    if (SYNC)
        __syncwarp();
    x[threadIdx.x] = s[threadIdx.x ^ 1];
}

extern "C" __global__ void no_syncwarp(float *x)
{
    neighbour<false>(x);
}

extern "C" __global__ void syncwarp_ok(float *x)
{
    neighbour<true>(x);
}

template <bool FIRST, bool SECOND> static __device__ void swap(float *x)
{
    __shared__ float s[64];
    s[threadIdx.x] = 0;
    __syncthreads();
    s[threadIdx.x] = x[threadIdx.x];
    if (FIRST)
        __syncthreads();
    float y = s[63 - threadIdx.x];
    if (SECOND)
        __syncthreads();
    s[threadIdx.x] = y;
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x];
}

extern "C" __global__ void no_barrier_before_read(float *x)
{
    swap<false, true>(x);
}

extern "C" __global__ void no_barrier_before_write(float *x)
{
    swap<true, false>(x);
}

extern "C" __global__ void barriers_ok(float *x)
{
    swap<true, true>(x);
}

template <bool BARRIER> static __device__ void through_global(float *x)
{
    x[threadIdx.x] = (float)threadIdx.x;
    if (BARRIER)
        __syncthreads();
    float y = x[63 - threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = y;
}

extern "C" __global__ void no_barrier_global(float *x)
{
    through_global<false>(x);
}

extern "C" __global__ void barrier_global_ok(float *x)
{
    through_global<true>(x);
}

extern "C" __global__ void blocks_race(float *x)
{
    if (threadIdx.x == 0)
        x[0] += 1.f;
}

extern "C" __global__ void blocks_shift(float *x) /* what one block reads the next one writes */
{
    if (threadIdx.x == 0)
        x[blockIdx.x] = x[blockIdx.x + 1];
}

extern "C" __global__ void blocks_atomic_ok(float *x)
{
    atomicAdd(x, 1.f);
}

__device__ unsigned ticket;

/* The last block adds up what the others wrote, before a fence and an atomic. */
template <bool FENCE, bool LATE> static __device__ void last_block(float *x)
{
    __shared__ unsigned mine;
    if (threadIdx.x == 0) {
        if (!LATE)
            x[blockIdx.x] = 1.f + blockIdx.x;
        if (FENCE)
            __threadfence();
        mine = atomicAdd(&ticket, 1u);
        if (LATE)
            x[blockIdx.x] = 1.f + blockIdx.x;
    }
    __syncthreads();
    if (mine == gridDim.x - 1 && threadIdx.x == 0) {
        float s = 0;
        for (unsigned i = 0; i < gridDim.x; i++)
            s += x[i];
        x[63] = s;
        ticket = 0;
    }
}

extern "C" __global__ void last_block_ok(float *x)
{
    last_block<true, false>(x);
}

extern "C" __global__ void last_block_without_fence(float *x)
{
    last_block<false, false>(x);
}

extern "C" __global__ void last_block_writes_late(float *x)
{
    last_block<true, true>(x);
}

template <bool WAIT> static __device__ void copied(float *x)
{
    __shared__ float s[64];
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + threadIdx.x) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (WAIT)
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    float y = s[63 - threadIdx.x];
    asm volatile("cp.async.wait_all;" ::: "memory");
    x[threadIdx.x] = y;
}

extern "C" __global__ void copy_not_waited_for(float *x)
{
    copied<false>(x);
}

extern "C" __global__ void copy_ok(float *x)
{
    copied<true>(x);
}

/* Two groups under way; the wait leaves the newest. */
template <int READ> static __device__ void two_groups(float *x)
{
    __shared__ float s[2][64];
    for (int g = 0; g < 2; g++) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&s[g][threadIdx.x]);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + threadIdx.x) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    float y = s[READ][63 - threadIdx.x];
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    x[threadIdx.x] = y;
}

extern "C" __global__ void older_group_ok(float *x)
{
    two_groups<0>(x);
}

extern "C" __global__ void newest_group_too_early(float *x)
{
    two_groups<1>(x);
}

extern "C" __global__ void copy_forgotten(float *x)
{
    __shared__ float s[64];
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + threadIdx.x) : "memory");
}

extern "C" __global__ void endless(volatile float *x)
{
    while (x[0] == 2.f) {
    }
}

extern "C" __global__ void trapped(float *x)
{
    if (x[threadIdx.x] == 2.f && threadIdx.x == 37)
        __trap();
}

/* Forward progress: a lock taken by lanes of one warp, two ways; a flag passed between warps. */
__device__ int taken, sum;

extern "C" __global__ void lock_ok(float *x)
{
    bool done = false;
    while (!done) {
        if (atomicCAS(&taken, 0, 1) == 0) {
            sum = sum + 1;
            __threadfence();
            atomicExch(&taken, 0);
            done = true;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0)
        x[0] = (float)sum;
}

extern "C" __global__ void spin_ok(float *x)
{
    while (atomicCAS(&taken, 0, 1)) {
    }
    sum = sum + 1;
    __threadfence();
    atomicExch(&taken, 0);
    __syncthreads();
    if (threadIdx.x == 0)
        x[0] = (float)sum;
}

extern "C" __global__ void flag_ok(float *x)
{
    __shared__ volatile int flag;
    if (threadIdx.x == 0)
        flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        while (!flag) {
        }
        x[threadIdx.x] = 7;
    } else if (threadIdx.x == 63) {
        flag = 1;
    }
}
