#include "daemon/ingerod/libraries.h"

#include <errno.h>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "core/model/time.h"
#include "core/render/render.h"
#include "daemon/ingerod/shortage.h"

namespace ingero {

using nlohmann::json;

namespace {

/// A host may have many copies of a library (one a container image); more from one user is an attack or a mistake.
constexpr unsigned max_libraries_a_uid = 64;
/// All functions of some 50 copies of the runtime, or of 30 of the driver, which has most.
constexpr size_t max_sites_a_uid = 4'096;
/// New files of one user: so many at once, and then one a period. Copies that come and go cost reading and attaching.
constexpr uint64_t attach_burst = 64;
constexpr uint64_t attach_period_ns = 2'000'000'000;
constexpr size_t max_name_bytes = 64;
constexpr uint64_t settle_us = 10'000;
constexpr uint64_t retry_us = 100'000;
constexpr unsigned max_attempts = 10;
/// And of those without end: each 13 s.
constexpr unsigned max_attempts_later = 7;
/// The next program that maps it finds it attached to.
constexpr uint64_t disuse_us = 600'000'000;
/// Where it may lie on a mount that somebody wants to take away. Doubled while processes map it that are not known.
constexpr uint64_t short_disuse_us = 3'000'000;

constexpr const char* root_paths[] = {"/proc/1/root", "/proc/1/root/usr"};

bool same_time(const timespec& a, const timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool same_file(const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size && same_time(a.st_mtim, b.st_mtim) &&
           same_time(a.st_ctim, b.st_ctim);
}

/// The mount of the host's root, or of its /usr. Probes keep a reference to the mount that they were attached by.
bool is_on_root_mount(int fd) {
    struct statx file {};
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &file) != 0) return false;
    return std::any_of(std::begin(root_paths), std::end(root_paths), [&](const char* path) {
        struct statx root {};
        return statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_MNT_ID, &root) == 0 &&
               (root.stx_mask & file.stx_mask & STATX_MNT_ID) != 0 && root.stx_mnt_id == file.stx_mnt_id;
    });
}

/// What one version of the runtime has and others do not: a program does not say which one it was linked with.
constexpr std::array runtime_marks = {"cudaGetDeviceProperties_v2", "cudaMemPrefetchBatchAsync"};

/// 0 where nothing tells.
unsigned major_inside(const std::vector<FunctionSymbol>& symbols) {
    const auto has = [&](std::string_view name) {
        return std::any_of(symbols.begin(), symbols.end(), [&](const auto& symbol) { return symbol.name == name; });
    };
    if (has(runtime_marks[1])) return 13;
    return has(runtime_marks[0]) ? 12 : 0;
}

}  // namespace

std::vector<FunctionSymbol> to_function_symbols(const json& answer) {
    std::vector<FunctionSymbol> symbols;
    for (const json& one : answer.at("functions")) {
        FunctionSymbol symbol{.name = one.at("name"),
                              .file_offset = one.at("offset"),
                              .size = one.at("size"),
                              .emulated = one.at("emulated"),
                              .code = one.at("code").get<std::vector<uint8_t>>()};
        if (symbol.code.empty()) throw std::invalid_argument("a function without code");
        symbols.push_back(std::move(symbol));
    }
    return symbols;
}

bool is_as_read(int fd, const struct stat& read_as, std::span<const ProbeSite> sites) {
    struct stat now {};
    if (fstat(fd, &now) != 0 || !same_file(now, read_as)) return false;
    return std::all_of(sites.begin(), sites.end(), [fd](const ProbeSite& site) {
        std::vector<uint8_t> bytes(site.code.size());
        const ssize_t got = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(site.file_offset));
        return got == static_cast<ssize_t>(bytes.size()) && bytes == site.code;
    });
}

Libraries::Libraries(EventLoop& loop, const ProcFs& proc, CallProbes& probes, WorkerPool& workers, Callbacks callbacks)
    : loop_(loop), proc_(proc), probes_(probes), workers_(workers), callbacks_(std::move(callbacks)) {
    watch_.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!watch_) {
        spdlog::warn("{}: a library that is rewritten in place is not noticed", errno_message("inotify_init1", errno));
        return;
    }
    watch_source_ = loop_.add_io(watch_.get(), EPOLLIN, [this](uint32_t) { read_watch(); });
    loop_.make_urgent(watch_source_);
}

Libraries::~Libraries() {
    *alive_ = false;
}

