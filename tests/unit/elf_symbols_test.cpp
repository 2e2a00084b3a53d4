// read_function_symbols against what readelf and objdump say of the same file, and on hostile files.
#include "core/symbols/elf_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "test_paths.h"

namespace ingero {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const char* const fixture = INGERO_ELF_FIXTURE;

class OpenFile {
  public:
    explicit OpenFile(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    /// A memory file of these bytes.
    explicit OpenFile(const std::vector<char>& bytes) : fd_(memfd_create("elf", MFD_CLOEXEC)) {
        EXPECT_EQ(write(fd_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    ~OpenFile() {
        if (fd_ >= 0) close(fd_);
    }
    int fd() const { return fd_; }

  private:
    int fd_;
};

std::vector<char> read_bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// The command's output, or nothing where the tool is missing.
std::string output_of(const std::string& command) {
    std::string text;
    FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
    if (!pipe) return text;
    std::array<char, 4096> buffer;
    while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), n);
    pclose(pipe);
    return text;
}

using Place = std::tuple<std::string, uint64_t, uint64_t>;  // name, file offset, size

/// What readelf says of a file: its defined functions, with addresses turned into offsets by the executable segments.
std::vector<Place> functions_by_readelf(const std::string& path, const std::string& table) {
    struct Segment {
        uint64_t offset, address, bytes;
    };
    std::vector<Segment> segments;
    std::string line;
    std::istringstream headers(output_of("readelf -lW " + path));
    while (std::getline(headers, line)) {
        unsigned long long offset = 0, address = 0, physical = 0, bytes = 0, memory = 0;
        std::array<char, 8> flags{};
        if (sscanf(line.c_str(), " LOAD %llx %llx %llx %llx %llx %3[RWE ]", &offset, &address, &physical, &bytes,
                   &memory, flags.data()) == 6 &&
            strchr(flags.data(), 'E'))
            segments.push_back({offset, address, bytes});
    }
    std::vector<Place> result;
    std::istringstream symbols(output_of("readelf -W " + table + " " + path));
    while (std::getline(symbols, line)) {
        std::istringstream fields(line);
        std::string number, value, size, type, bind, visibility, section, name;
        if (!(fields >> number >> value >> size >> type >> bind >> visibility >> section >> name)) continue;
        if (type != "FUNC" || section == "UND" || section == "ABS") continue;
        const uint64_t address = std::stoull(value, nullptr, 16);
        for (const Segment& s : segments)
            if (address >= s.address && address < s.address + s.bytes)
                result.emplace_back(name.substr(0, name.find('@')), address - s.address + s.offset,
                                    std::stoull(size, nullptr, 0));
    }
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
}

std::vector<std::string> names_of(const std::vector<Place>& places) {
    std::set<std::string> names;
    for (const auto& place : places) names.insert(std::get<0>(place));
    return {names.begin(), names.end()};
}

std::vector<Place> places_of(const LibrarySymbols& symbols) {
    std::vector<Place> places;
    for (const auto& f : symbols.functions) places.emplace_back(f.name, f.file_offset, f.size);
    std::sort(places.begin(), places.end());
    return places;
}

Result<LibrarySymbols> read(const std::vector<char>& bytes, std::vector<std::string> wanted) {
    std::sort(wanted.begin(), wanted.end());
    const OpenFile file(bytes);
    return read_function_symbols(file.fd(), wanted, true);
}

std::vector<std::string> found(const LibrarySymbols& symbols) {
    std::vector<std::string> names;
    for (const auto& f : symbols.functions) names.push_back(f.name);
    return names;
}

void expect_same_as_readelf(const std::string& path, bool static_symbols) {
    const auto expected = functions_by_readelf(path, static_symbols ? "--syms" : "--dyn-syms");
    if (expected.empty()) GTEST_SKIP() << "readelf is missing, or says nothing of " << path;
    const OpenFile file(path);
    const auto symbols = read_function_symbols(file.fd(), names_of(expected), static_symbols);
    ASSERT_TRUE(symbols) << symbols.error().message;
    EXPECT_EQ(places_of(*symbols), expected);
    if (symbols->build_id.empty()) return;
    EXPECT_THAT(output_of("readelf -n " + path), HasSubstr("Build ID: " + symbols->build_id));
}

TEST(ElfSymbols, of_a_built_library_agree_with_readelf) {
    expect_same_as_readelf(fixture, false);
    const OpenFile file(fixture);
    EXPECT_EQ(read_function_symbols(file.fd(), {}, false)->build_id.size(), 40U);
}

TEST(ElfSymbols, of_the_static_table_agree_with_readelf) {
    expect_same_as_readelf(fixture, true);
}

TEST(ElfSymbols, of_the_c_library_agree_with_readelf) {
    // Debian's multiarch folder, or the one of Fedora.
    for (const char* path : {"/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6"})
        if (std::filesystem::exists(path)) return expect_same_as_readelf(path, false);
    GTEST_SKIP() << "no libc.so.6 found";
}

TEST(ElfSymbols, that_point_inside_a_function_are_left_out_by_its_symbol_or_by_its_unwind_table) {
    for (const char* path : {MISPLACED_CUDART, MISPLACED_CUDART_UNSIZED}) {
        const OpenFile file(path);
        const auto library =
            read_function_symbols(file.fd(), {"cudaDeviceSynchronize", "cudaFree", "cudaMalloc"}, false);
        ASSERT_TRUE(library) << path;
        EXPECT_THAT(library->misplaced, ElementsAre("cudaFree")) << path;
        ASSERT_EQ(library->functions.size(), 2u) << path;
        EXPECT_EQ(library->functions[0].name, "cudaDeviceSynchronize");
        EXPECT_EQ(library->functions[1].name, "cudaMalloc");
        EXPECT_EQ(library->functions[1].code.size(), 8u);
    }
}

TEST(ElfSymbols, of_the_real_cuda_runtime_are_all_emulated) {
    for (const char* folder : {"/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/cuda-13.0/lib"}) {
        const std::string path = std::string(folder) + "/libcudart.so.13";
        if (!std::filesystem::exists(path)) continue;
        const OpenFile file(path);
        const std::vector<std::string> wanted = {"cudaFree", "cudaLaunchKernel", "cudaMalloc", "cudaMemcpy"};
        const auto symbols = read_function_symbols(file.fd(), wanted, false);
        ASSERT_TRUE(symbols) << symbols.error().message;
        EXPECT_EQ(found(*symbols), wanted);
        for (const auto& f : symbols->functions) EXPECT_TRUE(f.emulated) << f.name;
        return expect_same_as_readelf(path, false);
    }
    GTEST_SKIP() << "no libcudart.so.13 below /usr/local/cuda";
}

TEST(ElfSymbols, aliases_share_an_offset) {
    const OpenFile file(fixture);
    const auto symbols = read_function_symbols(file.fd(), {"alias", "original", "same_address"}, false);
    ASSERT_TRUE(symbols);
    ASSERT_THAT(found(*symbols), ElementsAre("alias", "original", "same_address"));
    EXPECT_EQ(symbols->functions[0].file_offset, symbols->functions[1].file_offset);
    EXPECT_EQ(symbols->functions[0].file_offset, symbols->functions[2].file_offset);
}

TEST(ElfSymbols, of_every_version_of_a_name_are_found) {
    const OpenFile file(fixture);
    const auto symbols = read_function_symbols(file.fd(), {"renewed"}, true);
    ASSERT_TRUE(symbols);
    ASSERT_THAT(found(*symbols), ElementsAre("renewed", "renewed"));
    EXPECT_NE(symbols->functions[0].file_offset, symbols->functions[1].file_offset);
}

TEST(ElfSymbols, leave_out_data_resolvers_and_undefined_names) {
    const auto bytes = read_bytes(fixture);
    EXPECT_THAT(found(*read(bytes, {"data_not_function", "resolved", "undefined_function", "FIXTURE_1"})), IsEmpty());
}

TEST(ElfSymbols, of_local_functions_need_the_static_table) {
    const OpenFile file(fixture);
    EXPECT_THAT(found(*read_function_symbols(file.fd(), {"only_in_symtab"}, false)), IsEmpty());
    EXPECT_THAT(found(*read_function_symbols(file.fd(), {"only_in_symtab"}, true)), ElementsAre("only_in_symtab"));
}

TEST(ElfSymbols, say_which_first_instructions_the_kernel_emulates) {
#if defined(__x86_64__)
    const std::map<std::string, bool> expected = {
        {"first_push", true},  {"first_push_high", true}, {"first_nop", true},
        {"first_nop_2", true}, {"first_nop_long", true},  {"first_endbr64", false},
        {"first_mov", false},  {"first_sub", false},      {"first_call", true},
    };
#else
    const std::map<std::string, bool> expected = {
        {"first_adrp", true}, {"first_branch", true}, {"first_nop", false}, {"first_bti", false}};
#endif
    std::vector<std::string> wanted;
    for (const auto& [name, emulated] : expected) wanted.push_back(name);
    const OpenFile file(fixture);
    const auto symbols = read_function_symbols(file.fd(), wanted, false);
    ASSERT_TRUE(symbols);
    ASSERT_EQ(found(*symbols), wanted);
    for (const auto& f : symbols->functions) EXPECT_EQ(f.emulated, expected.at(f.name)) << f.name;
}

TEST(ElfSymbols, say_which_functions_only_jump_to_another) {
#if defined(__x86_64__)
    const std::string target = "first_mov", holds_inside = "first_sub";
#else
    const std::string target = "first_nop", holds_inside = "first_adrp";
#endif
    const std::set<std::string> names = {target,     holds_inside,   "jumps",         "jumps_after_work", "jumps_far",
                                         "jumps_if", "jumps_inside", "jumps_to_jump", "jumps_with_frame"};
    const OpenFile file(fixture);
    const auto symbols = read_function_symbols(file.fd(), {names.begin(), names.end()}, false);
    ASSERT_TRUE(symbols);
    ASSERT_EQ(symbols->functions.size(), names.size());
    std::map<std::string, uint64_t> offsets;
    std::set<std::string> jumping;
    for (const auto& f : symbols->functions) offsets[f.name] = f.file_offset;
    for (const auto& f : symbols->functions) {
        if (f.jumps_to == 0) continue;
        jumping.insert(f.name);
        EXPECT_EQ(f.jumps_to, offsets[target]) << f.name;
    }
    EXPECT_THAT(jumping, ElementsAre("jumps", "jumps_far", "jumps_with_frame"));
    // Of what was not asked for it is no other name.
    EXPECT_EQ(read_function_symbols(file.fd(), {"jumps"}, false)->functions.at(0).jumps_to, 0u);
}

/// The fixture's bytes and views of its headers, for changing one field.
struct Forged {
    std::vector<char> bytes = read_bytes(fixture);
    Elf64_Ehdr& header() { return *reinterpret_cast<Elf64_Ehdr*>(bytes.data()); }
    Elf64_Shdr& section(size_t i) { return reinterpret_cast<Elf64_Shdr*>(bytes.data() + header().e_shoff)[i]; }
    Elf64_Phdr& segment(size_t i) { return reinterpret_cast<Elf64_Phdr*>(bytes.data() + header().e_phoff)[i]; }
    Elf64_Shdr& section_of(uint32_t type) {
        for (size_t i = 0; i < header().e_shnum; ++i)
            if (section(i).sh_type == type) return section(i);
        throw std::runtime_error("no such section in the fixture");
    }
    Elf64_Sym& symbol(const std::string& name) {
        Elf64_Shdr& table = section_of(SHT_DYNSYM);
        const char* names = bytes.data() + section(table.sh_link).sh_offset;
        auto* symbols = reinterpret_cast<Elf64_Sym*>(bytes.data() + table.sh_offset);
        for (size_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); ++i)
            if (name == names + symbols[i].st_name) return symbols[i];
        throw std::runtime_error("no such symbol in the fixture");
    }
    Result<LibrarySymbols> read_dynamic() const {
        const OpenFile file(bytes);
        return read_function_symbols(file.fd(), {"first_nop", "original"}, false);
    }
};

TEST(ElfSymbols, outside_executable_segments_are_left_out) {
    Forged forged;
    forged.symbol("original").st_value = forged.symbol("data_not_function").st_value;
    ASSERT_TRUE(forged.read_dynamic());
    EXPECT_THAT(found(*forged.read_dynamic()), ElementsAre("first_nop"));
    forged.symbol("original").st_value = UINT64_MAX;
    EXPECT_THAT(found(*forged.read_dynamic()), ElementsAre("first_nop"));
}

TEST(ElfSymbols, that_two_segments_claim_are_left_out) {
    Forged forged;
    for (size_t i = 0; i < forged.header().e_phnum; ++i) {
        if (forged.segment(i).p_type != PT_LOAD || !(forged.segment(i).p_flags & PF_X)) continue;
        forged.segment(forged.header().e_phnum - 1U) = forged.segment(i);
        break;
    }
    ASSERT_TRUE(forged.read_dynamic());
    EXPECT_THAT(found(*forged.read_dynamic()), IsEmpty());
}

TEST(ElfSymbols, with_a_name_beyond_the_strings_are_left_out) {
    Forged forged;
    forged.symbol("original").st_name = UINT32_MAX;
    ASSERT_TRUE(forged.read_dynamic());
    EXPECT_THAT(found(*forged.read_dynamic()), ElementsAre("first_nop"));
}

TEST(ElfSymbols, of_forged_headers_are_clean_errors) {
    struct Case {
        const char* what;
        std::function<void(Forged&)> change;
        ErrorCode code;
    };
    const std::vector<Case> cases = {
        {"no magic", [](Forged& f) { f.bytes[0] = 0; }, ErrorCode::corrupt},
        {"32 bits", [](Forged& f) { f.bytes[EI_CLASS] = ELFCLASS32; }, ErrorCode::corrupt},
        {"big-endian", [](Forged& f) { f.bytes[EI_DATA] = ELFDATA2MSB; }, ErrorCode::corrupt},
        {"a core file", [](Forged& f) { f.header().e_type = ET_CORE; }, ErrorCode::corrupt},
        {"sections beyond the end", [](Forged& f) { f.header().e_shoff = f.bytes.size() - 8; }, ErrorCode::corrupt},
        {"section offset near 2^64", [](Forged& f) { f.header().e_shoff = UINT64_MAX - 8; }, ErrorCode::corrupt},
        {"2^60 sections",
         [](Forged& f) {
             f.section(0).sh_size = 1ULL << 60;
             f.header().e_shnum = 0;
         },
         ErrorCode::limit},
        {"5 million symbols", [](Forged& f) { f.section_of(SHT_DYNSYM).sh_size = 5'000'000 * sizeof(Elf64_Sym); },
         ErrorCode::corrupt},
        {"a symbol table near 2^64", [](Forged& f) { f.section_of(SHT_DYNSYM).sh_offset = UINT64_MAX; },
         ErrorCode::corrupt},
        {"names in section 0", [](Forged& f) { f.section_of(SHT_DYNSYM).sh_link = 0; }, ErrorCode::corrupt},
        {"names in no section", [](Forged& f) { f.section_of(SHT_DYNSYM).sh_link = UINT32_MAX; }, ErrorCode::corrupt},
        {"names in the symbol table",
         [](Forged& f) {
             for (size_t i = 0; i < f.header().e_shnum; ++i)
                 if (f.section(i).sh_type == SHT_DYNSYM) f.section(i).sh_link = static_cast<uint32_t>(i);
         },
         ErrorCode::corrupt},
        {"a segment beyond the end",
         [](Forged& f) {
             for (size_t i = 0; i < f.header().e_phnum; ++i) f.segment(i).p_filesz = UINT64_MAX;
         },
         ErrorCode::corrupt},
        {"too many segments", [](Forged& f) { f.header().e_phnum = 0xfff0; }, ErrorCode::limit},
    };
    for (const Case& c : cases) {
        Forged forged;
        c.change(forged);
        const auto symbols = forged.read_dynamic();
        ASSERT_FALSE(symbols) << c.what;
        EXPECT_EQ(symbols.error().code, c.code) << c.what << ": " << symbols.error().message;
        EXPECT_FALSE(symbols.error().hint.empty()) << c.what;
    }
}

TEST(ElfSymbols, of_a_file_over_8_gib_are_refused) {
    Forged forged;
    const OpenFile file(forged.bytes);
    ASSERT_EQ(ftruncate(file.fd(), (8LL << 30) + 1), 0);
    EXPECT_EQ(read_function_symbols(file.fd(), {"original"}, false).error().code, ErrorCode::limit);
    // The sparse end below the limit is no obstacle, and nothing is read of it.
    ASSERT_EQ(ftruncate(file.fd(), 8LL << 30), 0);
    EXPECT_THAT(found(*read_function_symbols(file.fd(), {"original"}, false)), ElementsAre("original"));
}

TEST(ElfSymbols, beyond_4_million_are_refused) {
    Forged forged;
    Elf64_Shdr& table = forged.section_of(SHT_DYNSYM);
    table.sh_offset = 1 << 20;
    table.sh_size = 5'000'000 * sizeof(Elf64_Sym);
    const OpenFile file(forged.bytes);
    ASSERT_EQ(ftruncate(file.fd(), 1LL << 30), 0);
    EXPECT_EQ(read_function_symbols(file.fd(), {"original"}, false).error().code, ErrorCode::limit);
}

TEST(ElfSymbols, of_what_is_no_file_are_clean_errors) {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    EXPECT_EQ(read_function_symbols(ends[0], {"a"}, false).error().code, ErrorCode::corrupt);
    close(ends[0]);
    close(ends[1]);
    EXPECT_EQ(read_function_symbols(-1, {"a"}, false).error().code, ErrorCode::corrupt);
    EXPECT_EQ(read({}, {"a"}).error().code, ErrorCode::corrupt);
    EXPECT_EQ(read({'\x7f', 'E', 'L', 'F'}, {"a"}).error().code, ErrorCode::corrupt);
}

TEST(ElfSymbols, of_a_file_truncated_anywhere_are_a_clean_error) {
    const auto whole = read_bytes(fixture);
    ASSERT_TRUE(read(whole, {"original"}));
    for (size_t length = 0; length < whole.size(); length += 64) {
        const auto symbols = read({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length)}, {"original"});
        ASSERT_FALSE(symbols) << length;  // the section headers are a library's last bytes
        EXPECT_EQ(symbols.error().code, ErrorCode::corrupt) << length;
    }
}

TEST(ElfSymbols, of_a_file_with_any_byte_changed_stay_inside_the_file) {
    auto bytes = read_bytes(fixture);
    const OpenFile file(bytes);
    for (size_t at = 0; at < bytes.size(); ++at) {
        // The headers in full, of the rest every 7th byte: the whole takes seconds and says no more.
        if (at > 1024 && at < bytes.size() - 2048 && at % 7 != 0) continue;
        const char changed = static_cast<char>(bytes[at] ^ 0xff);
        ASSERT_EQ(pwrite(file.fd(), &changed, 1, static_cast<off_t>(at)), 1);
        const auto symbols = read_function_symbols(file.fd(), {"first_nop", "original"}, true);
        for (const auto& f : symbols.value_or(LibrarySymbols{}).functions) EXPECT_LT(f.file_offset, bytes.size()) << at;
        ASSERT_EQ(pwrite(file.fd(), &bytes[at], 1, static_cast<off_t>(at)), 1);
    }
}

}  // namespace
}  // namespace ingero
