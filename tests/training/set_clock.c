// Set the wall clock of one program: it is ahead by the seconds that the file CLOCK_AHEAD holds. Preloaded by test_run.py.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long ahead_s(void) {
    long seconds = 0;
    const char *path = getenv("CLOCK_AHEAD");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return 0;
    if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
    fclose(file);
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, now);
    if (code == 0 && clock == CLOCK_REALTIME) now->tv_sec += ahead_s();
    return code;
}
