// What the tests of the store share: a directory that goes away, and events with a value in every field.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/store/store.h"
#include "tests/unit/files.h"

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

/// Bits that no encoding makes smaller.
inline uint64_t noise(uint64_t sequence, uint64_t field) {
    uint64_t bits = (sequence * 64 + field) * 0x9e37'79b9'7f4a'7c15;
    bits = (bits ^ bits >> 30) * 0xbf58'476d'1ce4'e5b9;
    bits = (bits ^ bits >> 27) * 0x94d0'49bb'1331'11eb;
    return bits ^ bits >> 31;
}

/// Differs from its neighbours in every field, in all bits: some 180 bytes however it is stored.
inline Event make_event(uint64_t sequence, uint64_t start_ns, uint64_t duration_ns) {
    const auto noisy = [&](uint64_t field) { return noise(sequence, field); };
    const auto noisy_id = [&](uint64_t field) { return static_cast<uint32_t>(noise(sequence, field)); };
    Event event;
    event.sequence = sequence;
    event.start_ns = start_ns;
    event.duration_ns = duration_ns;
    event.runnable_ns = noisy(1);
    event.preempted_ns = noisy(2);
    event.blocked_ns = noisy(3);
    event.longest_sleep_ns = noisy(4);
    event.preemptor_ns = noisy(5);
    event.args = {noisy(6), noisy(7), noisy(8)};
    event.stream = noisy(9);
    event.process_start_ns = noisy(10);
    event.tgid = noisy_id(11);
    event.tid = noisy_id(12);
    event.cpu = noisy_id(13);
    event.waits = noisy_id(14);
    event.return_code = static_cast<int32_t>(noisy_id(15));
    event.preemptor_tgid = noisy_id(16);
    event.waker_tgid = noisy_id(17);
    event.stack = 1 + noisy_id(18) % 7;
    event.weight = noisy_id(19);
    event.op = static_cast<OpId>(0x100 + sequence % 200);
    event.blocked_syscall = static_cast<uint16_t>(noisy(20));
    event.device = static_cast<uint16_t>(noisy(21));
    event.depth = static_cast<uint8_t>(noisy(22));
    event.flags = static_cast<uint8_t>(noisy(23));
    event.blocked_reason = static_cast<BlockedReason>(noisy(24) % 12);
    event.waker_kind = static_cast<WakerKind>(noisy(25) % 3);
    event.last_wait_ns = noisy(26);
    event.last_runnable_ns = noisy(27);
    event.tail_ns = noisy(28);
    event.last_reason = static_cast<BlockedReason>(noisy(29) % 12);
    event.time_weight = noisy_id(30) % 7;
    event.preemptor_comm = to_comm("preempt" + std::to_string(sequence));
    event.waker_comm = to_comm("waker" + std::to_string(sequence));
    return event;
}

inline auto all_fields(const Event& e) {
    return std::tuple(e.sequence, e.start_ns, e.duration_ns, e.runnable_ns, e.preempted_ns, e.blocked_ns,
                      e.longest_sleep_ns, e.preemptor_ns, e.args, e.stream, e.process_start_ns, e.tgid, e.tid, e.cpu,
                      e.waits, e.return_code, e.preemptor_tgid, e.waker_tgid, e.stack, e.weight, e.op,
                      e.blocked_syscall, e.device, e.depth, e.flags, e.blocked_reason, e.waker_kind, e.preemptor_comm,
                      e.waker_comm, e.last_wait_ns, e.last_runnable_ns, e.tail_ns, e.last_reason, e.time_weight);
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

/// The content of a data file with damage that nobody stumbles over who reads it: each page with rows in it holds the
/// number of another. Only a check of all pages finds that.
inline std::string with_wrong_page_numbers(std::string file) {
    for (size_t page = 2; (page + 1) * 4096 <= file.size(); ++page) {
        uint64_t number = 0;
        uint16_t flags = 0;
        std::memcpy(&number, file.data() + page * 4096, sizeof number);
        std::memcpy(&flags, file.data() + page * 4096 + 10, sizeof flags);
        constexpr uint16_t leaf = 2;
        if (number == page && flags == leaf) file[page * 4096 + 7] = 1;
    }
    return file;
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
