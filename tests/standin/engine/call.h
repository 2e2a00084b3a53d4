// One call of an exported function: its place in the nesting, its record in the log and the scripted rules that apply.
// Every exported function makes a Call its first local and returns through leave(). No destructor does this, on
// purpose: a call left by longjmp or thread exit must leave its record unfinished, as it leaves a tracer's frame
// behind.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "../ground_truth.h"
#include "arguments.h"
#include "clock.h"
#include "function_id.h"

namespace ingero::standin {

struct RuleList;

inline constexpr uint32_t max_depth = 8;
inline constexpr uint32_t max_contexts = 6;

/// Lives in the engine, and is small: libraries loaded by dlopen share little room for such thread variables.
struct ThreadState {
    uint32_t pid;
    uint32_t tid;  ///< 0 until the thread's first call
    uint32_t depth;
    int32_t last_error;  ///< of the runtime
    int32_t device;
    uint32_t default_stream;  ///< index of the per-thread default stream, 0 until it is used
    uint32_t carried_flags;   ///< of nested calls that have returned, for the call around them
    int32_t fail_next;        ///< the error that the thread's next call is to return, see standin_fail_next
    int32_t pending_fault;    ///< the error that what the thread enqueues next will end in
    uint16_t logged_device;   ///< `device`, or none after the last context was left
    bool has_context;
    uint8_t context_count;
    uint32_t contexts[max_contexts];  ///< indices of their handles, the current one last
    uint64_t carried_wait_ns;
    uint64_t nested_bytes;        ///< of the nested call that returned last
    uintptr_t frames[max_depth];  ///< frame address of each call in progress
};

/// Read in every call, so it is plain data that other libraries reach without calling the engine.
struct Hot {
    ground_truth_header* header;  ///< null without a log
    ground_truth_record* records;
    uint64_t capacity;
    uint64_t call_ns;
    uint32_t cpu_depths;              ///< calls less deep than this have their CPU time in the log
    RuleList* rules[function_count];  ///< null for a function without
};

extern __thread ThreadState thread_state __attribute__((tls_model("initial-exec")));
extern Hot hot;

/// First call of a thread: its ids, and once a process the options and the log.
void begin_thread();

/// How long a call waited, and how.
struct Note {
    uint64_t waited_ns = 0;
    uint8_t flags = 0;