const LibraryEntry* Libraries::find(FileId id) const {
    const auto found = entries_.find(id);
    return found == entries_.end() ? nullptr : &found->second;
}

bool Libraries::settled() const {
    return std::none_of(entries_.begin(), entries_.end(), [](const auto& entry) {
        return entry.second.state == LibraryState::reading && entry.second.attempts == 0;
    });
}

void Libraries::clear() {
    while (!entries_.empty()) forget(entries_.begin());
    budgets_.clear();
}

void Libraries::forget(std::map<FileId, LibraryEntry>::iterator entry) {
    if (const auto budget = budgets_.find(entry->second.uid); budget != budgets_.end() && budget->second.attached != 0)
        --budget->second.attached;
    unwatch(entry->second);
    detach(entry->second);
    entries_.erase(entry);
}

void Libraries::detach(LibraryEntry& entry) {
    if (!entry.attached) return;
    if (const auto budget = budgets_.find(entry.uid); budget != budgets_.end())
        budget->second.sites -= std::min(budget->second.sites, entry.attached->sites());
    entry.attached.reset();
}

bool Libraries::may_take_sites(uint32_t uid, size_t count) const {
    const auto budget = budgets_.find(uid);
    return uid == 0 || (budget == budgets_.end() ? 0 : budget->second.sites) + count <= max_sites_a_uid;
}

// An inode and no mount is held by this, so that a container's file system can go.
void Libraries::watch(FileId id, LibraryEntry& entry, int fd) {
    if (!watch_) return;
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    entry.watch = inotify_add_watch(watch_.get(), path.c_str(), IN_MODIFY);
    if (entry.watch >= 0) watched_[entry.watch] = id;
}

void Libraries::unwatch(LibraryEntry& entry) {
    if (entry.watch < 0) return;
    watched_.erase(entry.watch);
    inotify_rm_watch(watch_.get(), std::exchange(entry.watch, -1));
}

void Libraries::read_watch() {
    alignas(inotify_event) std::array<char, 16384> buffer;
    ssize_t got = 0;
    while ((got = read(watch_.get(), buffer.data(), buffer.size())) > 0) {
        for (size_t at = 0; at + sizeof(inotify_event) <= static_cast<size_t>(got);) {
            inotify_event event;
            memcpy(&event, buffer.data() + at, sizeof(event));
            at += sizeof(event) + event.len;
            const auto watched = watched_.find(event.wd);
            if (watched != watched_.end() && event.mask & IN_MODIFY) on_rewritten(watched->second);
            // Which ones were dropped is not known.
            if (event.mask & IN_Q_OVERFLOW)
                while (!watched_.empty()) on_rewritten(watched_.begin()->second);
        }
    }
}

// Its probes lie in what was: whoever maps it from now on would get them in the wrong place.
void Libraries::on_rewritten(FileId id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    LibraryEntry& entry = found->second;
    unwatch(entry);
    if (entry.state == LibraryState::reading) return;  // attach() sees it
    spdlog::warn("{} is rewritten in place: detached, to be read anew", escape_text(entry.path));
    detach(entry);
    entry.state = LibraryState::reading;
    callbacks_.on_let_go(id);
    if (++entry.attempts >= max_attempts) return failed(id, "it is rewritten in place again and again", false);
    entry.retry_timer = loop_.add_timer(
        retry_us << entry.attempts, [this, id] { find_again(id); }, settle_us);
    callbacks_.on_change();
}

// Descriptors or memory are used up: not the file's fault, and nothing is held meanwhile.
void Libraries::later(FileId id, const Error& why) {
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.state != LibraryState::reading) return;
    LibraryEntry& entry = found->second;
    if (entry.attempts == 0)
        spdlog::warn("{} is tried again later: {}", escape_text(entry.path), escape_text(why.message));
    entry.attempts = std::min(entry.attempts + 1, max_attempts_later);
    entry.retry_timer = loop_.add_timer(
        retry_us << entry.attempts, [this, id] { find_again(id); }, settle_us);
    callbacks_.on_change();
}

void Libraries::find_again(FileId id) {
    const auto busy = [](const auto& fd) { return !fd && fd.error().code == ErrorCode::busy; };
    if (!can_open_files()) return later(id, {ErrorCode::busy, "no descriptor is left", ""});
    for (const uint32_t pid : proc_.pids())
        for (const Mapping& mapping : proc_.executable_mappings(pid)) {
            if (mapping.file != id) continue;
            auto fd = proc_.open_mapped_file(pid, mapping);
            if (fd) return request_symbols(id, std::make_shared<UniqueFd>(std::move(*fd)));
            if (busy(fd)) return later(id, fd.error());
        }
    // Nobody maps it any more: the next who does has it read.
    if (const auto found = entries_.find(id); found != entries_.end()) forget(found);
    callbacks_.on_change();
}

