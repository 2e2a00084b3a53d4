#include "ctl/files/demos.h"

#include <zstd.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "core/query/sources/demos.h"

namespace ingero::ctl {

namespace {

constexpr std::string_view prefix = "demo:";
/// A store is a few MiB; nothing that calls itself one fills the disk.
constexpr uint64_t most_bytes = 256 << 20;

struct FreeStream {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

Result<void> unpack(const std::string& from, const std::string& to) {
    std::ifstream packed(from, std::ios::binary);
    if (!packed) return fail(ErrorCode::not_found, errno_message("cannot open " + from, errno));
    std::ofstream unpacked(to, std::ios::binary);
    const std::unique_ptr<ZSTD_DStream, FreeStream> stream(ZSTD_createDStream());
    std::vector<char> in(ZSTD_DStreamInSize()), out(ZSTD_DStreamOutSize());
    uint64_t written = 0;
    size_t left = 1;  // of the frame
    while (packed) {
        packed.read(in.data(), static_cast<std::streamsize>(in.size()));
        ZSTD_inBuffer input{in.data(), static_cast<size_t>(packed.gcount()), 0};
        while (input.pos < input.size) {
            ZSTD_outBuffer output{out.data(), out.size(), 0};
            left = ZSTD_decompressStream(stream.get(), &output, &input);
            if (ZSTD_isError(left)) return fail(ErrorCode::corrupt, from + " is damaged: " + ZSTD_getErrorName(left));
            written += output.pos;
            if (written > most_bytes)
                return fail(ErrorCode::corrupt, from + " is damaged: it unpacks to more than 256 MiB");
            unpacked.write(out.data(), static_cast<std::streamsize>(output.pos));
        }
    }
    if (left != 0) return fail(ErrorCode::corrupt, from + " is damaged: it is truncated");
    if (!unpacked.flush()) return fail(ErrorCode::internal, errno_message("cannot write " + to, errno));
    return {};
}

}  // namespace

std::optional<std::string> demo_of(const std::string& path) {
    if (!path.starts_with(prefix)) return std::nullopt;
    return path.substr(prefix.size());
}

Result<void> unpack_demo(const std::string& name, const std::string& directory) {
    const auto scenarios = read_demos();
    if (!scenarios) return tl::unexpected(scenarios.error());
    if (const auto known = find_demo(*scenarios, name); !known) return tl::unexpected(known.error());
    return unpack(demo_directory() + "/" + name + ".zst", directory + "/data.mdb");
}

}  // namespace ingero::ctl
