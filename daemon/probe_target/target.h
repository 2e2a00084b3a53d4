/*
 * What ingero-probe-target and the check that runs it agree on. The program is started as
 *     ingero-probe-target CALLS [filtered]
 * It makes CALLS calls, prints "ready TID NS" (NS: of its median batch, untraced), waits for a line on standard input,
 * makes CALLS calls again, prints "done NS" (likewise, traced) and exits with 0. "filtered": it does so under a seccomp
 * filter that allows the few calls it makes itself and no other, as container engines' filters allow a list.
 */
#ifndef INGERO_PROBE_TARGET_H
#define INGERO_PROBE_TARGET_H

#define INGERO_TARGET_SYMBOL "ingero_probe_target_copy"
#define INGERO_TARGET_BATCHES 10

/* Arguments of call number i, and what it returns: each differs from its neighbours, and some calls fail. */
static inline unsigned long ingero_target_bytes(unsigned long i) {
    return 4096 + i;
}
static inline int ingero_target_direction(unsigned long i) {
    return (int)(i % 5);
}
static inline unsigned long ingero_target_stream(unsigned long i) {
    return 0x1000 + i % 7;
}
static inline int ingero_target_result(unsigned long bytes) {
    return bytes % 100 == 99 ? 2 : 0;
}

#ifdef __cplusplus
extern "C" {
#endif
int ingero_probe_target_copy(void* to, const void* from, unsigned long bytes, int direction, void* stream);
#ifdef __cplusplus
}
#endif

#endif
