/* Files, read by mapping and written so that a crash or a full disk never leaves half of one under its own name.
 *
 * Reading: a file is mapped read-only, so that a token file of any size costs no memory of its own. A mapped file must
 * not be shortened by someone else meanwhile: the kernel would answer a read with SIGBUS, and file_maps_guard with a message.
 *
 * Writing: into PATH.tmp, then fsync, close, rename to PATH, fsync of the folder. Before the rename the old file is
 * whole, after it the new one is; a failure on the way removes PATH.tmp and reports path and cause.
 *
 * Faults for tests: with TALLY_FAULT_WRITE=N in the environment the N-th of the process's calls that change the disk
 * (write, fsync, rename; counted from 1, while the variable is set) fails with ENOSPC, as on a full disk; with
 * TALLY_FAULT_KILL=N the process kills itself there. Either way a write has by then put down half of its bytes. */
#ifndef TALLY_BASE_FILE_H
#define TALLY_BASE_FILE_H

#include "base/error.h"

#include <stdint.h>

enum { PATH_SIZE = 4096 }; /* bytes of a path, its final NUL included */

/* Opens the regular file `path` for reading (a link to one is fine; folders, FIFOs and devices are refused by name); its size in
 * *size. Returns the descriptor, or -1 after recording an error. */
int file_open(const char *path, size_t *size, Error *e);

/* A file's bytes. data is never NULL: an empty file has size 0. */
typedef struct FileMap {
    const void *data;
    size_t size;
} FileMap;

/* Maps the file that file_open opens. On error *m is a valid empty map. */
bool file_map(FileMap *m, const char *path, Error *e);

/* From now on a read of a mapped file that is no longer there ends the process with a message that names it, and exit code 1. */
void file_maps_guard(void);

/* Gives the mapping back and leaves an empty one. */
void file_unmap(FileMap *m);

/* Reads a regular file of at most `limit` bytes into memory. *bytes [*size] has a NUL behind it and is freed with
 * free(); NULL on error. */
bool file_read_all(const char *path, size_t limit, char **bytes, size_t *size, Error *e);

/* Is there something that a reader would find under this path (links followed)? */
bool file_exists(const char *path);

/* out = "dir/name". False with a message when that is longer than PATH_SIZE. */
bool path_join(char out[PATH_SIZE], const char *dir, const char *name, Error *e);

/* A file being written, as described above. */
typedef struct FileWriter {
    int fd;
    char path[PATH_SIZE]; /* the final name             */
    char temp[PATH_SIZE]; /* path + ".tmp": where bytes go now */
} FileWriter;

/* Starts a new file. What `path` may name already: nothing, or a regular file to be replaced. After true, one of
 * file_commit and file_abandon must follow. */
bool file_create(FileWriter *w, const char *path, Error *e);

/* Appends n bytes: all of them, or false with path and cause. */
bool file_append(FileWriter *w, const void *bytes, size_t n, Error *e);

/* Replaces n bytes from byte `offset` >= 0 on, which have been appended before. */
bool file_write_at(FileWriter *w, int64_t offset, const void *bytes, size_t n, Error *e);

/* Makes the file durable under its temporary name, and leaves it there. */
bool file_finish(FileWriter *w, Error *e);

/* Makes the file durable under its final name. On failure the temporary file is removed and the old one is as it was
 * (but if only the last fsync, that of the folder, failed: then the new one is in place and not known to be durable). */
bool file_commit(FileWriter *w, Error *e);

/* Gives up: removes the temporary file. */
void file_abandon(FileWriter *w);

/* The whole of the above for n bytes in memory. */
bool file_write_atomic(const char *path, const void *bytes, size_t n, Error *e);

/* Renames a file or folder and makes that durable. Both in the same folder. A folder never replaces a non-empty one. */
bool file_rename(const char *from, const char *to, Error *e);

/* fsync of a folder: the names in it are durable afterwards. */
bool dir_sync(const char *path, Error *e);

/* Makes the folder and its missing parents, durably. A folder that exists is fine; anything else of that name is an error. */
bool dir_make(const char *path, Error *e);

/* Keeps others out of a folder that this process is about to write to: from now on, until *lock is closed or the process ends,
 * this call fails in every other process, with a message that names this one. It goes by a lock on the file .lock in the folder;
 * a file system without locks keeps nobody out. *lock is not changed on error. */
bool dir_lock(const char *dir, int *lock, Error *e);

/* Removes a folder and the files in it. A folder inside it is an error, and so is a link in place of the folder;
 * that it does not exist is not. */
bool dir_remove(const char *path, Error *e);

#endif
