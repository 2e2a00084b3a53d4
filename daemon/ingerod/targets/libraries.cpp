#include "daemon/ingerod/targets/libraries.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "core/model/time.h"
#include "core/render/render.h"
#include "core/store/rows/state_names.h"
#include "daemon/ingerod/stacks/file_answer.h"

namespace ingero {

using nlohmann::json;

namespace {

/// New files of one user: so many at once, and then one a period. Copies that come and go cost reading and attaching.
constexpr uint64_t attach_burst = 64;
constexpr uint64_t attach_period_ns = 2'000'000'000;
/// To see whose the file is, it is opened.
constexpr uint64_t look_burst = 256;
constexpr uint64_t look_period_ns = 50'000'000;
constexpr size_t max_name_bytes = 64;
constexpr uint64_t settle_us = 10'000;
constexpr uint64_t retry_us = 100'000;
constexpr unsigned max_attempts = 10;
/// And of those without end: each 13 s.
constexpr unsigned max_attempts_later = 7;

constexpr const char* root_paths[] = {"/proc/1/root", "/proc/1/root/usr"};

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

/// 0 where no symbol shows it.
unsigned major_inside(const std::vector<FunctionSymbol>& symbols) {
    const auto has = [&](std::string_view name) {
        return std::any_of(symbols.begin(), symbols.end(), [&](const auto& symbol) { return symbol.name == name; });
    };
    if (has(runtime_marks[1])) return 13;
    return has(runtime_marks[0]) ? 12 : 0;
}

Error file_held_up() {
    return {ErrorCode::busy, "its file system does not answer", ""};
}

Error changed_meanwhile() {
    return {ErrorCode::busy, "it changed while it was read", ""};
}

}  // namespace

std::vector<FunctionSymbol> to_function_symbols(const json& answer) {
    std::vector<FunctionSymbol> symbols;
    for (const json& one : answer.at("functions")) {
        FunctionSymbol symbol{.name = one.at("name"),
                              .file_offset = one.at("offset"),
                              .size = one.at("size"),
                              .emulated = one.at("emulated"),
                              .code = one.at("code").get<std::vector<uint8_t>>(),
                              .jumps_to = one.at("jumps_to")};
        if (symbol.code.empty()) throw std::invalid_argument("a function without code");
        symbols.push_back(std::move(symbol));
    }
    return symbols;
}

Libraries::Libraries(EventLoop& loop, const ProcFs& proc, Attacher attacher, WorkerPool& workers,
                     const UidOwners& owners, Callbacks callbacks, const DisuseTimes& disuse)
    : loop_(loop),
      proc_(proc),
      method_(std::move(attacher.method)),
      real_file_of_(std::move(attacher.real_file_of)),
      attacher_(std::in_place, loop, std::move(attacher.attach)),
      workers_(workers),
      owners_(owners),
      callbacks_(std::move(callbacks)),
      looks_(look_burst, look_period_ns),
      arrivals_(attach_burst, attach_period_ns),
      disuse_(disuse) {
    watch_.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!watch_) {
        spdlog::warn("{}: ingerod will not notice when a library is rewritten in place",
                     errno_message("inotify_init1", errno));
        return;
    }
    watch_source_ = loop_.add_io(watch_.get(), EPOLLIN, [this](uint32_t) { read_watch(); });
    loop_.make_urgent(watch_source_);
}

Libraries::~Libraries() {
    *alive_ = false;
    stop();
}

const LibraryEntry* Libraries::find(const LibraryKey& key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
}

bool Libraries::settled() const {
    return std::none_of(entries_.begin(), entries_.end(), [](const auto& entry) {
        return entry.second.state == LibraryState::reading && entry.second.attempts == 0;
    });
}

void Libraries::clear() {
    walk_.stop();
    search_timer_.reset();
    search_ = {};
    next_search_ = {};
    for (auto& [key, entry] : entries_) entry.borrows = false;
    while (!entries_.empty()) forget(entries_.begin());
    looks_ = {look_burst, look_period_ns};
    arrivals_ = {attach_burst, attach_period_ns};
}

// That a session ends says that all are detached.
void Libraries::stop() {
    callbacks_.put_state = [](StateRow) {};
    clear();
    attacher_.reset();
}

void Libraries::forget(Entries::iterator entry) {
    copies_.give_back(entry->second.payer, 1);
    unwatch(entry->first, entry->second);
    detach(entry->second);
    const FileId real = entry->second.real;
    next_search_.again.erase(entry->first);
    next_search_.unused.erase(entry->first);
    entries_.erase(entry);
    reread_borrowers(real);
}

