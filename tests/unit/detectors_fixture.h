// Calls made for detectors, one after another on one thread, and what is found in them.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/diagnosis/explain.h"
#include "core/model/op.h"
#include "tests/support/memory_snapshot.h"

namespace ingero::test {

inline constexpr uint64_t us = 1'000, ms = 1'000 * us, second = 1'000 * ms;
inline constexpr uint64_t mib = 1 << 20;
inline constexpr ProcessKey python{123, 5};

class Detectors : public testing::Test {
  protected:
    Detectors() : snapshot_(1'000 * second) { add_process(python, "python"); }

    Event& call(const std::string& name, uint64_t ns = 5 * us, ProcessKey process = python) {
        Event event;
        event.op = op_of_name(name).value();
        event.tgid = event.tid = process.pid;
        event.process_start_ns = process.start_ns;
        event.start_ns = now_ + 10 * us;
        event.duration_ns = ns;
        now_ = event.end_ns();
        return snapshot_.add(event);
    }
    Event& launch(uint64_t function, uint64_t stream = 0) {
        Event& event = call("cudaLaunchKernel");
        event.args[0] = function;
        event.stream = stream;
        return event;
    }
    uint64_t allocate(uint64_t bytes, uint32_t stack = 0, ProcessKey process = python, uint16_t device = 0) {
        Event& event = call("cudaMalloc", 20 * us, process);
        event.args = {bytes, next_address_ += 0x10'0000, 0};
        event.stack = stack;
        event.device = device;
        return event.args[1];
    }
    void release(uint64_t address) { call("cudaFree", 20 * us).args[0] = address; }
    void fail_to_allocate(uint64_t bytes) {
        Event& event = call("cudaMalloc", 100 * us);
        event.args[0] = bytes;
        event.return_code = 2;
        event.device = 0;
    }
    /// Leaves 512 MiB in pieces of what were 1 GiB.
    void fill_with_holes() {
        std::vector<uint64_t> blocks;
        for (int i = 0; i < 64; ++i) blocks.push_back(allocate(16 * mib, 3));
        for (size_t i = 0; i < blocks.size(); i += 2) release(blocks[i]);
    }
    void add_process(ProcessKey key, const std::string& comm, uint64_t exited_ns = 0, const std::string& visible = "") {
        Process row;
        row.key = key;
        row.comm = comm;
        row.exited_ns = exited_ns;
        row.facts.cuda_visible_devices = visible;
        snapshot_.add(row);
    }

    std::vector<Finding> explain(uint64_t from_ns = 0, std::optional<uint32_t> pid = {}) {
        const Filter filter{
            .window = {MemorySnapshot::realtime_at_zero_ns + from_ns, MemorySnapshot::realtime_at_zero_ns + now_ + 1},
            .uid = {},
            .pid = pid};
        auto answer = ingero::explain(snapshot_, filter);
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? answer->findings : std::vector<Finding>();
    }
    /// The only one there is.
    Finding found(const std::string& kind, uint64_t from_ns = 0, std::optional<uint32_t> pid = {}) {
        std::vector<Finding> findings = explain(from_ns, pid);
        std::string kinds;
        for (const Finding& finding : findings) kinds += finding.kind + ": " + finding.summary + "\n";
        EXPECT_EQ(findings.size(), 1u) << kinds;
        if (findings.size() != 1) return {};
        EXPECT_EQ(findings[0].kind, kind);
        EXPECT_EQ(findings[0].pid, python.pid);
        EXPECT_EQ(findings[0].comm, "python");
        EXPECT_FALSE(findings[0].fix.empty() || findings[0].confirm.empty());
        return std::move(findings[0]);
    }

    MemorySnapshot snapshot_;
    uint64_t now_ = second;
    uint64_t next_address_ = 0x7f00'0000'0000;
    std::mt19937_64 random_{7};
};

}  // namespace ingero::test
