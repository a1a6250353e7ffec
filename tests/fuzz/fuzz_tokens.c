/* libFuzzer over the token file reader: any bytes must be refused with a message, or read as tokens that are all inside the
 * vocabulary. clang -fsanitize=fuzzer,address,undefined -I. -D_GNU_SOURCE tests/fuzz/fuzz_tokens.c data/tokenfile.c base/file.c
 * base/error.c */
#include "data/tokenfile.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { VOCAB_SIZE = 50257 };
    Error e = {0};
    TokenFile f;
    if (!token_file_parse(&f, data, size, "fuzz", &e)) {
        if (!e.set || strncmp(e.text, "fuzz: ", 6) != 0)
            abort();
        return 0;
    }
    if (f.count < 1 || (uint64_t)f.offset + (uint64_t)f.count * (unsigned)f.width != size)
        abort();
    int32_t *ids = malloc((size_t)f.count * sizeof *ids);
    int64_t middle = f.count / 2;
    bool whole = token_file_read(&f, 0, f.count, VOCAB_SIZE, ids, "fuzz", &e);
    for (int64_t i = 0; whole && i < f.count; i++)
        if (ids[i] < 0 || ids[i] >= VOCAB_SIZE)
            abort();
    if (whole == e.set || (whole && !token_file_read(&f, middle, f.count - middle, VOCAB_SIZE, ids, "fuzz", &e)))
        abort();
    free(ids);
    return 0;
}
