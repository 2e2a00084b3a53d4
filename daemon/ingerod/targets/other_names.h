// Which programs that are not traced are recorded by name: `[processes] named_others`. Any program that happens to have
// the CPU that a traced thread wants, or wakes it, would else be named in the store, and in what is passed on from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/event.h"

namespace ingero {

/// Any thread.
class OtherNames {
  public:
    /// Patterns as of fnmatch(3), of names of commands.
    explicit OtherNames(std::vector<std::string> shown);

    bool hides_any() const { return !shows_all_; }
    /// Always true for the kernel's own work: its name decides what is a suspect.
    bool shows(std::string_view name) const;
    /// The names of who else is in the row read "program-PID" where they are not to be shown. Its own threads' stay.
    void hide(Event& event) const;

  private:
    void hide(Comm& comm, uint32_t tgid, const Event& event) const;

    std::vector<std::string> shown_;
    bool shows_all_;
};

}  // namespace ingero
