// Reads the log of the stand-in libraries. Open it after the writer ended, or while it runs: then the last records may
// be unfinished. Not thread-safe to move; reading is.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "ground_truth.h"

namespace ingero::standin {

using Record = ground_truth_record;

/// The call returned to its caller.
inline bool finished(const Record& record) {
    return record.end_ns != 0;
}
inline uint64_t duration_ns(const Record& record) {
    return finished(record) ? record.end_ns - record.start_ns : 0;
}
inline uint64_t on_cpu_ns(const Record& record) {
    return finished(record) ? record.end_cpu_ns - record.start_cpu_ns : 0;
}

class GroundTruth {
  public:
    /// Nothing if there is no such file, or it is not a whole log of this version.
    static std::optional<GroundTruth> open(const std::string& path) {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (file < 0) return std::nullopt;
        struct stat status {};
        void* base = MAP_FAILED;
        if (::fstat(file, &status) == 0 && size_t(status.st_size) >= sizeof(ground_truth_header)) {
            base = ::mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_SHARED, file, 0);
        }
        ::close(file);
        if (base == MAP_FAILED) return std::nullopt;
        GroundTruth log(static_cast<const std::byte*>(base), size_t(status.st_size));
        if (!log.is_whole()) return std::nullopt;
        return log;
    }

    /// In the order in which the calls began, all threads and processes mixed. Lives as long as this object.
    std::span<const Record> records() const {
        return {reinterpret_cast<const Record*>(bytes() + header().records_offset),
                size_t(std::min(claimed(), header().capacity))};
    }

    /// Empty for a function that the log does not know.
    std::string_view name(uint16_t function) const {
        if (function >= header().name_count) return {};
        const char* name =
            reinterpret_cast<const char*>(bytes() + header().names_offset) + size_t(function) * header().name_size;
        return {name, ::strnlen(name, header().name_size)};
    }
    std::string_view name(const Record& record) const { return name(record.function); }

    /// The kernel's name that the call was made with, of at most 507 bytes; empty for a call without.
    std::string_view kernel_name(const Record& record) const {
        const uint64_t known = std::min<uint64_t>(__atomic_load_n(&header().next_kernel_name, __ATOMIC_ACQUIRE),
                                                  header().kernel_name_capacity);
        if (record.kernel_name == 0 || record.kernel_name > known) return {};
        const auto* names = reinterpret_cast<const ground_truth_kernel_name*>(bytes() + header().kernel_names_offset);
        const ground_truth_kernel_name& slot = names[record.kernel_name - 1];
        const uint32_t length = __atomic_load_n(&slot.length, __ATOMIC_ACQUIRE);
        return {slot.name, std::min<size_t>(length, sizeof slot.name - 1)};
    }

    /// The name that the process last gave or got a function, kernel or host function by; empty for an unknown one.
    std::string_view kernel_name(uint32_t pid, uint64_t handle) const {
        std::string_view last;
        for (const Record& record : records()) {
            if (record.kernel_name != 0 && record.pid == pid && record.args[0] == handle && record.result == 0)
                last = kernel_name(record);
        }
        return last;
    }

    /// Calls that found the log full and are not in it.
    uint64_t overflow() const { return claimed() - std::min(claimed(), header().capacity); }

    const ground_truth_header& header() const { return *reinterpret_cast<const ground_truth_header*>(bytes()); }

  private:
    struct Unmap {
        size_t size = 0;
        void operator()(const std::byte* base) const { ::munmap(const_cast<std::byte*>(base), size); }
    };

    GroundTruth(const std::byte* base, size_t size) : map_(base, Unmap{size}) {}

    const std::byte* bytes() const { return map_.get(); }
    uint64_t claimed() const { return __atomic_load_n(&header().next, __ATOMIC_ACQUIRE); }

    bool is_whole() const {
        const ground_truth_header& h = header();
        const uint64_t size = map_.get_deleter().size;
        if (h.magic != GROUND_TRUTH_MAGIC || h.version != GROUND_TRUTH_VERSION) return false;
        if (h.record_size != sizeof(Record) || h.name_size != GROUND_TRUTH_NAME_SIZE) return false;
        if (h.names_offset > size || uint64_t(h.name_count) * h.name_size > size - h.names_offset) return false;
        if (h.kernel_names_offset > size || h.kernel_names_offset % alignof(ground_truth_kernel_name) != 0 ||
            h.kernel_name_capacity > (size - h.kernel_names_offset) / sizeof(ground_truth_kernel_name))
            return false;
        return h.records_offset <= size && h.records_offset % alignof(Record) == 0 &&
               h.capacity <= (size - h.records_offset) / sizeof(Record);
    }

    std::unique_ptr<const std::byte, Unmap> map_;
};

}  // namespace ingero::standin
