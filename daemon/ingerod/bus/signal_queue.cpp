#include "daemon/ingerod/bus/signal_queue.h"

#include <utility>

namespace ingero {

void SignalQueue::push(const IncidentChange& change) {
    add("incident " + change.incident.id, {change.what, change.incident, 0});
}

void SignalQueue::detected(const Straggler& straggler) {
    add("straggler " + straggler.id, {Notice::What::opened, straggler, 0});
}

void SignalQueue::resolved(const std::string& id, uint64_t at_realtime_ns) {
    Straggler straggler;
    straggler.id = id;
    const auto waits = by_key_.find("straggler " + id);
    // A straggler not reported yet is reported in full, and then that it is over.
    if (waits != by_key_.end()) straggler = std::get<Straggler>(entries_.at(waits->second).notice.about);
    add("straggler " + id, {Notice::What::closed, std::move(straggler), at_realtime_ns});
}

void SignalQueue::add(std::string key, Notice notice) {
    auto [place, is_new] = by_key_.try_emplace(std::move(key), last_number_ + 1);
    if (is_new) ++last_number_;
    const uint64_t number = place->second;
    Entry& entry = entries_[number];
    if (is_new) entry.key = place->first;
    switch (notice.what) {
        case Notice::What::opened:  // once more, where a closing still waits: to the subscriber it never closed
            entry.opened = true;
            entry.closed = false;
            break;
        case Notice::What::updated:
            entry.updated = !entry.closed;
            break;
        case Notice::What::closed:
            entry.updated = false;
            entry.closed = true;
            break;
    }
    entry.notice = std::move(notice);
    file(number, entry);
    if (entries_.size() > waiting_) drop_one();
}

void SignalQueue::file(uint64_t number, const Entry& entry) {
    updates_.erase(number);
    closings_.erase(number);
    if (entry.closed)
        closings_.insert(number);
    else if (!entry.opened)
        updates_.insert(number);
}

void SignalQueue::drop_one() {
    const uint64_t number = !updates_.empty()    ? *updates_.begin()
                            : !closings_.empty() ? *closings_.begin()
                                                 : entries_.begin()->first;
    const Entry& entry = entries_.at(number);
    dropped_ += uint64_t{entry.opened} + entry.updated + entry.closed;
    erase(number);
}

void SignalQueue::erase(uint64_t number) {
    const auto entry = entries_.find(number);
    by_key_.erase(entry->second.key);
    updates_.erase(number);
    closings_.erase(number);
    entries_.erase(entry);
}

std::optional<Notice> SignalQueue::pop() {
    if (entries_.empty()) return std::nullopt;
    const uint64_t number = entries_.begin()->first;
    Entry& entry = entries_.begin()->second;
    Notice notice;
    notice.what = entry.opened ? Notice::What::opened : entry.updated ? Notice::What::updated : Notice::What::closed;
    switch (notice.what) {
        case Notice::What::opened:
            entry.opened = false;
            break;
        case Notice::What::updated:
            entry.updated = false;
            break;
        case Notice::What::closed:
            entry.closed = false;
            break;
    }
    const bool more = entry.opened || entry.updated || entry.closed;
    notice.resolved_realtime_ns = entry.notice.resolved_realtime_ns;
    notice.about = more ? entry.notice.about : std::move(entry.notice.about);
    if (more) {
        file(number, entry);
    } else {
        erase(number);
    }
    return notice;
}

void SignalQueue::clear() {
    entries_.clear();
    by_key_.clear();
    updates_.clear();
    closings_.clear();
}

bool Burst::take(Clock::time_point now, size_t reserved) {
    if (now >= next_grant()) {
        begun_ = now;
        taken_ = 0;
    }
    if (taken_ + reserved >= most_) return false;
    ++taken_;
    return true;
}

}  // namespace ingero
