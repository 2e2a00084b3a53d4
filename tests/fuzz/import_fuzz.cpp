// A SQLite trace from a file that may come from anywhere: an error, or rows that a store takes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/import/import.h"
#include "core/import/trace_copy.h"
#include "core/import/trace_stacks.h"

namespace {

using ingero::Result;

void require(bool holds) {
    if (!holds) abort();
}

/// Stores nothing, and looks at what it is given.
class NoStore final : public ingero::StoreWriter {
  public:
    Result<void> begin_session(ingero::Session session) override {
        require(session.first_covered_ns != 0 && session.first_covered_ns < session.last_covered_ns);
        return {};
    }
    void set_first_covered(uint64_t) override {}
    bool fits(const ingero::Batch&) override { return true; }
    Result<void> commit(const ingero::Batch& batch) override {
        for (const ingero::Event& event : batch.events) {
            require(event.sequence == ++sequence_);
            require(event.start_ns != 0 && event.start_ns <= INT64_MAX && event.duration_ns <= INT64_MAX);
            require(event.blocked_ns <= event.duration_ns);
        }
        for (const ingero::Process& process : batch.processes)
            require(process.key.pid != 0 && process.comm.size() < 16);
        for (const ingero::StackRow& stack : batch.stacks)
            require(stack.id == ++stack_ && stack.frames.size() <= 1'024);
        return {};
    }
    Result<void> end_session() override { return {}; }
    ingero::StoreFigures figures() const override { return {}; }
    Result<bool> tidy() override { return false; }

  private:
    uint64_t sequence_ = 0;
    uint32_t stack_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::vector<ingero::TraceFrame> frames;
    ingero::parse_frames({reinterpret_cast<const char*>(data), size}, frames);
    require(frames.size() <= 1'024);

    const auto copy = ingero::TraceCopy::of_bytes({reinterpret_cast<const std::byte*>(data), size});
    if (!copy) return 0;
    NoStore store;
    ingero::ImportOptions options;
    options.time_limit = std::chrono::seconds(2);
    const auto imported =
        ingero::import_bytes(copy->bytes(), copy->hash(), options, std::make_shared<ingero::ClockTriple>(),
                             [&]() -> Result<ingero::StoreWriter*> { return &store; });
    if (imported) require(!imported->nodes.empty());
    return 0;
}
