/* A network disk as one of several machines sees it; preloaded into a process by network_disk.py.
 *
 * DISK_FOLDER  the disk: all files below this folder
 * DISK_STATE   a folder for the notes of this library
 * DISK_HOST    the name of the machine; inside a SLURM job the name of its node is added
 * DISK_LATE    a file that another machine made is visible after this many seconds: until then it cannot be opened,
 *              asked for or listed. Files are created, replaced and removed at once, by the server.
 * DISK_CLOCK   seconds by which the clock of this machine is ahead
 * DISK_FLOCK   "local": locks hold on this machine only; "none": there are none
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

static void host(char *name, size_t size) {
    const char *node = getenv("SLURMD_NODENAME");
    snprintf(name, size, "%s%s%s", setting("DISK_HOST"), node ? "-" : "", node ? node : "");
}

static int on_disk(int folder, const char *path) {
    char base[PATH_MAX] = "", link[64], full[2 * PATH_MAX];
    if (!path || !*setting("DISK_FOLDER")) return 0;
    if (path[0] != '/') {
        if (folder == AT_FDCWD) {
            if (syscall(SYS_getcwd, base, sizeof base) < 0) return 0;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            ssize_t length = readlink(link, base, sizeof base - 1);
            if (length < 0) return 0;
            base[length] = 0;
        }
        snprintf(full, sizeof full, "%s/%s", base, path);
        path = full;
    }
    /* results/ of a checkout may be a link to the disk */
    char resolved[PATH_MAX], copy[2 * PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    char *slash = strrchr(copy, '/');
    if (!slash || slash == copy) return 0;
    *slash = 0;
    const char *disk = setting("DISK_FOLDER");
    return realpath(copy, resolved) && strncmp(resolved, disk, strlen(disk)) == 0;
}

/* The note that this machine made the file: its inode and time of birth. */
static int note(int folder, const char *path, char *name, size_t size, double *age) {
    struct statx found;
    struct timespec now;
    if (syscall(SYS_statx, folder, path, 0, STATX_BTIME | STATX_INO | STATX_TYPE, &found)) return 0;
    if (!S_ISREG(found.stx_mode)) return 0;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    *age = now.tv_sec - found.stx_btime.tv_sec + 1e-9 * ((double)now.tv_nsec - found.stx_btime.tv_nsec);
    char machine[256];
    host(machine, sizeof machine);
    snprintf(name, size, "%s/%s.%llu.%u", setting("DISK_STATE"), machine, (unsigned long long)found.stx_ino,
             found.stx_btime.tv_nsec);
    return 1;
}

static int hidden(int folder, const char *path) {
    char name[PATH_MAX];
    double age, late = atof(setting("DISK_LATE"));
    int before = errno;
    int answer = late > 0 && on_disk(folder, path) && note(folder, path, name, sizeof name, &age) && age < late &&
                 syscall(SYS_faccessat, AT_FDCWD, name, F_OK) != 0;
    errno = answer ? ENOENT : before;
    return answer;
}

static int opened(int folder, const char *path, int flags, mode_t mode) {
    if (!(flags & O_CREAT)) return hidden(folder, path) ? -1 : syscall(SYS_openat, folder, path, flags, mode);
    int made = atof(setting("DISK_LATE")) > 0 && on_disk(folder, path) && syscall(SYS_faccessat, folder, path, F_OK);
    int file = syscall(SYS_openat, folder, path, flags, mode);
    if (file >= 0 && made) {
        char name[PATH_MAX];
        double age;
        if (note(folder, path, name, sizeof name, &age)) close(syscall(SYS_openat, AT_FDCWD, name, O_CREAT | O_WRONLY, 0600));
    }
    return file;
}

#define MODE(flags) ({ mode_t m = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list a; va_start(a, flags); m = va_arg(a, mode_t); va_end(a); } m; })

int open(const char *path, int flags, ...) { mode_t mode = MODE(flags); return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { mode_t mode = MODE(flags); return opened(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { mode_t mode = MODE(flags); return opened(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { mode_t mode = MODE(flags); return opened(folder, path, flags, mode); }

int access(const char *path, int mode) { return hidden(AT_FDCWD, path) ? -1 : REAL(access)(path, mode); }
int faccessat(int folder, const char *path, int mode, int flags) {
    return hidden(folder, path) ? -1 : REAL(faccessat)(folder, path, mode, flags);
}
int stat(const char *path, struct stat *out) { return hidden(AT_FDCWD, path) ? -1 : REAL(stat)(path, out); }
int stat64(const char *path, struct stat64 *out) { return hidden(AT_FDCWD, path) ? -1 : REAL(stat64)(path, out); }
int lstat(const char *path, struct stat *out) { return hidden(AT_FDCWD, path) ? -1 : REAL(lstat)(path, out); }
int lstat64(const char *path, struct stat64 *out) { return hidden(AT_FDCWD, path) ? -1 : REAL(lstat64)(path, out); }
int fstatat(int folder, const char *path, struct stat *out, int flags) {
    return *path && hidden(folder, path) ? -1 : REAL(fstatat)(folder, path, out, flags);
}
int fstatat64(int folder, const char *path, struct stat64 *out, int flags) {
    return *path && hidden(folder, path) ? -1 : REAL(fstatat64)(folder, path, out, flags);
}

struct dirent *readdir(DIR *folder) {
    struct dirent *found;
    while ((found = REAL(readdir)(folder)) && hidden(dirfd(folder), found->d_name)) {}
    return found;
}
struct dirent64 *readdir64(DIR *folder) {
    struct dirent64 *found;
    while ((found = REAL(readdir64)(folder)) && hidden(dirfd(folder), found->d_name)) {}
    return found;
}

int flock(int file, int operation) {
    const char *kind = setting("DISK_FLOCK");
    struct stat found;
    if (!strcmp(kind, "none")) {
        errno = ENOLCK;
        return -1;
    }
    /* A lock of this machine is one that nobody tries to take on another: the byte of the inode in a file per machine. */
    if (!strcmp(kind, "local") && !syscall(SYS_fstat, file, &found)) {
        char name[PATH_MAX], machine[256];
        host(machine, sizeof machine);
        snprintf(name, sizeof name, "%s/locks-%s", setting("DISK_STATE"), machine);
        static int locks = -1;
        if (locks < 0) locks = syscall(SYS_openat, AT_FDCWD, name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        struct flock byte = {.l_type = operation & LOCK_UN ? F_UNLCK : F_WRLCK, .l_whence = SEEK_SET,
                             .l_start = (off_t)found.st_ino, .l_len = 1};
        int done = fcntl(locks, operation & LOCK_NB ? F_SETLK : F_SETLKW, &byte);
        if (done && errno == EACCES) errno = EAGAIN;
        return done;
    }
    return REAL(flock)(file, operation);
}

int uname(struct utsname *out) {
    int done = REAL(uname)(out);
    if (!done && *setting("DISK_HOST")) host(out->nodename, sizeof out->nodename);
    return done;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int done = syscall(SYS_clock_gettime, clock, out);
    if (!done && clock == CLOCK_REALTIME) out->tv_sec += atol(setting("DISK_CLOCK"));
    return done;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