// Empty where it may be attached to.
std::string Libraries::why_not(Budget& budget, uint32_t uid) const {
    if (uid == 0) return {};
    if (budget.attached >= max_libraries_a_uid)
        return "user " + std::to_string(uid) + " has more than " + std::to_string(max_libraries_a_uid) +
               " copies of GPU libraries mapped";
    if (!budget.rate.take(monotonic_now_ns()))
        return "user " + std::to_string(uid) + " maps new copies of GPU libraries too fast";
    return {};
}

Libraries::Sight Libraries::see(uint32_t pid, uint32_t uid, const Mapping& mapping, TracedFile file) {
    const FileId id = mapping.file;
    if (const LibraryEntry* known = find(id)) return {.entry = known, .refused = {}};
    Budget& budget = budgets_.try_emplace(uid, Budget{0, 0, {attach_burst, attach_period_ns}}).first->second;
    if (std::string why = why_not(budget, uid); !why.empty()) return {.refused = std::move(why)};
    auto fd = proc_.open_mapped_file(pid, mapping);
    // Gone meanwhile is no failure: the next process that maps the file tries again.
    if (!fd && fd.error().code == ErrorCode::not_found) return {.refused = {}, .gone = true};
    const bool shortage = !fd && fd.error().code == ErrorCode::busy;
    if (!fd && !shortage) return {.refused = fd.error().message};
    budget.attached++;
    LibraryEntry& entry = entries_[id];
    entry.file = file;
    entry.path = mapping.path;
    entry.uid = uid;
    if (shortage)
        later(id, fd.error());
    else
        request_symbols(id, std::make_shared<UniqueFd>(std::move(*fd)));
    return {.entry = find(id), .refused = {}};
}

void Libraries::request_symbols(FileId id, std::shared_ptr<UniqueFd> held) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    LibraryEntry& entry = found->second;
    const int raw = held->get();
    if (fstat(raw, &entry.read_as) != 0) return failed(id, errno_message("fstat", errno), true);
    entry.on_root_mount = is_on_root_mount(raw);
    std::vector<std::string> wanted = symbol_names(entry.file.library);
    if (entry.file.is_program) wanted.insert(wanted.end(), runtime_marks.begin(), runtime_marks.end());
    const json params = {{"wanted", std::move(wanted)}, {"static", entry.file.is_program}};
    workers_.request(file_user(entry.uid), "symbols", params, raw,
                     [this, id, held, alive = alive_](Result<json> answer) {
                         if (!*alive) return;
                         if (answer) return attach(id, held, *answer);
                         const ErrorCode code = answer.error().code;
                         // The file itself is to blame, and so whoever mapped it: no matter for anybody else.
                         if (code == ErrorCode::corrupt || code == ErrorCode::limit)
                             failed(id, answer.error().message, false);
                         else
                             retry(id, held, answer.error(), true);
                     });
}

// The workers are busy, one was killed, or the file is being written: it is asked for again, ever later.
void Libraries::retry(FileId id, std::shared_ptr<UniqueFd> fd, const Error& why, bool ours) {
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.state != LibraryState::reading) return;
    LibraryEntry& entry = found->second;
    const bool first = ++entry.attempts == 1;
    if (entry.attempts >= max_attempts) return failed(id, why.message, ours);
    entry.retry_timer = loop_.add_timer(
        retry_us << entry.attempts, [this, id, fd] { request_symbols(id, fd); }, settle_us);
    if (first) callbacks_.on_change();
}

