// A process that maps one file again and again is looked at once in a while, and many at once one after the other: each
// look reads /proc, on the thread that everything else runs on. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/ingerod/discovery/proc_fs.h"

namespace ingero {

class MappingFilter {
  public:
    /// A file of a process is looked at once in this time; what it maps meanwhile is not forgotten but looked at then.
    static constexpr uint64_t interval_ns = 300'000'000;
    /// Looks in one turn of the loop.
    static constexpr size_t looks_a_turn = 64;
    /// Files of processes that are remembered.
    static constexpr size_t max_known = 4'096;

    enum class Verdict { now, later, too_many };
    struct Sight {
        uint32_t pid = 0;
        Mapping mapping;
        uint64_t time_ns = 0;
    };

    /// A new turn begins.
    void begin_turn() { looks_ = 0; }
    /// Whether the mapping is to be looked at now; `later`: due() will give it. `too_many`: it is not remembered.
    Verdict take(uint32_t pid, const Mapping& mapping, uint64_t time_ns, uint64_t now_ns) {
        const Key key{pid, mapping.file, mapping.path};
        auto known = known_.find(key);
        if (known == known_.end()) {
            if (known_.size() >= max_known) forget_old(now_ns);
            if (known_.size() >= max_known) return Verdict::too_many;
            known = known_.try_emplace(key).first;
        }
        File& file = known->second;
        const bool rests = file.looked_ns != 0 && now_ns - file.looked_ns < interval_ns;
        if (!file.waits && !rests && looks_ < looks_a_turn) {
            ++looks_;
            file.looked_ns = now_ns;
            return Verdict::now;
        }
        // The latest mapping, which is there; since the first of them.
        if (!file.waits) file.sight.time_ns = time_ns;
        waiting_ += !std::exchange(file.waits, true);
        file.sight.pid = pid;
        file.sight.mapping = mapping;
        return Verdict::later;
    }
    bool has_waiting() const { return waiting_ != 0; }
    /// When the first of what due() is still to give was mapped; UINT64_MAX where nothing waits.
    uint64_t waiting_since_ns() const {
        uint64_t since_ns = UINT64_MAX;
        for (const auto& [key, file] : known_)
            if (file.waits) since_ns = std::min(since_ns, file.sight.time_ns);
        return since_ns;
    }
    /// What waited long enough, as much as a turn has looks left.
    std::vector<Sight> due(uint64_t now_ns) {
        std::vector<Sight> sights;
        for (auto& [key, file] : known_) {
            if (waiting_ == 0 || looks_ >= looks_a_turn) break;
            if (!file.waits || (file.looked_ns != 0 && now_ns - file.looked_ns < interval_ns)) continue;
            ++looks_;
            --waiting_;
            file.waits = false;
            file.looked_ns = now_ns;
            sights.push_back(std::move(file.sight));
        }
        return sights;
    }

  private:
    using Key = std::tuple<uint32_t, FileId, std::string>;
    struct File {
        uint64_t looked_ns = 0;  ///< 0: not yet
        bool waits = false;
        Sight sight;
    };
    void forget_old(uint64_t now_ns) {
        std::erase_if(
            known_, [&](const auto& one) { return !one.second.waits && now_ns - one.second.looked_ns >= interval_ns; });
    }

    std::map<Key, File> known_;
    size_t waiting_ = 0;
    size_t looks_ = 0;
};

}  // namespace ingero