void Libraries::detach(LibraryEntry& entry) {
    const bool had_probes = entry.attached && entry.state == LibraryState::attached;
    sites_.give_back(entry.payer, std::exchange(entry.sites, 0));
    entry.attaching = {};
    if (entry.attached) attacher_->detach(std::move(entry.attached));
    entry.places.clear();
    if (had_probes) put_state(entry, "detached");
}

void Libraries::put_state(const LibraryEntry& entry, std::string_view state) {
    constexpr size_t max_text_bytes = 512;  // what a user makes of it takes others' room
    StateRow row{.time_ns = monotonic_now_ns(), .source = std::string(library_source), .values = {}};
    row.values = {{std::string(library_uid), entry.payer},
                  {std::string(library_is_systems), entry.is_system_wide() ? 1 : 0}};
    row.texts = {{std::string(library_path), entry.path.substr(0, max_text_bytes)},
                 {"library", std::string(to_string(entry.file.library))},
                 {"state", std::string(state)},
                 {"build_id", entry.build_id},
                 {"reason", entry.reason.substr(0, max_text_bytes)}};
    if (state == "attached") {
        row.values.emplace_back("functions", entry.sites);
        row.values.emplace_back("single_stepped", entry.stepped);
        row.texts.emplace_back("method", method_);
    }
    callbacks_.put_state(std::move(row));
}

// Two names of one file, of which one is a user's own or another container's: a function has one probe, or its calls
// would be recorded twice, and cost as much.
std::set<uint64_t> Libraries::places_of_others(const LibraryKey& key) const {
    const FileId real = entries_.at(key).real;
    std::set<uint64_t> places;
    for (const auto& [other, entry] : entries_)
        if (other != key && entry.real == real) places.insert(entry.places.begin(), entry.places.end());
    return places;
}

// The probes that they went without are gone.
void Libraries::reread_borrowers(FileId real) {
    for (auto& [key, entry] : entries_)
        if (entry.real == real && entry.borrows && (entry.state == LibraryState::attached || entry.attaching))
            reread(key, entry);
}

void Libraries::reread(const LibraryKey& key, LibraryEntry& entry) {
    unwatch(key, entry);
    const bool had_probes = entry.attached != nullptr;
    detach(entry);
    entry.borrows = false;
    entry.state = LibraryState::reading;
    callbacks_.on_let_go(key);
    if (had_probes) callbacks_.on_missed(key);
    entry.retry_timer = loop_.add_timer(
        retry_us << entry.attempts, [this, key] { find_again(key); }, settle_us);
}

// What root put there is root's, whoever maps it first: so nobody's share decides whether others' calls are seen. Not
// where a user may have mounted what they made, as removable media: there even set-user-ID means nothing.
std::optional<Result<Libraries::FileFacts>> Libraries::facts_of(FileId file, uint32_t owner,
                                                                const std::shared_ptr<UniqueFd>& fd) const {
    return proc_.ask_of_file(file, owner, [fd, real_file_of = real_file_of_]() -> Result<FileFacts> {
        FileFacts facts;
        struct statfs mount {};
        if (fstat(fd->get(), &facts.stat) != 0) return fail(ErrorCode::internal, errno_message("fstat", errno));
        const bool has_mount = fstatfs(fd->get(), &mount) == 0;
        facts.is_roots = facts.stat.st_uid == 0 && has_mount && (mount.f_flags & ST_NOSUID) == 0;
        facts.on_root_mount = is_on_root_mount(fd->get());
        if (has_mount && mount.f_type == OVERLAYFS_SUPER_MAGIC && real_file_of) facts.real = real_file_of(fd->get());
        return facts;
    });
}

std::optional<bool> Libraries::is_still_as_read(const LibraryKey& key, const LibraryEntry& entry,
                                                const std::shared_ptr<UniqueFd>& fd,
                                                const std::vector<ProbeSite>& sites) const {
    return proc_.ask_of_file(key.file, entry.payer,
                             [fd, read_as = entry.read_as, sites] { return is_as_read(fd->get(), read_as, sites); });
}

void Libraries::pay(LibraryEntry& entry, uint32_t payer) {
    copies_.give_back(std::exchange(entry.payer, payer), 1);
    copies_.take(payer, 1);
}

