#include "core/symbols/symbolizer.h"

#include <cxxabi.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <memory>

#include "core/symbols/elf_file.h"

namespace ingero {

namespace {

constexpr uint64_t max_symbols = 8'000'000;
constexpr size_t max_name_bytes = max_symbol_name_bytes;
// Names of CUDA templates reach a few thousand characters, and demangled ones several times that.
constexpr size_t max_demangled_bytes = max_symbol_name_bytes;

/// Of a place outside the code.
constexpr uint64_t no_address = std::numeric_limits<uint64_t>::max();

struct Candidate {
    uint64_t start = 0;
    uint64_t size = 0;  ///< 0: not known, it reaches to the next symbol
    int rank = -1;      ///< global symbols before local ones; -1: none
    std::string_view name;
    bool covers(uint64_t place) const { return rank >= 0 && place >= start && place - start < size; }
    bool reaches_over(const Candidate& other) const { return start + size >= other.start + other.size; }
};

bool better(const Candidate& a, const Candidate& b) {
    if (b.rank < 0 || a.start != b.start) return b.rank < 0 || a.start > b.start;
    if (a.rank != b.rank) return a.rank > b.rank;
    return a.name.size() != b.name.size() ? a.name.size() < b.name.size() : a.name < b.name;
}

/// Finds for each place the function that covers it with the highest start, in one pass over the symbols. Where none
/// does, the symbol of no size that starts last before the place.
class PlaceFinder {
  public:
    explicit PlaceFinder(std::vector<uint64_t> places) : places_(std::move(places)) {
        std::sort(places_.begin(), places_.end());
        places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
        slots_.resize(places_.size());
    }

    void add(Candidate candidate) {
        const auto place = std::lower_bound(places_.begin(), places_.end(), candidate.start);
        if (place == places_.end()) return;
        candidate.size = std::min(candidate.size, std::numeric_limits<uint64_t>::max() - candidate.start);
        Slot& slot = slots_[static_cast<size_t>(place - places_.begin())];
        if (candidate.size == 0) {
            if (better(candidate, slot.unsized)) slot.unsized = candidate;
            return;
        }
        slot.latest_start = std::max(slot.latest_start, candidate.start);
        if (candidate.covers(*place) && better(candidate, slot.nearest)) slot.nearest = candidate;
        if (slot.farthest.rank < 0 || candidate.reaches_over(slot.farthest)) slot.farthest = candidate;
    }

    /// After the last add().
    void finish() {
        Slot before;
        for (size_t i = 0; i < places_.size(); ++i) {
            Slot& slot = slots_[i];
            slot.latest_start = std::max(slot.latest_start, before.latest_start);
            if (slot.unsized.rank < 0) slot.unsized = before.unsized;
            if (slot.nearest.rank < 0 && before.farthest.covers(places_[i])) slot.nearest = before.farthest;
            if (slot.farthest.rank < 0 || (before.farthest.rank >= 0 && before.farthest.reaches_over(slot.farthest)))
                slot.farthest = before.farthest;
            before = slot;
            if (slot.nearest.rank < 0 && slot.unsized.rank >= 0 && slot.unsized.start >= slot.latest_start)
                slot.nearest = slot.unsized;
        }
    }

    const Candidate& at(uint64_t place) const {
        const auto found = std::lower_bound(places_.begin(), places_.end(), place);
        return slots_[static_cast<size_t>(found - places_.begin())].nearest;
    }

  private:
    /// Of the symbols that start behind the place before, and not behind this one.
    struct Slot {
        Candidate nearest;   ///< covers the place
        Candidate farthest;  ///< may cover places behind
        Candidate unsized;
        uint64_t latest_start = 0;
    };
    std::vector<uint64_t> places_;
    std::vector<Slot> slots_;
};

Result<bool> add_table(const ElfFile& file, Elf_Scn* section, const GElf_Shdr& header, PlaceFinder& finder) {
    if (!file.in_file(header.sh_offset, header.sh_size))
        return ElfFile::corrupt("a symbol table beyond the end of the file");
    if (header.sh_size / sizeof(Elf64_Sym) > max_symbols) return ElfFile::over_limit("more than 8,000,000 symbols");
    const auto strings = file.string_table(header.sh_link);
    if (!strings) return tl::unexpected(strings.error());
    errno = 0;
    Elf_Data* data = elf_getdata(section, nullptr);
    if (!data || data->d_type != ELF_T_SYM) return ElfFile::libelf_failure("its symbol table");
    bool any = false;
    const size_t count = data->d_size / sizeof(Elf64_Sym);
    for (size_t i = 0; i < count; ++i) {
        GElf_Sym symbol;
        if (!gelf_getsym(data, static_cast<int>(i), &symbol)) return ElfFile::libelf_failure("a symbol");
        const int type = GELF_ST_TYPE(symbol.st_info);
        if (type != STT_FUNC && type != STT_GNU_IFUNC) continue;
        if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS || symbol.st_name >= strings->size()) continue;
        const std::string_view tail = strings->substr(symbol.st_name, max_name_bytes + 1);
        const size_t length = std::min(tail.find('\0'), tail.find('@'));
        if (length == 0 || length == std::string_view::npos) continue;
        any = true;
        const int rank = GELF_ST_BIND(symbol.st_info) != STB_LOCAL ? 1 : 0;
        finder.add({symbol.st_value, symbol.st_size, rank, tail.substr(0, length)});
    }
    return any;
}

/// False where the file has no such table, or an empty one.
Result<bool> add_tables(const ElfFile& file, uint32_t type, PlaceFinder& finder) {
    bool any = false;
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(file.handle(), section))) {
        GElf_Shdr header;
        errno = 0;
        if (!gelf_getshdr(section, &header)) return ElfFile::libelf_failure("a section header");
        if (header.sh_type != type) continue;
        const auto added = add_table(file, section, header, finder);
        if (!added) return added;
        any = any || *added;
    }
    return any;
}

