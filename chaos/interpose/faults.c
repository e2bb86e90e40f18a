/*
 * A library that stands between one member and its kernel, to be bad hardware on demand.
 *
 * It is loaded by LD_PRELOAD and does nothing until told. What it is told stands in a control file
 * that both sides map, so that a fault begins and ends while the member runs: a disk that is slow,
 * fails or is full; a wall clock that jumps; a steady clock that runs at a wrong rate.
 *
 * Power loss: while the journal is on, what a write destroys is noted before the write, and every
 * finished sync is noted after it. Whoever kills the member can then put back what was never synced.
 * Names (made, renamed, removed), truncation by open, and writes through mappings count as durable
 * at once; only files below FAULTS_UNDER are met.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The control file, in the order that the harness knows. */
struct control {
    volatile int64_t sync_delay_us, write_delay_us, sync_errno, write_errno;
    volatile int64_t wall_offset_ns, rate_ppm, journal_on, sync_lies, pid, synced;
};

/* One note in the journal; `length` bytes follow. `extra` is the length of a write, or how many notes
 * a sync made durable. */
struct note {
    uint64_t kind, device, inode, offset, length, old_size, extra;
};
enum { WROTE = 1, WROTE_OVER_ZEROS = 2, RESIZED = 3, SYNCED = 4, GONE = 5 };

static struct control *control;
static int journal = -1;
static char under[4096];
static size_t under_length;
static uint64_t noted;
static pthread_mutex_t disk_lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...)                                   \
    static type (*real)(__VA_ARGS__);                           \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS_CONTROL"), *notes = getenv("FAULTS_JOURNAL"), *dir = getenv("FAULTS_UNDER");
    if (!path || !notes || !dir || strlen(dir) >= sizeof under) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return;
    journal = open(notes, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    strcpy(under, dir);
    under_length = strlen(under);
    control = map;
    control->pid = getpid();
}

static void rest(int64_t micros) {
    if (micros <= 0) return;
    struct timespec pause = { micros / 1000000, micros % 1000000 * 1000 };
    nanosleep(&pause, NULL);
}

/* Whether a descriptor is a file (or, if asked, a directory) of the data directory. */
static int is_met(int fd, int directories, struct stat *is) {
    if (!control || fstat(fd, is)) return 0;
    if (!S_ISREG(is->st_mode) && !(directories && S_ISDIR(is->st_mode))) return 0;
    char link[64], path[4200];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    return length >= (ssize_t)under_length && memcmp(path, under, under_length) == 0;
}

static int writes_are_met(void) {
    return control && (control->write_delay_us || control->write_errno || control->journal_on);
}

/* ---- the journal; the caller holds the lock ---- */

static void put(const void *bytes, size_t length) {
    const char *at = bytes;
    while (length) {
        long done = syscall(SYS_write, journal, at, length);
        if (done <= 0) abort(); /* A lost note would be damage that no disk does. */
        at += done;
        length -= done;
    }
}

static void note(const struct note *it, const char *old) {
    put(it, sizeof *it);
    if (it->length && old) put(old, it->length);
    noted++;
}

static char *read_old(int fd, uint64_t offset, uint64_t length) {
    char *old = calloc(1, length ? length : 1), link[64];
    if (!old) abort();
    uint64_t have = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int again = open(link, O_RDONLY | O_CLOEXEC);
    while (again >= 0 && have < length) {
        ssize_t got = pread(again, old + have, length - have, offset + have);
        if (got <= 0) break;
        have += got;
    }
    if (again < 0 || have < length) abort();
    close(again);
    return old;
}

static void note_write(int fd, uint64_t offset, uint64_t length) {
    struct stat is;
    if (fstat(fd, &is)) return;
    uint64_t size = is.st_size, end = offset + length;
    uint64_t overwritten = offset < size ? (end < size ? end : size) - offset : 0;
    struct note it = { WROTE, is.st_dev, is.st_ino, offset, overwritten, size, length };
    char *old = read_old(fd, offset, overwritten);
    if (overwritten == 0 || (old[0] == 0 && memcmp(old, old + 1, overwritten - 1) == 0)) {
        it.kind = WROTE_OVER_ZEROS;
        it.length = 0;
    }
    note(&it, old);
    free(old);
}

static void note_size(int fd, uint64_t size) {
    struct stat is;
    if (fstat(fd, &is) || (uint64_t)is.st_size == size) return;
    uint64_t old_size = is.st_size, cut = size < old_size ? old_size - size : 0;
    struct note it = { RESIZED, is.st_dev, is.st_ino, size, cut, old_size, 0 };
    char *old = read_old(fd, size, cut);
    note(&it, old);
    free(old);
}

