// One client of the control socket: reads requests, answers them, closes when the client breaks a rule.
// control_server.h is the way in. Loop thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/model/result.h"
#include "core/model/unique_fd.h"
#include "core/wire/rpc.h"
#include "daemon/ingerod/control/control_backend.h"
#include "daemon/ingerod/control/control_server.h"
#include "daemon/ingerod/loop/event_loop.h"

namespace ingero {

class ControlConnection;

/// What a connection needs of the server that holds it.
class ControlHost {
  public:
    virtual ~ControlHost() = default;
    virtual EventLoop& loop() = 0;
    virtual ControlBackend& backend() = 0;
    virtual const ControlOptions& options() const = 0;
    /// The connection is closed: drop it.
    virtual void on_closed(ControlConnection& connection) = 0;
    /// Room for a long answer; false where all connections together hold too much, or those of the caller's user do.
    virtual bool reserve_output(const Caller& caller, size_t bytes) = 0;
    virtual void release_output(const Caller& caller, size_t bytes) = 0;
    /// Says in the log, at most once a second, that a client was refused. `reason` holds no text of the client's.
    virtual void log_refusal(const Caller& caller, std::string_view reason) = 0;
};

/// Held by shared_ptr, so that a callback that closes it does not pull the ground from under its own feet, and so that
/// an answer that comes too late finds an expired weak_ptr.
class ControlConnection : public std::enable_shared_from_this<ControlConnection> {
  public:
    using Clock = std::chrono::steady_clock;

    /// Takes over `fd`, which must be non-blocking.
    ControlConnection(ControlHost& host, int fd, const Caller& caller);
    ~ControlConnection();
    ControlConnection(const ControlConnection&) = delete;
    ControlConnection& operator=(const ControlConnection&) = delete;

    void start();
    /// Closes what has stalled for longer than the options allow.
    void check_stalls(Clock::time_point now);
    const Caller& caller() const { return caller_; }
    /// No answer is under way.
    bool is_idle() const { return !pending_ && !stream_ && !footprint_; }
    /// Tells the client why, if it reads that at once and no worker is writing to it, and closes.
    void evict(const Error& why);

  private:
    /// The request that is being answered: one at a time.
    struct Pending {
        uint64_t ticket = 0;       ///< no other request of this connection has it
        bool handed_over = false;  ///< a worker answers
        bool begun = false;        ///< and has begun to
    };

    void on_io(uint32_t events);
    void read_input();
    void advance();
    void process();
    void handle(RpcRequest request);
    void hello(const RpcRequest& request);
    void reload(const RpcRequest& request);
    void start_query(const RpcRequest& request);
    void start_check(const RpcRequest& request);
    void start_snapshot(const RpcRequest& request);
    void start_stream(const RpcRequest& request);
    void footprint(const RpcRequest& request);
    uint64_t begin_request(bool handed_over);
    static std::shared_ptr<ControlConnection> awaiting(const std::weak_ptr<ControlConnection>& weak, uint64_t ticket);
    std::function<void(Result<nlohmann::json>)> answer_later(const RpcRequest& request);
    bool is_root() const;

    /// `is_counted`: among the long answers for which there is limited room.
    void answer(uint64_t request, const nlohmann::json& result, bool is_counted = true);
    void answer_error(uint64_t request, Error error);
    void pump_stream();

    void write(std::string_view bytes);
    void send_output();
    void update_events();
    size_t unsent_bytes() const { return output_.size() - output_sent_; }
    /// The next message may be looked at: its answer has this connection to itself.
    bool is_free() const { return fd_ >= 0 && !closing_ && !pending_ && unsent_bytes() == 0; }
    void refuse(const Error& error);
    void discard_input();
    void close();
    void close_socket();

    ControlHost& host_;
    int fd_;
    const Caller caller_;
    EventLoop::Source io_;
    EventLoop::Source resume_;  ///< more messages are waiting in the decoder than one turn takes
    RpcDecoder decoder_;
    UniqueFd passed_fd_;  ///< the last that came, until a request takes it
    std::string output_;
    size_t output_sent_ = 0;
    size_t reserved_ = 0;  ///< of it, with the host
    std::optional<Pending> pending_;
    uint64_t last_ticket_ = 0;
    std::unique_ptr<LiveStream> stream_;  ///< ends with the connection
    const char* notification_ = nullptr;  ///< in which what it has comes
    std::unique_ptr<FootprintRecording> footprint_;
    EventLoop::Source pump_;           ///< the stream has something
    Clock::time_point hello_due_;      ///< until greeted_
    Clock::time_point message_due_{};  ///< for the half message that the decoder holds; zero: there is none
    Clock::time_point output_due_{};   ///< while output waits
    bool greeted_ = false;
    bool resuming_ = false;
    bool advancing_ = false;
    bool input_ended_ = false;  ///< the client has shut down its side and may still read
    bool closing_ = false;      ///< refused: nothing more is read, the rest of the output goes out
};

}  // namespace ingero
