// One client of the control socket: reads requests, answers them, closes when the client breaks a rule.
// control_server.h is the way in. Loop thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/model/result.h"
#include "core/model/unique_fd.h"
#include "core/wire/rpc.h"
#include "core/wire/stream.h"
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
    /// Room for a long result; false where all connections together hold too much.
    virtual bool reserve_stream_bytes(size_t bytes) = 0;
    virtual void release_stream_bytes(size_t bytes) = 0;
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
    bool is_idle() const { return in_flight_.empty() && streams_.empty() && traces_.empty() && !footprint_; }
    /// Tells the client why, if it reads that at once, and closes.
    void evict(const Error& why);

  private:
    struct LongResult {
        StreamSender sender;
        uint64_t request = 0;
    };

    /// A stream of calls, which ends when the client cancels it or goes.
    struct Trace {
        LiveSender sender;
        std::unique_ptr<CallStream> calls;
    };

    void on_io(uint32_t events);
    void read_input();
    void process();
    void handle(RpcRequest request);
    void handle(const RpcNotification& notification);
    void hello(const RpcRequest& request);
    void cancel(const RpcRequest& request);
    void reload(const RpcRequest& request);
    void start_query(const RpcRequest& request);
    void start_check(const RpcRequest& request);
    void ask_backend(const RpcRequest& request);
    std::function<void(Result<nlohmann::json>)> answer_later(const RpcRequest& request);
    void start_snapshot(const RpcRequest& request);
    void start_trace(const RpcRequest& request);
    Result<void> acknowledge(uint64_t stream, uint64_t seq);
    bool is_root() const;

    void answer(uint64_t request, const nlohmann::json& result);
    void answer_error(uint64_t request, Error error);
    void start_stream(uint64_t request, const nlohmann::json& result);
    void drop_stream(std::map<uint64_t, LongResult>::iterator stream);
    void footprint(const RpcRequest& request);
    void pump_streams();
    void pump_traces();

    void write(std::string_view bytes);
    void flush();
    void send_output();
    void update_events();
    size_t unsent_bytes() const { return output_.size() - output_sent_; }
    void refuse(const Error& error);
    void discard_input();
    void close();

    ControlHost& host_;
    int fd_;
    const Caller caller_;
    EventLoop::Source io_;
    EventLoop::Source resume_;  ///< more messages are waiting in the decoder than one turn takes
    RpcDecoder decoder_;
    UniqueFd passed_fd_;  ///< the last that came, until a request takes it
    std::string output_;
    size_t output_sent_ = 0;
    std::map<uint64_t, uint64_t> in_flight_;  ///< request id to ticket
    uint64_t last_ticket_ = 0;
    std::map<uint64_t, LongResult> streams_;
    std::map<uint64_t, Trace> traces_;  ///< numbered with the streams
    std::unique_ptr<FootprintRecording> footprint_;
    EventLoop::Source pump_;  ///< calls are there for a trace
    uint64_t last_stream_ = 0;
    Clock::time_point hello_due_;      ///< until greeted_
    Clock::time_point message_due_{};  ///< for the half message that the decoder holds; zero: there is none
    Clock::time_point output_due_{};   ///< while output waits
    Clock::time_point stream_due_{};   ///< while a stream waits
    bool greeted_ = false;
    bool resuming_ = false;
    bool input_ended_ = false;  ///< the client has shut down its side and may still read
    bool closing_ = false;      ///< refused: nothing more is read, the rest of the output goes out
};

}  // namespace ingero
