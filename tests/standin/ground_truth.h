/* The log that the stand-in libraries write of every call made into them: the truth that the tests hold the tracer to.
 * One file: a header page, the names of the functions, the names of kernels, then records of 128 bytes, in the order in
 * which the calls began.
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
#define GROUND_TRUTH_VERSION 2
#define GROUND_TRUTH_NAME_SIZE 64
#define GROUND_TRUTH_NO_DEVICE 0xffff

enum ground_truth_flag {
    GROUND_TRUTH_WAITED_FOR_DEVICE = 1, /* the device was not done; waited_ns says how long */
    GROUND_TRUTH_QUEUE_FULL = 2,        /* a launch or copy spun for a free place in the stream's queue */
    GROUND_TRUTH_SLEPT = 4,             /* the wait or a scripted latency really blocked */
    GROUND_TRUTH_SCRIPTED_DELAY = 8,
    GROUND_TRUTH_SCRIPTED_ERROR = 16,
    GROUND_TRUTH_LAZY_LOAD = 32,     /* the first launch of a function, which loaded it */
    GROUND_TRUTH_CAPTURED = 64,      /* went into a graph, not to the device */
    GROUND_TRUTH_STICKY_ERROR = 128, /* the error is that of work of the device's before */
};

/* All times in ns. A call that was left by longjmp or never returned has end_ns 0; a slot that was claimed and not
 * written, since the process was killed between, has start_ns 0. Flags and waited_ns include those of nested calls.
 * Arguments, stream and device are what the library itself was called with and gave out, in the meaning that the README
 * lists by class of function; what a call gives out is 0 unless it succeeded, in one that never returned too. */
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
    int32_t result;  /* cudaError_t or CUresult; 0 where the function returns none */
    uint64_t bytes;  /* that were asked for, freed, copied or set, or 0 */
    uint64_t stream; /* the handle that the caller passed; 0 where there is none */
    uint64_t args[3];
    uint32_t waited_ns;   /* for the device or the queue; stops at the largest value */
    uint32_t kernel_name; /* that the call was made with: 1 for the first of the kernel names, 0 for none */
    uint16_t device;      /* ordinal current to the thread when the call returned, or GROUND_TRUTH_NO_DEVICE */
    uint8_t padding[30];
};

/* A name that a kernel was registered or asked for by. `length` is written last, and is that of the whole name, of
 * which what fits is kept, with a zero at its end. */
struct ground_truth_kernel_name {
    uint32_t length;
    char name[508];
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
    uint64_t capacity;             /* records that fit; those beyond are only counted, by `next` */
    uint32_t pid;                  /* that opened the log; forked children write to it as well */
    uint32_t kernel_name_capacity; /* names that fit; calls beyond have kernel_name 0 */
    struct ground_truth_clocks opened;
    struct ground_truth_clocks closed; /* zero unless the process ended in order */
    uint64_t kernel_names_offset;
    uint8_t padding[16];
    uint64_t next; /* slots claimed; on a cache line apart from what is read, accessed atomically, as is the next */
    uint64_t next_kernel_name;
    uint8_t padding_end[48];
};

#ifdef __cplusplus
static_assert(sizeof(struct ground_truth_record) == 128, "the log's record is 128 bytes");
static_assert(sizeof(struct ground_truth_kernel_name) == 512, "a kernel's name fills its slot");
static_assert(sizeof(struct ground_truth_header) == 192, "the counter starts a cache line");
#else
_Static_assert(sizeof(struct ground_truth_record) == 128, "the log's record is 128 bytes");
_Static_assert(sizeof(struct ground_truth_kernel_name) == 512, "a kernel's name fills its slot");
_Static_assert(sizeof(struct ground_truth_header) == 192, "the counter starts a cache line");
#endif

#endif
