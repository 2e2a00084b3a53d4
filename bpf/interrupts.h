/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Interrupts that take a watched thread's CPU: the long ones are recorded, the time of all is summed.
 */
#ifndef INGERO_INTERRUPTS_H
#define INGERO_INTERRUPTS_H

#include "watch.h"

#define LONG_INTERRUPT_NS 50000

/* Since when a CPU is in an interrupt, and in a soft one; and how long of that in others, which stand for themselves.
 */
__u64 interrupt_from_ns[INGERO_MAX_CPUS];
__u64 soft_interrupt_from_ns[INGERO_MAX_CPUS];
__u64 soft_interrupted_ns[INGERO_MAX_CPUS];

/* How long it took. Of it `interrupted_ns` is counted already. */
static __always_inline __u64 end_interrupt(__u64* from, __u64 interrupted_ns, __u16 op, __u32 which) {
    struct task_struct* current = bpf_get_current_task_btf();
    struct ingero_wait_record* record;
    struct watched* watched;
    __u64 now, took, begun = *from;

    if (!begun) return 0;
    *from = 0;
    now = bpf_ktime_get_ns();
    took = now - begun;
    watched = is_watched(current) ? find_watched(current) : 0;
    if (!watched) return took;
    if (took > interrupted_ns) watched->summed_interrupt_ns += took - interrupted_ns;
    if (took < LONG_INTERRUPT_NS || !has_record_left(watched, now)) return took;
    record = begin_record(watched, current, op);
    if (!record) return took;
    record->start_ns = begun;
    record->duration_ns = took;
    record->detail[0] = which;
    submit(record);
    return took;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_interrupt, int irq) {
    if (is_watched(bpf_get_current_task_btf()))
        interrupt_from_ns[bpf_get_smp_processor_id() & CPU_MASK] = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_interrupt_done, int irq) {
    __u32 cpu = bpf_get_smp_processor_id() & CPU_MASK;

    soft_interrupted_ns[cpu] += end_interrupt(&interrupt_from_ns[cpu], 0, INGERO_OP_INTERRUPT, irq);
    return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_soft_interrupt, unsigned int vector) {
    __u32 cpu = bpf_get_smp_processor_id() & CPU_MASK;

    if (!is_watched(bpf_get_current_task_btf())) return 0;
    soft_interrupted_ns[cpu] = 0;
    soft_interrupt_from_ns[cpu] = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_soft_interrupt_done, unsigned int vector) {
    __u32 cpu = bpf_get_smp_processor_id() & CPU_MASK;

    end_interrupt(&soft_interrupt_from_ns[cpu], soft_interrupted_ns[cpu], INGERO_OP_SOFT_INTERRUPT, vector);
    return 0;
}

#endif
