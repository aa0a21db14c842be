/* Faults for a whole process that preloads this: calls of the C library fail, come short, or find a file changed.
 *
 * A rule is four words: `CALL SUFFIX WHEN WHAT`.
 *   CALL    open stat opendir read pread mmap madvise fadvise fcntl uring
 *   SUFFIX  how the path ends that the call is about, or `*`
 *   WHEN    which of these calls, counted from 1: `3`, `3-`, `3-5`, or `1/4:17`, one in 4 by a sequence of the seed 17
 *   WHAT    errno:N, short:N (at most N bytes, 0 being the end of the file), or what is done to the file just before the
 *           call: cut:N, write:N (a byte at offset N), swap (`PATH.new` is renamed over it), unlink
 * Rules come in the environment (WEIGHTMAP_FAULTS, one a line), or as paths that are opened: `/injected/RULE`, and
 * `/injected/clear`. With WEIGHTMAP_OPENED or `/injected/log FILE` each path that is opened or looked up is told in a file.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { RULES = 16, MAPS = 256, PATH = 4096 };

struct rule {
    char call[16], suffix[256], what[16];
    long first, last, one_in;
    uint64_t seed;
    long argument;
    atomic_long calls;
};
static struct rule rules[RULES];
static atomic_int rule_count;

static struct { uintptr_t start, end; char path[PATH]; } maps[MAPS];
static pthread_mutex_t maps_lock = PTHREAD_MUTEX_INITIALIZER;

static char log_path[PATH];
static atomic_int has_log;

static uint64_t mixed(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void add_rule(const char *text) {
    int count = atomic_load(&rule_count);
    char when[64], what[64];
    if (count == RULES) abort();
    struct rule *rule = &rules[count];
    memset(rule, 0, sizeof *rule);
    if (sscanf(text, "%15s %255s %63s %63s", rule->call, rule->suffix, when, what) != 4) abort();
    char *dash = strchr(when, '-'), *slash = strchr(when, '/'), *colon = strchr(when, ':');
    rule->first = strtol(when, NULL, 10);
    rule->last = rule->first;
    if (slash && colon) {
        rule->one_in = strtol(slash + 1, NULL, 10);
        rule->seed = strtoul(colon + 1, NULL, 10);
    } else if (dash) {
        rule->last = dash[1] ? strtol(dash + 1, NULL, 10) : INT64_MAX;
    }
    char *argument = strchr(what, ':');
    if (argument) {
        *argument = 0;
        rule->argument = strtol(argument + 1, NULL, 10);
    }
    strncpy(rule->what, what, sizeof rule->what - 1);
    atomic_store(&rule_count, count + 1);
}

static void log_to(const char *path) {
    strncpy(log_path, path, PATH - 1);
    atomic_store(&has_log, log_path[0] != 0);
}

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("WEIGHTMAP_OPENED"), *text = getenv("WEIGHTMAP_FAULTS");
    if (file) log_to(file);
    while (text && *text) {
        char line[512] = "";
        size_t length = strcspn(text, "\n");
        memcpy(line, text, length < sizeof line ? length : sizeof line - 1);
        if (length) add_rule(line);
        text += length + (text[length] == '\n');
    }
}

/* A path with a line end in it would look like two. */
static void tell(const char *path) {
    if (!atomic_load(&has_log) || !path || !*path) return;
    char line[PATH + 1];
    size_t length = strnlen(path, PATH - 1);
    for (size_t at = 0; at < length; at++) line[at] = path[at] == '\n' ? '?' : path[at];
    line[length] = '\n';
    int file = syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (syscall(SYS_write, file, line, length + 1) < 0) abort();
    syscall(SYS_close, file);
}

static void path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH - 1);
    path[length < 0 ? 0 : length] = 0;
    char *gone = strstr(path, " (deleted)");
    if (gone) *gone = 0;
}

