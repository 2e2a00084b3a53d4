// An NFS server, version 3 over TCP on a loopback port, that answers each read late: late-nfs MS [FILE-BYTES] prints
// its port. It exports one folder with one file, "data", which can only be read. RFC 1813 (NFS 3 and its mount
// protocol), RFC 5531 (ONC RPC) and RFC 4506 (XDR) say what the bytes are. Ends when its standard input does.
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr uint32_t nfs_program = 100003, mount_program = 100005;
constexpr uint32_t program_unavailable = 1, procedure_unavailable = 3;
constexpr uint32_t nfs_ok = 0, no_such_entry = 2, not_supported = 10004;
constexpr uint32_t largest_read = 64 << 10;
constexpr size_t largest_call = 1 << 20;
// What the handles and inodes are.
constexpr uint32_t folder = 2, file = 3;

int late_ms = 0;
uint64_t file_bytes = 1 << 20;

/// The words of a call. What lies behind its end reads as 0.
class Reader {
  public:
    explicit Reader(const std::vector<char>& bytes) : bytes_(bytes) {}
    uint32_t word() {
        uint32_t value = 0;
        if (at_ + sizeof(value) <= bytes_.size()) memcpy(&value, bytes_.data() + at_, sizeof(value));
        at_ += sizeof(value);
        return ntohl(value);
    }
    uint64_t wide() {
        const uint64_t high = word();
        return high << 32 | word();
    }
    std::string opaque() {
        const uint32_t size = word();
        if (at_ >= bytes_.size() || size > bytes_.size() - at_) return {};
        std::string text(bytes_.data() + at_, size);
        at_ += (size + 3) / 4 * 4;
        return text;
    }

  private:
    const std::vector<char>& bytes_;
    size_t at_ = 0;
};

class Writer {
  public:
    Writer& word(uint32_t value) {
        value = htonl(value);
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
        return *this;
    }
    Writer& wide(uint64_t value) { return word(static_cast<uint32_t>(value >> 32)).word(static_cast<uint32_t>(value)); }
    Writer& opaque(const std::string& text) {
        word(static_cast<uint32_t>(text.size()));
        bytes_ += text;
        bytes_.append((4 - text.size() % 4) % 4, '\0');
        return *this;
    }
    Writer& handle(uint32_t of) { return opaque(std::string(1, static_cast<char>(of))); }
    Writer& attributes(uint32_t of) {
        const uint64_t size = of == file ? file_bytes : 4096;
        word(of == file ? 1 : 2).word(of == file ? 0444 : 0555).word(1).word(0).word(0);
        wide(size).wide(size).word(0).word(0).wide(1).wide(of);
        for (int time = 0; time < 3; ++time) word(1).word(0);
        return *this;
    }
    /// As they follow an operation.
    Writer& attributes_after(uint32_t of) { return word(1).attributes(of); }
    const std::string& bytes() const { return bytes_; }

  private:
    std::string bytes_;
};

uint32_t handle_of(Reader& call) {
    const std::string text = call.opaque();
    return text.empty() ? 0 : static_cast<unsigned char>(text[0]);
}

void answer_read(Reader& call, Writer& answer) {
    handle_of(call);
    const uint64_t offset = std::min(call.wide(), file_bytes);
    const uint64_t count = std::min<uint64_t>({call.word(), largest_read, file_bytes - offset});
    poll(nullptr, 0, late_ms);  // the stall itself
    answer.word(nfs_ok).attributes_after(file).word(static_cast<uint32_t>(count)).word(offset + count == file_bytes);
    answer.opaque(std::string(count, 'x'));
}