// Whoever was first to map it, or another who does.
bool Libraries::find_payer(const LibraryKey& key, LibraryEntry& entry, size_t sites) {
    if (sites_.may_take(entry.payer, sites)) return true;
    for (const uint32_t uid : callbacks_.uids(key)) {
        const uint32_t user = owners_.owner_of(uid);
        if (user == entry.payer || !copies_.may_take(user, 1) || !sites_.may_take(user, sites)) continue;
        pay(entry, user);
        return true;
    }
    return false;
}

// An inode and no mount is held by this, so that a container's file system can go.
void Libraries::watch(const LibraryKey& key, LibraryEntry& entry, int fd) {
    if (!watch_) return;
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    entry.watch = inotify_add_watch(watch_.get(), path.c_str(), IN_MODIFY);
    if (entry.watch >= 0) watched_[entry.watch].insert(key);
}

void Libraries::unwatch(const LibraryKey& key, LibraryEntry& entry) {
    if (entry.watch < 0) return;
    const auto watched = watched_.find(std::exchange(entry.watch, -1));
    if (watched == watched_.end() || watched->second.erase(key) == 0 || !watched->second.empty()) return;
    inotify_rm_watch(watch_.get(), watched->first);
    watched_.erase(watched);
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
            if (watched != watched_.end() && event.mask & IN_MODIFY)
                for (const std::set<LibraryKey> keys = watched->second; const LibraryKey& key : keys) on_rewritten(key);
            // Which ones were dropped is not known.
            if (event.mask & IN_Q_OVERFLOW)
                while (!watched_.empty()) on_rewritten(*watched_.begin()->second.begin());
        }
    }
}

// Its probes lie in what was: whoever maps it from now on would get them in the wrong place.
void Libraries::on_rewritten(LibraryKey key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    LibraryEntry& entry = found->second;
    unwatch(key, entry);
    if (entry.state == LibraryState::reading) return;  // attach() sees it
    spdlog::warn("{} was rewritten in place: detached, reading it again", escape_text(entry.path));
    ++entry.attempts;
    reread(key, entry);
    if (entry.attempts >= max_attempts) {
        entry.retry_timer.reset();
        return failed(key, "it is rewritten in place again and again", false);
    }
    callbacks_.on_change();
}

// Descriptors or memory are used up, or its server does not answer: not the file's fault, and nothing is held
// meanwhile.
void Libraries::later(const LibraryKey& key, const Error& why) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.state != LibraryState::reading) return;
    LibraryEntry& entry = found->second;
    if (entry.attempts == 0)
        spdlog::warn("cannot attach to {} yet, trying again later: {}", escape_text(entry.path),
                     escape_text(why.message));
    entry.attempts = std::min(entry.attempts + 1, max_attempts_later);
    entry.retry_timer = loop_.add_timer(
        retry_us << entry.attempts, [this, key] { find_again(key); }, settle_us);
    callbacks_.on_change();
}

// Empty where it may be attached to.
std::string Libraries::why_not(uint32_t payer) {
    if (!copies_.may_take(payer, 1))
        return "user " + std::to_string(payer) + " has more than " + std::to_string(copies_.each()) +
               " copies of GPU libraries mapped";
    if (payer != 0 && !arrivals_.take(payer, monotonic_now_ns()))
        return "user " + std::to_string(payer) + " maps new copies of GPU libraries too fast";
    return {};
}

// That somebody had no share left says nothing of the file: it is looked at anew for whoever has.
bool Libraries::may_try_for(const LibraryEntry& entry, uint32_t user) const {
    return entry.state == LibraryState::failed && entry.sites_wanted != 0 &&
           sites_.may_take(user, entry.sites_wanted) && (user == entry.payer || copies_.may_take(user, 1));
}

