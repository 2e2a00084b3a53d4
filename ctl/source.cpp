#include "ctl/source.h"

#include <chrono>
#include <utility>

#include "core/wire/client.h"
#include "ctl/ask/stored.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

class DaemonSource final : public Source {
  public:
    explicit DaemonSource(ControlClient client) : client_(std::move(client)) {}
    Result<json> ask(const std::string& method, json params) override {
        return client_.call(method, std::move(params), answer_patience);
    }

  private:
    ControlClient client_;
};

class ClosedSource final : public Source {
  public:
    explicit ClosedSource(StoredSource store) : store_(std::move(store)) {}
    Result<json> ask(const std::string& method, json params) override { return store_.ask(method, std::move(params)); }

  private:
    StoredSource store_;
};

}  // namespace

std::unique_ptr<Source> open_source(const Options& options, const std::string& command, int& ret_exit_code) {
    if (!options.db.empty()) {
        auto store = StoredSource::open(options.db);
        if (store) return std::make_unique<ClosedSource>(std::move(*store));
        ret_exit_code = report(command, store.error(), exit_failed);
        return nullptr;
    }
    auto client = ControlClient::connect(options.socket, {.client = "ingeroctl " INGERO_VERSION});
    if (client) return std::make_unique<DaemonSource>(std::move(*client));
    const ErrorCode code = client.error().code;
    const bool absent = code == ErrorCode::not_found || code == ErrorCode::deadline;
    ret_exit_code = report("connect", client.error(), absent ? exit_not_ready : exit_failed);
    return nullptr;
}

}  // namespace ingero::ctl
