#include "ctl/files/tar.h"

#include <zstd.h>

#include <array>
#include <cstdio>

namespace ingero::ctl {

namespace {

constexpr size_t block_bytes = 512;

/// pax(1) of POSIX has the offsets. A number is octal digits, with a NUL.
std::string header(const TarFile& file, uint64_t time_s) {
    std::string block(block_bytes, '\0');
    const auto put = [&block](size_t at, std::string_view text) { block.replace(at, text.size(), text); };
    const auto octal = [&put](size_t at, int digits, uint64_t value) {
        std::array<char, 24> text{};
        std::snprintf(text.data(), text.size(), "%0*llo", digits, static_cast<unsigned long long>(value));
        put(at, text.data());
    };
    put(0, std::string_view(file.name).substr(0, 100));
    octal(100, 7, 0600);
    octal(108, 7, 0);  // user
    octal(116, 7, 0);  // group
    octal(124, 11, file.content.size());
    octal(136, 11, time_s);
    put(148, "        ");  // the checksum counts itself as spaces
    put(156, "0");         // a regular file
    put(257, std::string_view("ustar\0"
                              "00",
                              8));
    put(265, "root");
    put(297, "root");
    uint64_t sum = 0;
    for (const char c : block) sum += static_cast<unsigned char>(c);
    octal(148, 6, sum);
    block[154] = '\0';
    return block;
}

}  // namespace

std::string make_tar(const std::vector<TarFile>& files, uint64_t time_s) {
    std::string tar;
    for (const TarFile& file : files) {
        tar += header(file, time_s) + file.content;
        tar.resize((tar.size() + block_bytes - 1) / block_bytes * block_bytes, '\0');
    }
    tar.resize(tar.size() + 2 * block_bytes, '\0');
    return tar;
}

Result<std::string> compress_zstd(std::string_view text) {
    std::string packed(ZSTD_compressBound(text.size()), '\0');
    const size_t size = ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), ZSTD_CLEVEL_DEFAULT);
    if (ZSTD_isError(size)) return fail(ErrorCode::internal, std::string("zstd: ") + ZSTD_getErrorName(size));
    packed.resize(size);
    return packed;
}

}  // namespace ingero::ctl
