#include "daemon/ingerod/loop/journal.h"

#include <spdlog/spdlog.h>
#include <sys/uio.h>
#include <syslog.h>
#include <systemd/sd-journal.h>

#include "daemon/ingerod/loop/journal_ids.h"

namespace ingero {

namespace {

const char* id_of(MessageKind kind) {
    switch (kind) {
        case MessageKind::started:
            return journal::started_id;
        case MessageKind::stopped:
            return journal::stopped_id;
        case MessageKind::degraded:
            return journal::degraded_id;
        case MessageKind::loss:
            return journal::loss_id;
        case MessageKind::incident_opened:
            return journal::incident_opened_id;
        case MessageKind::incident_closed:
            return journal::incident_closed_id;
        case MessageKind::straggler_detected:
            return journal::straggler_detected_id;
        case MessageKind::peer_refused:
            return journal::peer_refused_id;
        case MessageKind::reloaded:
            break;
    }
    return journal::reloaded_id;
}

spdlog::level::level_enum level_of(int priority) {
    if (priority <= LOG_ERR) return spdlog::level::err;
    return priority <= LOG_WARNING ? spdlog::level::warn : spdlog::level::info;
}

}  // namespace

void Journal::send(MessageKind kind, int priority, const std::string& text,
                   const std::vector<JournalField>& fields) const {
    if (to_journal_) {
        std::vector<std::string> lines = {"MESSAGE=" + text, "PRIORITY=" + std::to_string(priority),
                                          std::string("MESSAGE_ID=") + id_of(kind), "SYSLOG_IDENTIFIER=ingerod",
                                          "INGERO_NODE=" + node_};
        for (const auto& [name, value] : fields) lines.push_back(name + "=" + value);
        std::vector<iovec> parts;
        for (std::string& line : lines) parts.push_back({line.data(), line.size()});
        if (sd_journal_sendv(parts.data(), static_cast<int>(parts.size())) >= 0) return;
    }
    spdlog::log(level_of(priority), "{}", text);
}

}  // namespace ingero
