/* Kernels for the tests of the software GPU's runtime (kernels.cu, kernels_other.cu). The tests are C, so a kernel is known by
 * its stub's address and launched with cudaLaunchKernel; these are what they take. */
#ifndef SOFTGPU_KERNELS_H
#define SOFTGPU_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

extern const void *const kernel_fill;       /* (float *p, float value, int n): p[i] = value                           */
extern const void *const kernel_add;        /* (float *y, const float *x, int n): y[i] += 5 factor x[i]; counts blocks */
extern const void *const kernel_bounded;    /* (float *p), at most 128 threads                                        */
extern const void *const kernel_static;     /* (float *p): reverses a block's values in 32 KiB of shared memory        */
extern const void *const kernel_dynamic;    /* (float *p): the same in dynamic shared memory                          */
extern const void *const kernel_trap;       /* ()                                                                     */
extern const void *const kernel_misaligned; /* (char *p): an int is written to p + 1                                   */
extern const void *const kernel_no_barrier; /* (float *p): kernel_static without its barrier, for a block of 64         */
extern const void *const kernel_forever;    /* (int *p): while *p is 0                                                */
extern const void *const variable_factor;   /* the file's static __constant__ float                                   */
extern const void *const variable_count;    /* the file's static __device__ int                                       */

/* kernels_other.cu: its own statics of the same names, and an instance of a template of the same name. */
extern const void *const other_scale; /* (float *x, int n): x[i] *= factor; counts launches */
extern const void *const other_factor;
extern const void *const other_count;

/* form.cu, as PTX that is plain, compressed in two ways, and as machine code only: p[i] = 2 i for a block's threads. */
extern const void *const form_none, *const form_speed, *const form_size, *const form_sass;

/* kernel_fill<<<blocks, 256, 0, stream>>>(p, value, n) as nvcc's host code does it. Returns cudaGetLastError(). */
int kernel_fill_launch(float *p, float value, int n, void *stream);

#ifdef __cplusplus
}
#endif

#endif
