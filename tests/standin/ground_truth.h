/* The log that the stand-in libraries write of every call made into them: the truth that the tests hold the tracer to.
 * One file: a header page, the names of the functions, then records of 64 bytes, in the order in which the calls began.
 * The file is mapped shared and a call claims its slot as it begins, so that a killed process leaves a log that reads.
 * Plain C and C++. Native byte order: it is read on the machine that wrote it. */
#ifndef INGERO_STANDIN_GROUND_TRUTH_H
#define INGERO_STANDIN_GROUND_TRUTH_H

#include <assert.h>
#include <stdint.h>

/* "INGTRUTH" */
#define GROUND_TRUTH_MAGIC UINT64_C(0x4854555254474e49)
/* To be raised when a field changes its meaning or place; new function names do not need it, the names are in the file.
 */
#define GROUND_TRUTH_VERSION 1
#define GROUND_TRUTH_NAME_SIZE 64

enum ground_truth_flag {
    GROUND_TRUTH_WAITED_FOR_DEVICE = 1, /* the device was not done; waited_ns says how long */
    GROUND_TRUTH_QUEUE_FULL = 2,        /* a launch or copy spun for a free place in the stream's queue */
    GROUND_TRUTH_SLEPT = 4,             /* the wait or a scripted latency really blocked */
    GROUND_TRUTH_SCRIPTED_DELAY = 8,
    GROUND_TRUTH_SCRIPTED_ERROR = 16,
    GROUND_TRUTH_LAZY_LOAD = 32, /* the first launch of a function, which loaded it */
    GROUND_TRUTH_CAPTURED = 64,  /* went into a graph, not to the device */
};

/* All times in ns. A call that was left by longjmp or never returned has end_ns 0; a slot that was claimed and not
 * written, since the process was killed between, has start_ns 0. Flags and waited_ns include those of nested calls. */
struct ground_truth_record {
    uint64_t start_ns; /* CLOCK_MONOTONIC */
    uint64_t end_ns;
    uint64_t start_cpu_ns; /* CLOCK_THREAD_CPUTIME_ID; 0 where log_cpu leaves it out */
    uint64_t end_cpu_ns;
    uint32_t pid;
    uint32_t tid;
    uint16_t function; /* index into the names */
    uint8_t depth;     /* 0 outermost */
    uint8_t flags;
    int32_t result;     /* cudaError_t or CUresult; 0 where the function returns none */
    uint64_t bytes;     /* that were asked for, freed, copied or set, or 0 */
    uint32_t stream;    /* low half of the stream handle that the caller passed; 0 where there is none */
    uint32_t waited_ns; /* for the device or the queue; stops at the largest value */
};

/* Three clocks, read one after the other. */
struct ground_truth_clocks {
    uint64_t monotonic_ns;
    uint64_t realtime_ns;
    uint64_t boottime_ns;
};

struct ground_truth_header {
    uint64_t magic;
    uint32_t version;
    uint32_t record_size;
    uint32_t name_size;
    uint32_t name_count;
    uint64_t names_offset; /* from the start of the file */
    uint64_t records_offset;
    uint64_t capacity; /* records that fit; those beyond are only counted, by `next` */
    uint32_t pid;      /* that opened the log; forked children write to it as well */
    uint32_t reserved;
    struct ground_truth_clocks opened;
    struct ground_truth_clocks closed; /* zero unless the process ended in order */
    uint8_t padding[24];
    uint64_t next; /* slots claimed; on a cache line of its own, accessed atomically */
    uint8_t padding_end[56];
};

#ifdef __cplusplus
static_assert(sizeof(struct ground_truth_record) == 64, "the log's record is 64 bytes");
static_assert(sizeof(struct ground_truth_header) == 192, "the counter starts a cache line");
#else
_Static_assert(sizeof(struct ground_truth_record) == 64, "the log's record is 64 bytes");
_Static_assert(sizeof(struct ground_truth_header) == 192, "the counter starts a cache line");
#endif

#endif
