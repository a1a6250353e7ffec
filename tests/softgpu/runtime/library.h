/* What the runtime offers to the stand-ins of other libraries, which put work on streams and read device memory: cublasLt. */
#ifndef SOFTGPU_LIBRARY_H
#define SOFTGPU_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* Puts work on a stream (a cudaStream_t), or into the graph captured from it: run(arg), possibly many times, then destroy(arg).
 * It counts as a kernel. Returns a cudaError_t. */
int softgpu_submit(void *stream, const char *name, void (*run)(void *), void (*destroy)(void *), void *arg);

/* For run(): bytes [p, p + bytes) of device memory are going to be read or have been written. False, after a fault that names
 * `what`, when they do not lie in one live allocation. Reading what nobody wrote is a fault in check mode. */
bool softgpu_read(const void *p, size_t bytes, const char *what);
bool softgpu_write(const void *p, size_t bytes, const char *what);

/* Where this process finds the bytes of a device address. */
void *softgpu_host(const void *p);

/* 10 * major + minor of the card. */
int softgpu_capability(void);

/* A message of this library's, printf-style. */
void softgpu_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
