#include "daemon/ingerod/check/library_check.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "core/wire/child_process.h"
#include "daemon/ingerod/check/symbol_reader.h"
#include "daemon/ingerod/discovery/proc_fs.h"

namespace ingero {

namespace {

using State = CheckResult::State;

/// A host with more has many alike.
constexpr size_t max_libraries = 48;
constexpr size_t max_named = 12;

std::string join(const std::vector<std::string>& names) {
    std::string text;
    for (size_t i = 0; i < std::min(names.size(), max_named); ++i) text += (i == 0 ? "" : ", ") + names[i];
    if (names.size() > max_named) text += " and " + std::to_string(names.size() - max_named) + " more";
    return text;
}

std::string describe(const SymbolSummary& symbols) {
    std::string text = "found " + std::to_string(symbols.found) + " of " + std::to_string(symbols.wanted) +
                       " functions; " + std::to_string(symbols.places) +
                       " probe sites: " + std::to_string(symbols.places - symbols.stepped.size()) + " emulated, " +
                       std::to_string(symbols.stepped.size()) + " single-stepped";
    if (!symbols.stepped.empty()) text += " (" + join(symbols.stepped) + ")";
    if (!symbols.absent.empty()) text += "; not exported: " + join(symbols.absent);
    return text;
}

/// What the summary of a library that can be traced amounts to.
CheckResult result_of(const char* name, const std::string& subject, const SymbolSummary& symbols) {
    if (symbols.places == 0)
        return {name, State::note, subject + ": it exports none of the wanted functions",
                "if it is a stub library for linking, there is nothing to do; otherwise it is not NVIDIA's or it is "
                "damaged: reinstall it"};
    if (!symbols.stepped.empty())
        return {name, State::note, subject + ": " + describe(symbols),
                "nothing to do: calls of the single-stepped functions are traced too, each at about ten times the "
                "cost. Where they are frequent, turn their probe set off with SetProbe of io.ingero.Ingero1(5)"};
    return {name, State::pass, subject + ": " + describe(symbols), ""};
}

std::string count_processes(size_t count) {
    return "used by " + std::to_string(count) + (count == 1 ? " process" : " processes");
}

void add_matches(const char* pattern, std::vector<std::string>& paths) {
    glob_t found{};
    if (glob(pattern, GLOB_NOSORT, nullptr, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
    globfree(&found);
}

std::vector<std::string> usual_places() {
    std::vector<std::string> paths;
    for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
                               "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib/wsl/lib", "/usr/local/lib",
                               "/usr/local/cuda*/lib*", "/usr/local/cuda*/targets/*/lib", "/opt/cuda/lib64"})
        for (const char* name : {"libcudart*.so*", "libcuda.so*", "libnccl.so*"})
            add_matches((std::string(folder) + "/" + name).c_str(), paths);
    // The linker's cache knows the folders of /etc/ld.so.conf.d besides.
    constexpr size_t most_bytes = 4 << 20;
    for (const char* program : {"/usr/sbin/ldconfig", "/sbin/ldconfig"}) {
        if (access(program, X_OK) != 0) continue;
        const auto cache = run_program({program, "-p"}, {}, std::chrono::seconds(5), most_bytes);
        if (!cache || cache->status != 0) continue;
        for (std::string& path : libraries_of_ldconfig(cache->text)) paths.push_back(std::move(path));
        break;
    }
    return paths;
}

/// An open library, known by what it is.
struct OpenFile {
    UniqueFd fd;
    std::string path;  ///< without links
    FileId id;
};

std::optional<OpenFile> open_library(const std::string& path) {
    OpenFile file;
    std::error_code error;
    file.path = std::filesystem::canonical(path, error).string();
    if (error || !library_of_path(file.path)) return std::nullopt;
    file.fd.reset(open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat facts {};
    if (!file.fd || fstat(file.fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
    file.id = {facts.st_dev, facts.st_ino};
    return file;
}

/// What running processes have mapped, each file once.
struct Seen {
    uint32_t pid = 0;  ///< one that maps it
    Mapping mapping;
    std::set<uint32_t> pids;
};

std::map<FileId, Seen> mapped_libraries(const ProcFs& proc) {
    std::map<FileId, Seen> libraries;
    for (const uint32_t pid : proc.pids())
        for (const Mapping& mapping : proc.executable_mappings(pid)) {
            if (!library_of_path(mapping.path)) continue;
            if (libraries.size() >= max_libraries && !libraries.contains(mapping.file)) continue;
            Seen& seen = libraries.try_emplace(mapping.file, Seen{pid, mapping, {}}).first->second;
            seen.pids.insert(pid);
        }
    return libraries;
}

CheckResult check_seen(SymbolReader& symbols, const ProcFs& proc, const Seen& seen) {
    MappedLibrary library{.path = seen.mapping.path, .processes = seen.pids.size(), .reason = {}, .symbols = {}};
    const Library kind = *library_of_path(seen.mapping.path);
    const auto fd = proc.open_mapped_file(seen.pid, seen.mapping);
    const auto found = fd ? symbols.read(fd->get(), symbol_names(kind)) : tl::unexpected(fd.error());
    if (found)
        library.symbols = summarize_symbols(kind, *found);
    else
        library.reason = found.error().message;
    // Without the rights nothing can be traced, which the check of capabilities reports already.
    return check_mapped_library(library);
}

}  // namespace

std::vector<std::string> libraries_of_ldconfig(std::string_view text) {
    std::vector<std::string> paths;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        const size_t arrow = line.find(" => ");
        if (arrow == std::string_view::npos) continue;
        const std::string_view path = line.substr(arrow + 4);
        if (path.starts_with('/') && library_of_path(path)) paths.emplace_back(path);
    }
    return paths;
}

SymbolSummary summarize_symbols(Library library, const std::vector<FunctionSymbol>& symbols) {
    SymbolSummary summary;
    std::set<std::string_view> found;
    for (const FunctionSymbol& symbol : symbols) found.insert(symbol.name);
    for (const std::string& name : symbol_names(library)) {
        ++summary.wanted;
        if (found.contains(name))
            ++summary.found;
        else
            summary.absent.push_back(name);
    }
    for (const ProbeSite& site : probe_sites(library, 0, symbols)) {
        ++summary.places;
        if (!site.emulated) summary.stepped.push_back(site.symbol);
    }
    return summary;
}

CheckResult check_mapped_library(const MappedLibrary& library) {
    const std::string subject = library.path + ", " + count_processes(library.processes);
    if (library.reading)
        return {mapped_library_check_name, State::note, subject + ": ingerod is still reading its functions",
                "ask again in a second"};
    if (!library.reason.empty())
        return {
            mapped_library_check_name, library.degrades ? State::fail : State::note,
            subject + ": not traced: " + library.reason,
            library.degrades
                ? "see attach and capabilities; journalctl -u ingerod shows what the daemon logged. A restart of the "
                  "daemon tries again"
                : "if it is a library of NVIDIA's, install it again: its file may be damaged"};
    return result_of(mapped_library_check_name, subject + (library.traced ? ", traced" : ""), library.symbols);
}

CheckResult check_library_file(const std::string& path, Library library,
                               const Result<std::vector<FunctionSymbol>>& symbols) {
    if (symbols) return result_of(library_check_name, path, summarize_symbols(library, *symbols));
    return {library_check_name, State::note, path + ": " + symbols.error().message,
            "install the library again where programs use it: its file cannot be read as a library"};
}

CheckResults check_libraries(SymbolReader& symbols, const ProcFs* proc) {
    CheckResults results;
    std::set<FileId> known;
    for (const std::string& path : usual_places()) {
        const auto file = open_library(path);
        if (!file || known.size() >= max_libraries || !known.insert(file->id).second) continue;
        const Library library = *library_of_path(file->path);
        results.push_back(check_library_file(file->path, library, symbols.read(file->fd.get(), symbol_names(library))));
    }
    if (!proc) return results;
    for (const auto& [id, seen] : mapped_libraries(*proc)) results.push_back(check_seen(symbols, *proc, seen));
    return results;
}

}  // namespace ingero
