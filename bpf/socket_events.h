/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Errors and retransmits of TCP sockets, of whatever process: the interrupted task is not the owner. That is the watched
 * thread that connected the socket, where one did; else the daemon finds it by the inode.
 */
#ifndef INGERO_SOCKET_EVENTS_H
#define INGERO_SOCKET_EVENTS_H

#include "watch.h"

#define SOCKET_RECORDS_A_SECOND 1000 /* of sockets whose owner is known, and of all others */

/*
 * Who connected a socket: it may be closed before the daemon can look for who has it. The kernel uses the memory of one
 * again for another: the peer's address and port distinguish them.
 */
struct socket_owner {
    __u64 process_start_ns;
    __u64 connect_ns;
    __u64 address[2];
    __u32 tgid;
    __u32 port;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 8192);
    __type(key, __u64);
    __type(value, struct socket_owner);
} socket_owners SEC(".maps");

#define TCP_SYN_SENT 2
#define ICSK_TIME_LOSS_PROBE 5

static __always_inline __u32 port_of(const struct ingero_wait_record *described) {
    return (__u32)described->detail[2] >> 16;
}

/* In the context of who connects. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_socket_state, struct sock *sock, int before, int after) {
    struct task_struct *current = bpf_get_current_task_btf();
    struct ingero_wait_record described = {};
    struct socket_owner owner = {};
    __u64 key = (__u64)sock;

    if (after != TCP_SYN_SENT || !wait_floor_ns) return 0;
    if (!is_watched(current)) {
        bpf_map_delete_elem(&socket_owners, &key);
        return 0;
    }
    describe_socket(&described, sock);
    owner.address[0] = described.detail[0];
    owner.address[1] = described.detail[1];
    owner.port = port_of(&described);
    owner.process_start_ns = current->group_leader->start_boottime;
    owner.connect_ns = bpf_ktime_get_ns();
    owner.tgid = process_id(current);
    bpf_map_update_elem(&socket_owners, &key, &owner, BPF_ANY);
    return 0;
}

/*
 * How long the connection has got nowhere: since the last acknowledgement of something new, or since it began to send
 * where all that was sent before had arrived. One that is being made: since then, where its owner is known. 0 where
 * nothing need be lost: the other end has no room, or several segments are on their way and a tail loss probe asks
 * after them, sooner than an acknowledgement may be delayed.
 */
static __always_inline __u32 stalled_us(struct sock *sock, const struct socket_owner *owner, __u64 now) {
    struct inet_connection_sock *connection = (struct inet_connection_sock *)sock;
    struct tcp_sock *tcp = (struct tcp_sock *)sock;
    __u64 since_us, now_us = now / 1000;
    int is_probe;

    if (BPF_CORE_READ(sock, __sk_common.skc_state) == TCP_SYN_SENT) {
        since_us = owner ? owner->connect_ns / 1000 : 0;
    } else {
        if (!bpf_core_field_exists(tcp->delivered_mstamp) || !bpf_core_field_exists(connection->icsk_pending)) return 0;
        is_probe = BPF_CORE_READ(connection, icsk_pending) == ICSK_TIME_LOSS_PROBE;
        if (BPF_CORE_READ(tcp, snd_wnd) == 0 || (is_probe && BPF_CORE_READ(tcp, packets_out) > 1)) return 0;
        since_us = BPF_CORE_READ(tcp, delivered_mstamp);
    }
    if (!since_us || since_us > now_us) return 0;
    return now_us - since_us < (__u32)-1 ? now_us - since_us : (__u32)-1;
}

static __always_inline void tell_socket(struct sock *sock, __u16 op, __s32 error) {
    struct ingero_socket_record *record;
    struct ingero_wait_record described = {};
    struct socket_owner *owner;
    __u64 key = (__u64)sock;

    record = reserve(sizeof(*record));
    if (!record) {
        __sync_fetch_and_add(&waits_lost, 1);
        return;
    }
    describe_socket(&described, sock);
    record->type = INGERO_RECORD_SOCKET;
    record->op = op;
    record->reserved = 0;
    record->time_ns = bpf_ktime_get_ns();
    record->address[0] = described.detail[0];
    record->address[1] = described.detail[1];
    record->ports = described.detail[2];
    record->inode = BPF_CORE_READ(sock, sk_socket, file, f_inode, i_ino);
    record->uid = BPF_CORE_READ(sock, sk_uid.val);
    record->error = error;
    owner = bpf_map_lookup_elem(&socket_owners, &key);
    if (owner && (owner->address[0] != described.detail[0] || owner->address[1] != described.detail[1] ||
                  owner->port != port_of(&described)))
        owner = 0;
    record->tgid = owner ? owner->tgid : 0;
    record->process_start_ns = owner ? owner->process_start_ns : 0;
    record->stalled_us = op == INGERO_OP_RETRANSMIT ? stalled_us(sock, owner, record->time_ns) : 0;
    submit(record);
}

/* The others never take the room of those whose owner is known. */
__u64 socket_second_from_ns[2];
__u32 socket_records_in_second[2];

static __always_inline int has_socket_record_left(struct sock *sock) {
    __u64 now, key = (__u64)sock;
    __u32 known;

    if (!any_watched || !wait_floor_ns) return 0;
    known = bpf_map_lookup_elem(&socket_owners, &key) != 0;
    now = bpf_ktime_get_ns();
    if (now - socket_second_from_ns[known] >= 1000000000ULL) {
        socket_second_from_ns[known] = now;
        socket_records_in_second[known] = 0;
    }
    if (__sync_fetch_and_add(&socket_records_in_second[known], 1) < SOCKET_RECORDS_A_SECOND) return 1;
    if (known) __sync_fetch_and_add(&waits_lost, 1); /* of others it is not known whether anybody would ask */
    return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_retransmit, struct sock *sock) {
    if (has_socket_record_left(sock)) tell_socket(sock, INGERO_OP_RETRANSMIT, 0);
    return 0;
}

/* For kernels that report attempts too: one that failed sent nothing. */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_retransmit_attempt, struct sock *sock, void *segment, int error) {
    if (!error && has_socket_record_left(sock)) tell_socket(sock, INGERO_OP_RETRANSMIT, 0);
    return 0;
}

SEC("tp_btf/inet_sk_error_report")
int BPF_PROG(on_socket_error, struct sock *sock) {
    __s32 error = BPF_CORE_READ(sock, sk_err);

    /* This also fires for messages about what was sent, which are no errors. */
    if (error && has_socket_record_left(sock)) tell_socket(sock, INGERO_OP_SOCKET_ERROR, error);
    return 0;
}

#endif
