/* What nvcc makes of the CUDA math library and of ordinary C++: test_vm_compiled.c compares each result with the host's own. 64
 * threads; thread i reads element i of the inputs and writes its results, RESULTS of them, at RESULTS * i of the outputs. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum { N = 64, RESULTS = 16 };

extern "C" __global__ void floats(float *data)
{
    float x = data[threadIdx.x], y = data[(threadIdx.x + 1) % N], *out = data + N + RESULTS * threadIdx.x;
    out[0] = expf(x * 0.01f);
    out[1] = logf(fabsf(x) + 0.1f);
    out[2] = sinf(x);
    out[3] = cosf(x);
    out[4] = tanhf(x * 0.1f);
    out[5] = erff(x * 0.1f);
    out[6] = powf(fabsf(x), 0.3f);
    out[7] = fmodf(x, 3.0f);
    out[8] = log1pf(fabsf(x));
    out[9] = rsqrtf(fabsf(x) + 1);
    out[10] = sqrtf(fabsf(x));
    out[11] = x / y;
    out[12] = fmaf(x, y, x);
    out[13] = floorf(x) + 8 * ceilf(y) + 64 * truncf(x) + 512 * rintf(y);
    out[14] = fminf(x, y) + 3 * fmaxf(x, y);
    out[15] = exp2f(x * 0.05f);
}

extern "C" __global__ void doubles(double *data)
{
    double x = data[threadIdx.x], y = data[(threadIdx.x + 1) % N], *out = data + N + RESULTS * threadIdx.x;
    out[0] = pow(fabs(x), y * 0.01);
    out[1] = pow(0.999, (double)(threadIdx.x * 37));
    out[2] = exp(x * 0.01);
    out[3] = log(fabs(x) + 0.1);
    out[4] = sqrt(fabs(x));
    out[5] = x / y;
    out[6] = fma(x, y, x);
    out[7] = (double)(long long)x + (double)(int)y;
    out[8] = floor(x) + ceil(y);
    out[9] = (double)(float)x;
}

extern "C" __global__ void integers(long long *data)
{
    long long a = data[threadIdx.x], b = data[(threadIdx.x + 1) % N], *out = data + N + RESULTS * threadIdx.x;
    unsigned long long ua = a, ub = b;
    int s = (int)a, t = (int)b;
    unsigned us = s, ut = t;
    out[0] = b ? a / b : 0;
    out[1] = b ? a % b : 0;
    out[2] = ub ? (long long)(ua / ub) : 0;
    out[3] = t && t != -1 ? s / t : 0;
    out[4] = ut ? us % ut : 0;
    out[5] = (long long)__umul64hi(ua, ub);
    out[6] = __mulhi(s, t);
    out[7] = __popcll(ua) + 100 * __clzll(a) + 10000 * __ffsll(a);
    out[8] = (long long)__brevll(ua);
    out[9] = __byte_perm(us, ut, 0x3715);
    out[10] = __funnelshift_l(us, ut, t & 63);
    out[11] = (a >> (b & 63)) + (long long)(ua << (b & 63)) + (long long)(ua >> (b & 63));
    out[12] = (long long)(signed char)a + 3 * (unsigned char)b + 5 * (short)a + 7 * (unsigned short)b;
    out[13] = llabs(a) + min(s, t) + (long long)max(ua, ub);
    out[14] = us / 7 + s / 10 + (long long)(ua / 1000003);
    out[15] = (long long)((double)a * 0.5) + (int)((float)t * 0.25f);
}

extern "C" __global__ void halves(float *data)
{
    float x = data[threadIdx.x], y = data[(threadIdx.x + 1) % N], *out = data + N + RESULTS * threadIdx.x;
    __half2 a = __floats2half2_rn(x, y), b = __floats2half2_rn(y, x);
    __nv_bfloat162 c = __floats2bfloat162_rn(x, y), d = __floats2bfloat162_rn(y, x);
    out[0] = __low2float(__hadd2(a, b));
    out[1] = __high2float(__hmul2(a, b));
    out[2] = __low2float(__hfma2(a, b, a));
    out[3] = __high2float(__hmax2(a, b));
    out[4] = __low2float(__hadd2(c, d));
    out[5] = __high2float(__hmul2(c, d));
    out[6] = __low2float(__hfma2(c, d, c));
    out[7] = __hgt(__low2half(a), __low2half(b)) ? 1.0f : 0.0f;
    out[8] = (float)__half2int_rn(__low2half(a));
    out[9] = __half2float(__float2half(x)) + __bfloat162float(__float2bfloat16(y));
}

/* Parameters by value with an index that only the thread knows, local arrays, a switch, a loop with break and continue. */
struct Options {
    int a;
    float b;
    double c;
    short d[5];
};

extern "C" __global__ void control(float *data, Options o, int n)
{
    int i = threadIdx.x, local[8];
    for (int k = 0; k < 8; k++)
        local[k * n & 7] = k * i;
    float r = o.a + o.b + (float)o.c + o.d[i % 5];
    for (int k = 0; k < 8; k++)
        r += local[(i + k) & 7] * (k + 1);
    switch (i % 9) {
    case 0:
        r += 1;
        break;
    case 1:
        r *= 2;
        break;
    case 3:
        r -= 5;
        break;
    case 5:
        r = -r;
        /* falls through */
    case 6:
        r += 9;
        break;
    case 8:
        r *= 3;
    }
    for (int k = 0; k < i % 5; k++) {
        if (k == 3)
            break;
        if (i & 8)
            continue;
        r += k;
    }
    data[i] = r;
}

/* A pointer that is shared memory for some lanes and global for others; histogram by shared atomics. */
extern "C" __global__ void generic(float *data)
{
    __shared__ int histogram[16];
    __shared__ float s[N];
    int i = threadIdx.x;
    if (i < 16)
        histogram[i] = 0;
    s[i] = 100.0f + i;
    __syncthreads();
    atomicAdd(&histogram[i % 16], i);
    atomicMax(&histogram[(i + 1) % 16], 3);
    __syncthreads();
    const float *p = i & 1 ? s : data;
    data[N + i] = p[N - 1 - i] + histogram[i % 16];
}

__constant__ float table[4] = {1, 2, 3, 4};
__device__ int counter = 5;

extern "C" __global__ void variables(float *data)
{
    atomicAdd(&counter, threadIdx.x);
    data[threadIdx.x] = table[threadIdx.x & 3];
}
