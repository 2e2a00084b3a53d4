#include "core/symbols/unwind_table.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>

#include "core/symbols/frame_program.h"

namespace ingero {

namespace {

constexpr size_t window_bytes = 1 << 20;
constexpr uint64_t max_entry_bytes = 256 << 10;  // of one CIE or FDE; the largest seen are a few KiB
constexpr size_t max_cies = 65'536;
// Compilers pad functions to 16 or 32 bytes with instructions that no return leads to.
constexpr uint32_t max_padding_bytes = 32;

/// A part of the file, read by a window that moves with the reader: .eh_frame can be tens of MiB.
class WindowedBytes {
  public:
    WindowedBytes(const ElfFile& file, uint64_t offset, uint64_t bytes) : file_(file), offset_(offset), bytes_(bytes) {}

    uint64_t size() const { return bytes_; }
    /// Empty where that is outside, or the file became shorter.
    std::span<const unsigned char> view(uint64_t at, size_t count) {
        if (at > bytes_ || count > bytes_ - at || count > window_bytes) return {};
        if (at < from_ || at + count > from_ + window_.size()) {
            window_.resize(std::min<uint64_t>(window_bytes, bytes_ - at));
            window_.resize(file_.read_at(offset_ + at, window_));
            from_ = at;
            if (count > window_.size()) return {};
        }
        return std::span(window_).subspan(at - from_, count);
    }

  private:
    const ElfFile& file_;
    uint64_t offset_, bytes_;
    uint64_t from_ = 0;
    std::vector<unsigned char> window_;
};

struct FrameSection {
    uint64_t address = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;  ///< at most: the entries end with one of length 0
};

/// One CIE or FDE.
struct Entry {
    uint64_t at = 0;    ///< of the field behind the length
    uint64_t next = 0;  ///< of the entry behind
    std::span<const unsigned char> body;
};

class TableCompiler {
  public:
    TableCompiler(const ElfFile& file, const UnwindLimits& limits, FrameSection section)
        : file_(file), limits_(limits), section_(section), bytes_(file, section.offset, section.bytes) {}

    Result<UnwindTable> compile();

  private:
    Result<std::optional<Entry>> read_entry(uint64_t at);
    Result<const CommonEntry*> common_entry(uint64_t at);
    Result<void> add_function(const Entry& entry);
    bool is_code(uint64_t address) const;
    void tidy();

    const ElfFile& file_;
    const UnwindLimits& limits_;
    FrameSection section_;
    WindowedBytes bytes_;
    std::unordered_map<uint64_t, CommonEntry> cies_;
    std::vector<unsigned char> copy_;
    UnwindTable table_;
};

/// Nothing at the end of the entries.
Result<std::optional<Entry>> TableCompiler::read_entry(uint64_t at) {
    ByteCursor head(bytes_.view(at, std::min<uint64_t>(12, bytes_.size() - at)), section_.address + at);
    uint64_t length = head.fixed<uint32_t>();
    if (head.failed() || length == 0) return std::nullopt;
    uint64_t body = at + 4;
    if (length == 0xffffffff) {
        length = head.fixed<uint64_t>();
        body = at + 12;
    }
    if (head.failed() || length > bytes_.size() - body || length < 4)
        return ElfFile::corrupt("call frame information beyond its end");
    if (length > max_entry_bytes) return ElfFile::over_limit("an entry of more than 256 KiB of call frame information");
    Entry entry{body, body + length, bytes_.view(body, length)};
    if (entry.body.empty()) return ElfFile::corrupt("it became shorter while it was read");
    return entry;
}

Result<const CommonEntry*> TableCompiler::common_entry(uint64_t at) {
    if (const auto known = cies_.find(at); known != cies_.end()) return &known->second;
    if (cies_.size() == max_cies) return ElfFile::over_limit("more than 65,536 CIEs");
    auto entry = read_entry(at);
    if (!entry) return tl::unexpected(entry.error());
    if (!*entry) return ElfFile::corrupt("an FDE without its CIE");
    ByteCursor cursor((*entry)->body, section_.address + (*entry)->at);
    if (cursor.fixed<uint32_t>() != 0) return ElfFile::corrupt("an FDE that refers to something other than a CIE");
    return &cies_.emplace(at, read_common_entry(cursor, file_.machine())).first->second;
}

bool TableCompiler::is_code(uint64_t address) const {
    return std::any_of(table_.code.begin(), table_.code.end(), [&](const ElfSegment& segment) {
        return address >= segment.address && address - segment.address < segment.file_bytes;
    });
}

Result<void> TableCompiler::add_function(const Entry& entry) {
    ByteCursor cursor(entry.body, section_.address + entry.at);
    const uint32_t distance = cursor.fixed<uint32_t>();
    if (distance > entry.at) return ElfFile::corrupt("an FDE whose CIE lies before the section");
    // Copied: reading the CIE may move the window that the entry lies in.
    copy_.assign(entry.body.begin(), entry.body.end());
    const auto common = common_entry(entry.at - distance);
    if (!common) return tl::unexpected(common.error());
    if (!(*common)->usable) {
        ++table_.unsupported;
        return {};
    }
    cursor = ByteCursor(copy_, section_.address + entry.at);
    cursor.skip(4);
    const FunctionRange range = read_function_range(cursor, **common);
    // Functions that the linker dropped keep an entry at 0.
    if (cursor.failed() || range.bytes == 0 || !is_code(range.start)) return {};
    constexpr uint64_t most = std::numeric_limits<uint32_t>::max();
    if (range.start > most || range.bytes > most - range.start)
        return ElfFile::over_limit("code at addresses above 4 GiB");
    ++table_.functions;
    const size_t first = table_.rows.size();
    const bool supported = run_frame_program(cursor, **common, range, 2 * limits_.rows + 1 - first, table_.rows);
    if (!supported) ++table_.unsupported;
    table_.rows.push_back({.address = static_cast<uint32_t>(range.start + range.bytes),
                           .cfa = INGERO_UNWIND_NONE,
                           .frame_pointer = 0,
                           .return_address = 0});
    if (table_.rows.size() > 2 * limits_.rows)
        return ElfFile::over_limit("more than " + std::to_string(limits_.rows) + " rows of call frame information");
    return {};
}

bool same_rule(const ingero_unwind_row& a, const ingero_unwind_row& b) {
    return a.cfa == b.cfa && a.frame_pointer == b.frame_pointer && a.return_address == b.return_address;
}

/// Sorted, one row an address, no end where the next function begins, nothing said twice.
void TableCompiler::tidy() {
    auto& rows = table_.rows;
    const auto is_end = [](const ingero_unwind_row& row) { return row.cfa == INGERO_UNWIND_NONE; };
    // The end of a function stands before the beginning of the next at the same address, and the last of them counts.
    std::stable_sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) {
        return a.address != b.address ? a.address < b.address : is_end(a) > is_end(b);
    });
    size_t kept = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
        const bool last = i + 1 == rows.size();
        if (!last && rows[i + 1].address == rows[i].address) continue;
        if (!last && is_end(rows[i]) && kept > 0 && rows[i + 1].address - rows[i].address < max_padding_bytes) continue;
        if (kept > 0 && same_rule(rows[kept - 1], rows[i])) continue;
        rows[kept++] = rows[i];
    }
    rows.resize(kept);
    rows.shrink_to_fit();
}

