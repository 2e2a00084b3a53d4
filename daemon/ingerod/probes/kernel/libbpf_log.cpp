#include "daemon/ingerod/probes/kernel/libbpf_log.h"

#include <bpf/libbpf.h>
#include <spdlog/spdlog.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <string_view>

namespace ingero {

namespace {

thread_local LibbpfWords words;

// "prog 'NAME': -- BEGIN PROG LOAD LOG --", the verifier's lines, "-- END PROG LOAD LOG --": libbpf says it at once.
constexpr std::string_view log_begins = "-- BEGIN PROG LOAD LOG --", log_ends = "-- END PROG LOAD LOG --";

// The verifier ends with what it found wrong, and then with figures about its own work.
bool is_figure(std::string_view line) {
    return line.starts_with("processed ") || line.starts_with("verification time ") || line.starts_with("stack depth ");
}

std::string text_of(const char* format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(nullptr, 0, format, again);
    va_end(again);
    std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
    vsnprintf(text.data(), text.size() + 1, format, arguments);
    return text;
}

int take(libbpf_print_level level, const char* format, va_list arguments) {
    if (level == LIBBPF_DEBUG) return 0;
    const std::string text = text_of(format, arguments);
    bool in_log = false;
    std::string program;
    for (size_t from = 0; from < text.size();) {
        const size_t end = std::min(text.find('\n', from), text.size());
        const std::string_view line = std::string_view(text).substr(from, end - from);
        from = end + 1;
        if (const size_t at = line.find(log_begins); at != std::string_view::npos) {
            in_log = true;
            program = line.substr(0, at);
            if (program.starts_with("libbpf: ")) program.erase(0, strlen("libbpf: "));
        } else if (line.find(log_ends) != std::string_view::npos) {
            in_log = false;
        } else if (!line.empty()) {
            spdlog::debug("libbpf: {}", line);
            if (!in_log)
                words.last = line;
            else if (!is_figure(line))
                words.verifier = program + std::string(line);
        }
    }
    return 0;
}

}  // namespace

void listen_to_libbpf() {
    words = {};
    libbpf_set_print(take);
}

const LibbpfWords& libbpf_words() {
    return words;
}

}  // namespace ingero
