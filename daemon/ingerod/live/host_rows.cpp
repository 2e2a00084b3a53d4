#include "daemon/ingerod/live/host_rows.h"

#include <algorithm>
#include <utility>

#include "core/model/host_event.h"

namespace ingero {

namespace {

constexpr uint64_t look_period_ns = 200'000'000;  // at who has which socket open: a look reads all their descriptors
constexpr uint64_t longest_look_ns = 20'000'000;  // and what the process it has come to takes
constexpr uint64_t pause_per_look = 20;           // the loop has other work: looks get a twentieth of its time
constexpr size_t max_owned = 65'536;
constexpr size_t max_bystanders = 4'096;
constexpr size_t swept_a_time = 256;

}  // namespace

void HostRows::on_bystander(const WaitRow& row) {
    const ProcessKey key = row.event.process();
    if (row.event.tgid == INGERO_PID_OUTSIDE || row.event.tgid == 0) return;
    if (is_known(key)) return;
    Process process;
    auto read = proc_.read_process(key.pid);
    const bool alive = read && read->key == key;
    if (alive) {
        process = std::move(*read);
    } else {
        process.key = key;
        process.uid = row.uid;
        process.comm = to_string_view(row.comm);
    }
    // One that has had higher rights by now is not shown to who had it before.
    if (const auto before = bystanders_.find(key); before != bystanders_.end() && before->second.uid != row.uid)
        process.uid = before->second.uid == 0 || row.uid == 0 ? 0 : row.uid;
    process.first_seen_ns = row.event.start_ns;
    if (!alive) return end(std::move(process));
    add_bystander(std::move(process));
}

void HostRows::add_bystander(Process process) {
    if (bystanders_.size() >= max_bystanders) {
        end(std::move(bystanders_.begin()->second));
        bystanders_.erase(bystanders_.begin());
    }
    bystanders_.insert_or_assign(process.key, process);
    store_.put_process(std::move(process));
}

void HostRows::on_preemptors(const std::vector<uint32_t>& pids) {
    for (const uint32_t pid : pids) {
        if (processes_.all().contains(pid)) continue;
        const auto start_ns = proc_.start_of(pid);
        if (!start_ns || bystanders_.contains({pid, *start_ns}) || is_known({pid, *start_ns})) continue;
        auto read = proc_.read_process(pid);
        if (!read) continue;
        read->first_seen_ns = monotonic_now_ns();
        add_bystander(std::move(*read));
    }
}

// One that has ended is in /proc until its parent has waited for it.
bool HostRows::is_known(const ProcessKey& key) const {
    const auto known = processes_.all().find(key.pid);
    return (known != processes_.all().end() && known->second.process.key == key) || processes_.has_ended(key);
}

void HostRows::end(Process process) {
    if (processes_.has_row(process.key)) return;
    process.exited_ns = monotonic_now_ns();
    store_.put_process(std::move(process));
}

void HostRows::sweep() {
    auto next = bystanders_.upper_bound(swept_);
    for (size_t left = std::min(swept_a_time, bystanders_.size()); left != 0; --left) {
        if (next == bystanders_.end()) next = bystanders_.begin();
        swept_ = next->first;
        if (proc_.start_of(swept_.pid) == swept_.start_ns && !processes_.has_row(swept_)) {
            ++next;
        } else {
            end(std::move(next->second));
            next = bystanders_.erase(next);
        }
    }
}

const ProcessKey* HostRows::known_owner_of(uint64_t inode) const {
    for (const Owners* owners : {&found_, &owners_})
        if (const auto known = owners->find(inode); known != owners->end()) return &known->second;
    return nullptr;
}

const ProcessKey* HostRows::owner_of(uint64_t inode) {
    if (inode == 0) return nullptr;
    if (const ProcessKey* known = known_owner_of(inode)) return known;
    if (now_ns_() < next_look_ns_) return nullptr;
    look_at_sockets();
    return known_owner_of(inode);
}

// A socket that no traced process has starts a look too, and there may be such records all the time.
void HostRows::look_at_sockets() {
    const uint64_t began_ns = now_ns_();
    uint64_t now = began_ns;
    auto next = processes_.all().upper_bound(looked_pid_);
    for (; next != processes_.all().end() && now - began_ns < longest_look_ns; ++next) {
        looked_pid_ = next->first;
        if (next->second.excluded) continue;
        const ProcessKey& key = next->second.process.key;
        for (const uint64_t open : proc_.sockets_of(key)) {
            if (found_.size() >= max_owned) break;
            found_.emplace(open, key);
        }
        now = now_ns_();
    }
    if (next == processes_.all().end()) {
        owners_ = std::exchange(found_, {});
        looked_pid_ = 0;
    }
    next_look_ns_ = now + std::max(look_period_ns, pause_per_look * (now - began_ns));
}

void HostRows::on_socket(const SocketRow& row) {
    Event event = row.event;
    if (event.tgid == 0) {
        const ProcessKey* owner = owner_of(row.inode);
        if (!owner) return;
        event.tgid = owner->pid;
        event.process_start_ns = owner->start_ns;
    } else if (const auto known = processes_.all().find(event.tgid);
               known != processes_.all().end() && known->second.excluded) {
        return;
    }
    event.device = INGERO_DEVICE_UNKNOWN;
    store_.put_event(event);
}

void HostRows::on_change(const ingero_process_record& change) {
    if (change.change != INGERO_PROCESS_EXEC && change.change != INGERO_PROCESS_EXIT) return;
    Event event;
    event.op = change.change == INGERO_PROCESS_EXEC ? op_exec : op_exit;
    event.start_ns = change.time_ns;
    event.tgid = event.tid = change.tgid;
    event.process_start_ns = reported_start_ns(change.process_start_ns);
    event.return_code = change.change == INGERO_PROCESS_EXIT ? change.exit_code : 0;
    event.device = INGERO_DEVICE_UNKNOWN;
    store_.put_event(event);
}

}  // namespace ingero
