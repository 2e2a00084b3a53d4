#include "daemon/ingerod/check/symbol_reader.h"

#include <systemd/sd-event.h>

#include <optional>

#include "daemon/ingerod/targets/libraries.h"

namespace ingero {

using nlohmann::json;

namespace {

WorkerOptions worker_options(const std::string& program) {
    WorkerOptions options;
    options.program = program;
    options.count = 1;
    options.deadline = std::chrono::seconds(10);
    return options;
}

}  // namespace

SymbolReader::SymbolReader(const std::string& worker_program) : pool_(loop_, worker_options(worker_program)) {}

Result<json> SymbolReader::request(const std::string& method, json params, std::optional<int> fd) {
    std::optional<Result<json>> answer;
    pool_.request(no_user, method, std::move(params), fd, [&](Result<json> result) { answer = std::move(result); });
    // The pool answers in any case, at its deadline at the latest.
    while (!answer)
        if (sd_event_run(loop_.get(), UINT64_MAX) < 0)
            return fail(ErrorCode::internal, "the event loop failed while a worker was asked");
    return std::move(*answer);
}

CheckResult SymbolReader::check() {
    const auto answer = request("ping", json::object(), std::nullopt);
    works_ = answer.has_value();
    if (works_) return {"worker", CheckResult::State::pass, "it starts, and answers from its sandbox", ""};
    return {"worker", CheckResult::State::fail, answer.error().message,
            answer.error().hint.empty() ? "install the package again, or name the program with --worker"
                                        : answer.error().hint};
}

Result<std::vector<FunctionSymbol>> SymbolReader::read(int fd, const std::vector<std::string>& wanted) {
    if (!works_) return fail(ErrorCode::internal, "its symbols cannot be read without a worker", "see worker");
    const auto answer = request("symbols", {{"wanted", wanted}, {"static", false}}, fd);
    if (!answer) return tl::unexpected(answer.error());
    try {
        return to_function_symbols(*answer);
    } catch (const std::exception& problem) {
        return fail(ErrorCode::internal, std::string("a worker's answer about symbols is invalid: ") + problem.what());
    }
}

}  // namespace ingero
