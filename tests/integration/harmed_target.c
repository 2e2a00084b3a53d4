/*
 * Stands in for ingero-probe-target and does what that never does, so that the check has something to find:
 * HARM_FILTERED: dies in the run under a filter; HARM_ARGUMENT: makes one call otherwise than agreed.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/probe_target/target.h"

static void make_calls(unsigned long calls) {
    for (unsigned long i = 0; i < calls; ++i) {
        unsigned long bytes = ingero_target_bytes(i);
#ifdef HARM_ARGUMENT
        if (i == 499) bytes = 1;
#endif
        ingero_probe_target_copy(0, 0, bytes, ingero_target_direction(i), (void *)ingero_target_stream(i));
    }
}

int main(int argc, char **argv) {
    char line = 0;
    const unsigned long calls = argc > 1 ? strtoul(argv[1], 0, 10) : 0;
    printf("ready %ld 100\n", (long)syscall(SYS_gettid));
    fflush(stdout);
    if (read(0, &line, 1) != 1) return 1;
#ifdef HARM_FILTERED
    if (argc > 2) raise(SIGSEGV);
#endif
    make_calls(calls);
    puts("done 200");
    return 0;
}
