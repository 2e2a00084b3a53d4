// A client whose request goes to a worker, connection and all.
#pragma once

#include <cstdint>
#include <functional>

#include "core/model/result.h"

namespace ingero {

/// A client that gets its answer from a worker, on the connection itself: no byte of it passes through the daemon.
struct HandedOver {
    uint64_t request = 0;  ///< the id that its answer has
    /// Its descriptor, which stays the caller's, and is the worker's until `done`; -1: it is closed by now.
    std::function<int()> connection;
    /// The worker begins to write: what fails from now on may leave half an answer behind.
    std::function<void()> begins;
    /// Once, on the loop thread: it is answered, with a result or an error; or nobody has answered it, and why.
    std::function<void(Result<void>)> done;
};

}  // namespace ingero
