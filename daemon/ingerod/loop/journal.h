// What an administrator should know, as journal entries with a message id and fields (systemd/ingero.catalog explains
// each kind). Without a journal, plain lines of the log. Any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ingero {

enum class MessageKind {
    started,
    stopped,
    degraded,
    loss,
    incident_opened,
    incident_closed,
    straggler_detected,
    peer_refused,
    reloaded,
};

/// "INGERO_KIND" and the like, and its value.
using JournalField = std::pair<std::string, std::string>;

class Journal {
  public:
    /// `to_journal`: whether the journal takes what we log.
    Journal(std::string node, bool to_journal) : node_(std::move(node)), to_journal_(to_journal) {}

    /// `priority` is one of syslog.h. Text of targets in `text` must be escaped; in fields it may be anything.
    void send(MessageKind kind, int priority, const std::string& text,
              const std::vector<JournalField>& fields = {}) const;

  private:
    std::string node_;
    bool to_journal_;
};

}  // namespace ingero
