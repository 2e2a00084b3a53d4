// symbolize_offsets and symbolize_addresses on copies of one library: whole, stripped, split from its debug file,
// rebuilt; and on hostile files.
#include "core/symbols/symbolizer.h"

#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/model/unique_fd.h"
#include "core/symbols/elf_symbols.h"
#include "test_paths.h"

namespace ingero {
namespace {

using testing::IsEmpty;

const char* const fixture = INGERO_UNWIND_FIXTURE;
const std::string fixture_stripped = std::string(INGERO_UNWIND_FIXTURE) + ".stripped";
const std::string fixture_debug = std::string(INGERO_UNWIND_FIXTURE) + ".debug";

UniqueFd open_file(const std::string& path) {
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(fd) << path;
    return fd;
}

struct Function {
    uint64_t offset = 0;
    uint64_t size = 0;
};

Function function(const std::string& name) {
    const auto symbols = read_function_symbols(open_file(fixture).get(), {name}, true);
    EXPECT_TRUE(symbols && symbols->functions.size() == 1) << name;
    if (!symbols || symbols->functions.empty()) return {};
    return {symbols->functions[0].file_offset, symbols->functions[0].size};
}

FileSymbols symbolize(const std::string& path, const std::vector<uint64_t>& offsets, std::string_view build_id = {}) {
    auto result = symbolize_offsets(open_file(path).get(), offsets, build_id);
    EXPECT_TRUE(result) << result.error().message;
    return result ? *result : FileSymbols{};
}

TEST(Symbolizer, NamesFunctionsByStartMiddleAndLastByte) {
    const Function hidden = function("fixture_hidden"), exported = function("fixture_exported");
    const auto result =
        symbolize(fixture, {exported.offset, hidden.offset, hidden.offset + 3, hidden.offset + hidden.size - 1});
    EXPECT_EQ(result.state, FileState::ok);
    ASSERT_EQ(result.symbols.size(), 4U);
    EXPECT_EQ(result.symbols[0].name, "fixture_exported");
    EXPECT_EQ(result.symbols[0].offset, 0U);
    EXPECT_EQ(result.symbols[1].name, "fixture_hidden");
    EXPECT_EQ(result.symbols[2].name, "fixture_hidden");
    EXPECT_EQ(result.symbols[2].offset, 3U);
    EXPECT_EQ(result.symbols[3].name, "fixture_hidden");
    EXPECT_EQ(result.symbols[3].offset, hidden.size - 1);
}

TEST(Symbolizer, KeepsTheMangledNameBesideTheDemangledOne) {
    const auto result = symbolize(fixture, {function("_ZN6ingero7fixtureEi").offset});
    EXPECT_EQ(result.symbols.at(0).name, "_ZN6ingero7fixtureEi");
    EXPECT_EQ(result.symbols.at(0).demangled, "ingero::fixture(int)");
    EXPECT_THAT(symbolize(fixture, {function("fixture_exported").offset}).symbols.at(0).demangled, IsEmpty());
}

TEST(Symbolizer, LeavesANameMangledForWhichNoTimeIsLeft) {
    const std::array offsets = {function("_ZN6ingero7fixtureEi").offset};
    const auto result = symbolize_offsets(open_file(fixture).get(), offsets, {}, std::chrono::milliseconds(0));
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->symbols.at(0).name, "_ZN6ingero7fixtureEi");
    EXPECT_THAT(result->symbols.at(0).demangled, IsEmpty());
}

TEST(Symbolizer, GivesNoNameToAPlaceOutsideAllFunctions) {
    const auto result = symbolize(fixture, {0, 1ULL << 40, std::numeric_limits<uint64_t>::max()});
    for (const auto& symbol : result.symbols) EXPECT_THAT(symbol.name, IsEmpty());
}

TEST(Symbolizer, NamesAStrippedFileByWhatItExportsOnly) {
    const Function hidden = function("fixture_hidden");
    const auto result = symbolize(fixture_stripped, {function("fixture_exported").offset, hidden.offset});
    EXPECT_EQ(result.state, FileState::stripped);
    EXPECT_EQ(result.symbols.at(0).name, "fixture_exported");
    EXPECT_THAT(result.symbols.at(1).name, IsEmpty());
    EXPECT_EQ(result.debug_link, std::filesystem::path(fixture_debug).filename());
}

TEST(Symbolizer, FindsTheNamesInTheDebugFile) {
    const auto stripped = symbolize(fixture_stripped, {function("fixture_hidden").offset + 1});
    const auto result = symbolize_addresses(open_file(fixture_debug).get(), std::array{stripped.symbols.at(0).address},
                                            stripped.build_id);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->state, FileState::ok);
    EXPECT_EQ(result->symbols.at(0).name, "fixture_hidden");
    EXPECT_EQ(result->symbols.at(0).offset, 1U);
}

