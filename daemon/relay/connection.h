// The relay's connection to ingerod. It never waits: what finds no room in the socket is kept, as much as is bounded,
// and goes as the socket takes it. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/model/unique_fd.h"
#include "core/wire/value.h"

namespace ingero {

class Connection {
  public:
    static constexpr size_t max_unsent_bytes = 1 << 20;

    explicit Connection(std::string path) : path_(std::move(path)) {}

    int fd() const { return fd_.get(); }
    bool is_open() const { return static_cast<bool>(fd_); }
    std::chrono::steady_clock::time_point next_attempt() const { return next_attempt_; }
    /// Of poll(2).
    short events() const;

    /// True where it has just been made.
    bool try_connect();
    /// A measurement; where there is no room for it, the oldest of those that wait goes.
    void send(const nlohmann::json& message);
    /// How something is now: takes the place of what waits of the same `name`, and is never left out for a measurement.
    void send_state(const std::string& name, const nlohmann::json& message);
    /// What the socket takes of what waits.
    void flush();
    /// What ingerod says; nothing more to come for now at nullopt.
    std::optional<nlohmann::json> next();

  private:
    struct Unsent {
        std::string state;  ///< empty: a measurement
        std::string bytes;
    };

    void put(Unsent message);
    void close();

    std::string path_;
    UniqueFd fd_;
    std::optional<ValueDecoder> decoder_;
    std::deque<Unsent> unsent_;
    size_t unsent_bytes_ = 0;
    size_t sent_of_first_ = 0;  ///< bytes: the rest must follow, else the stream would be out of step
    std::chrono::steady_clock::time_point next_attempt_{};
    bool logged_wait_ = false;
};

}  // namespace ingero
