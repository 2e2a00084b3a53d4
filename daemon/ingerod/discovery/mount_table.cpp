#include "daemon/ingerod/discovery/mount_table.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "daemon/ingerod/discovery/proc_file.h"

namespace ingero {

namespace {

/// What stands before `end`, which goes with it.
std::string_view take_until(std::string_view& text, char end) {
    const std::string_view word = text.substr(0, text.find(end));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    return word;
}

std::string_view take_word(std::string_view& text) {
    return take_until(text, ' ');
}

bool is_octal(std::string_view text) {
    return text.size() == 3 && text.find_first_not_of("01234567") == std::string_view::npos && text.front() < '4';
}

/// The next character, of which the kernel writes spaces and the like as "\040". `text` must not be empty.
char take_character(std::string_view& text) {
    const char first = text.front();
    const std::string_view digits = text.substr(1, 3);
    if (first != '\\' || !is_octal(digits)) {
        text.remove_prefix(1);
        return first;
    }
    text.remove_prefix(4);
    return static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0'));
}

std::string unescaped(std::string_view text) {
    std::string result;
    while (!text.empty()) result.push_back(take_character(text));
    return result;
}

/// "/a:/b::/c". A colon that is part of a path is "\072" in it, or "\134:" as whoever mounted it wrote it.
void append_paths(std::string_view text, std::vector<std::string>& paths) {
    std::string path;
    while (!text.empty()) {
        const bool is_plain = text.front() != '\\';
        const char next = take_character(text);
        if (is_plain && next == ':') {
            if (!path.empty()) paths.push_back(std::exchange(path, {}));
            continue;
        }
        path.push_back(next == '\\' && !text.empty() ? take_character(text) : next);
    }
    if (!path.empty()) paths.push_back(std::move(path));
}

/// Whether `path` is `folder`, or something in it.
bool lies_in(std::string_view path, std::string_view folder) {
    while (folder.ends_with('/')) folder.remove_suffix(1);
    return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

/// Whether the relative path may lead there, or to something in there: wherever it begins.
bool may_lead_into(std::string_view relative, std::string_view folder) {
    for (size_t end = 0; end != std::string_view::npos;) {
        end = relative.find('/', end + 1);
        const std::string_view first = relative.substr(0, end);
        if (folder.size() > first.size() && folder.ends_with(first) && folder[folder.size() - first.size() - 1] == '/')
            return true;
    }
    return false;
}

/// Whoever lays an image over a folder is root, who is let into no other mounts of FUSE than those of root's own.
bool is_roots(const Mount& fuse) {
    std::string_view options = fuse.options;
    while (!options.empty())
        if (take_until(options, ',') == "user_id=0") return true;
    return false;
}

}  // namespace

std::optional<Mount> parse_mountinfo_line(std::string_view line) {
    // "36 35 98:0 /root /mount\040point rw,noatime master:1 - ext3 /dev/root rw"
    const auto number = [](std::string_view word) {
        unsigned value = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
        return error == std::errc() && end == word.data() + word.size() ? std::optional(value) : std::nullopt;
    };
    const auto id = number(take_word(line));
    if (!id || !number(take_word(line))) return std::nullopt;
    std::string_view device = take_word(line);
    const auto device_major = number(take_until(device, ':')), device_minor = number(device);
    if (!device_major || !device_minor) return std::nullopt;
    take_word(line);  // what of the file system is mounted
    const std::string_view path = take_word(line);
    const size_t separator = line.find(" - ");
    if (separator == std::string_view::npos) return std::nullopt;
    line.remove_prefix(separator + 3);
    const std::string_view type = take_word(line);
    if (path.empty() || type.empty()) return std::nullopt;
    take_word(line);  // the device
    return Mount{*id, makedev(*device_major, *device_minor), unescaped(path), std::string(type), std::string(line)};
}

std::vector<Mount> parse_mountinfo(std::string_view text) {
    std::vector<Mount> table;
    while (!text.empty())
        if (auto mount = parse_mountinfo_line(take_until(text, '\n'))) table.push_back(std::move(*mount));
    return table;
}

const Mount* mount_of_device(const std::vector<Mount>& table, uint64_t device) {
    const auto found =
        std::find_if(table.begin(), table.end(), [&](const Mount& mount) { return mount.device == device; });
    return found == table.end() ? nullptr : &*found;
}

const Mount* mount_of_id(const std::vector<Mount>& table, uint64_t id) {
    const auto found = std::find_if(table.begin(), table.end(), [&](const Mount& mount) { return mount.id == id; });
    return found == table.end() ? nullptr : &*found;
}

// Of mounts at one place the latest counts.
const Mount* mount_of_path(const std::vector<Mount>& table, std::string_view path) {
    const Mount* found = nullptr;
    for (const Mount& mount : table)
        if (lies_in(path, mount.path) && (!found || mount.path.size() >= found->path.size())) found = &mount;
    return found;
}

std::string without_links(const std::string& path, const LinkAt& link_at) {
    constexpr int max_links = 40;  // as many as the kernel follows
    std::string left = path, known;
    for (int links = 0; !left.empty();) {
        const size_t from = left.find_first_not_of('/');
        if (from == std::string::npos) break;
        const size_t end = std::min(left.find('/', from), left.size());
        const std::string name = left.substr(from, end - from);
        left.erase(0, end);
        if (name == ".") continue;
        if (name == "..") {
            known.erase(std::min(known.rfind('/'), known.size()));
            continue;
        }
        const auto target = link_at(known + "/" + name);
        if (!target || ++links > max_links) {
            known += "/" + name;
            continue;
        }
        if (target->starts_with('/')) known.clear();
        left.insert(0, "/" + *target);
    }
    return known.empty() ? "/" : known;
}

bool is_served_by_a_user(std::string_view file_system) {
    return file_system == "fuse" || file_system == "fuseblk" || file_system.starts_with("fuse.");
}

std::vector<std::string> overlay_layers(std::string_view options) {
    std::vector<std::string> layers;
    while (!options.empty()) {
        const std::string_view option = take_until(options, ',');
        const size_t equals = option.find('=');
        if (equals == std::string_view::npos) continue;
        const std::string_view name = option.substr(0, equals), value = option.substr(equals + 1);
        if (name == "lowerdir")
            append_paths(value, layers);
        else if (name == "lowerdir+" || name == "datadir+" || name == "upperdir")
            layers.push_back(unescaped(value));
    }
    return layers;
}

std::vector<const Mount*> fuse_below(const std::vector<Mount>& table, const Mount& overlay, const LinkAt& link_at) {
    std::vector<const Mount*> found;
    const auto is_fuse = [](const Mount& mount) { return is_served_by_a_user(mount.type); };
    if (std::none_of(table.begin(), table.end(), is_fuse)) return found;
    std::set<const Mount*> below;
    std::vector<const Mount*> overlays = {&overlay};
    const auto stand_on = [&](const Mount& mount) {
        if (!below.insert(&mount).second) return;
        if (is_fuse(mount)) found.push_back(&mount);
        if (mount.type == "overlay") overlays.push_back(&mount);
    };
    const auto link_beside_fuse = [&](const std::string& path) {
        const Mount* mount = mount_of_path(table, path);
        return mount && is_fuse(*mount) ? std::nullopt : link_at(path);
    };
    while (!overlays.empty()) {
        const Mount& next = *overlays.back();
        overlays.pop_back();
        for (const std::string& layer : overlay_layers(next.options)) {
            if (layer.starts_with('/')) {
                if (const Mount* mount = mount_of_path(table, without_links(layer, link_beside_fuse))) stand_on(*mount);
                continue;
            }
            for (const Mount& mount : table)
                if (is_fuse(mount) && is_roots(mount) && may_lead_into(layer, mount.path)) stand_on(mount);
        }
    }
    return found;
}

const std::vector<const Mount*>& MountTable::fuse_below(const Mount& overlay, const LinkAt& link_at) {
    const auto [found, is_new] = below_.try_emplace(overlay.id);
    if (is_new) found->second = ingero::fuse_below(mounts_, overlay, link_at);
    return found->second;
}

const std::vector<Mount>& MountTable::read() {
    pollfd changes{fd_.get(), POLLPRI, 0};
    if (fd_ && poll(&changes, 1, 0) == 0) return mounts_;
    below_.clear();
    mounts_.clear();
    // Opened before it is read: poll() reports what changes meanwhile the next time.
    fd_.reset(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (auto text = fd_ ? read_open_file(fd_.get(), path_) : fail(ErrorCode::not_found, path_))
        mounts_ = parse_mountinfo(*text);
    else
        fd_.reset();
    return mounts_;
}

}  // namespace ingero
