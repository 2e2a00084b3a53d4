// Whether a thread had given a device work that it had not waited for yet: what it sleeps for then holds that work up,
// while a thread without any may wait to be asked for more. As far as its calls of a window show it: nothing is known
// of a thread before it has returned from a wait for the device.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/model/process/process.h"
#include "core/model/time.h"
#include "core/query/key_index.h"
#include "core/query/thread_key.h"

namespace ingero {

/// Bounded, some 20 MiB at most: of what there is no room for nothing is known.
class DeviceWork {
  public:
    DeviceWork();

    /// A call of the window that waits for the device, before any call is taken.
    void learn_wait(const ProcessKey& process, uint32_t tid, const Window& call);
    void finish_learning();

    /// What a thread does from here on, each thread in order of time; changes of the block before are forgotten but for
    /// each thread's last.
    void begin_block();
    void enqueued(const ProcessKey& process, uint32_t tid, uint64_t at_ns);
    void waited(const ProcessKey& process, uint32_t tid, uint64_t until_ns);

    /// At a time in the block, or while the thread makes no call.
    bool has_work(const ProcessKey& process, uint32_t tid, uint64_t at_ns) const;
    /// Whether one other thread of the process waited for a device for half of the time or more, or may have.
    bool another_waits(const ProcessKey& process, uint32_t tid, const Window& time) const;

  private:
    struct Change {
        uint64_t at_ns = 0;
        bool has_work = false;
    };
    struct Thread {
        std::vector<Change> changes;  ///< none before it first returned from a wait
    };
    struct Waits {
        std::map<uint32_t, std::vector<Window>> by_thread;  ///< each apart from the others, in order once learnt
        size_t kept = 0;
        bool has_all = true;
    };

    Thread* thread_of(const ProcessKey& process, uint32_t tid);
    void change(Thread& thread, const Change& change);

    KeyIndex<ThreadKey> index_;
    std::vector<Thread> threads_;
    ThreadKey last_;
    uint32_t last_number_ = KeyIndex<ThreadKey>::none;
    std::vector<uint32_t> changed_;  ///< threads that have more than one change
    std::map<ProcessKey, Waits> waits_;
};

}  // namespace ingero
