#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reading ------------------------------------------------------------------------------------------------------- */

static const char *file_kind(mode_t mode)
{
    return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a FIFO" : S_ISSOCK(mode) ? "a socket" : "a device";
}

/* O_NONBLOCK: the open of a FIFO without a writer would wait for ever. */
int file_open(const char *path, size_t *size, Error *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        error_set(e, "%s: cannot open: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        error_set(e, "%s: is %s; an ordinary file is needed", path, file_kind(st.st_mode));
    } else {
        *size = (size_t)st.st_size;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

bool file_map(FileMap *m, const char *path, Error *e)
{
    *m = (FileMap){"", 0};
    size_t size;
    int fd = file_open(path, &size, e);
    if (fd < 0)
        return false;
    void *p = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int cause = errno;
    close(fd);
    if (p == MAP_FAILED)
        return error_set(e, "%s: cannot map %zu bytes: %s", path, size, strerror(cause));
    if (p)
        *m = (FileMap){p, size};
    return true;
}

/* The line of /proc/self/maps that the address lies in ends with the file's name. The signal comes from a read of the mapping, so
 * what this thread may not call here it was not in the middle of. */
static void map_lost(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    char line[PATH_SIZE + 128], *name = "a file";
    uintptr_t begin, end, address = (uintptr_t)info->si_addr;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) == 2 && address >= begin && address < end && strchr(line, '/')) {
            name = strchr(line, '/');
            name[strcspn(name, "\n")] = 0;
            break;
        }
    fprintf(stderr, "tally: %s: cannot be read on: it was made shorter while it was in use, or its disk has failed\n", name);
    _exit(1);
}

