// SPDX-License-Identifier: GPL-2.0
/*
 * What the probes are compared with: an empty session, the usual design (entry and return probes, a hash map by thread,
 * a wake-up a record), and an empty program on sched_switch.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

struct pending {
    __u64 start_ns;
    __u64 arguments[2];
};

struct record {
    __u64 start_ns;
    __u64 duration_ns;
    __u64 arguments[2];
    __u64 pid_tgid;
    __u64 result;
    char comm[16];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 8192);
    __type(key, __u32);
    __type(value, struct pending);
} calls SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 8 << 20);
} records SEC(".maps");

SEC("uprobe")
int empty_session(void *ctx) { return 0; }

SEC("uprobe")
int usual_entry(void *ctx) {
    __u32 thread = bpf_get_current_pid_tgid();
    struct pending pending = {.start_ns = bpf_ktime_get_ns()};
    bpf_map_update_elem(&calls, &thread, &pending, BPF_ANY);
    return 0;
}

SEC("uprobe")
int usual_return(void *ctx) {
    __u64 pid_tgid = bpf_get_current_pid_tgid();
    __u32 thread = pid_tgid;
    struct pending *pending = bpf_map_lookup_elem(&calls, &thread);
    struct record *record;

    if (!pending) return 0;
    record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
    if (record) {
        record->start_ns = pending->start_ns;
        record->duration_ns = bpf_ktime_get_ns() - pending->start_ns;
        record->arguments[0] = pending->arguments[0];
        record->arguments[1] = pending->arguments[1];
        record->pid_tgid = pid_tgid;
        record->result = 0;
        bpf_get_current_comm(record->comm, sizeof(record->comm));
        bpf_ringbuf_submit(record, 0);
    }
    bpf_map_delete_elem(&calls, &thread);
    return 0;
}

SEC("tp_btf/sched_switch")
int empty_switch(void *ctx) { return 0; }