static void note_gone(int dir, const char *path) {
    struct stat is;
    if (!control || !control->journal_on || fstatat(dir, path, &is, AT_SYMLINK_NOFOLLOW)) return;
    if (!S_ISREG(is.st_mode) || is.st_nlink != 1) return;
    struct note it = { GONE, is.st_dev, is.st_ino, 0, 0, 0, 0 };
    pthread_mutex_lock(&disk_lock);
    note(&it, NULL);
    pthread_mutex_unlock(&disk_lock);
}

/* ---- writes ---- */

/* Waits, fails, or takes the lock and notes. 0: go on; 1: go on, and unlock; -1: failed. */
static int before_write(int fd, int64_t offset, uint64_t length) {
    struct stat is;
    if (!writes_are_met() || !is_met(fd, 0, &is)) return 0;
    rest(control->write_delay_us);
    if (control->write_errno) {
        errno = (int)control->write_errno;
        return -1;
    }
    if (!control->journal_on) return 0;
    pthread_mutex_lock(&disk_lock);
    if (offset < 0) {
        if (fcntl(fd, F_GETFL) & O_APPEND) offset = fstat(fd, &is) ? 0 : is.st_size;
        else offset = lseek(fd, 0, SEEK_CUR);
    }
    note_write(fd, offset, length);
    return 1;
}

static void after_write(int locked) {
    int kept = errno;
    if (locked) pthread_mutex_unlock(&disk_lock);
    errno = kept;
}

#define WRITES(name, offset, length, parameters, arguments)     \
    ssize_t name parameters {                                   \
        static ssize_t (*real) parameters;                      \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);   \
        int locked = before_write(fd, offset, length);          \
        if (locked < 0) return -1;                              \
        ssize_t done = real arguments;                          \
        after_write(locked);                                    \
        return done;                                            \
    }

static uint64_t total(const struct iovec *parts, int count) {
    uint64_t length = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    return length;
}

WRITES(write, -1, n, (int fd, const void *bytes, size_t n), (fd, bytes, n))
WRITES(pwrite, at, n, (int fd, const void *bytes, size_t n, off_t at), (fd, bytes, n, at))
WRITES(pwrite64, at, n, (int fd, const void *bytes, size_t n, off_t at), (fd, bytes, n, at))
WRITES(writev, -1, total(parts, n), (int fd, const struct iovec *parts, int n), (fd, parts, n))
WRITES(pwritev, at, total(parts, n), (int fd, const struct iovec *parts, int n, off_t at), (fd, parts, n, at))
WRITES(pwritev64, at, total(parts, n), (int fd, const struct iovec *parts, int n, off_t at), (fd, parts, n, at))

/* ---- sizes ---- */

static int before_resize(int fd, uint64_t size, int only_grows) {
    struct stat is;
    if (!writes_are_met() || !is_met(fd, 0, &is)) return 0;
    rest(control->write_delay_us);
    /* A full disk refuses to give, not to take. */
    if (control->write_errno && ((uint64_t)is.st_size < size || only_grows)) {
        errno = (int)control->write_errno;
        return -1;
    }
    if (!control->journal_on) return 0;
    pthread_mutex_lock(&disk_lock);
    if (!only_grows || (uint64_t)is.st_size < size) note_size(fd, size);
    return 1;
}

#define RESIZES(name, size, only_grows, failed, parameters, arguments) \
    int name parameters {                                       \
        static int (*real) parameters;                          \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);   \
        int locked = before_resize(fd, size, only_grows);       \
        if (locked < 0) return failed;                          \
        int done = real arguments;                              \
        after_write(locked);                                    \
        return done;                                            \
    }

/* Reserving blocks behind the end, or giving them back, changes nothing that can be read. */
#define END(mode, at, n) ((mode) & FALLOC_FL_KEEP_SIZE ? 0 : (uint64_t)(at) + (uint64_t)(n))

RESIZES(ftruncate, size, 0, -1, (int fd, off_t size), (fd, size))
RESIZES(ftruncate64, size, 0, -1, (int fd, off_t size), (fd, size))
RESIZES(posix_fallocate, at + n, 1, errno, (int fd, off_t at, off_t n), (fd, at, n))
RESIZES(posix_fallocate64, at + n, 1, errno, (int fd, off_t at, off_t n), (fd, at, n))
RESIZES(fallocate, END(mode, at, n), 1, -1, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))
RESIZES(fallocate64, END(mode, at, n), 1, -1, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))

/* ---- syncs ---- */