void file_maps_guard(void)
{
    struct sigaction action = {.sa_sigaction = map_lost, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
}

void file_unmap(FileMap *m)
{
    if (m->size)
        munmap((void *)m->data, m->size);
    *m = (FileMap){"", 0};
}

/* Read, not mapped: such a file may be one that its writer shortens meanwhile. */
bool file_read_all(const char *path, size_t limit, char **bytes, size_t *size, Error *e)
{
    *bytes = NULL;
    size_t expected, used = 0;
    int fd = file_open(path, &expected, e);
    if (fd < 0)
        return false;
    if (expected > limit)
        error_set(e, "%s: has %zu bytes, more than the %zu that such a file may have", path, expected, limit);
    else
        *bytes = memory_get(e, expected + 1, 1, path);
    for (ssize_t n = 1; *bytes && used < expected && n != 0; used += n > 0 ? (size_t)n : 0)
        if ((n = read(fd, *bytes + used, expected - used)) < 0 && errno != EINTR) {
            error_set(e, "%s: cannot read: %s", path, strerror(errno));
            free(*bytes);
            *bytes = NULL;
        }
    close(fd);
    *size = used;
    return *bytes != NULL;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool path_join(char out[PATH_SIZE], const char *dir, const char *name, Error *e)
{
    size_t n = strlen(dir);
    const char *slash = n && dir[n - 1] == '/' ? "" : "/";
    if (snprintf(out, PATH_SIZE, "%s%s%s", dir, slash, name) < PATH_SIZE)
        return true;
    return error_set(e, "%.200s...: path is longer than %d bytes", dir, PATH_SIZE - 1);
}

/* ---- Writing ------------------------------------------------------------------------------------------------------- */

/* Called before each call that changes the disk. True: this is the one that the tests want to fail (errno says how).
 * For a write of n bytes to fd, half of them are put down first. The count is the only state here, and atomic. */
static bool fault_due(int fd, const void *bytes, size_t n)
{
    static atomic_long calls;
    const char *full_text = getenv("TALLY_FAULT_WRITE"), *kill_text = getenv("TALLY_FAULT_KILL");
    if (!full_text && !kill_text)
        return false;
    long call = atomic_fetch_add(&calls, 1) + 1;
    bool full = full_text && call == atol(full_text), killed = kill_text && call == atol(kill_text);
    if ((full || killed) && n > 1 && write(fd, bytes, n / 2) < 0)
        return true;
    if (killed)
        raise(SIGKILL);
    errno = ENOSPC;
    return full;
}

/* fsync, again when a signal interrupts it. Folders of some network file systems cannot be synced (EINVAL): no error. */
static bool sync_descriptor(int fd)
{
    int rc = -1;
    if (!fault_due(fd, NULL, 0)) {
        do
            rc = fsync(fd);
        while (rc != 0 && errno == EINTR);
    }
    return rc == 0 || errno == EINVAL;
}

/* The folder that holds `path`: "a/b/" and "a/b" -> "a", "b" -> ".", "/b" -> "/". */
static void path_parent(char out[PATH_SIZE], const char *path)
{
    char copy[PATH_SIZE];
    snprintf(copy, sizeof copy, "%s", path);
    strcpy(out, dirname(copy));
}

static bool sync_parent(const char *path, Error *e)
{
    char parent[PATH_SIZE];
    path_parent(parent, path);
    return dir_sync(parent, e);
}

bool file_create(FileWriter *w, const char *path, Error *e)
{
    w->fd = -1;
    if (snprintf(w->path, PATH_SIZE, "%s", path) >= PATH_SIZE || snprintf(w->temp, PATH_SIZE, "%s.tmp", path) >= PATH_SIZE)
        return error_set(e, "%.200s...: path is longer than %d bytes", path, PATH_SIZE - 5);
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return error_set(e, "%s: is %s; cannot be replaced by a file", path, file_kind(st.st_mode));
    w->fd = open(w->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    return w->fd >= 0 || error_set(e, "%s: cannot create: %s", w->temp, strerror(errno));
}

/* offset < 0: behind what is there. */
static bool write_all(FileWriter *w, int64_t offset, const void *bytes, size_t n, Error *e)
{
    const char *p = bytes;
    while (n > 0) {
        ssize_t done = fault_due(w->fd, p, n) ? -1 : offset < 0 ? write(w->fd, p, n) : pwrite(w->fd, p, n, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return error_set(e, "%s: cannot write: %s", w->temp, done ? strerror(errno) : "no progress");
        p += done;
        n -= (size_t)done;
        offset += offset < 0 ? 0 : done;
    }
    return true;
}

bool file_append(FileWriter *w, const void *bytes, size_t n, Error *e)
{
    return write_all(w, -1, bytes, n, e);
}

bool file_write_at(FileWriter *w, int64_t offset, const void *bytes, size_t n, Error *e)
{
    return write_all(w, offset, bytes, n, e);
}

bool file_finish(FileWriter *w, Error *e)
{
    bool ok = sync_descriptor(w->fd) || error_set(e, "%s: cannot flush to disk: %s", w->temp, strerror(errno));
    if (close(w->fd) != 0 && ok)
        ok = error_set(e, "%s: cannot close: %s", w->temp, strerror(errno));
    w->fd = -1;
    if (!ok)
        unlink(w->temp);
    return ok;
}

bool file_commit(FileWriter *w, Error *e)
{
    if (!file_finish(w, e))
        return false;
    if (file_rename(w->temp, w->path, e))
        return true;
    unlink(w->temp); /* after a rename there is nothing of that name */
    return false;
}

void file_abandon(FileWriter *w)
{
    if (w->fd >= 0)
        close(w->fd);
    unlink(w->temp);
    w->fd = -1;
}

bool file_write_atomic(const char *path, const void *bytes, size_t n, Error *e)
{
    FileWriter w;
    if (!file_create(&w, path, e))
        return false;
    if (file_append(&w, bytes, n, e))
        return file_commit(&w, e);
    file_abandon(&w);
    return false;
}

bool file_rename(const char *from, const char *to, Error *e)
{
    if (fault_due(-1, NULL, 0) || rename(from, to) != 0)
        return error_set(e, "%s: cannot rename to %s: %s", from, to, strerror(errno));
    return sync_parent(to, e);
}

/* ---- Folders ------------------------------------------------------------------------------------------------------- */

bool dir_sync(const char *path, Error *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && sync_descriptor(fd);
    if (!ok)
        error_set(e, "%s: cannot flush the folder to disk: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return ok;
}

bool dir_make(const char *path, Error *e)
{
    struct stat st;
    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode) || error_set(e, "%s: exists and is not a folder", path);
    char parent[PATH_SIZE];
    if (strlen(path) >= PATH_SIZE)
        return error_set(e, "%.200s...: path is longer than %d bytes", path, PATH_SIZE - 1);
    path_parent(parent, path);
    if (strcmp(parent, path) != 0 && !dir_make(parent, e))
        return false;
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return error_set(e, "%s: cannot make the folder: %s", path, strerror(errno));
    return dir_sync(parent, e);
}

bool dir_remove(const char *path, Error *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || error_set(e, "%s: cannot open the folder: %s", path, strerror(errno));
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return error_set(e, "%s: cannot read the folder: %s", path, strerror(errno));
    }
    bool ok = true;
    for (struct dirent *d; ok && (d = readdir(dir));)
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0 && unlinkat(fd, d->d_name, 0) != 0)
            ok = error_set(e, "%s/%s: cannot remove: %s", path, d->d_name, strerror(errno));
    closedir(dir);
    return ok && (rmdir(path) == 0 || error_set(e, "%s: cannot remove the folder: %s", path, strerror(errno)));
}

/* The lock goes with the process, however that ends; the file stays, and says whose the lock is or was. */
bool dir_lock(const char *dir, int *lock, Error *e)
{
    char path[PATH_SIZE], owner[128] = "", host[65] = "";
    if (!path_join(path, dir, ".lock", e))
        return false;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0)
        return error_set(e, "%s: cannot create: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        bool known = pread(fd, owner, sizeof owner - 1, 0) > 0;
        close(fd);
        return error_set(e, "%s: %s is writing there; wait for its end or stop it (Ctrl-C, kill), or choose another folder", dir,
                         known ? owner : "another process");
    }
    gethostname(host, sizeof host - 1);
    int n = snprintf(owner, sizeof owner, "process %ld on %s", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, owner, (size_t)n, 0) != n)
        errno = 0; /* a full disk: the lock holds without a name, and the next write says what is wrong */
    *lock = fd;
    return true;
}