    void waited(uint64_t ns, uint8_t how) {
        waited_ns += ns;
        flags |= how;
    }
};

/// The number of the log's slot for a kernel's name, from 1, or 0 when there is no log or no room.
uint32_t log_kernel_name(const char* name);

/// Carries out the rules of the function that are due. Returns the error that the call must return, or 0.
int apply_rules(RuleList& rules, Note& note);

class Call {
  public:
    [[gnu::always_inline]] explicit Call(Fn function) : thread_(thread_state) {
        if (thread_.tid == 0) [[unlikely]]
            begin_thread();
        enter(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
        if (hot.header != nullptr) open_record(function);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    bool is_logged() const { return record_ != nullptr; }

    /// What the call was made with goes into its record.
    [[gnu::always_inline]] void tell(const Arguments& told) {
        bytes = told.bytes;
        result_ = told.result;
        result_size_ = told.result_size;
        result_index_ = told.result_index;
        record_->bytes = told.bytes;
        record_->stream = told.stream;
        record_->args[0] = told.args[0];
        record_->args[1] = told.args[1];
        record_->args[2] = told.args[2];
        record_->device = thread_.logged_device;
        if (told.kernel_name != nullptr) record_->kernel_name = log_kernel_name(told.kernel_name);
    }

    /// What the library knows only while it does it: the three words.
    void say(uint64_t first, uint64_t second, uint64_t third) {
        if (record_ == nullptr) return;
        record_->args[0] = first;
        record_->args[1] = second;
        record_->args[2] = third;
    }

    /// Carries out the rules. Before what the call does.
    [[gnu::always_inline]] void begin(Fn function) {
        if (RuleList* rules = hot.rules[size_t(function)]) [[unlikely]]
            error_ = apply_rules(*rules, note);
        if (thread_.fail_next != 0) [[unlikely]] {
            error_ = thread_.fail_next;
            thread_.fail_next = 0;
            note.flags |= GROUND_TRUTH_SCRIPTED_ERROR;
        }
        if (hot.call_ns != 0) [[unlikely]]
            spin_until(now_ns() + hot.call_ns);
    }

    /// A rule said that the call fails: it returns error() and does nothing else.
    bool failed() const { return error_ != 0; }
    int error() const { return error_; }

    /// Writes the end of the record. The last thing before the return.
    [[gnu::always_inline]] int leave(int result) {
        const uint64_t waited_ns = note.waited_ns + thread_.carried_wait_ns;
        const uint32_t flags = note.flags | thread_.carried_flags;
        thread_.depth = depth_;
        thread_.nested_bytes = bytes;
        thread_.carried_wait_ns = depth_ == 0 ? 0 : outer_wait_ns_ + waited_ns;
        thread_.carried_flags = depth_ == 0 ? 0 : outer_flags_ | flags;
        if (record_ != nullptr) close_record(result, waited_ns, flags);
        return result;
    }

    Note note;
    uint64_t bytes = 0;  ///< for the record, where the arguments do not say it

  private:
    // Calls in progress have frames further up the stack. What is not further up was left without a return.
    [[gnu::always_inline]] void enter(uintptr_t frame) {
        uint32_t depth = thread_.depth;
        while (depth > 0 && thread_.frames[(depth < max_depth ? depth : max_depth) - 1] <= frame) --depth;
        if (depth < max_depth) thread_.frames[depth] = frame;
        depth_ = depth;
        thread_.depth = depth + 1;
        outer_wait_ns_ = depth == 0 ? 0 : thread_.carried_wait_ns;
        outer_flags_ = depth == 0 ? 0 : thread_.carried_flags;
        thread_.carried_wait_ns = 0;
        thread_.carried_flags = 0;
    }

    // The slot is filled before the clocks are read, so that a page fault on it is not in the call's own time.
    [[gnu::always_inline]] void open_record(Fn function) {
        const uint64_t slot = __atomic_fetch_add(&hot.header->next, 1, __ATOMIC_RELAXED);
        if (slot >= hot.capacity) [[unlikely]]
            return;
        record_ = &hot.records[slot];
        record_->pid = thread_.pid;
        record_->tid = thread_.tid;
        record_->function = uint16_t(function);
        record_->depth = uint8_t(depth_);
        record_->start_ns = now_ns();
        if (depth_ < hot.cpu_depths) record_->start_cpu_ns = thread_cpu_ns();
    }

    [[gnu::always_inline]] void close_record(int result, uint64_t waited_ns, uint32_t flags) {
        constexpr uint64_t most = std::numeric_limits<uint32_t>::max();
        record_->flags = uint8_t(flags);
        record_->result = result;
        record_->bytes = bytes;
        record_->device = thread_.logged_device;
        if (result == 0 && result_ != nullptr) {
            uint64_t word = 0;
            std::memcpy(&word, result_, result_size_);  // little endian, as all machines with CUDA are
            record_->args[result_index_] = word;
        }
        record_->waited_ns = uint32_t(waited_ns < most ? waited_ns : most);
        if (depth_ < hot.cpu_depths) record_->end_cpu_ns = thread_cpu_ns();
        __atomic_store_n(&record_->end_ns, now_ns(), __ATOMIC_RELEASE);
    }

    ThreadState& thread_;
    ground_truth_record* record_ = nullptr;
    const void* result_ = nullptr;
    uint8_t result_size_ = 0;
    uint8_t result_index_ = 0;
    uint64_t outer_wait_ns_ = 0;
    uint32_t outer_flags_ = 0;
    uint32_t depth_ = 0;
    int error_ = 0;
};

}  // namespace ingero::standin

// Beside the exported functions of a stand-in library: these stay visible when everything else of it is hidden, and are
// kept whole, so that what is probed is what is called.
#define STANDIN_EXPORT extern "C" __attribute__((visibility("default"), noinline))

// Defines the exported function NAME. `told` is what the log says of its arguments (arguments.h), seen also when a
// script makes the call fail. The last argument is an expression that sees `call`: the result code. What `finish` makes
// of that is returned and logged.
#define STANDIN_FUNCTION_AS(finish, name, parameters, told, ...)                    \
    STANDIN_EXPORT int name parameters {                                            \
        ::ingero::standin::Call call(::ingero::standin::Fn::name);                  \
        if (call.is_logged()) call.tell(told);                                      \
        call.begin(::ingero::standin::Fn::name);                                    \
        return call.leave(finish(call.failed() ? call.error() : int(__VA_ARGS__))); \
    }

#define STANDIN_FUNCTION(name, parameters, told, ...) STANDIN_FUNCTION_AS(, name, parameters, told, __VA_ARGS__)
