/* Errors are values with a message for people: what was wrong, where (file, field, value), and what would work.
 *
 * A function that can fail takes an `Error *` and returns bool: true when it did what it says, false after it has
 * recorded a message. The first message wins, so that a failure inside a failure does not hide the cause. */
#ifndef TALLY_BASE_ERROR_H
#define TALLY_BASE_ERROR_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Error {
    bool set;        /* is there a message */
    bool usage;      /* the user asked for something impossible (exit code 2) rather than something failed (1) */
    char text[1024]; /* one line without a final newline; longer messages are cut */
} Error;

/* Records a printf-style message, unless there is one already. Returns false always: `return error_set(e, ...)`. */
bool error_set(Error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a wrong request: a flag, a value, a combination. The program will exit with 2 instead of 1. */
bool error_usage(Error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " in front of the message that e holds. Returns false always. */
bool error_prefix(Error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* calloc with an overflow check and a message: n elements of `size` bytes, zeroed, for `what`.
 * Returns NULL after recording an error; n = 0 gives a valid pointer. Free with free(). */
void *memory_get(Error *e, size_t n, size_t size, const char *what);

/* Makes room for `needed` elements of `size` bytes in a list that grows: `list` is the address of a pointer from malloc or NULL,
 * *capacity what it has room for. At least doubles it, so that adding one by one is linear in the end. False after recording an
 * error; the list is as it was then. */
bool memory_grow(void *list, size_t *capacity, size_t needed, size_t size, const char *what, Error *e);

/* Sets *out to a * b. Returns false, without a message, when the product does not fit int64_t or a factor is negative. */
bool product_fits(long a, long b, long *out);

#endif