/// False where there is no such procedure.
bool answer_nfs(uint32_t procedure, Reader& call, Writer& answer) {
    switch (procedure) {
        case 0:
            return true;
        case 1:  // GETATTR
            answer.word(nfs_ok).attributes(handle_of(call));
            return true;
        case 3:  // LOOKUP
            handle_of(call);
            if (call.opaque() == "data")
                answer.word(nfs_ok).handle(file).attributes_after(file).attributes_after(folder);
            else
                answer.word(no_such_entry).attributes_after(folder);
            return true;
        case 4: {  // ACCESS
            const uint32_t of = handle_of(call);
            answer.word(nfs_ok).attributes_after(of).word(call.word() & 0x23);  // read, look up, execute
            return true;
        }
        case 6:
            answer_read(call, answer);
            return true;
        case 18:  // FSSTAT
            answer.word(nfs_ok).attributes_after(folder);
            for (int of = 0; of < 6; ++of) answer.wide(0);
            answer.word(0);
            return true;
        case 19:  // FSINFO
            answer.word(nfs_ok).attributes_after(folder);
            for (const uint32_t size : {largest_read, largest_read, 4096u, 4096u, 4096u, 4096u, 4096u})
                answer.word(size);
            answer.wide(INT64_MAX).word(0).word(1).word(0x8);  // its properties are the same for all files
            return true;
        case 20:  // PATHCONF
            answer.word(nfs_ok).attributes_after(folder).word(1).word(255).word(1).word(1).word(0).word(1);
            return true;
        default:
            if (procedure > 21) return false;
            answer.word(not_supported).word(0).word(0);
            return true;
    }
}

bool answer_mount(uint32_t procedure, Writer& answer) {
    if (procedure == 1) answer.word(nfs_ok).handle(folder).word(1).word(1);  // MNT, with AUTH_SYS
    return procedure <= 3;
}

std::string answer_to(const std::vector<char>& bytes) {
    Reader call(bytes);
    const uint32_t id = call.word();
    call.word();  // that it is a call
    call.word();  // the version of RPC
    const uint32_t program = call.word();
    call.word();  // and its version
    const uint32_t procedure = call.word();
    for (int credential = 0; credential < 2; ++credential) {
        call.word();
        call.opaque();
    }
    Writer answer;
    bool known = true;
    if (program == nfs_program)
        known = answer_nfs(procedure, call, answer);
    else if (program == mount_program)
        known = answer_mount(procedure, answer);
    const bool served = program == nfs_program || program == mount_program;
    Writer message;
    message.word(id).word(1).word(0).word(0).word(0);  // a reply, accepted, with no verifier
    message.word(!served ? program_unavailable : known ? 0 : procedure_unavailable);
    return message.bytes() + (served && known ? answer.bytes() : "");
}

bool read_all(int socket, char* to, size_t bytes) {
    while (bytes > 0) {
        const ssize_t got = read(socket, to, bytes);
        if (got <= 0) return false;
        to += got;
        bytes -= static_cast<size_t>(got);
    }
    return true;
}

/// False once the connection is at its end.
bool serve(int socket) {
    std::vector<char> call;
    for (bool last = false; !last;) {
        uint32_t head = 0;
        if (!read_all(socket, reinterpret_cast<char*>(&head), sizeof(head))) return false;
        head = ntohl(head);
        last = (head & 0x80000000) != 0;
        const size_t size = head & 0x7fffffff, before = call.size();
        if (size > largest_call - before) return false;
        call.resize(before + size);
        if (!read_all(socket, call.data() + before, size)) return false;
    }
    const std::string answer = answer_to(call);
    const uint32_t head = htonl(0x80000000 | static_cast<uint32_t>(answer.size()));
    const std::string message = std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + answer;
    return send(socket, message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size());
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 2 || count > 3) return 2;
    late_ms = atoi(arguments[1]);
    if (count == 3) file_bytes = strtoull(arguments[2], nullptr, 10);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || listen(listener, 8) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
        return perror("listen"), 1;
    printf("port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    std::vector<pollfd> watched = {{STDIN_FILENO, POLLIN, 0}, {listener, POLLIN, 0}};
    while (poll(watched.data(), watched.size(), -1) >= 0) {
        if (watched[0].revents != 0) {
            char byte = 0;
            if (read(STDIN_FILENO, &byte, 1) <= 0) return 0;
        }
        for (size_t i = 2; i < watched.size(); ++i) {
            if (watched[i].revents == 0 || serve(watched[i].fd)) continue;
            close(watched[i].fd);
            watched[i].fd = -1;
        }
        std::erase_if(watched, [](const pollfd& one) { return one.fd < 0; });
        if (watched[1].revents != 0) watched.push_back({accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), POLLIN, 0});
    }
    return 1;
}
