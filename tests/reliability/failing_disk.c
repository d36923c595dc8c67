/* Loaded into a process (LD_PRELOAD), it makes the disk of one folder slow or failing while a switch is there.

   FAILING_DISK_FOLDER: what is in files below it is on that disk. FAILING_DISK_SWITCH: a file; while there is none all is
   well. Its text is a word and two numbers:

       slow MS 0         every sync takes so many milliseconds more
       write SKIP MOST   writes, syncs or reads fail with EIO; the first SKIP of them don't, and after MOST
       sync SKIP MOST    failures all is well again (0: never)
       read SKIP MOST
       open SKIP MOST    the same of opening files, with EMFILE: the process has no descriptor left. /proc/self/maps, which
                         the log looks at, is one of them
       map 0 0           maps of data files fail as those of a disk that can't be read, of which nothing is kept:
                         whoever looks at them gets SIGBUS. For the rest of the process

   A write to a file that was opened with O_SYNC or O_DSYNC is a sync as well. A failed call has done nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { NONE, SLOW, WRITE, SYNC, READ, OPEN, MAP };

static const char *folder;
static const char *switch_file;
static size_t folder_length;
static atomic_long seen;

static enum kind switched(long *first, long *second) {
    static const char *words[] = {"", "slow", "write", "sync", "read", "open", "map"};
    char text[64] = "", word[16] = "";
    if (!switch_file)
        return NONE;
    int descriptor = (int)syscall(SYS_openat, AT_FDCWD, switch_file, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return NONE;
    long length = syscall(SYS_read, descriptor, text, sizeof text - 1);
    syscall(SYS_close, descriptor);
    if (length <= 0 || sscanf(text, "%15s %ld %ld", word, first, second) != 3)
        return NONE;
    for (enum kind kind = SLOW; kind <= MAP; kind++)
        if (!strcmp(word, words[kind]))
            return kind;
    return NONE;
}

static int is_below(const char *path) {
    return folder && !strncmp(path, folder, folder_length) && path[folder_length] == '/';
}

static int is_on_disk(int descriptor) {
    char link[40], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return is_below(path);
}

/* Whether the next of these calls is one that fails. */
static int is_counted_out(long skip, long most) {
    long number = atomic_fetch_add(&seen, 1);
    return number >= skip && (!most || number < skip + most);
}

/* Whether this call fails; waits if it is slow. The caller's errno stays as it is otherwise. */
static int fails(int descriptor, enum kind call) {
    int before = errno;
    long first = 0, second = 0;
    enum kind kind = switched(&first, &second);
    int failing = 0;
    if (kind == NONE)
        atomic_store(&seen, 0);
    else if (is_on_disk(descriptor)) {
        int syncs = call == SYNC || (call == WRITE && (fcntl(descriptor, F_GETFL) & O_DSYNC));
        if (kind == SLOW && syncs) {
            struct timespec pause = {first / 1000, first % 1000 * 1000000};
            nanosleep(&pause, NULL);
        } else if (kind == call || (kind == SYNC && syncs))
            failing = is_counted_out(first, second);
    }
    errno = failing ? EIO : before;
    return failing;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define PASS(result, name, call, parameters, arguments)                                                               \
    result name parameters {                                                                                          \
        static __typeof__(&name) real;                                                                                \
        if (!real)                                                                                                    \
            real = REAL(name);                                                                                        \
        return fails(descriptor, call) ? -1 : real arguments;                                                         \
    }

PASS(ssize_t, write, WRITE, (int descriptor, const void *data, size_t size), (descriptor, data, size))
PASS(ssize_t, pwrite, WRITE, (int descriptor, const void *data, size_t size, off_t at), (descriptor, data, size, at))
PASS(ssize_t, pwrite64, WRITE, (int descriptor, const void *data, size_t size, off64_t at), (descriptor, data, size, at))
PASS(ssize_t, writev, WRITE, (int descriptor, const struct iovec *parts, int count), (descriptor, parts, count))
PASS(ssize_t, pwritev, WRITE, (int descriptor, const struct iovec *parts, int count, off_t at),
     (descriptor, parts, count, at))
PASS(int, fsync, SYNC, (int descriptor), (descriptor))
PASS(int, fdatasync, SYNC, (int descriptor), (descriptor))
PASS(ssize_t, read, READ, (int descriptor, void *data, size_t size), (descriptor, data, size))
PASS(ssize_t, pread, READ, (int descriptor, void *data, size_t size, off_t at), (descriptor, data, size, at))
PASS(ssize_t, pread64, READ, (int descriptor, void *data, size_t size, off64_t at), (descriptor, data, size, at))

static int has_no_descriptor_for(const char *path) {
    int before = errno;
    long first = 0, second = 0;
    enum kind kind = switched(&first, &second);
    int failing = 0;
    if (kind == NONE)
        atomic_store(&seen, 0);
    else if (kind == OPEN && (is_below(path) || !strcmp(path, "/proc/self/maps")))
        failing = is_counted_out(first, second);
    errno = failing ? EMFILE : before;
    return failing;
}

#define OPENS(name, parameters, arguments)                                                                            \
    int name parameters {                                                                                             \
        static __typeof__(&name) real;                                                                                \
        mode_t mode = 0;                                                                                              \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                                        \
            va_list more;                                                                                             \
            va_start(more, flags);                                                                                    \
            mode = va_arg(more, mode_t);                                                                              \
            va_end(more);                                                                                             \
        }                                                                                                             \
        if (!real)                                                                                                    \
            real = REAL(name);                                                                                        \
        return has_no_descriptor_for(path) ? -1 : real arguments;                                                     \
    }

OPENS(open, (const char *path, int flags, ...), (path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENS(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPENS(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))

/* Whoever looks at a shared map of a data file below the folder gets SIGBUS: it is a map of an empty file now. */
static void fail_maps(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    int empty = memfd_create("unreadable", MFD_CLOEXEC);
    char line[PATH_MAX + 128];
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char access[8], path[PATH_MAX] = "";
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %4095[^\n]", &start, &end, access, path) == 4 &&
            !strcmp(access, "r--s") && !strncmp(path, folder, folder_length))
            mmap((void *)start, end - start, PROT_READ, MAP_SHARED | MAP_FIXED, empty, 0);
    }
    if (maps)
        fclose(maps);
    close(empty);
}

static void *watch(void *unused) {
    (void)unused;
    long first = 0, second = 0;
    struct timespec pause = {0, 10000000};
    while (switched(&first, &second) != MAP)
        nanosleep(&pause, NULL);
    fail_maps();
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    folder = getenv("FAILING_DISK_FOLDER");
    switch_file = getenv("FAILING_DISK_SWITCH");
    folder_length = folder ? strlen(folder) : 0;
    if (folder && switch_file && !pthread_create(&thread, NULL, watch, NULL))
        pthread_detach(thread);
}
