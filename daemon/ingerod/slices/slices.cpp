#include "daemon/ingerod/slices/slices.h"

#include <errno.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "bpf/event.h"
#include "core/model/time.h"
#include "core/render/render.h"

namespace ingero {

namespace {

constexpr uint64_t tick_us = 250'000;
constexpr uint64_t tick_accuracy_us = 10'000;
constexpr size_t max_unknown = 1'024;
constexpr size_t max_programs = 4'096;

std::string names_of(const std::set<OpId>& ops) {
    std::string names;
    for (const OpId op : ops) names += (names.empty() ? "" : ", ") + std::string(op_name(op));
    return names;
}

std::set<ProcessKey> processes_of(const SlicedFile& file) {
    std::set<ProcessKey> processes;
    for (const OwnLink& one : file.processes) processes.insert(one.process);
    return processes;
}

}  // namespace

Slices::Slices(EventLoop& loop, Processes& processes, const Libraries& libraries, ingero_slice& slice, Host host)
    : loop_(loop), processes_(processes), libraries_(libraries), slice_(slice), host_(std::move(host)) {}

void Slices::set_budget(unsigned permille) {
    permille_ = permille;
    if (thread_) thread_->set_share(permille);
}

void Slices::start_timer() {
    timer_ = loop_.add_timer(
        tick_us, [this] { tick(); }, tick_accuracy_us);
}

void Slices::add(const StormReport& report) {
    if (permille_ == 0) return;
    control_.add(report);
    if (!timer_.active()) start_timer();
}

void Slices::note_unknown(const ProcessKey& process) {
    if (unknown_.size() == max_unknown) drop_dead();
    if (unknown_.size() < max_unknown) unknown_.insert(process);
}

// Its gaps end with it.
void Slices::on_end(const ProcessKey& process) {
    control_.forget(process);
    why_not_.erase(process);
    programs_.erase(process);
    leaving_.erase(process);
    late_.erase(process);
    reported_.erase(process);
}

void Slices::on_exec(const ProcessKey& process) {
    const uint64_t programs = programs_[process] + 1;
    on_end(process);
    if (programs_.size() < max_programs) programs_[process] = programs;
}

void Slices::begin_anew() {
    control_ = {};
    if (!files_.empty()) tick();
}

void Slices::tick() {
    timer_.reset();
    if (permille_ == 0) control_ = {};
    const uint64_t now_ns = monotonic_now_ns();
    control_.tick(now_ns);
    Files files = plan();
    if (!apply(files)) files.clear();
    report_gaps(sliced_in(files));
    report_late(files);
    files_ = std::move(files);
    last_tick_ns_ = now_ns;
    if (!control_.is_calm() || !files_.empty() || !late_.empty() || !leaving_.empty()) start_timer();
}

OwnLink Slices::own_link(const ProcessKey& process, std::set<OpId> sliced) const {
    const auto programs = programs_.find(process);
    return {process, std::move(sliced), programs == programs_.end() ? 0 : programs->second};
}

void Slices::add_files(const ProcessKey& process, const std::set<OpId>& ops, Files& files) const {
    const ProcessEntry* entry = processes_.find(process);
    if (!entry || entry->excluded) return;
    // Several entries may be of one file, and have its functions among them: who maps it has to do with all.
    std::set<FileId> files_of_it;
    for (const LibraryKey& key : entry->libraries)
        if (const LibraryEntry* library = libraries_.find(key)) files_of_it.insert(library->real);
    for (const auto& [key, library] : libraries_.all()) {
        if (!files_of_it.contains(library.real) || !library.attached) continue;
        const auto sites = library.attached->hot();
        if (!sites) continue;
        std::set<OpId> there;
        for (const OpId op : ops)
            if (library.functions.contains(op)) there.insert(op);
        if (there.empty()) continue;
        SlicedFile& file = files[sites];
        file.sites = sites;
        file.processes.insert(own_link(process, std::move(there)));
    }
}

void Slices::drop_dead() {
    std::erase_if(unknown_, [&](const ProcessKey& process) {
        return processes_.find(process) ||
               (process.pid != INGERO_PID_OUTSIDE && kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH);
    });
}

std::set<ProcessKey> Slices::find_callers() {
    drop_dead();
    std::set<ProcessKey> callers = unknown_;
    for (const ProcessKey& caller : host_.callers()) callers.insert(caller);
    return callers;
}

// What maps the file and calls nothing can do without a link where there are many: its first call is one of those that
// are attached to for all. But one that is older than this daemon may have made that before, and of one that is not
// known well anything may be so.
std::set<ProcessKey> Slices::others_of(const std::shared_ptr<HotSites>& sites,
                                       const std::set<ProcessKey>& callers) const {
    std::optional<FileId> real;
    for (const auto& [key, entry] : libraries_.all())
        if (entry.attached && entry.attached->hot() == sites) real = entry.real;
    std::set<FileId> ids;
    for (const auto& [key, entry] : libraries_.all())
        if (entry.real == real) ids.insert(key.file);
    std::set<ProcessKey> others, idle;
    for (const ProcessKey& caller : callers)
        if (!processes_.find(caller)) others.insert(caller);
    for (const auto& [pid, entry] : processes_.all()) {
        const ProcessKey& process = entry.process.key;
        if (entry.excluded) continue;
        const bool is_idle = !callers.contains(process) && process.start_ns >= host_.began_ns;
        const bool maps = std::any_of(entry.libraries.begin(), entry.libraries.end(),
                                      [&](const auto& key) { return ids.contains(key.file); });
        const bool may_map =
            entry.libraries.empty() || std::any_of(entry.refused.begin(), entry.refused.end(),
                                                   [&](const FileId& file) { return ids.contains(file); });
        if (maps || may_map) (is_idle ? idle : others).insert(process);
    }
    if (others.size() + idle.size() <= max_others) others.merge(idle);
    return others;
}

Slices::Files Slices::plan() {
    Files files;
    why_not_.clear();
    if (control_.sliced().empty()) return files;
    size_t processes = 0;
    for (const auto& [process, ops] : control_.sliced()) {
        Files its;
        add_files(process, ops, its);
        if (!host_.can_attach_to_one)
            why_not_[process] = "this kernel cannot attach to functions of one process alone";
        else if (!its.empty() && (processes == max_sliced || files.size() + its.size() > max_files))
            why_not_[process] = "too many processes or libraries are in slices already";
        if (its.empty() || why_not_.contains(process)) continue;
        ++processes;
        for (auto& [sites, file] : its) {
            SlicedFile& all = files[sites];
            all.sites = sites;
            all.processes.merge(file.processes);
        }
    }
    const std::set<ProcessKey> callers = find_callers();
    for (auto at = files.begin(); at != files.end();) {
        SlicedFile& file = at->second;
        std::set<ProcessKey> others = others_of(file.sites, callers);
        const std::set<ProcessKey> sliced = processes_of(file);
        for (const ProcessKey& process : sliced) others.erase(process);
        std::string why;
        if (others.size() > max_others || unknown_.size() == max_unknown)
            why = std::to_string(others.size()) + " other processes call through the same library, which is too many";
        for (const ProcessKey& other : others)
            if (other.pid == INGERO_PID_OUTSIDE) why = "a process outside ingerod's PID namespace calls too";
        if (why.empty()) {
            for (const ProcessKey& other : others) file.processes.insert(own_link(other));
            ++at;
        } else {
            for (const ProcessKey& process : sliced) why_not_[process] = why;
            at = files.erase(at);
        }
    }
    return files;
}

// False where there is no thread to do it.
bool Slices::apply(const Files& files) {
    if (files.empty() && !thread_) return true;
    std::string trouble;
    try {
        if (!thread_) {
            thread_ = std::make_unique<SliceThread>(slice_);
            thread_->set_share(permille_);
        }
        std::vector<SlicedFile> list;
        for (const auto& [sites, file] : files) list.push_back(file);
        number_ = thread_->set(std::move(list));
        trouble = thread_->figures().trouble;
    } catch (const std::system_error& error) {
        trouble = error.what();
    }
    if (!trouble.empty())
        if (const auto more = trouble_log_.take())
            spdlog::warn("cannot attach to hot functions in slices, trying again: {}{}", escape_text(trouble), *more);
    return thread_ != nullptr;
}

Slices::Sliced Slices::sliced_in(const Files& files) {
    Sliced sliced;
    for (const auto& [sites, file] : files)
        for (const OwnLink& one : file.processes)
            if (!one.sliced.empty()) sliced[one.process].insert(one.sliced.begin(), one.sliced.end());
    return sliced;
}

bool Slices::is_applied(uint64_t number) const {
    if (!thread_) return true;
    const SliceThread::Figures figures = thread_->figures();
    return number <= figures.applied && figures.trouble.empty();
}

void Slices::report_gaps(const Sliced& sliced) {
    for (const auto& [process, ops] : sliced) {
        const auto known = reported_.find(process);
        const bool is_new = known == reported_.end() && leaving_.erase(process) == 0;
        if (!is_new && known != reported_.end() && known->second == ops) continue;
        processes_.in_slices(process, {});
        processes_.in_slices(process, names_of(ops));
        if (is_new)
            spdlog::info(
                "process {} calls so often that tracing it exceeds the overhead budget; recorded in slices: {}",
                process.pid, names_of(ops));
    }
    for (const auto& [process, ops] : reported_)
        if (!sliced.contains(process)) leaving_[process] = number_;
    reported_ = sliced;
    std::erase_if(leaving_, [this](const auto& one) {
        if (!is_applied(one.second)) return false;
        processes_.in_slices(one.first, {});
        spdlog::info("process {}: all calls are recorded again", one.first.pid);
        return true;
    });
}

// A process that began to call after the file's functions were no longer attached to for all.
void Slices::report_late(const Files& files) {
    std::erase_if(late_, [this](const auto& one) {
        if (!is_applied(one.second)) return false;
        processes_.is_attached(one.first, monotonic_now_ns());
        return true;
    });
    if (files_.empty()) return;
    const std::set<ProcessKey> callers = find_callers();
    for (const auto& [sites, before] : files_) {
        const std::set<ProcessKey> known = processes_of(before);
        const auto now = files.find(sites);
        const auto others = now != files.end() ? processes_of(now->second) : others_of(sites, callers);
        for (const ProcessKey& process : others)
            if (!known.contains(process) && late_.emplace(process, number_).second)
                processes_.is_late(process, last_tick_ns_);
    }
}

std::optional<Slices::Stage> Slices::stage_of(const ProcessKey& process) const {
    Stage stage;
    if (const auto sliced = reported_.find(process); sliced != reported_.end()) stage.ops = sliced->second;
    if (const auto why = why_not_.find(process); why != why_not_.end()) stage.why_not = why->second;
    if (stage.ops.empty() && stage.why_not.empty()) return std::nullopt;
    if (!stage.ops.empty()) {
        if (thread_) stage.share = thread_->figures().share;
        stage.count_error = control_.error_of(process);
    }
    return stage;
}

}  // namespace ingero