Result<UnwindTable> TableCompiler::compile() {
    table_.build_id = file_.build_id();
    for (const ElfSegment& segment : file_.segments())
        if (segment.executable) table_.code.push_back(segment);
    for (uint64_t at = 0; at < bytes_.size();) {
        auto entry = read_entry(at);
        if (!entry) return tl::unexpected(entry.error());
        if (!*entry) break;
        at = (*entry)->next;
        if (at > limits_.frame_bytes) return ElfFile::over_limit("more call frame information than ingerod reads");
        uint32_t id = 0;
        std::memcpy(&id, (*entry)->body.data(), sizeof id);
        if (id == 0) continue;
        if (auto added = add_function(**entry); !added) return tl::unexpected(added.error());
    }
    tidy();
    if (table_.rows.size() > limits_.rows)
        return ElfFile::over_limit("more than " + std::to_string(limits_.rows) + " rows of call frame information");
    return std::move(table_);
}

/// By the section headers: exact, since what follows .eh_frame in its segment need not begin with a zero.
Result<std::optional<FrameSection>> find_section(const ElfFile& file) {
    size_t names_index = 0;
    if (elf_getshdrstrndx(file.handle(), &names_index) != 0 || names_index == 0) return std::nullopt;
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(file.handle(), section))) {
        GElf_Shdr header;
        errno = 0;
        if (!gelf_getshdr(section, &header)) return ElfFile::libelf_failure("a section header");
        if (header.sh_type == SHT_NOBITS || !(header.sh_flags & SHF_ALLOC)) continue;
        const auto names = file.string_table(names_index);
        if (!names) return tl::unexpected(names.error());
        if (header.sh_name >= names->size()) continue;
        if (std::string_view tail = names->substr(header.sh_name, 16); tail.substr(0, tail.find('\0')) != ".eh_frame")
            continue;
        if (!file.in_file(header.sh_offset, header.sh_size))
            return ElfFile::corrupt("call frame information beyond the end of the file");
        return FrameSection{header.sh_addr, header.sh_offset, header.sh_size};
    }
    return std::nullopt;
}

/// By the program headers, which no stripping takes away: .eh_frame_hdr begins with where .eh_frame is.
Result<std::optional<FrameSection>> find_by_segment(const ElfFile& file) {
    const auto& header = file.frame_header();
    uint64_t bytes_left = 0;
    const auto offset = header ? file.any_offset(header->address, bytes_left) : std::nullopt;
    if (!offset) return std::nullopt;
    std::vector<unsigned char> bytes(std::min<uint64_t>(bytes_left, 12));
    bytes.resize(file.read_at(*offset, bytes));
    ByteCursor cursor(bytes, header->address);
    const uint8_t version = cursor.fixed<uint8_t>(), encoding = cursor.fixed<uint8_t>();
    cursor.skip(2);
    const uint64_t start = cursor.pointer(encoding).value_or(0);
    if (cursor.failed() || version != 1) return ElfFile::corrupt("an invalid .eh_frame_hdr");
    const auto start_offset = file.any_offset(start, bytes_left);
    if (!start_offset) return ElfFile::corrupt("an .eh_frame outside the file");
    return FrameSection{start, *start_offset, bytes_left};
}

}  // namespace

Result<UnwindTable> compile_unwind_table(int fd, const UnwindLimits& limits) {
    const auto file = ElfFile::open(fd);
    if (!file) return tl::unexpected(file.error());
    auto section = find_section(*file);
    if (section && !*section) section = find_by_segment(*file);
    if (!section) return tl::unexpected(section.error());
    if (file->machine() != EM_X86_64 && file->machine() != EM_AARCH64)
        return ElfFile::corrupt("neither x86-64 nor aarch64");
    return TableCompiler(*file, limits, section->value_or(FrameSection{})).compile();
}

}  // namespace ingero
