// Steps of a program on a device, with what its thread and others do between them.
#pragma once

#include "core/model/host_event.h"
#include "tests/unit/detectors_fixture.h"

namespace ingero::test {

inline constexpr ProcessKey worker{200, 6}, stranger{300, 7};
inline constexpr uint64_t inet = 2ull << 32;

class Gaps : public Detectors {
  protected:
    Gaps() {
        add_process(stranger, "client");
        Process row;
        row.key = worker;
        row.comm = "pt_data_worker";
        row.parent_pid = python.pid;
        snapshot_.add(row);
    }

    void step() {
        for (int i = 0; i < 5; ++i) launch(0x1000);
        call("cudaStreamSync", 2 * ms);
    }
    /// A thread that is its process's only one slept from `from_ns` on.
    Event& slept(ProcessKey process, uint64_t from_ns, uint64_t ns, BlockedReason reason, ProcessKey waker = {},
                 bool watched = true) {
        Event event;
        event.op = op_wait;
        event.start_ns = from_ns;
        event.duration_ns = event.blocked_ns = event.longest_sleep_ns = ns;
        event.tgid = event.tid = process.pid;
        event.process_start_ns = process.start_ns;
        event.blocked_reason = reason;
        event.waits = 1;
        event.waker_kind = waker.pid != 0 ? WakerKind::task : WakerKind::interrupt;
        event.waker_tgid = waker.pid;
        event.waker_comm = to_comm(waker == worker ? "pt_data_worker" : waker.pid != 0 ? "client" : "");
        event.args[0] = pack_wait_place({.waker_tid = waker.pid, .from_cpu = 0, .waker_watched = watched});
        return snapshot_.add(event);
    }
    /// The same of python's, which then goes on.
    Event& sleep(uint64_t ns, BlockedReason reason, ProcessKey waker = {}, bool watched = true) {
        Event& event = slept(python, now_, ns, reason, waker, watched);
        now_ += ns;
        return event;
    }
    /// At `at_ns` its connection to 127.0.0.1:8000 sends again what did not arrive for `stalled_ns`.
    void resent(ProcessKey process, uint64_t at_ns, uint64_t stalled_ns, uint16_t own_port = 41'000,
                uint16_t other_port = 8'000) {
        Event event;
        event.op = op_retransmit;
        event.start_ns = at_ns;
        event.tgid = process.pid;
        event.process_start_ns = process.start_ns;
        event.args = {0, 0x0100'007f'ffff'0000, stalled_ns};
        event.stream = inet | uint64_t{other_port} << 16 | own_port;
        snapshot_.add(event);
    }
    /// Steps with something between.
    template <class Between>
    void steps(int number, Between between) {
        for (int i = 0; i < number; ++i) {
            step();
            between();
        }
        step();
    }
    /// What is named where the worker had no CPU for 6 of the 8 ms of each of 100 gaps, while a task ran.
    Culprit kept_off_the_cpu(uint32_t tgid, const std::string& comm, int32_t return_code = 0) {
        steps(100, [&] {
            Event& wait = slept(worker, now_ + ms, 6 * ms, BlockedReason::none);
            wait.runnable_ns = wait.preempted_ns = wait.preemptor_ns = std::exchange(wait.blocked_ns, 0);
            wait.preemptor_tgid = tgid;
            wait.preemptor_comm = to_comm(comm);
            wait.return_code = return_code;
            sleep(8 * ms, BlockedReason::futex, worker);
        });
        return found("data-starvation").culprits.at(0);
    }
    /// So that what it waits for is known to be told.
    void wait_once() { sleep(ms, BlockedReason::timer); }
};

}  // namespace ingero::test