Libraries::Sight Libraries::see(uint32_t pid, uint32_t uid, const Mapping& mapping, TracedFile file) {
    const LibraryKey key{mapping.file, file};
    const uint32_t user = owners_.owner_of(uid);
    const auto known = entries_.find(key);
    if (known != entries_.end() && !may_try_for(known->second, user)) {
        // The pass that looks for who maps the file may have visited the process before that.
        open_again(pid, mapping);
        return {.entry = &known->second, .refused = {}};
    }
    if (user != 0 && !looks_.take(user, monotonic_now_ns()))
        return {.refused = "user " + std::to_string(user) + " maps files that are named like GPU libraries too fast"};
    auto opened = proc_.open_mapped_file(pid, mapping);
    // Gone meanwhile is no failure: the next process that maps the file tries again.
    if (!opened && opened.error().code == ErrorCode::not_found) return {.refused = {}, .gone = true};
    if (!opened && opened.error().code != ErrorCode::busy) return {.refused = opened.error().message};
    const auto fd = opened ? std::make_shared<UniqueFd>(std::move(*opened)) : nullptr;
    if (known != entries_.end()) {
        if (fd) try_for(key, known->second, user, fd);
        return {.entry = &known->second, .refused = {}};
    }
    const auto facts = fd ? facts_of(key.file, user, fd) : std::nullopt;
    const uint32_t payer = facts && *facts && (*facts)->is_roots ? 0 : user;
    if (std::string why = why_not(payer); !why.empty()) return {.refused = std::move(why)};
    LibraryEntry& entry = entries_[key];
    entry.file = file;
    entry.path = mapping.path;
    entry.real = key.file;
    entry.payer = payer;
    copies_.take(payer, 1);
    if (!fd)
        later(key, opened.error());
    else if (!facts)
        later(key, file_held_up());
    else
        request_symbols(key, fd);
    return {.entry = find(key), .refused = {}};
}

void Libraries::try_for(const LibraryKey& key, LibraryEntry& entry, uint32_t user, std::shared_ptr<UniqueFd> fd) {
    pay(entry, user);
    entry.sites_wanted = 0;
    entry.state = LibraryState::reading;
    entry.reason.clear();
    callbacks_.on_let_go(key);
    request_symbols(key, std::move(fd));
    callbacks_.on_change();
}

void Libraries::request_symbols(const LibraryKey& key, std::shared_ptr<UniqueFd> held) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    LibraryEntry& entry = found->second;
    const auto facts = facts_of(key.file, entry.payer, held);
    if (!facts) return later(key, file_held_up());
    if (!*facts) return failed(key, facts->error().message, true);
    entry.read_as = (*facts)->stat;
    entry.on_root_mount = (*facts)->on_root_mount;
    entry.real = (*facts)->real.value_or(key.file);
    if ((*facts)->is_roots) pay(entry, 0);
    entry.question = ++last_question_;
    std::vector<std::string> wanted = symbol_names(entry.file.library);
    if (entry.file.library == Library::cuda_runtime)
        wanted.insert(wanted.end(), runtime_marks.begin(), runtime_marks.end());
    const json params = {{"wanted", std::move(wanted)}, {"static", entry.file.is_program}};
    workers_.request(file_user(entry.payer), "symbols", params, held->get(),
                     [this, key, held, question = entry.question, alive = alive_](Result<json> answer) {
                         if (!*alive) return;
                         // From before all libraries were let go and found anew.
                         const LibraryEntry* asked = find(key);
                         if (!asked || asked->question != question) return;
                         if (answer) return attach(key, held, *answer);
                         const ErrorCode code = answer.error().code;
                         // The file itself is to blame, and so whoever mapped it: no matter for anybody else.
                         if (code == ErrorCode::corrupt || code == ErrorCode::limit)
                             failed(key, answer.error().message, false);
                         else
                             retry(key, held, answer.error(), true);
                     });
}

// The workers are busy, one was killed, or the file is being written: it is asked for again, ever later.
void Libraries::retry(const LibraryKey& key, std::shared_ptr<UniqueFd> fd, const Error& why, bool ours) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.state != LibraryState::reading) return;
    LibraryEntry& entry = found->second;
    const bool first = ++entry.attempts == 1;
    if (entry.attempts >= max_attempts) return failed(key, why.message, ours);
    entry.retry_timer = loop_.add_timer(
        retry_us << entry.attempts, [this, key, fd] { request_symbols(key, fd); }, settle_us);
    if (first) callbacks_.on_change();
}

