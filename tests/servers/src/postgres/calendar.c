/* The calendar of one server: preloaded into it, so that it reads the host's plus what the file named by LOBSTER_CALENDAR holds, a
   64-bit number of seconds that may change at any time. Clocks that no calendar moves, such as CLOCK_MONOTONIC, are left alone. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead;

/* Mapped once and shared with all children; before that, and in programs without the file, there is no difference. */
__attribute__((constructor)) static void open_calendar(void) {
    const char *path = getenv("LOBSTER_CALENDAR");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) ahead = map;
    close(file);
}

static int64_t seconds(void) { return ahead ? *ahead : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += seconds();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int failed = (int)syscall(SYS_gettimeofday, now, zone);
    if (!failed && now) now->tv_sec += seconds();
    return failed;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
