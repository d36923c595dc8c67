/* Lets a test set and drift the clocks of one process and nobody else's: loaded before libc (LD_PRELOAD), it goes by
   the numbers in the file that WALL_CLOCK_AHEAD_FILE names: SECONDS [PPM SINCE_NS GAINED_NS].

   The wall clock is so many seconds ahead. Monotonic clocks are left alone by that, as by a step of the machine's clock.
   All clocks go faster by PPM millionths (slower, if negative) from SINCE_NS of the machine's monotonic clock on, and
   had gained GAINED_NS until then, as a machine's do whose oscillator is off.

   (libfaketime can step clocks as well. But where it has a rate, its monotonic clock shows seconds since 1970, and jumps
   when the rate changes, which no machine's does.) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL
#define LOOK_EVERY_NS 5000000LL

struct setting {
    long long ahead_s, ppm, since_ns, gained_ns;
};

static int (*real)(clockid_t, struct timespec *);
static struct setting settings[2];
static atomic_int current;
static atomic_flag looking = ATOMIC_FLAG_INIT;
static atomic_llong looked_ns = -SECOND_NS;
static atomic_llong shown_ns[2];

static long long monotonic_ns(void)
{
    struct timespec now;
    real(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static struct setting setting(long long now_ns)
{
    if (now_ns - atomic_load(&looked_ns) > LOOK_EVERY_NS && !atomic_flag_test_and_set(&looking)) {
        const char *path = getenv("WALL_CLOCK_AHEAD_FILE");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (file >= 0) {
            char text[128];
            ssize_t length = read(file, text, sizeof text - 1);
            struct setting next = {0, 0, 0, 0};
            close(file);
            text[length > 0 ? length : 0] = 0;
            if (sscanf(text, "%lld %lld %lld %lld", &next.ahead_s, &next.ppm, &next.since_ns, &next.gained_ns) >= 1) {
                settings[!atomic_load(&current)] = next;
                atomic_store(&current, !atomic_load(&current));
            }
        }
        atomic_store(&looked_ns, now_ns);
        atomic_flag_clear(&looking);
    }
    return settings[atomic_load(&current)];
}

static long long gained_ns(const struct setting *given, long long now_ns)
{
    long long since_ns = now_ns > given->since_ns ? now_ns - given->since_ns : 0;
    return given->gained_ns + (given->ppm ? since_ns / 1000000 * given->ppm : 0);
}

/* A process looks at its setting a little late: what it has shown it does not take back. */
static long long never_back(atomic_llong *shown, long long value_ns)
{
    long long before_ns = atomic_load(shown);
    while (value_ns > before_ns)
        if (atomic_compare_exchange_weak(shown, &before_ns, value_ns))
            return value_ns;
    return before_ns;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    int is_boot = clock == CLOCK_BOOTTIME;
    int is_elapsed = is_boot || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;
    if (result == 0 && (is_wall || is_elapsed)) {
        long long now_ns = monotonic_ns();
        struct setting given = setting(now_ns);
        long long shown = now->tv_sec * SECOND_NS + now->tv_nsec + gained_ns(&given, now_ns);
        if (is_wall)
            shown += given.ahead_s * SECOND_NS;
        else if (given.ppm || given.gained_ns)
            shown = never_back(&shown_ns[is_boot], shown);
        now->tv_sec = shown / SECOND_NS;
        now->tv_nsec = shown % SECOND_NS;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec read;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &read);
    now->tv_sec = read.tv_sec;
    now->tv_usec = read.tv_nsec / 1000;
    return result;
}

time_t time(time_t *store)
{
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    if (store)
        *store = read.tv_sec;
    return read.tv_sec;
}
