#include "daemon/ingerod/spans/span_hash.h"

#include <fcntl.h>
#include <gcrypt.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "core/model/unique_fd.h"

namespace ingero {

namespace {

constexpr size_t key_bytes = 32;
constexpr size_t hash_bytes = 8;

Result<std::string> make_key(const std::string& path) {
    std::string key(key_bytes, '\0');
    if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size()))
        return fail(ErrorCode::internal, errno_message("no random numbers", errno));
    // Whole or not there: a crash must not leave half a key.
    const std::string fresh = path + ".new";
    unlink(fresh.c_str());
    const UniqueFd file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file || write(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()) ||
        fsync(file.get()) != 0 || rename(fresh.c_str(), path.c_str()) != 0)
        return fail(ErrorCode::internal, errno_message("cannot write " + path, errno),
                    "ingerod must be able to write to its directory");
    return key;
}

}  // namespace

Result<SpanHash> SpanHash::open(const std::string& key_file) {
    const UniqueFd file(::open(key_file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!file && errno == ENOENT) {
        auto key = make_key(key_file);
        if (!key) return tl::unexpected(key.error());
        return SpanHash(std::move(*key));
    }
    struct stat facts {};
    if (!file || fstat(file.get(), &facts) != 0)
        return fail(ErrorCode::internal, errno_message("cannot read " + key_file, errno));
    if ((facts.st_mode & 077) != 0 || facts.st_uid != geteuid())
        return fail(ErrorCode::denied, key_file + " may be read by others",
                    "set its mode to 0600, and make ingerod's user its owner");
    std::string key(key_bytes + 1, '\0');
    const ssize_t size = read(file.get(), key.data(), key.size());
    if (size != static_cast<ssize_t>(key_bytes))
        return fail(ErrorCode::corrupt, key_file + " is not a key of 32 bytes",
                    "remove it: ingerod makes a new one, and earlier hashes can no longer be found by their ids");
    key.resize(key_bytes);
    return SpanHash(std::move(key));
}

std::string SpanHash::operator()(std::string_view id) const {
    static const bool ready = gcry_check_version(nullptr) && gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0) == 0;
    std::array<unsigned char, 32> digest{};
    gcry_buffer_t parts[2]{};
    parts[0].data = const_cast<char*>(key_.data());
    parts[0].size = parts[0].len = key_.size();
    parts[1].data = const_cast<char*>(id.data());
    parts[1].size = parts[1].len = id.size();
    // An id in the clear is never what was asked for.
    if (!ready || gcry_md_hash_buffers(GCRY_MD_SHA256, GCRY_MD_FLAG_HMAC, digest.data(), parts, 2) != 0)
        return "unhashed";
    std::string text;
    for (size_t i = 0; i < hash_bytes; ++i)
        for (const int shift : {4, 0}) text += "0123456789abcdef"[(digest[i] >> shift) & 0xf];
    return text;
}

}  // namespace ingero