#define SYNCS(name)                                             \
    int name(int fd) {                                          \
        REAL(int, name, int);                                   \
        struct stat is;                                         \
        if (!control || !is_met(fd, 1, &is)) return real(fd);   \
        rest(control->sync_delay_us);                           \
        if (control->sync_errno) {                              \
            errno = (int)control->sync_errno;                   \
            return -1;                                          \
        }                                                       \
        if (control->sync_lies) return 0;                       \
        pthread_mutex_lock(&disk_lock);                         \
        uint64_t upto = noted;                                  \
        pthread_mutex_unlock(&disk_lock);                       \
        int done = real(fd);                                    \
        if (done == 0) note_sync(&is, upto);                    \
        return done;                                            \
    }

/* What was noted before the sync began is durable now. */
static void note_sync(const struct stat *is, uint64_t upto) {
    pthread_mutex_lock(&disk_lock);
    control->synced++;
    if (control->journal_on && S_ISREG(is->st_mode)) {
        struct note it = { SYNCED, is->st_dev, is->st_ino, 0, 0, 0, upto };
        note(&it, NULL);
    }
    pthread_mutex_unlock(&disk_lock);
}

SYNCS(fsync)
SYNCS(fdatasync)

/* ---- files that end: their numbers may be given to others ---- */

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    note_gone(AT_FDCWD, path);
    return real(path);
}

int unlinkat(int dir, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    note_gone(dir, path);
    return real(dir, path, flags);
}

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    note_gone(AT_FDCWD, to);
    return real(from, to);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    note_gone(to_dir, to);
    return real(from_dir, from, to_dir, to);
}

/* ---- clocks ---- */

#define SECOND 1000000000LL

static pthread_mutex_t clock_lock = PTHREAD_MUTEX_INITIALIZER;
/* The steady clock shows `shown_at` at the true time `true_at`, and runs at `rate` from there. */
static int64_t true_at, shown_at, rate;

static int64_t nanos(const struct timespec *time) { return time->tv_sec * SECOND + time->tv_nsec; }

static void set(struct timespec *time, int64_t value) {
    if (value < 0) value = 0;
    time->tv_sec = value / SECOND;
    time->tv_nsec = value % SECOND;
}

static int64_t shown(int64_t now) {
    int64_t passed = now - true_at;
    return shown_at + passed + passed / 1000000 * rate + passed % 1000000 * rate / 1000000;
}

static int is_steady(clockid_t clock) { return clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME; }

static int is_skewed(void) { return control && (control->rate_ppm || rate || true_at != shown_at); }

int clock_gettime(clockid_t clock, struct timespec *time) {
    REAL(int, clock_gettime, clockid_t, struct timespec *);
    if (is_steady(clock) && is_skewed()) {
        pthread_mutex_lock(&clock_lock);
        int failed = real(clock, time);
        int64_t now = nanos(time), seen = shown(now);
        if (control->rate_ppm != rate) {
            true_at = now;
            shown_at = seen;
            rate = control->rate_ppm;
        }
        pthread_mutex_unlock(&clock_lock);
        set(time, seen);
        return failed;
    }
    int failed = real(clock, time);
    if (!failed && control && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        set(time, nanos(time) + control->wall_offset_ns);
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

/* A deadline by the clock that was shown, as the kernel's clock will show it. */
static const struct timespec *truly(clockid_t clock, const struct timespec *deadline, struct timespec *room) {
    if (!deadline || !control) return deadline;
    if (clock == CLOCK_REALTIME) {
        if (!control->wall_offset_ns) return deadline;
        set(room, nanos(deadline) - control->wall_offset_ns);
        return room;
    }
    if (!is_steady(clock) || !is_skewed()) return deadline;
    pthread_mutex_lock(&clock_lock);
    int64_t ahead = nanos(deadline) - shown_at;
    set(room, true_at + (int64_t)((double)ahead / (1.0 + (double)rate / 1e6)));
    pthread_mutex_unlock(&clock_lock);
    return room;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    /* Without a version the oldest of several would be found, which is another type's. */
    if (!real) *(void **)&real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec room;
    return real(cond, mutex, truly(CLOCK_REALTIME, deadline, &room));
}

int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, clockid_t clock,
                           const struct timespec *restrict deadline) {
    REAL(int, pthread_cond_clockwait, pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    struct timespec room;
    return real(cond, mutex, clock, truly(clock, deadline, &room));
}

long syscall(long number, ...) {
    REAL(long, syscall, long, long, long, long, long, long, long);
    long a[6];
    va_list rest_of;
    va_start(rest_of, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(rest_of, long);
    va_end(rest_of);
    struct timespec room;
    if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && a[3]) {
        clockid_t clock = a[1] & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        a[3] = (long)truly(clock, (const struct timespec *)a[3], &room);
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