std::string read_debug_link(const ElfFile& file) {
    size_t names_index = 0;
    if (elf_getshdrstrndx(file.handle(), &names_index) != 0 || names_index == 0) return {};
    const auto names = file.string_table(names_index);
    if (!names) return {};
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(file.handle(), section))) {
        GElf_Shdr header;
        if (!gelf_getshdr(section, &header) || header.sh_type != SHT_PROGBITS || header.sh_name >= names->size())
            continue;
        const std::string_view tail = names->substr(header.sh_name, 32);
        if (tail.substr(0, tail.find('\0')) != ".gnu_debuglink") continue;
        std::vector<unsigned char> bytes(std::min<uint64_t>(header.sh_size, 256));
        if (!file.in_file(header.sh_offset, header.sh_size)) return {};
        bytes.resize(file.read_at(header.sh_offset, bytes));
        const auto end = std::find(bytes.begin(), bytes.end(), 0);
        const std::string name(bytes.begin(), end);
        // A file name alone: it is looked for in known directories.
        return end == bytes.end() || name.find('/') != std::string::npos || name == ".." ? std::string() : name;
    }
    return {};
}

/// Of the processor, so that a busy machine leaves no name out.
std::chrono::nanoseconds thread_time() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

Result<FileSymbols> symbolize(const ElfFile& file, std::vector<FrameSymbol> places, std::string_view build_id,
                              std::chrono::milliseconds for_demangling) {
    FileSymbols result{FileState::ok, file.build_id(), read_debug_link(file), std::move(places)};
    if (!build_id.empty() && build_id != result.build_id) {
        result.state = FileState::rebuilt;
        return result;
    }
    std::vector<uint64_t> addresses;
    for (const FrameSymbol& symbol : result.symbols) addresses.push_back(symbol.address);
    PlaceFinder finder(std::move(addresses));
    auto any = add_tables(file, SHT_SYMTAB, finder);
    if (any && !*any) {
        result.state = FileState::stripped;
        any = add_tables(file, SHT_DYNSYM, finder);
    }
    if (!any) return tl::unexpected(any.error());
    finder.finish();
    Demangler demangler(for_demangling);
    for (FrameSymbol& symbol : result.symbols) {
        const Candidate& best = finder.at(symbol.address);
        if (best.rank < 0 || symbol.address == no_address) continue;
        symbol.name = best.name;
        symbol.demangled = demangler.demangle(symbol.name);
        symbol.offset = symbol.address - best.start;
    }
    return result;
}

Result<void> check_count(size_t count) {
    if (count > max_places) return fail(ErrorCode::limit, "more than 4,096 places in one request");
    return {};
}

}  // namespace

Result<FileSymbols> symbolize_offsets(int fd, std::span<const uint64_t> offsets, std::string_view build_id,
                                      std::chrono::milliseconds for_demangling) {
    if (auto checked = check_count(offsets.size()); !checked) return tl::unexpected(checked.error());
    const auto file = ElfFile::open(fd);
    if (!file) return tl::unexpected(file.error());
    std::vector<FrameSymbol> places(offsets.size());
    for (size_t i = 0; i < offsets.size(); ++i) places[i].address = file->code_address(offsets[i]).value_or(no_address);
    return symbolize(*file, std::move(places), build_id, for_demangling);
}

Result<FileSymbols> symbolize_addresses(int fd, std::span<const uint64_t> addresses, std::string_view build_id,
                                        std::chrono::milliseconds for_demangling) {
    if (auto checked = check_count(addresses.size()); !checked) return tl::unexpected(checked.error());
    const auto file = ElfFile::open_debug_file(fd);
    if (!file) return tl::unexpected(file.error());
    std::vector<FrameSymbol> places(addresses.size());
    for (size_t i = 0; i < addresses.size(); ++i) places[i].address = addresses[i];
    return symbolize(*file, std::move(places), build_id, for_demangling);
}

std::string demangle(const std::string& name) {
    if (!name.starts_with("_Z") || name.size() >= max_name_bytes) return {};
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                      std::free);
    if (!text || status != 0) return {};
    std::string result(text.get());
    if (result.size() > max_demangled_bytes) result = result.substr(0, max_demangled_bytes - 3) + "...";
    return result;
}

std::string Demangler::demangle(const std::string& name) {
    if (left_ <= std::chrono::nanoseconds(0)) return {};
    const auto before = thread_time();
    std::string result = ingero::demangle(name);
    left_ -= thread_time() - before;
    return result;
}

std::string Demangler::text(const std::string& name) {
    std::string demangled = demangle(name);
    return demangled.empty() ? name : demangled;
}

}  // namespace ingero
