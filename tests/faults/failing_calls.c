// Make one system call fail for files of one ending, as a broken disk, a lost mount or a reached limit does:
// FAULT_CALL (open, read, write, mmap, flock, stat), FAULT_PATH (the ending), FAULT_ERRNO. Preloaded by failing_calls.py.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int fails(const char *call, const char *path) {
    const char *which = getenv("FAULT_CALL"), *ending = getenv("FAULT_PATH"), *number = getenv("FAULT_ERRNO");
    if (!which || !ending || !number || strcmp(which, call)) return 0;
    size_t length = strlen(path), end = strlen(ending);
    if (length < end || strcmp(path + length - end, ending)) return 0;
    errno = atoi(number);
    return 1;
}

static int fails_of(const char *call, int handle) {
    char link[64], path[PATH_MAX];
    if (handle < 0 || !getenv("FAULT_CALL")) return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0) return 0;
    path[length] = 0;
    return fails(call, path);
}

#define REAL(name)                                                                                                     \
    static __typeof__(&name) real;                                                                                     \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        REAL(name);                                                                                                    \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        int mode = va_arg(rest, int);                                                                                  \
        va_end(rest);                                                                                                  \
        return fails("open", path) ? -1 : real(path, flags, mode);                                                     \
    }

#define OPENAT(name)                                                                                                   \
    int name(int folder, const char *path, int flags, ...) {                                                           \
        REAL(name);                                                                                                    \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        int mode = va_arg(rest, int);                                                                                  \
        va_end(rest);                                                                                                  \
        return fails("open", path) ? -1 : real(folder, path, flags, mode);                                             \
    }

#define PREAD(name, offset)                                                                                            \
    ssize_t name(int handle, void *to, size_t size, offset at) {                                                       \
        REAL(name);                                                                                                    \
        return fails_of("read", handle) ? -1 : real(handle, to, size, at);                                             \
    }

#define PWRITE(name, offset)                                                                                           \
    ssize_t name(int handle, const void *from, size_t size, offset at) {                                               \
        REAL(name);                                                                                                    \
        return fails_of("write", handle) ? -1 : real(handle, from, size, at);                                          \
    }

#define MMAP(name, offset)                                                                                             \
    void *name(void *place, size_t size, int kind, int flags, int handle, offset at) {                                 \
        REAL(name);                                                                                                    \
        return fails_of("mmap", handle) ? MAP_FAILED : real(place, size, kind, flags, handle, at);                     \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
PREAD(pread, off_t)
PREAD(pread64, off64_t)
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

ssize_t read(int handle, void *to, size_t size) {
    REAL(read);
    return fails_of("read", handle) ? -1 : real(handle, to, size);
}

ssize_t write(int handle, const void *from, size_t size) {
    REAL(write);
    return fails_of("write", handle) ? -1 : real(handle, from, size);
}

int stat(const char *path, struct stat *facts) {
    REAL(stat);
    return fails("stat", path) ? -1 : real(path, facts);
}

int flock(int handle, int kind) {
    static int (*real)(int, int);
    if (!real) real = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
    return fails_of("flock", handle) ? -1 : real(handle, kind);
}
