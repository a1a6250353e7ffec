/* safetensors: named arrays in one file, the format in which weights are exchanged.
 *
 *     bytes 0..7     N, the header's length, little-endian
 *     bytes 8..8+N   the header: JSON, beginning with '{', perhaps padded with spaces
 *                    {"wte.weight": {"dtype": "F32", "shape": [50257, 768], "data_offsets": [begin, end]}, ...,
 *                     "__metadata__": {"format": "pt"}}
 *     then           the data: offsets count from here; row-major, little-endian
 *
 * The tensors cover the data without a hole, an overlap or a rest, and end - begin is what shape and dtype make. A
 * reader can therefore check a file completely before it believes any of it, and does. */
#ifndef TALLY_BASE_SAFETENSORS_H
#define TALLY_BASE_SAFETENSORS_H

#include "base/error.h"
#include "base/file.h"

#include <jansson.h>
#include <stdint.h>

enum { SAFE_MAX_DIMS = 8, SAFE_MAX_HEADER = 100000000 /* bytes; the reference loader's limit */ };

typedef enum SafeDtype {
    SAFE_F64,
    SAFE_I64,
    SAFE_U64,
    SAFE_F32,
    SAFE_I32,
    SAFE_U32,
    SAFE_F16,
    SAFE_BF16,
    SAFE_I16,
    SAFE_U16,
    SAFE_I8,
    SAFE_U8,
    SAFE_BOOL,
    SAFE_F8_E4M3,
    SAFE_F8_E5M2,
    SAFE_DTYPE_COUNT
} SafeDtype;

/* ---- Reading ------------------------------------------------------------------------------------------------------- */

typedef struct SafeTensor {
    const char *name;
    SafeDtype dtype;
    int ndim;                     /* 0: a single number                              */
    int64_t shape[SAFE_MAX_DIMS]; /* each >= 0; the product and its bytes fit int64_t */
    const void *data;             /* [bytes], aligned as well as the file's writer cared: for memcpy, or safetensors_read_f32 */
    size_t bytes;
} SafeTensor;

typedef struct SafeTensors {
    FileMap map;               /* of the file; empty when the bytes are the caller's */
    const unsigned char *data; /* where offset 0 is                                  */
    SafeTensor *tensors;       /* [count], by name in strcmp's order                 */
    size_t count;
    json_t *header;            /* keeps the names, and __metadata__                  */
    struct SafeTensors *shard; /* [shards]: the files that the tensors of a model are in, when there are several */
    size_t shards;
} SafeTensors;

/* Maps and checks a file: everything in the comment above, and at most 8 dimensions, the dtypes above, a header of at
 * most SAFE_MAX_HEADER bytes, no name twice. On error *f is empty; the message names file, tensor and value. */
bool safetensors_open(SafeTensors *f, const char *path, Error *e);

/* The same for a file's bytes in memory, which must outlive *f. `name` is for messages. */
bool safetensors_open_memory(SafeTensors *f, const void *bytes, size_t size, const char *name, Error *e);

/* A model: opens dir/model.safetensors, or without it the shards that dir/model.safetensors.index.json names: its "weight_map"
 * says for each tensor the file that holds it. A shard's name must be a plain file name in `dir`; each tensor of the map must be
 * in its shard. Tensors that the map does not name are not part of the model. On error *f is empty. */
bool safetensors_open_model(SafeTensors *f, const char *dir, Error *e);

void safetensors_close(SafeTensors *f);

/* The tensor of that name, or NULL. O(log count). */
const SafeTensor *safetensors_find(const SafeTensors *f, const char *name);

/* out[i] = element first + i of the flattened tensor, for i < count, as float: F32, F16 and BF16 exactly, F64 rounded.
 * Other dtypes, and a range outside the tensor, are errors. */
bool safetensors_read_f32(const SafeTensor *t, int64_t first, int64_t count, float *out, Error *e);

/* ---- Writing ------------------------------------------------------------------------------------------------------- */

/* Gives the next piece of a tensor's bytes: *n of them (1 <= *n <= left) at *bytes, which stay valid until the next
 * call. `done` bytes have been taken before, `left` are to come. False after recording an error. */
typedef bool SafePiece(void *user, size_t done, size_t left, const void **bytes, size_t *n, Error *e);

/* A tensor to write: from data, or when that is NULL piece by piece. A slice of rows of a larger tensor is its own rows
 * in `shape` and a pointer to the first. */
typedef struct SafeEntry {
    const char *name;
    SafeDtype dtype;
    int ndim;
    int64_t shape[SAFE_MAX_DIMS];
    const void *data;
    SafePiece *piece;
    void *user;
} SafeEntry;

/* Writes n entries (names distinct) to `path`, whole and durable (base/file.h). In the file wider dtypes come first and
 * otherwise the order is that given, so that all data is aligned. `metadata` is an object of texts, or NULL; "format":
 * "pt" is added, without which transformers refuses a file. */
bool safetensors_write(const char *path, const SafeEntry *entries, size_t n, const json_t *metadata, Error *e);

#endif