static void change(const struct rule *rule, const char *path) {
    if (!strcmp(rule->what, "cut")) {
        if (truncate(path, rule->argument)) abort();
    } else if (!strcmp(rule->what, "write")) {
        int file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
        if (syscall(SYS_pwrite64, file, "!", 1, rule->argument) != 1) abort();
        syscall(SYS_close, file);
    } else if (!strcmp(rule->what, "swap")) {
        char other[PATH + 8];
        snprintf(other, sizeof other, "%s.new", path);
        if (rename(other, path)) abort();
    } else if (!strcmp(rule->what, "unlink")) {
        if (unlink(path)) abort();
    } else {
        abort();
    }
}

/* What a call comes to: 0, it is made, of at most *bytes; 1, it fails with errno. */
static int fault(const char *call, const char *path, size_t *bytes) {
    for (int number = 0; number < atomic_load(&rule_count); number++) {
        struct rule *rule = &rules[number];
        size_t length = strlen(path), suffix = strlen(rule->suffix);
        int matches = !strcmp(rule->suffix, "*") || (length >= suffix && !strcmp(path + length - suffix, rule->suffix));
        if (strcmp(rule->call, call) || !matches) continue;
        long place = atomic_fetch_add(&rule->calls, 1) + 1;
        int is_now = rule->one_in ? mixed(rule->seed ^ (uint64_t)place) % (uint64_t)rule->one_in == 0
                                  : place >= rule->first && place <= rule->last;
        if (!is_now) continue;
        if (!strcmp(rule->what, "errno")) {
            errno = (int)rule->argument;
            return 1;
        }
        if (!strcmp(rule->what, "short")) {
            if (bytes && *bytes > (size_t)rule->argument) *bytes = (size_t)rule->argument;
        } else {
            change(rule, path);
        }
    }
    return 0;
}

