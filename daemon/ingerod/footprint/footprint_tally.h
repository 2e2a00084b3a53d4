// Adds up the records of a footprint. What it keeps is bounded: what is beyond that is counted. No thread of its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "bpf/footprint.h"
#include "core/model/process/footprint.h"

namespace ingero {

class FootprintTally {
  public:
    static constexpr size_t max_processes = 4'096;
    static constexpr size_t max_files = 4'096;
    static constexpr size_t max_endpoints = 1'024;
    static constexpr size_t max_programs = 512;
    static constexpr size_t max_libraries = 1'024;
    /// Of all paths and names together.
    static constexpr size_t max_text_bytes = 4 << 20;

    /// `data`: base and text.
    void add(const ingero_footprint_record& record, std::span<const char> data);
    /// Calls that have not returned by now are listed without an outcome.
    void finish();
    /// Adds its rows, and what it left out. Counts of calls by process are added with add_calls() before.
    void write(Footprint& footprint) const;
    void add_calls(uint32_t tgid, uint64_t calls);

  private:
    struct FileKey {
        std::string path;
        bool cut = false;
        uint64_t flags = 0;
        Outcome outcome{};
        auto operator<=>(const FileKey&) const = default;
    };
    struct EndpointKey {
        std::string action, family, transport, address;
        std::optional<uint16_t> port{};
        Outcome outcome{};
        auto operator<=>(const EndpointKey&) const = default;
    };
    /// A call whose result is still to come.
    struct Pending {
        uint32_t sequence = 0;
        bool is_file = false;
        FileKey file{};
        EndpointKey endpoint{};
    };
    void start(const ingero_footprint_record& record, std::span<const char> text);
    void run(const ingero_footprint_record& record, std::span<const char> data);
    static EndpointKey endpoint_of(const ingero_footprint_record& record, std::span<const char> address);
    void take(const ingero_footprint_record& record, Pending call);
    void settle(Pending call, Outcome outcome);
    template <class Key>
    void count(std::map<Key, uint64_t>& rows, Key key, size_t bytes, size_t most, uint64_t& left_out);

    std::map<uint32_t, FootprintProcess> processes_;  ///< by tgid
    std::map<FileKey, uint64_t> files_;
    std::map<EndpointKey, uint64_t> endpoints_;
    std::map<std::tuple<std::string, std::string, std::string>, uint64_t> programs_;
    std::map<std::string, uint64_t> libraries_;
    std::unordered_map<uint32_t, Pending> pending_;  ///< by thread
    size_t text_bytes_ = 0;
    FootprintLosses left_out_;
};

}  // namespace ingero
