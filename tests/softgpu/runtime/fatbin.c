/* Fat binaries: what nvcc puts into a program for each source file, and the PTX text in one.
 *
 *   Header  {magic 0xba55ed50, version, bytes of the header, bytes that follow}
 *   Entry   {kind: 1 PTX, 2 machine code; bytes of the header; bytes of the payload; ...} payload, again and again
 *
 * A payload may be compressed, as two bits of its flags say: with zstd (today's default; libzstd is opened when it is needed)
 * or LZ4 (toolkits before 12.4; its block format is simple enough to read here). NVIDIA does not document the layout: it is
 * what programs of known content show. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/runtime/runtime.h"

#define MAGIC     0xba55ed50u
#define KIND_PTX  1
#define KIND_SASS 2
#define FLAG_LZ4  0x2000
#define FLAG_ZSTD 0x8000

typedef struct Header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
} Header;

typedef struct Entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes; /* of the payload, with padding */
    uint32_t packed_bytes, options;
    uint16_t minor, major;
    uint32_t capability;
    uint32_t name_offset, name_bytes; /* of the source file's name, within the header */
    uint64_t flags, zero;
    uint64_t text_bytes; /* when compressed: after decompression */
} Entry;

_Static_assert(sizeof(Entry) == 64, "the layout of an entry");

/* The rest of a length whose first four bits were all ones: bytes are added up to the first below 255. */
static size_t lz4_length(size_t length, const uint8_t **in, const uint8_t *end)
{
    if (length == 15)
        for (uint8_t byte = 255; byte == 255 && *in < end; length += byte)
            byte = *(*in)++;
    return length;
}

/* LZ4: sequences of a token, literals, a 16-bit distance, and a match of at least 4 bytes. True when exactly `size` came out. */
static bool unpack_lz4(const uint8_t *in, size_t packed, char *out, size_t size)
{
    const uint8_t *end = in + packed;
    size_t n = 0;
    while (in < end && n < size) {
        uint8_t token = *in++;
        size_t literals = lz4_length(token >> 4, &in, end);
        if (literals > (size_t)(end - in) || literals > size - n)
            return false;
        memcpy(out + n, in, literals);
        n += literals;
        in += literals;
        if (end - in < 2)
            break;
        size_t distance = in[0] | (size_t)in[1] << 8;
        in += 2;
        size_t match = lz4_length(token & 15, &in, end) + 4;
        if (!distance || distance > n || match > size - n)
            return false;
        for (; match; match--, n++)
            out[n] = out[n - distance];
    }
    return n == size;
}

static bool unpack_zstd(const uint8_t *in, size_t packed, char *out, size_t size)
{
    typedef size_t Decompress(void *, size_t, const void *, size_t);
    static Decompress *decompress;
    if (!decompress) {
        void *library = dlopen("libzstd.so.1", RTLD_NOW);
        decompress = library ? (Decompress *)dlsym(library, "ZSTD_decompress") : NULL;
    }
    return decompress && decompress(out, size, in, packed) == size;
}

/* The text of a PTX entry, ended by a zero byte; NULL when it cannot be decompressed. */
static char *text_of(const Entry *entry, const uint8_t *payload)
{
    bool lz4 = entry->flags & FLAG_LZ4, zstd = entry->flags & FLAG_ZSTD;
    size_t size = lz4 || zstd ? entry->text_bytes : entry->bytes,
           packed = entry->packed_bytes ? entry->packed_bytes : entry->bytes;
    char *text = get(size + 1, 1);
    if (!lz4 && !zstd)
        memcpy(text, payload, size);
    else if (packed > entry->bytes || !(zstd ? unpack_zstd : unpack_lz4)(payload, packed, text, size)) {
        free(text);
        return NULL;
    }
    return text;
}

Image fatbin_read(const void *fatbin, int capability)
{
    const Header *header = fatbin;
    const uint8_t *at = (const uint8_t *)fatbin + header->header_bytes, *end = at + header->bytes;
    Image image = {0};
    uint32_t best = 0;
    if (header->magic != MAGIC)
        return image;
    while (end - at >= (ptrdiff_t)sizeof(Entry)) {
        const Entry *entry = (const Entry *)at;
        const uint8_t *payload = at + entry->header_bytes;
        at = payload + entry->bytes;
        image.sass += entry->kind == KIND_SASS;
        if (entry->kind != KIND_PTX || at > end || entry->capability > (uint32_t)capability || entry->capability <= best)
            continue;
        char *text = text_of(entry, payload);
        image.packed |= !text;
        if (!text)
            continue;
        best = entry->capability;
        free(image.ptx);
        free(image.name);
        image.ptx = text;
        image.name = strndup((const char *)entry + entry->name_offset, entry->name_bytes);
    }
    return image;
}
