// What Processes stands on, for tests that make processes known without a daemon.
#pragma once

#include "daemon/ingerod/targets/processes.h"

namespace ingero::test {

struct ProcessParts {
    explicit ProcessParts(const ProcFs& given) : proc(given) {}

    const ProcFs& proc;  ///< must outlive it
    EventLoop loop;
    WorkerPool workers{loop, {.program = "/nonexistent", .store_directory = {}, .node = {}}};
    const UidOwners owners{};
    Libraries libraries{loop, proc, {}, workers, owners, {}};
    uint64_t policy = 0;
    CaptureGate gate{-1, -1, &policy};
};

}  // namespace ingero::test
