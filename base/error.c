#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool error_record(Error *e, bool usage, const char *format, va_list args)
{
    if (!e->set) {
        vsnprintf(e->text, sizeof e->text, format, args);
        e->set = true;
        e->usage = usage;
    }
    return false;
}

bool error_set(Error *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_record(e, false, format, args);
    va_end(args);
    return false;
}

bool error_usage(Error *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_record(e, true, format, args);
    va_end(args);
    return false;
}

bool error_prefix(Error *e, const char *format, ...)
{
    char old[sizeof e->text], prefix[256];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    memcpy(old, e->text, sizeof old);
    snprintf(e->text, sizeof e->text, "%.250s: %.760s", prefix, old);
    return false;
}

void *memory_get(Error *e, size_t n, size_t size, const char *what)
{
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p)
        error_set(e, "out of host memory: %zu x %zu bytes for %s", n, size, what);
    return p;
}

bool memory_grow(void *list, size_t *capacity, size_t needed, size_t size, const char *what, Error *e)
{
    if (needed <= *capacity)
        return true;
    void *old;
    memcpy(&old, list, sizeof old);
    size_t n = needed > 2 * *capacity ? needed : 2 * *capacity;
    void *grown = reallocarray(old, n, size);
    if (!grown)
        return error_set(e, "out of host memory: %zu x %zu bytes for %s", n, size, what);
    memcpy(list, &grown, sizeof grown);
    *capacity = n;
    return true;
}

bool product_fits(long a, long b, long *out)
{
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out);
}
