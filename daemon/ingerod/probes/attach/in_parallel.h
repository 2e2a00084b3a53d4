// What waits for the kernel, several at once: they share its grace periods.
#pragma once

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace ingero {

/// run(0) to run(count - 1), by at most `most_threads`; returns when all are done.
template <class Run>
void in_parallel(size_t count, const Run& run, size_t most_threads = 16) {
    std::vector<std::thread> threads;
    const size_t share = (count + most_threads - 1) / most_threads;
    const auto run_share = [&](size_t from) {
        for (size_t i = from; i < std::min(from + share, count); ++i) run(i);
    };
    size_t from = share;
    try {
        for (; from < count; from += share) threads.emplace_back(run_share, from);
    } catch (const std::system_error&) {  // no thread is to be had: then one after another
        for (; from < count; from += share) run_share(from);
    }
    run_share(0);
    for (std::thread& thread : threads) thread.join();
}

}  // namespace ingero
