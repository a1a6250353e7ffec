#include "kernels/cuda/cublaslt.h"

#include <dlfcn.h>
#include <stdio.h>

/* The address of a function, in *to; dlsym's object pointer is not one to a function in C, but in POSIX. */
static bool function_find(void *library, const char *name, void *to, Error *e)
{
    *(void **)to = dlsym(library, name);
    return *(void **)to || error_set(e, "cuBLASLt: %s", dlerror());
}

bool cublaslt_load(CublasLt *lt, Error *e)
{
    char name[32];
    snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(e, "cuBLASLt, which multiplies matrices on the GPU, cannot be loaded: %s", dlerror());
    bool ok = true;
#define X(function) ok = ok && function_find(library, "cublasLt" #function, &lt->function, e);
    CUBLASLT_FUNCTIONS(X)
#undef X
    return ok;
}