void Libraries::attach(const LibraryKey& key, std::shared_ptr<UniqueFd> fd, const json& answer) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.state != LibraryState::reading) return;
    LibraryEntry& entry = found->second;
    std::vector<ProbeSite> sites;
    try {
        for (const json& name : answer.at("misplaced"))
            entry.misplaced.insert(name.get<std::string>().substr(0, max_name_bytes));
        const std::vector<FunctionSymbol> symbols = to_function_symbols(answer);
        // Rather than by the name, which may be of a user's choice.
        const unsigned inside = major_inside(symbols);
        const unsigned major = inside != 0 || entry.file.is_program ? inside : library_major(entry.path);
        sites = probe_sites(entry.file.library, major, symbols);
        entry.symbols = summarize_symbols(entry.file.library, symbols);
        entry.build_id = checked_build_id(answer.at("build_id"));
    } catch (const std::exception& problem) {
        return failed(key, std::string("a worker's answer about symbols is invalid: ") + problem.what(), true);
    }
    for (const std::string& name : entry.misplaced)
        spdlog::warn("{} of {} points inside a function: no probe attached to it", escape_text(name),
                     escape_text(entry.path));
    if (sites.empty()) return failed(key, "none of the functions that ingerod probes is in its symbol table", false);
    const auto unchanged = is_still_as_read(key, entry, fd, sites);
    if (!unchanged) return later(key, file_held_up());
    if (!*unchanged) return retry(key, fd, changed_meanwhile(), false);
    entry.sets.clear();
    for (const ProbeSite& site : sites) entry.sets[probe_set_of(site.op)]++;
    std::erase_if(sites, [this](const ProbeSite& site) { return callbacks_.off(probe_set_of(site.op)); });
    const std::set<uint64_t> taken = places_of_others(key);
    entry.borrows = std::erase_if(sites, [&](const ProbeSite& site) { return taken.contains(site.file_offset); }) != 0;
    if (!find_payer(key, entry, sites.size())) {
        entry.sites_wanted = sites.size();
        return failed(key,
                      "user " + std::to_string(entry.payer) + " has reached its limit of probed functions, " +
                          std::to_string(sites_.each()),
                      false);
    }
    if (!sites.empty() || entry.borrows) watch(key, entry, fd->get());
    // Also where others have all: only when theirs are there are its calls seen.
    entry.sites = sites.size();
    sites_.take(entry.payer, entry.sites);
    for (const ProbeSite& site : sites) entry.places.insert(site.file_offset);
    entry.attaching = {};
    entry.attaching = attacher_->attach(fd, sites, [this, key, fd, sites, watched = entry.watch >= 0](auto attached) {
        on_attached(key, fd, sites, watched, std::move(attached));
    });
}

// Called for an entry that is still attached to.
void Libraries::on_attached(const LibraryKey& key, const std::shared_ptr<UniqueFd>& fd, std::vector<ProbeSite> sites,
                            bool watched, Result<std::unique_ptr<AttachedLibrary>> attached) {
    LibraryEntry& entry = entries_.at(key);
    entry.attaching = {};
    if (!attached) {
        give_back(entry);
        if (attached.error().code != ErrorCode::busy) return failed(key, attached.error().message, true);
        unwatch(key, entry);
        return later(key, attached.error());
    }
    entry.attached = std::move(*attached);
    // Once more: what was written meanwhile is what the probes now lie in.
    const bool rewritten = watched && entry.watch < 0;
    if (const auto still = is_still_as_read(key, entry, fd, sites); rewritten || !still || !*still) {
        callbacks_.on_missed(key);
        give_back(entry);
        unwatch(key, entry);
        return rewritten || still ? retry(key, fd, changed_meanwhile(), false) : later(key, file_held_up());
    }
    settle(key, entry, sites);
}

void Libraries::give_back(LibraryEntry& entry) {
    detach(entry);
    reread_borrowers(entry.real);
}

void Libraries::settle(const LibraryKey& key, LibraryEntry& entry, const std::vector<ProbeSite>& sites) {
    entry.state = LibraryState::attached;
    entry.functions.clear();
    for (const ProbeSite& site : sites) entry.functions[site.op]++;
    entry.stepped = static_cast<size_t>(
        std::count_if(sites.begin(), sites.end(), [](const ProbeSite& site) { return !site.emulated; }));
    spdlog::info("attached to {} functions of {} ({}{})", sites.size(), escape_text(entry.path), method_,
                 entry.stepped ? ", " + std::to_string(entry.stepped) + " of them single-stepped" : std::string());
    put_state(entry, "attached");
    callbacks_.on_settled(key);
    callbacks_.on_change();
}

void Libraries::failed(const LibraryKey& key, const std::string& reason, bool degrades) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.state != LibraryState::reading) return;
    found->second.state = LibraryState::failed;
    found->second.reason = reason;
    found->second.degrades = degrades;
    put_state(found->second, "failed");
    spdlog::error("cannot trace {}: {}", escape_text(found->second.path), escape_text(reason));
    callbacks_.on_settled(key);
    callbacks_.on_change();
}

}  // namespace ingero
