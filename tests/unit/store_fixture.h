// What the tests of the store share: a directory that goes away, and events with a value in every field.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/store/store.h"

namespace ingero {

/// An empty directory for one test, removed with it.
class TemporaryDirectory {
  public:
    TemporaryDirectory() {
        std::string pattern = std::filesystem::temp_directory_path() / "ingero-store-XXXXXX";
        if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory() {
        std::error_code ignored;
        if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    }
    const std::string& path() const { return path_; }
    std::string data_file() const { return path_ + "/data.mdb"; }

  private:
    std::string path_;
};

inline std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, const std::string& content) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
}

/// Differs from its neighbours in every field.
inline Event make_event(uint64_t sequence, uint64_t start_ns, uint64_t duration_ns) {
    Event event;
    event.sequence = sequence;
    event.start_ns = start_ns;
    event.duration_ns = duration_ns;
    event.runnable_ns = sequence * 3;
    event.preempted_ns = sequence * 5;
    event.blocked_ns = sequence * 7;
    event.longest_sleep_ns = sequence * 11;
    event.preemptor_ns = sequence * 13;
    event.args = {sequence * 17, ~sequence, sequence << 40};
    event.stream = 0x7f00'0000'0000 + sequence;
    event.process_start_ns = sequence * 19;
    event.tgid = static_cast<uint32_t>(1000 + sequence);
    event.tid = static_cast<uint32_t>(2000 + sequence);
    event.cpu = static_cast<uint32_t>(sequence % 128);
    event.waits = static_cast<uint32_t>(sequence * 23);
    event.return_code = -static_cast<int32_t>(sequence);
    event.preemptor_tgid = static_cast<uint32_t>(sequence * 29);
    event.waker_tgid = static_cast<uint32_t>(sequence * 31);
    event.op = static_cast<OpId>(0x100 + sequence % 200);
    event.blocked_syscall = static_cast<uint16_t>(sequence);
    event.depth = static_cast<uint8_t>(sequence % 6);
    event.flags = static_cast<uint8_t>(sequence % 4);
    event.blocked_reason = static_cast<BlockedReason>(sequence % 12);
    event.waker_kind = static_cast<WakerKind>(sequence % 3);
    event.preemptor_comm = to_comm("preempt" + std::to_string(sequence));
    event.waker_comm = to_comm("waker" + std::to_string(sequence));
    return event;
}

inline auto all_fields(const Event& e) {
    return std::tuple(e.sequence, e.start_ns, e.duration_ns, e.runnable_ns, e.preempted_ns, e.blocked_ns,
                      e.longest_sleep_ns, e.preemptor_ns, e.args, e.stream, e.process_start_ns, e.tgid, e.tid, e.cpu,
                      e.waits, e.return_code, e.preemptor_tgid, e.waker_tgid, e.op, e.blocked_syscall, e.depth, e.flags,
                      e.blocked_reason, e.waker_kind, e.preemptor_comm, e.waker_comm);
}

/// `count` short events a microsecond apart.
inline std::vector<Event> make_events(uint64_t first_sequence, size_t count, uint64_t first_start_ns) {
    std::vector<Event> events;
    for (size_t i = 0; i < count; ++i) events.push_back(make_event(first_sequence + i, first_start_ns + i * 1000, 500));
    return events;
}

inline Session make_session(const std::string& boot_id) {
    Session session;
    session.id = "0123456789abcdef0123456789abcdef";
    session.boot_id = boot_id;
    session.node = "node-1";
    session.machine_id = "fedcba9876543210";
    session.version = "0.1.0";
    session.kernel = "6.1.0-test";
    session.attach_method = "uprobe-multi";
    session.clock = {1'000, 2'000, 1'700'000'000'000'000'000};
    return session;
}

inline constexpr Window everything{0, UINT64_MAX};

inline std::unique_ptr<StoreWriter> open_writer(const std::string& directory, const StoreOptions& options = {}) {
    auto writer = StoreWriter::open(directory, options);
    if (!writer) {
        ADD_FAILURE() << writer.error().message;
        return nullptr;
    }
    return std::move(*writer);
}

inline std::unique_ptr<StoreSnapshot> open_snapshot(const std::string& directory) {
    auto reader = StoreReader::open(directory);
    if (!reader) {
        ADD_FAILURE() << reader.error().message;
        return nullptr;
    }
    auto snapshot = (*reader)->snapshot();
    if (!snapshot) {
        ADD_FAILURE() << snapshot.error().message;
        return nullptr;
    }
    return std::move(*snapshot);  // keeps what it needs of the reader
}

inline Result<std::vector<Event>> scan_all(const StoreSnapshot& snapshot, uint32_t boot_index = 0,
                                           Window window = everything) {
    std::vector<Event> events;
    auto scanned = snapshot.scan(boot_index, window, [&](std::span<const Event> rows) {
        events.insert(events.end(), rows.begin(), rows.end());
        return true;
    });
    if (!scanned) return tl::unexpected(scanned.error());
    return events;
}

inline std::vector<uint64_t> sequences(const std::vector<Event>& events) {
    std::vector<uint64_t> result;
    for (const Event& event : events) result.push_back(event.sequence);
    return result;
}

}  // namespace ingero
