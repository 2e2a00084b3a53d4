// compile_unwind_table against what readelf says of the same files, and on hostile files.
#include "core/symbols/unwind_table.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "core/model/unique_fd.h"

namespace ingero {
namespace {

using testing::HasSubstr;

std::vector<char> read_bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

UniqueFd memory_file(const std::vector<char>& bytes) {
    UniqueFd fd(memfd_create("elf", MFD_CLOEXEC));
    EXPECT_EQ(write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    return fd;
}

Result<UnwindTable> compile(const std::string& path) {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return compile_unwind_table(fd.get());
}

Result<UnwindTable> compile(const std::vector<char>& bytes) {
    return compile_unwind_table(memory_file(bytes).get());
}

std::string path_of(const void* function) {
    Dl_info info{};
    return dladdr(function, &info) != 0 ? info.dli_fname : "";
}

/// "sp+8", "fp+16", "*(fp-8)" or the kind; then the caller's frame pointer.
std::string text_of(const ingero_unwind_row& row) {
    const int offset = (row.cfa & INGERO_UNWIND_MAX_CFA) * 8;
    std::string text;
    switch (row.cfa >> 13) {
        case INGERO_UNWIND_SP:
            text = "sp+" + std::to_string(offset);
            break;
        case INGERO_UNWIND_FP:
            text = "fp+" + std::to_string(offset);
            break;
        case INGERO_UNWIND_PLT:
            return "plt";
        case INGERO_UNWIND_FP_DEREF:
            return "*(fp-" + std::to_string(offset) + ")";
        case INGERO_UNWIND_OUTERMOST:
            return "outermost";
        default:
            return "none";
    }
    if (row.frame_pointer == INGERO_UNWIND_UNCHANGED) return text + " fp kept";
    if (row.frame_pointer == INGERO_UNWIND_LOST) return text + " fp lost";
    return text + " fp at c-" + std::to_string(row.frame_pointer * 8);
}

std::string rule_at(const UnwindTable& table, uint64_t address) {
    const auto after = std::upper_bound(table.rows.begin(), table.rows.end(), address,
                                        [](uint64_t wanted, const auto& row) { return wanted < row.address; });
    return after == table.rows.begin() ? "none" : text_of(*(after - 1));
}

/// What readelf's interpretation of a file's frames says at each address that begins a row: text as text_of() has it.
/// Expressions it does not evaluate ("exp") are left out.
std::map<uint64_t, std::string> rules_by_readelf(const std::string& path) {
    std::map<uint64_t, std::string> rules;
    FILE* pipe = popen(("readelf -W --debug-dump=frames-interp " + path + " 2>/dev/null").c_str(), "r");
    if (!pipe) return rules;
    std::array<char, 4096> line;
    std::vector<std::string> columns;
    bool in_function = false;
    while (fgets(line.data(), line.size(), pipe)) {
        std::istringstream words(line.data());
        std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
        if (strstr(line.data(), " CIE ") || strstr(line.data(), " FDE ")) {
            in_function = strstr(line.data(), " FDE ");
        } else if (!fields.empty() && fields[0] == "LOC") {
            columns = fields;
        } else if (in_function && fields.size() > 2 && fields.size() == columns.size() && fields[0].size() == 16) {
            std::string cfa = fields[1], frame_pointer = " fp kept", return_address;
            for (size_t i = 2; i < fields.size(); ++i) {
                if (columns[i] == "ra") return_address = fields[i];
                if (columns[i] == "rbp" && fields[i] != "u") frame_pointer = " fp at " + fields[i];
                if (columns[i] == "rbp" && fields[i].find("xp") != std::string::npos) frame_pointer = " fp lost";
            }
            if (cfa.starts_with("rsp+")) cfa = "sp+" + cfa.substr(4);
            if (cfa.starts_with("rbp+")) cfa = "fp+" + cfa.substr(4);
            const bool is_offset = cfa.starts_with("sp+") || cfa.starts_with("fp+");
            // A frame of 64 KiB and more is beyond what a row holds.
            const bool is_followed = is_offset && std::stoull(cfa.substr(3)) <= 8 * INGERO_UNWIND_MAX_CFA;
            const std::string rule = return_address == "u"          ? "outermost"
                                     : !is_followed && cfa != "exp" ? "none"
                                                                    : cfa + frame_pointer;
            if (cfa != "exp" || rule == "outermost") rules[std::stoull(fields[0], nullptr, 16)] = rule;
        }
    }
    pclose(pipe);
    return rules;
}

void compare_with_readelf(const std::string& path) {
#if !defined(__x86_64__)
    GTEST_SKIP() << "SKIPPED: readelf names the registers of another architecture otherwise";
#endif
    const auto expected = rules_by_readelf(path);
    if (expected.empty()) GTEST_SKIP() << "SKIPPED: no readelf that interprets frames";
    const auto table = compile(path);
    ASSERT_TRUE(table) << path << ": " << table.error().message;
    size_t wrong = 0;
    for (const auto& [address, rule] : expected) {
        if (rule_at(*table, address) == rule) continue;
        if (++wrong <= 5)
            ADD_FAILURE() << path << " at " << std::hex << address << ": " << rule_at(*table, address)
                          << ", readelf says " << rule;
    }
    EXPECT_EQ(wrong, 0U) << "of " << expected.size();
    EXPECT_GT(expected.size(), 500U);
}

TEST(UnwindTable, HasTheRulesThatReadelfFindsInTheCLibrary) {
    compare_with_readelf(path_of(reinterpret_cast<void*>(&fopen)));
}

TEST(UnwindTable, HasTheRulesThatReadelfFindsInTheCppLibrary) {
    compare_with_readelf(path_of(reinterpret_cast<void*>(&std::rethrow_exception)));
}

TEST(UnwindTable, HasTheRulesThatReadelfFindsInThisProgram) {
    compare_with_readelf(std::filesystem::read_symlink("/proc/self/exe"));
}

/// Without its section headers, as some packers and all running processes have it.
std::vector<char> without_sections(std::vector<char> bytes) {
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    header.e_shoff = 0;
    header.e_shnum = 0;
    header.e_shstrndx = 0;
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
}

TEST(UnwindTable, IsFoundByTheProgramHeadersAlone) {
    // Not one that a sanitizer has a version of its own of.
    const auto bytes = read_bytes(path_of(reinterpret_cast<void*>(&gnu_get_libc_version)));
    const auto whole = compile(bytes), stripped = compile(without_sections(bytes));
    ASSERT_TRUE(whole) << whole.error().message;
    ASSERT_TRUE(stripped) << stripped.error().message;
    ASSERT_EQ(whole->rows.size(), stripped->rows.size());
    EXPECT_EQ(std::memcmp(whole->rows.data(), stripped->rows.data(), whole->rows.size() * sizeof(ingero_unwind_row)),
              0);
    EXPECT_GT(whole->functions, 1000U);
    EXPECT_EQ(whole->build_id.size(), 40U);
    ASSERT_FALSE(whole->code.empty());
    EXPECT_TRUE(whole->code.front().executable);
}

TEST(UnwindTable, IsSortedAndSaysNothingTwice) {
    const auto table = compile(path_of(reinterpret_cast<void*>(&std::rethrow_exception)));
    ASSERT_TRUE(table) << table.error().message;
    for (size_t i = 1; i < table->rows.size(); ++i) {
        ASSERT_LT(table->rows[i - 1].address, table->rows[i].address);
        ASSERT_FALSE(text_of(table->rows[i - 1]) == text_of(table->rows[i]) &&
                     table->rows[i - 1].frame_pointer == table->rows[i].frame_pointer)
            << std::hex << table->rows[i].address;
    }
}

TEST(UnwindTable, IsRefusedBeyondItsLimits) {
    const auto bytes = read_bytes(path_of(reinterpret_cast<void*>(&fopen)));
    const auto file = memory_file(bytes);
    const auto rows = compile_unwind_table(file.get(), {.rows = 100});
    ASSERT_FALSE(rows);
    EXPECT_EQ(rows.error().code, ErrorCode::limit);
    EXPECT_THAT(rows.error().message, HasSubstr("more than 100 rows"));
    const auto size = compile_unwind_table(file.get(), {.frame_bytes = 1000});
    ASSERT_FALSE(size);
    EXPECT_EQ(size.error().code, ErrorCode::limit);
}

TEST(UnwindTable, OfACutFileIsAnErrorAndNoCrash) {
    const auto bytes = read_bytes("/proc/self/exe");
    for (size_t length = bytes.size(); length > 0; length = length * 3 / 4) {
        auto part = bytes;
        part.resize(length);
        const auto table = compile(part);
        if (length < bytes.size() / 2) {
            EXPECT_FALSE(table) << length;
        }
    }
}

TEST(UnwindTable, OfSomethingElseSaysSo) {
    const auto table = compile(std::vector<char>(100, 'x'));
    ASSERT_FALSE(table);
    EXPECT_EQ(table.error().code, ErrorCode::corrupt);
}

/// The mapping of real libraries, where the machine has them.
TEST(UnwindTable, CompilesTheRealCudaRuntime) {
    const char* path = "/usr/local/cuda/lib64/libcudart.so";
    if (access(path, R_OK) != 0) GTEST_SKIP() << "SKIPPED: no " << path;
    const auto table = compile(path);
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_GT(table->rows.size(), 1000U);
    EXPECT_LT(table->unsupported, table->functions / 100);
}

}  // namespace
}  // namespace ingero