static int fault_of(const char *call, int fd, size_t *bytes) {
    if (!atomic_load(&rule_count)) return 0;
    char path[PATH];
    path_of(fd, path);
    return fault(call, path, bytes);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int command(const char *path) {
    static const char START[] = "/injected/";
    if (strncmp(path, START, sizeof START - 1)) return 0;
    path += sizeof START - 1;
    if (!strcmp(path, "clear")) {
        atomic_store(&rule_count, 0);
        log_to("");
    } else if (!strncmp(path, "log ", 4)) {
        log_to(path + 4);
    } else {
        add_rule(path);
    }
    errno = EEXIST;
    return 1;
}

static int before_open(const char *path) {
    if (command(path)) return 1;
    tell(path);
    return fault("open", path, NULL);
}

#define OPEN(name)                                                     \
    int name(const char *path, int flags, ...) {                       \
        va_list rest;                                                  \
        va_start(rest, flags);                                         \
        mode_t mode = va_arg(rest, mode_t);                            \
        va_end(rest);                                                  \
        return before_open(path) ? -1 : REAL(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                             \
    int name(int directory, const char *path, int flags, ...) {                  \
        va_list rest;                                                            \
        va_start(rest, flags);                                                   \
        mode_t mode = va_arg(rest, mode_t);                                      \
        va_end(rest);                                                            \
        return before_open(path) ? -1 : REAL(name)(directory, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

DIR *opendir(const char *path) {
    tell(path);
    return fault("opendir", path, NULL) ? NULL : REAL(opendir)(path);
}

#define STAT(name, type)                                                     \
    int name(const char *path, type *answer) {                               \
        tell(path);                                                          \
        return fault("stat", path, NULL) ? -1 : REAL(name)(path, answer);    \
    }
STAT(stat, struct stat)
STAT(stat64, struct stat64)
STAT(lstat, struct stat)
STAT(lstat64, struct stat64)

#define FSTAT(name, type)                                                    \
    int name(int fd, type *answer) {                                         \
        return fault_of("stat", fd, NULL) ? -1 : REAL(name)(fd, answer);     \
    }
FSTAT(fstat, struct stat)
FSTAT(fstat64, struct stat64)

int statx(int fd, const char *path, int flags, unsigned mask, struct statx *answer) {
    /* Whether the call is known is asked without a path, which its declaration rules out. */
    const char *volatile given = path;
    int fails = given && *given ? (tell(path), fault("stat", path, NULL)) : fault_of("stat", fd, NULL);
    return fails ? -1 : REAL(statx)(fd, path, flags, mask, answer);
}

ssize_t read(int fd, void *buffer, size_t bytes) {
    return fault_of("read", fd, &bytes) ? -1 : REAL(read)(fd, buffer, bytes);
}

ssize_t pread(int fd, void *buffer, size_t bytes, off_t offset) {
    return fault_of("pread", fd, &bytes) ? -1 : REAL(pread)(fd, buffer, bytes, offset);
}

ssize_t pread64(int fd, void *buffer, size_t bytes, off64_t offset) {
    return fault_of("pread", fd, &bytes) ? -1 : REAL(pread64)(fd, buffer, bytes, offset);
}

/* To the calls that read it is one, however many parts it has. */
ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t offset) {
    size_t all = 0, left;
    for (int part = 0; part < count; part++) all += parts[part].iov_len;
    left = all;
    if (fault_of("pread", fd, &left)) return -1;
    if (left == all) return REAL(preadv64)(fd, parts, count, offset);
    struct iovec *fewer = malloc((size_t)count * sizeof *fewer);
    for (int part = 0; part < count; part++) {
        size_t bytes = parts[part].iov_len < left ? parts[part].iov_len : left;
        fewer[part] = (struct iovec){parts[part].iov_base, bytes};
        left -= bytes;
    }
    ssize_t answer = REAL(preadv64)(fd, fewer, count, offset);
    free(fewer);
    return answer;
}

static void keep_map(void *start, size_t bytes, int fd) {
    pthread_mutex_lock(&maps_lock);
    for (int number = 0; number < MAPS; number++) {
        if (maps[number].end) continue;
        maps[number].start = (uintptr_t)start;
        maps[number].end = (uintptr_t)start + bytes;
        path_of(fd, maps[number].path);
        break;
    }
    pthread_mutex_unlock(&maps_lock);
}

#define MMAP(name, type)                                                                   \
    void *name(void *start, size_t bytes, int access, int flags, int fd, type offset) {    \
        if (fd < 0) return REAL(name)(start, bytes, access, flags, fd, offset);            \
        if (fault_of("mmap", fd, NULL)) return MAP_FAILED;                                 \
        void *map = REAL(name)(start, bytes, access, flags, fd, offset);                   \
        if (map != MAP_FAILED) keep_map(map, bytes, fd);                                   \
        return map;                                                                        \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

int munmap(void *start, size_t bytes) {
    pthread_mutex_lock(&maps_lock);
    for (int number = 0; number < MAPS; number++)
        if (maps[number].start == (uintptr_t)start) maps[number].start = maps[number].end = 0;
    pthread_mutex_unlock(&maps_lock);
    return REAL(munmap)(start, bytes);
}

int madvise(void *start, size_t bytes, int advice) {
    char path[PATH] = "";
    pthread_mutex_lock(&maps_lock);
    for (int number = 0; number < MAPS; number++)
        if (maps[number].start <= (uintptr_t)start && (uintptr_t)start < maps[number].end)
            strcpy(path, maps[number].path);
    pthread_mutex_unlock(&maps_lock);
    return *path && fault("madvise", path, NULL) ? -1 : REAL(madvise)(start, bytes, advice);
}

/* It gives its error, and leaves errno alone. */
int posix_fadvise(int fd, off_t offset, off_t bytes, int advice) {
    return fault_of("fadvise", fd, NULL) ? errno : REAL(posix_fadvise)(fd, offset, bytes, advice);
}

int fcntl(int fd, int what, ...) {
    va_list rest;
    va_start(rest, what);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return fault_of("fcntl", fd, NULL) ? -1 : REAL(fcntl)(fd, what, argument);
}

/* Rings have no functions in the C library. */
long syscall(long number, ...) {
    va_list rest;
    va_start(rest, number);
    long arguments[6];
    for (int place = 0; place < 6; place++) arguments[place] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_io_uring_setup && fault("uring", "", NULL)) return -1;
    long (*real)(long, ...) = REAL(syscall);
    return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
