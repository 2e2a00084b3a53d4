#include "daemon/ingerod/discovery/proc_fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "daemon/ingerod/discovery/proc_file.h"
#include "daemon/ingerod/limits/shortage.h"

namespace ingero {

namespace {

/// Whoever makes control groups may give them long names.
constexpr size_t max_cgroup = 64 << 10;

Error held_up() {
    return {ErrorCode::busy, "reading its mount table did not finish in time", ""};
}

template <class T>
bool take_number(std::string_view& text, T& value, int base = 10) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
}

bool take_char(std::string_view& text, char expected) {
    if (text.empty() || text.front() != expected) return false;
    text.remove_prefix(1);
    return true;
}

void skip_spaces(std::string_view& text) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
}

template <class F>
void for_each_line(std::string_view text, F&& visit) {
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        visit(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

/// "0-3,8": a list as the kernel writes it; empty where there is none.
std::string status_list(std::string_view status, std::string_view key) {
    constexpr size_t longest = 1'024;
    std::string list;
    for_each_line(status, [&](std::string_view line) {
        if (!line.starts_with(key)) return;
        line.remove_prefix(key.size());
        line.remove_prefix(std::min(line.find_first_not_of("\t "), line.size()));
        if (line.size() <= longest && line.find_first_not_of("0123456789,-") == std::string_view::npos) list = line;
    });
    return list;
}

uint32_t status_number(std::string_view status, std::string_view key) {
    uint32_t value = 0;
    for_each_line(status, [&](std::string_view line) {
        if (!line.starts_with(key)) return;
        line.remove_prefix(key.size());
        line.remove_prefix(std::min(line.find_first_not_of("\t "), line.size()));
        take_number(line, value);
    });
    return value;
}

// The unified hierarchy if the process is in a named group of it, else systemd's own (hybrid hosts).
std::string cgroup_path(std::string_view text) {
    std::string unified, systemd;
    for_each_line(text, [&](std::string_view line) {
        if (line.starts_with("0::")) unified = line.substr(3);
        if (const size_t at = line.find(":name=systemd:"); at != std::string_view::npos) systemd = line.substr(at + 14);
    });
    return unified.size() > 1 || systemd.empty() ? unified : systemd;
}

}  // namespace

std::optional<Mapping> parse_maps_line(std::string_view line) {
    Mapping mapping;
    unsigned device_major = 0, device_minor = 0;
    if (!take_number(line, mapping.start, 16) || !take_char(line, '-')) return std::nullopt;
    if (!take_number(line, mapping.end, 16) || !take_char(line, ' ')) return std::nullopt;
    if (line.size() < 5) return std::nullopt;
    mapping.executable = line[2] == 'x';
    line.remove_prefix(4);
    if (!take_char(line, ' ') || !take_number(line, mapping.offset, 16) || !take_char(line, ' ')) return std::nullopt;
    if (!take_number(line, device_major, 16) || !take_char(line, ':')) return std::nullopt;
    if (!take_number(line, device_minor, 16) || !take_char(line, ' ')) return std::nullopt;
    if (!take_number(line, mapping.file.inode)) return std::nullopt;
    skip_spaces(line);
    if (mapping.file.inode == 0 || line.empty() || line.front() != '/') return std::nullopt;
    constexpr std::string_view deleted = " (deleted)";
    mapping.deleted = line.ends_with(deleted);
    if (mapping.deleted) line.remove_suffix(deleted.size());
    mapping.file.device = makedev(device_major, device_minor);
    mapping.path = line;
    return mapping;
}

namespace {

/// Of /proc/PID/stat, numbered as proc(5) does: from the fourth field on.
std::optional<uint64_t> stat_field(std::string_view stat, int number) {
    const size_t command_end = stat.rfind(')');
    if (command_end == std::string_view::npos) return std::nullopt;
    stat.remove_prefix(command_end + 1);
    for (int field = 3; field < number; ++field) {
        skip_spaces(stat);
        stat.remove_prefix(std::min(stat.find(' '), stat.size()));
    }
    skip_spaces(stat);
    uint64_t value = 0;
    return take_number(stat, value) ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<uint64_t> parse_start_time(std::string_view stat) {
    const auto ticks = stat_field(stat, 22);
    if (!ticks) return std::nullopt;
    return *ticks * (1'000'000'000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK)));
}

std::string unit_of_cgroup(std::string_view path) {
    while (!path.empty()) {
        const size_t slash = path.rfind('/');
        const std::string_view last = slash == std::string_view::npos ? path : path.substr(slash + 1);
        if (last.ends_with(".service") || last.ends_with(".scope")) return std::string(last);
        if (slash == std::string_view::npos) break;
        path = path.substr(0, slash);
    }
    return {};
}

ProcFs::ProcFs(std::string root, const BoundedCallsLimits& limits, OwnerOf owner_of)
    : root_(std::move(root)), owner_of_(std::move(owner_of)), calls_(std::make_shared<BoundedCalls>(limits)) {
    // Nobody alone makes others' questions be given up sooner.
    BoundedCallsLimits of_files = limits;
    of_files.late = limits.left_behind_of_users_files + 1;
    file_calls_ = std::make_shared<BoundedCalls>(of_files);
    // The daemon's own leaves out what is kept from it.
    host_mounts_ = std::make_shared<HostMounts>(
        HostMounts{MountTable(root_ + "/1/mountinfo"), MountTable(root_ + "/self/mountinfo")});
}

std::vector<uint32_t> ProcFs::pids() const {
    std::vector<uint32_t> result;
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(root_.c_str()), closedir);
    if (!directory) return result;
    while (const dirent* entry = readdir(directory.get())) {
        std::string_view name = entry->d_name;
        uint32_t pid = 0;
        if (take_number(name, pid) && name.empty()) result.push_back(pid);
    }
    return result;
}

Result<Process> ProcFs::read_process(uint32_t pid) const {
    const std::string directory = root_ + "/" + std::to_string(pid);
    const auto stat = read_stat(pid);
    if (!stat) return tl::unexpected(stat.error());
    const auto start = parse_start_time(*stat);
    if (!start) return fail(ErrorCode::not_found, directory + "/stat: no start time in it");
    const auto status = read_proc_file(directory + "/status");
    if (!status) return tl::unexpected(status.error());
    // /proc has every thread by its number too.
    if (status_number(*status, "Tgid:") != pid) return fail(ErrorCode::not_found, directory + ": a thread");
    Process process;
    process.key = {pid, *start};
    process.uid = status_number(*status, "Uid:");
    process.parent_pid = status_number(*status, "PPid:");
    const size_t open = stat->find('('), close = stat->rfind(')');
    if (open != std::string::npos && close > open) process.comm = stat->substr(open + 1, close - open - 1);
    if (const auto cgroup = read_proc_file(directory + "/cgroup")) process.cgroup = cgroup_path(*cgroup);
    process.unit = unit_of_cgroup(process.cgroup);
    process.cpus_allowed = status_list(*status, "Cpus_allowed_list:");
    process.mems_allowed = status_list(*status, "Mems_allowed_list:");
    return process;
}

ProcessFacts ProcFs::read_facts(const ProcessKey& process, const FactsOptions& options) const {
    // Whoever starts a program may give it megabytes of either.
    constexpr size_t max_environ = 512 << 10, max_cmdline = 16 << 10;
    const std::string directory = root_ + "/" + std::to_string(process.pid);
    ProcessFacts facts;
    if (const auto text = control_groups_of(process.pid)) read_cgroup_facts(*text, facts);
    const auto environ =
        within_bounds(process.pid, [=] { return read_proc_file(directory + "/environ", max_environ); });
    if (environ && *environ) read_environ_facts(**environ, options.environ_allow, facts);
    if (options.command != KeepCommand::comm) {
        // It lies in the process's memory, and that may be a file of whoever.
        const auto text =
            within_bounds(process.pid, [=] { return read_proc_file(directory + "/cmdline", max_cmdline); });
        if (text && *text)
            facts.command = options.command == KeepCommand::full ? join_command(**text) : redact_command(**text);
    }
    if (start_of(process.pid) != process.start_ns) return {};
    return facts;
}

std::vector<uint64_t> ProcFs::sockets_of(const ProcessKey& process) const {
    constexpr size_t max_descriptors = 4'096;
    constexpr std::string_view prefix = "socket:[";
    std::vector<uint64_t> inodes;
    const std::string directory = root_ + "/" + std::to_string(process.pid) + "/fd";
    std::error_code error;
    size_t seen = 0;
    for (std::filesystem::directory_iterator entry(directory, error), end;
         !error && entry != end && seen < max_descriptors; entry.increment(error), ++seen) {
        std::error_code unread;
        const std::string target = std::filesystem::read_symlink(entry->path(), unread).string();
        uint64_t inode = 0;
        if (unread || !target.starts_with(prefix)) continue;
        const char* from = target.data() + prefix.size();
        if (std::from_chars(from, target.data() + target.size(), inode).ec == std::errc()) inodes.push_back(inode);
    }
    if (start_of(process.pid) != process.start_ns) return {};
    return inodes;
}

std::optional<uint64_t> ProcFs::start_of(uint32_t pid) const {
    const auto stat = read_stat(pid);
    return stat ? parse_start_time(*stat) : std::nullopt;
}

bool ProcFs::is_ending(const ProcessKey& process) const {
    constexpr uint64_t exiting = 4;  // PF_EXITING of the kernel
    const auto stat = read_stat(process.pid);
    if (!stat || parse_start_time(*stat) != process.start_ns) return true;
    const auto flags = stat_field(*stat, 9);
    return !flags || (*flags & exiting) != 0;
}

Result<std::string> ProcFs::read_stat(uint32_t pid) const {
    const std::string path = root_ + "/" + std::to_string(pid) + "/stat";
    auto stat = within_bounds(pid, [path] { return read_proc_file(path); });
    if (!stat) return fail(ErrorCode::deadline, path + ": reading it did not finish in time");
    return std::move(*stat);
}

std::optional<uint32_t> ProcFs::user_of(uint32_t pid) const {
    const auto status = read_proc_file(root_ + "/" + std::to_string(pid) + "/status");
    return status ? std::optional(status_number(*status, "Uid:")) : std::nullopt;
}

std::optional<uint32_t> ProcFs::innermost_pid_of(uint32_t pid) const {
    const auto status = read_proc_file(root_ + "/" + std::to_string(pid) + "/status");
    std::optional<uint32_t> innermost;
    if (status)
        for_each_line(*status, [&](std::string_view line) {
            if (!line.starts_with("NSpid:")) return;
            line.remove_prefix(line.find_last_of("\t :") + 1);
            uint32_t number = 0;
            if (take_number(line, number) && line.empty()) innermost = number;
        });
    return innermost;
}

std::optional<std::string> ProcFs::control_groups_of(uint32_t pid) const {
    auto text = read_proc_file(root_ + "/" + std::to_string(pid) + "/cgroup", max_cgroup);
    return text ? std::optional(std::move(*text)) : std::nullopt;
}

Result<struct statx> ProcFs::program_of(uint32_t pid) const {
    // The link leads to the file itself, and nobody is asked who serves it.
    const auto found = within_bounds(
        pid, [link = root_ + "/" + std::to_string(pid) + "/exe"]() -> std::optional<struct statx> {
            struct statx facts {};
            if (statx(AT_FDCWD, link.c_str(), AT_STATX_DONT_SYNC, STATX_INO | STATX_CTIME | STATX_SIZE, &facts) != 0)
                return std::nullopt;
            return facts;
        });
    if (!found) return fail(ErrorCode::deadline, "reading which program it runs did not finish in time");
    if (!*found) return fail(ErrorCode::not_found, "the process is gone");
    return **found;
}

UniqueFd ProcFs::open_pid_namespace(uint32_t pid) const {
    auto opened = within_bounds(pid, [path = root_ + "/" + std::to_string(pid) + "/ns/pid"] {
        return UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    });
    return opened ? std::move(*opened) : UniqueFd();
}

std::optional<FileId> ProcFs::pid_namespace_of(uint32_t pid) const {
    const auto found =
        within_bounds(pid, [path = root_ + "/" + std::to_string(pid) + "/ns/pid"]() -> std::optional<FileId> {
            struct stat status {};
            if (stat(path.c_str(), &status) != 0) return std::nullopt;
            return FileId{status.st_dev, status.st_ino};
        });
    return found.value_or(std::nullopt);
}

std::optional<std::vector<Mapping>> ProcFs::try_executable_mappings(uint32_t pid) const {
    const auto text =
        within_bounds(pid, [path = root_ + "/" + std::to_string(pid) + "/maps"] { return read_proc_file(path); });
    if (!text) return std::nullopt;
    std::vector<Mapping> result;
    if (!*text && text->error().code == ErrorCode::busy) return std::nullopt;
    if (!*text) return result;
    for_each_line(**text, [&](std::string_view line) {
        if (auto mapping = parse_maps_line(line); mapping && mapping->executable) result.push_back(std::move(*mapping));
    });
    return result;
}

std::vector<Mapping> ProcFs::executable_mappings(uint32_t pid) const {
    return try_executable_mappings(pid).value_or(std::vector<Mapping>{});
}

std::optional<Mapping> ProcFs::mapping_at(uint32_t pid, uint64_t address) const {
    const auto text =
        within_bounds(pid, [path = root_ + "/" + std::to_string(pid) + "/maps"] { return read_proc_file(path); });
    std::optional<Mapping> found;
    if (text && *text)
        for_each_line(**text, [&](std::string_view line) {
            if (found) return;
            auto mapping = parse_maps_line(line);
            if (mapping && mapping->start <= address && address < mapping->end) found = std::move(mapping);
        });
    return found;
}

bool ProcFs::has_file_at(uint32_t pid, const std::string& path) const {
    const std::string root = root_ + "/" + std::to_string(pid) + "/root";
    const auto found =
        within_bounds(pid, [root, path = path.substr(std::min(path.find_first_not_of('/'), path.size()))] {
            const UniqueFd folder(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
            open_how how{};
            how.flags = O_PATH | O_CLOEXEC;
            // Who waits for the answer of a folder on FUSE cannot be killed.
            how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH | RESOLVE_CACHED;
            return folder &&
                   UniqueFd(static_cast<int>(syscall(SYS_openat2, folder.get(), path.c_str(), &how, sizeof(how))));
        });
    return found.value_or(false);
}

bool ProcFs::is_trusted(const Mount& fuse) const {
    return std::any_of(trusted_fuse_.begin(), trusted_fuse_.end(), [&](const std::string& pattern) {
        return fnmatch(pattern.c_str(), fuse.path.c_str(), FNM_PATHNAME) == 0;
    });
}

// A user can mount a great deal in a namespace of their own.
std::optional<std::optional<Mount>> ProcFs::find_mount(
    uint32_t pid, std::function<const Mount*(const std::vector<Mount>&)> find) const {
    const std::string path = root_ + "/" + std::to_string(pid) + "/mountinfo";
    return within_bounds(pid, [path, find = std::move(find)] {
        MountTable table(path);
        const Mount* found = find(table.read());
        return found ? std::optional(*found) : std::nullopt;
    });
}

// An engine may have been given its folder by way of a link, and names its layers by it.
std::optional<std::string> ProcFs::hosts_link_at(const std::string& path) const {
    UniqueFd root;
    for (const char* process : {"/1/root", "/self/root"})
        if (!root) root.reset(open((root_ + process).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    open_how how{};
    how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS;
    const UniqueFd link(root ? static_cast<int>(syscall(SYS_openat2, root.get(), path.c_str(), &how, sizeof(how)))
                             : -1);
    std::string target(PATH_MAX, '\0');
    const ssize_t size = link ? readlinkat(link.get(), "", target.data(), target.size()) : -1;
    if (size <= 0) return std::nullopt;
    target.resize(static_cast<size_t>(size));
    return target;
}

Error ProcFs::why_not_mounted(uint32_t pid) const {
    if (!can_open_files()) return {ErrorCode::busy, "no file descriptor is left to read mount tables with", ""};
    if (access((root_ + "/" + std::to_string(pid) + "/stat").c_str(), F_OK) != 0)
        return {ErrorCode::not_found, "the process is gone", ""};
    return {ErrorCode::denied, "its file system is in no mount table, so ingerod cannot know whether it answers",
            "keep the file system mounted that the library was loaded from"};
}

// Asked before opening: even to open such a file may take for ever, and whoever waits for FUSE cannot be killed, so
// that the daemon could not end.
Result<void> ProcFs::check_file_system(uint32_t pid, uint64_t device) const {
    const auto fuse = [](const Mount& mount) {
        return fail(ErrorCode::denied, "it lies on a FUSE file system (" + mount.type + "), which may never answer",
                    "copy the library to a local file system");
    };
    for (MountTable& table : *host_mounts_) {
        const std::vector<Mount>& mounts = table.read();
        const Mount* mount = mount_of_device(mounts, device);
        if (!mount) continue;
        if (is_served_by_a_user(mount->type) && !is_trusted(*mount)) return fuse(*mount);
        if (mount->type != "overlay") return {};
        const auto link_at = [this](const std::string& path) { return hosts_link_at(path); };
        for (const Mount* below : table.fuse_below(*mount, link_at))
            if (!is_trusted(*below))
                return fail(ErrorCode::denied,
                            "it lies on an overlay of a FUSE file system (" + below->type + " at " + below->path +
                                "), which may never answer, and trusted_fuse of ingerod.conf does not name it");
        return {};
    }
    const auto mount = find_mount(pid, [device](const auto& mounts) { return mount_of_device(mounts, device); });
    if (!mount) return tl::unexpected(held_up());
    if (!*mount) return tl::unexpected(why_not_mounted(pid));
    if (is_served_by_a_user((*mount)->type)) return fuse(**mount);
    if ((*mount)->type == "overlay")
        return fail(ErrorCode::denied, "it lies on an overlay that a user mounted, whose layers may never answer",
                    "copy the library to a local file system");
    return {};
}

// Finds and identifies the file without asking whoever serves it.
ProcFs::Place ProcFs::find_range(uint32_t pid, const Mapping& mapping) const {
    char range[64];
    snprintf(range, sizeof(range), "%" PRIx64 "-%" PRIx64, mapping.start, mapping.end);
    auto found = within_bounds(pid, [path = root_ + "/" + std::to_string(pid) + "/map_files/" + range] {
        UniqueFd fd(open(path.c_str(), O_PATH | O_CLOEXEC));
        Place place;
        if (!fd || statx(fd.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS | STATX_MNT_ID,
                         &place.facts) != 0)
            place.error = errno;
        place.fd = std::make_shared<const UniqueFd>(std::move(fd));
        return place;
    });
    return found ? std::move(*found) : Place{.fd = {}, .facts = {}, .error = ETIMEDOUT};
}

// The process may have mapped another file there since: on a file system that nobody looked at.
Result<void> ProcFs::check_place(uint32_t pid, const Mapping& mapping, const struct statx& facts) const {
    const auto another = [&] {
        return fail(ErrorCode::not_found, mapping.path + ": this is not the file that is mapped");
    };
    if (!S_ISREG(facts.stx_mode)) return fail(ErrorCode::not_found, mapping.path + ": not a regular file");
    if (facts.stx_ino != mapping.file.inode) return another();
    if (makedev(facts.stx_dev_major, facts.stx_dev_minor) == mapping.file.device) return {};
    // Of overlay and btrfs the mount has the device that stands in maps. Of overlay, maps have that of a layer before
    // Linux 6.8, and the records of mappings up to 6.17.
    const auto check = [&](const Mount& mount) -> Result<void> {
        if (mount.device == mapping.file.device) return {};
        if (mount.type == "overlay") return check_file_system(pid, mount.device);
        return another();
    };
    for (MountTable& table : *host_mounts_)
        if (const Mount* mount = mount_of_id(table.read(), facts.stx_mnt_id)) return check(Mount(*mount));
    const auto mount = find_mount(pid, [id = facts.stx_mnt_id](const auto& mounts) { return mount_of_id(mounts, id); });
    if (!mount) return tl::unexpected(held_up());
    return *mount ? check(**mount) : tl::unexpected(why_not_mounted(pid));
}

Result<UniqueFd> ProcFs::open_mapped_file(uint32_t pid, const Mapping& mapping) const {
    if (auto checked = check_file_system(pid, mapping.file.device); !checked) return tl::unexpected(checked.error());
    // The mapped file itself: no path that the target chose is ever followed.
    Place place = find_range(pid, mapping);
    // A loader maps a library whole, as code, and then parts of that range as data, where the code is its first
    // segment: the rule on arm64, and on x86-64 with linkers from before 2018. Meanwhile the range may change once
    // more.
    for (int attempt = 0; place.error == ENOENT && attempt < 4; ++attempt) {
        const auto now = try_executable_mappings(pid);
        if (!now) {
            place.error = ETIMEDOUT;
            break;
        }
        const auto same = std::find_if(now->begin(), now->end(), [&](const Mapping& one) {
            return one.file == mapping.file && one.start < mapping.end && mapping.start < one.end;
        });
        if (same == now->end()) break;
        place = find_range(pid, *same);
    }
    UniqueFd file;
    if (place.error == 0) {
        // A number that no disk has may be another file system's by now; while the file is held it is not given again.
        if (major(mapping.file.device) == 0)
            if (auto checked = check_file_system(pid, mapping.file.device); !checked)
                return tl::unexpected(checked.error());
        if (auto checked = check_place(pid, mapping, place.facts); !checked) return tl::unexpected(checked.error());
        auto opened = ask_of_file(mapping.file, owner_of(pid), [fd = place.fd] {
            const std::string path = "/proc/self/fd/" + std::to_string(fd->get());
            UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
            const int error = file ? 0 : errno;
            return std::pair(std::move(file), error);
        });
        place.error = opened ? opened->second : ETIMEDOUT;
        if (opened) file = std::move(opened->first);
    }
    if (place.error == EPERM || place.error == EACCES)
        return fail(ErrorCode::denied,
                    errno_message("cannot open a library of process " + std::to_string(pid), place.error),
                    "grant CAP_SYS_PTRACE and CAP_CHECKPOINT_RESTORE");
    if (place.error == ETIMEDOUT)
        return fail(ErrorCode::busy, mapping.path + ": the process or its file system does not answer");
    if (place.error != 0)
        return fail(is_shortage(place.error) ? ErrorCode::busy : ErrorCode::not_found,
                    errno_message(mapping.path, place.error));
    return file;
}

std::optional<std::string> ProcFs::read_at(uint32_t pid, const FileId& id, std::shared_ptr<const UniqueFd> file,
                                           uint64_t offset, size_t most) const {
    const auto read = [file = std::move(file), offset, most]() -> std::optional<std::string> {
        std::string bytes(most, '\0');
        const ssize_t got = pread(file->get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (got < 0) return std::nullopt;
        bytes.resize(static_cast<size_t>(got));
        return bytes;
    };
    return ask_of_file(id, owner_of(pid), read).value_or(std::nullopt);
}

}  // namespace ingero
