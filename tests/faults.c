/* Counts the calls that change files below a directory; at each of them stops the process, or at one says ENOSPC.
   A process that is stopped before a call has left what one leaves that is killed there. A sync changes nothing that
   another process sees, and a deletion needs no space: each counts for the other fault. Nobody waits for the disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls = 0;
static long at = -1;
static int fails = 0;
static char root[4096] = "";

void shim_arm(const char *where, long when, int fail) {
    strncpy(root, where, sizeof root - 1); fails = fail; atomic_store(&calls, 0); at = when;
}
long shim_calls(void) { return atomic_load(&calls); }

static int here(const char *path) { return at >= 0 && path && strncmp(path, root, strlen(root)) == 0; }
static int open_here(int fd) {
    char link[64], path[4096]; ssize_t n; int saved = errno;
    if (at < 0) return 0;
    strcpy(link, "/proc/self/fd/"); int i = 14, d = 1; while (fd / d >= 10) d *= 10;
    for (; d; d /= 10) link[i++] = '0' + fd / d % 10;
    link[i] = 0; n = readlink(link, path, sizeof path - 1); errno = saved;
    if (n < 0) return 0;
    path[n] = 0; return here(path);
}
static int due(void) {
    long call = atomic_fetch_add(&calls, 1); int saved = errno;
    if (!fails) raise(SIGSTOP); /* all threads, before this one goes on */
    errno = fails && call == at ? ENOSPC : saved;
    return fails && call == at;
}
#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
ssize_t write(int fd, const void *b, size_t n) { REAL(write); if (open_here(fd) && due()) return -1; return real(fd, b, n); }
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) { REAL(pwrite); if (open_here(fd) && due()) return -1; return real(fd, b, n, o); }
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o) { REAL(pwrite64); if (open_here(fd) && due()) return -1; return real(fd, b, n, o); }
int fsync(int fd) { return fails && open_here(fd) && due() ? -1 : 0; }
int rename(const char *a, const char *b) { REAL(rename); if (here(b) && due()) return -1; return real(a, b); }
int link(const char *a, const char *b) { REAL(link); if (here(b) && due()) return -1; return real(a, b); }
int unlink(const char *a) { REAL(unlink); if (!fails && here(a) && due()) return -1; return real(a); }
int mkdir(const char *a, mode_t m) { REAL(mkdir); if (here(a) && access(a, F_OK) && due()) return -1; return real(a, m); }
int renameat(int d, const char *a, int e, const char *b) { REAL(renameat); if (here(b) && due()) return -1; return real(d, a, e, b); }
int linkat(int d, const char *a, int e, const char *b, int f) { REAL(linkat); if (here(b) && due()) return -1; return real(d, a, e, b, f); }
static int opened(const char *a, int f) { return (f & (O_CREAT | O_TRUNC)) && here(a) && due(); }
#define OPEN(name) int name(const char *a, int f, ...) { REAL(name); va_list v; va_start(v, f); mode_t m = va_arg(v, mode_t); \
    va_end(v); if (opened(a, f)) return -1; return real(a, f, m); }
OPEN(open)
OPEN(open64)
#define OPENAT(name) int name(int d, const char *a, int f, ...) { REAL(name); va_list v; va_start(v, f); mode_t m = va_arg(v, mode_t); \
    va_end(v); if (opened(a, f)) return -1; return real(d, a, f, m); }
OPENAT(openat)
OPENAT(openat64)