void Libraries::attach(FileId id, std::shared_ptr<UniqueFd> fd, const json& answer) {
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.state != LibraryState::reading) return;
    LibraryEntry& entry = found->second;
    std::vector<ProbeSite> sites;
    try {
        for (const json& name : answer.at("misplaced"))
            entry.misplaced.insert(name.get<std::string>().substr(0, max_name_bytes));
        const std::vector<FunctionSymbol> symbols = to_function_symbols(answer);
        const unsigned major = entry.file.is_program ? major_inside(symbols) : library_major(entry.path);
        sites = probe_sites(entry.file.library, major, symbols);
        entry.symbols = summarize_symbols(entry.file.library, symbols);
    } catch (const std::exception& problem) {
        return failed(id, std::string("a worker's answer about symbols makes no sense: ") + problem.what(), true);
    }
    for (const std::string& name : entry.misplaced)
        spdlog::warn("{} of {} points inside a function: not attached to", escape_text(name), escape_text(entry.path));
    if (sites.empty()) return failed(id, "it exports none of the wanted functions", false);
    const Error changed{ErrorCode::busy, "it changes while it is read", ""};
    if (!is_as_read(fd->get(), entry.read_as, sites)) return retry(id, fd, changed, false);
    entry.sets.clear();
    for (const ProbeSite& site : sites) entry.sets[probe_set_of(site.op)]++;
    std::erase_if(sites, [this](const ProbeSite& site) { return callbacks_.off(probe_set_of(site.op)); });
    if (!may_take_sites(entry.uid, sites.size()))
        return failed(id,
                      "user " + std::to_string(entry.uid) + " has probes in as many functions as are allowed, " +
                          std::to_string(max_sites_a_uid),
                      false);
    if (!sites.empty()) {
        watch(id, entry, fd->get());
        auto attached = probes_.attach(fd->get(), sites);
        if (!attached && attached.error().code == ErrorCode::busy) {
            unwatch(entry);
            return later(id, attached.error());
        }
        if (!attached) return failed(id, attached.error().message, true);
        // Once more: what was written meanwhile is what the probes now lie in.
        if (!is_as_read(fd->get(), entry.read_as, sites)) {
            attached->reset();
            unwatch(entry);
            return retry(id, fd, changed, false);
        }
        entry.attached = std::move(*attached);
        if (const auto budget = budgets_.find(entry.uid); budget != budgets_.end())
            budget->second.sites += sites.size();
    }
    entry.state = LibraryState::attached;
    entry.functions.clear();
    for (const ProbeSite& site : sites) entry.functions[site.op]++;
    entry.stepped = static_cast<size_t>(
        std::count_if(sites.begin(), sites.end(), [](const ProbeSite& site) { return !site.emulated; }));
    spdlog::info("attached to {} functions of {} ({}{})", sites.size(), escape_text(entry.path),
                 to_string(probes_.method()),
                 entry.stepped ? ", " + std::to_string(entry.stepped) + " of them single-stepped" : std::string());
    callbacks_.on_settled(id);
    callbacks_.on_change();
}

void Libraries::failed(FileId id, const std::string& reason, bool degrades) {
    const auto found = entries_.find(id);
    // The answer to an earlier question, from before all libraries were let go and found anew.
    if (found == entries_.end() || found->second.state != LibraryState::reading) return;
    found->second.state = LibraryState::failed;
    found->second.reason = reason;
    found->second.degrades = degrades;
    spdlog::error("cannot trace {}: {}", escape_text(found->second.path), escape_text(reason));
    callbacks_.on_settled(id);
    callbacks_.on_change();
}

// Containers come and go, each with its own copy of a library: one that nobody maps any more is let go after a while.
void Libraries::watch_for_disuse(FileId id) {
    const auto library = entries_.find(id);
    if (library == entries_.end()) return;
    LibraryEntry& entry = library->second;
    const uint64_t after_us = entry.on_root_mount ? disuse_us : short_disuse_us;
    if (!entry.disuse_timer.active() || entry.disuse_us > after_us) start_disuse_timer(id, entry, after_us);
}

void Libraries::start_disuse_timer(FileId id, LibraryEntry& entry, uint64_t after_us) {
    entry.disuse_us = after_us;
    entry.disuse_timer = loop_.add_timer(
        after_us, [this, id] { on_disuse(id); }, settle_us);
}

void Libraries::on_disuse(FileId id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    LibraryEntry& entry = found->second;
    const uint64_t waited_us = entry.disuse_us;
    entry.disuse_timer.reset();
    if (entry.state == LibraryState::reading) return watch_for_disuse(id);
    if (callbacks_.in_use(id)) return;
    if (is_mapped(id)) return start_disuse_timer(id, entry, std::min(2 * waited_us, disuse_us));
    spdlog::info("no process maps {} any more: detached", escape_text(entry.path));
    forget(found);
    callbacks_.on_change();
}

// A forked child maps what its parent did without a record of it: so all are asked.
bool Libraries::is_mapped(FileId id) const {
    for (const uint32_t pid : proc_.pids())
        for (const Mapping& mapping : proc_.executable_mappings(pid))
            if (mapping.file == id) return true;
    return false;
}

}  // namespace ingero
