/* Makes clocks differ: LD_PRELOAD=libclock.so CLOCKS="node0=0 node1=-86400" shifts the time of day that processes on
 * each host see, by seconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t shift(void) {
    static long seconds, is_known;
    if (!is_known) {
        char name[64] = "";
        gethostname(name, sizeof name - 2);
        strcat(name, "=");
        const char* clocks = getenv("CLOCKS");
        const char* own = clocks ? strstr(clocks, name) : NULL;
        seconds = own ? atol(own + strlen(name)) : 0;
        is_known = 1;
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
    static int (*real)(clockid_t, struct timespec*);
    if (!real) *(void**)&real = dlsym(RTLD_NEXT, "clock_gettime");
    const int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval* now, void* zone) {
    (void)zone;
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t* now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}