TEST(Symbolizer, GivesARebuiltFileNoNames) {
    const auto seen = symbolize(fixture, {});
    ASSERT_EQ(seen.build_id.size(), 40U);
    std::string other = seen.build_id;
    other[0] = other[0] == 'a' ? 'b' : 'a';
    const std::vector<uint64_t> offsets = {function("fixture_exported").offset};
    const auto result = symbolize(fixture, offsets, other);
    EXPECT_EQ(result.state, FileState::rebuilt);
    EXPECT_THAT(result.symbols.at(0).name, IsEmpty());
    EXPECT_EQ(symbolize(fixture, offsets, seen.build_id).state, FileState::ok);
}

TEST(Symbolizer, RefusesMorePlacesThanARequestMayHave) {
    const std::vector<uint64_t> offsets(max_places + 1);
    const auto result = symbolize_offsets(open_file(fixture).get(), offsets, {});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::limit);
}

/// A file of symbols alone, for what no compiler makes.
class SymbolFile {
  public:
    void add(const std::string& name, uint64_t start, uint64_t size, int bind = STB_GLOBAL) {
        Elf64_Sym symbol{};
        symbol.st_name = static_cast<Elf64_Word>(strings_.size());
        symbol.st_info = static_cast<unsigned char>(ELF64_ST_INFO(bind, STT_FUNC));
        symbol.st_shndx = 1;
        symbol.st_value = start;
        symbol.st_size = size;
        symbols_.push_back(symbol);
        strings_ += name + '\0';
    }
    UniqueFd file() const {
        Elf64_Ehdr header{};
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = ELFCLASS64;
        header.e_ident[EI_DATA] = ELFDATA2LSB;
        header.e_ident[EI_VERSION] = EV_CURRENT;
        header.e_type = ET_DYN;
        header.e_machine = EM_X86_64;
        header.e_version = EV_CURRENT;
        header.e_ehsize = sizeof header;
        header.e_phentsize = sizeof(Elf64_Phdr);
        header.e_shentsize = sizeof(Elf64_Shdr);
        header.e_shnum = 3;
        std::array<Elf64_Shdr, 3> sections{};
        sections[1].sh_type = SHT_SYMTAB;
        sections[1].sh_link = 2;
        sections[1].sh_offset = sizeof header;
        sections[1].sh_size = symbols_.size() * sizeof(Elf64_Sym);
        sections[1].sh_entsize = sizeof(Elf64_Sym);
        sections[2].sh_type = SHT_STRTAB;
        sections[2].sh_offset = sections[1].sh_offset + sections[1].sh_size;
        sections[2].sh_size = strings_.size();
        header.e_shoff = (sections[2].sh_offset + sections[2].sh_size + 7) & ~7ULL;
        std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
        bytes.append(reinterpret_cast<const char*>(symbols_.data()), sections[1].sh_size);
        bytes += strings_;
        bytes.resize(header.e_shoff);
        bytes.append(reinterpret_cast<const char*>(sections.data()), sizeof sections);
        UniqueFd fd(memfd_create("symbols", MFD_CLOEXEC));
        EXPECT_EQ(write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
        return fd;
    }
    std::string name_at(uint64_t address) const {
        const auto result = symbolize_addresses(file().get(), std::array{address}, {});
        EXPECT_TRUE(result) << result.error().message;
        return result ? result->symbols.at(0).name : "";
    }

  private:
    std::vector<Elf64_Sym> symbols_;
    std::string strings_ = std::string(1, '\0');
};

TEST(Symbolizer, TakesTheInnerOfNestedFunctionsAndTheOuterBehindIt) {
    SymbolFile file;
    file.add("outer", 0x1000, 0x100);
    file.add("inner", 0x1010, 0x10);
    EXPECT_EQ(file.name_at(0x1008), "outer");
    EXPECT_EQ(file.name_at(0x1018), "inner");
    EXPECT_EQ(file.name_at(0x1080), "outer");
    EXPECT_EQ(file.name_at(0x1100), "");
    const auto both = symbolize_addresses(file.file().get(), std::array<uint64_t, 3>{0x1080, 0x1018, 0x1008}, {});
    ASSERT_TRUE(both);
    EXPECT_EQ(both->symbols[0].name, "outer");
    EXPECT_EQ(both->symbols[1].name, "inner");
    EXPECT_EQ(both->symbols[2].name, "outer");
}

TEST(Symbolizer, PrefersOfOneAddressTheSizedTheGlobalTheShortName) {
    SymbolFile file;
    file.add("a_much_longer_alias", 0x1000, 0x10);
    file.add("unsized", 0x1000, 0);
    file.add("name", 0x1000, 0x10);
    file.add("loc", 0x1000, 0x10, STB_LOCAL);
    EXPECT_EQ(file.name_at(0x1004), "name");
    EXPECT_EQ(file.name_at(0x1010), "unsized");
}

TEST(Symbolizer, LetsAFunctionWithoutSizeReachTheNext) {
    SymbolFile file;
    file.add("_start", 0x1000, 0);
    file.add("next", 0x1100, 0x10);
    EXPECT_EQ(file.name_at(0x10ff), "_start");
    EXPECT_EQ(file.name_at(0x1100), "next");
}

TEST(Symbolizer, SurvivesSizesThatWrap) {
    SymbolFile file;
    file.add("huge", 0xffff'ffff'ffff'0000, 0xffff'ffff'ffff'ffff);
    EXPECT_EQ(file.name_at(0xffff'ffff'ffff'1000), "huge");
    EXPECT_EQ(file.name_at(0x10), "");
}

TEST(Symbolizer, DemanglesWithinBounds) {
    EXPECT_EQ(demangle("_ZNSt6vectorIiSaIiEE9push_backEOi"),
              "std::vector<int, std::allocator<int> >::push_back(int&&)");
    EXPECT_EQ(demangle("main"), "");
    EXPECT_EQ(demangle("_RNvC5crate4main"), "");
    EXPECT_EQ(demangle("_Z" + std::string(10'000, 'P')), "");
    // Each pair takes the one before it twice: 2 to the 20 of them when written out.
    std::string doubling = "_Z1fSt4pairIiiE";
    for (int i = 0; i < 18; ++i) doubling += "S" + std::string(1, "0123456789ABCDEFGHIJ"[i]) + "_";
    EXPECT_LE(demangle(doubling).size(), 4096U);
}

TEST(Symbolizer, DemanglesUntilTheBudgetOfARequestIsUsedUp) {
    // Each function type has the one before it twice.
    std::string doubling = "_Z1fPFvvE";
    for (size_t last = 1; last <= 31; last += 2) {
        const std::string before = std::string("S") + "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[last - 1] + "_";
        doubling += "PFv" + before + before + "E";
    }
    Demangler demangler(std::chrono::milliseconds(1));
    size_t names = 0;
    while (names < 1'000 && !demangler.demangle(doubling).empty()) ++names;
    EXPECT_GE(names, 1u) << "the name is one";
    EXPECT_LT(names, 1'000u);
    EXPECT_EQ(demangler.demangle("_Z1fv"), "");
    EXPECT_EQ(demangler.text("_Z1fv"), "_Z1fv");
    EXPECT_EQ(Demangler(std::chrono::hours(1)).text("_Z1fv"), "f()");
}

}  // namespace
}  // namespace ingero
