// Scripted latencies and faults: "the third call of cudaMalloc returns error 2", "every hundredth
// cudaStreamSynchronize sleeps 5 ms more". The text of a rule is described in ../README.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "call.h"
#include "delays.h"
#include "function_id.h"

namespace ingero::standin {

struct Rule {
    uint64_t first = 1;  ///< calls are counted from 1
    uint64_t every = 1;  ///< 0: only the first
    struct Action {
        Delay delay;
        uint64_t amount;
    };
    std::vector<Action> actions;
    int error = 0;
    int fault = 0;
    std::atomic<uint64_t> calls{0};  ///< of all functions that the rule names, all threads

    bool due() {
        const uint64_t call = calls.fetch_add(1, std::memory_order_relaxed) + 1;
        if (every == 0) return call == first;
        return call >= first && (call - first) % every == 0;
    }
};

/// The rules of one function, in the order in which they were given.
struct RuleList {
    std::vector<Rule*> rules;
};

/// Fills the table, which has a place for each function. What is in it lives as long as the process.
void load_rules(const std::vector<std::string>& texts, RuleList** table);

}  // namespace ingero::standin
