// Runs the detectors over the live window, once a second while there is something to judge, in a thread of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/diagnosis/live_window.h"
#include "core/model/process.h"
#include "core/model/time.h"
#include "daemon/ingerod/event_loop.h"

namespace ingero {

class LiveDiagnosis {
  public:
    /// `on_pass` runs on the loop thread with what each pass found, nothing too.
    using OnPass = std::function<void(const std::vector<Finding>&, const ClockTriple&)>;

    LiveDiagnosis(EventLoop& loop, std::string boot_id, OnPass on_pass);
    ~LiveDiagnosis();

    /// From the ingest thread.
    void add(std::vector<Event> events, uint64_t lost);
    /// A new or changed process, so that findings can name it; one that has exited is forgotten in time. Any thread.
    void put_process(const Process& process);
    /// Passes go on though no call comes in. Any thread.
    void keep_awake(bool awake);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
