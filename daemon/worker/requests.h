// What a worker can be asked: ping, symbols, unwind, symbolize, names, gpus, stats, stacks, waits, timeline,
// stragglers, incidents, explain, requests, processes, query, export, record. Parameters and results: docs/worker.md.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/model/result.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "core/wire/rpc.h"

namespace ingero {

/// Of an answer that its reader would not take.
Error too_large();

class RequestHandler {
  public:
    /// `store` may be an error: requests that need it then get that error.
    RequestHandler(std::string node, uint64_t memory_bytes, Result<std::unique_ptr<StoreReader>> store)
        : node_(std::move(node)), memory_bytes_(memory_bytes), store_(std::move(store)) {}

    /// The answer to send, which fits the reader's limits. `fd` is -1 where none came along.
    RpcResponse answer(const RpcRequest& request, int fd);

  private:
    Result<nlohmann::json> dispatch(const RpcRequest& request, int fd);
    Result<nlohmann::json> gpus(const nlohmann::json& params);
    Result<nlohmann::json> stats(const nlohmann::json& params);
    Result<nlohmann::json> names(const nlohmann::json& params);
    Result<nlohmann::json> stacks(const nlohmann::json& params);
    Result<nlohmann::json> waits(const nlohmann::json& params);
    Result<nlohmann::json> stragglers(const nlohmann::json& params);
    Result<nlohmann::json> timeline(const nlohmann::json& params);
    Result<nlohmann::json> incidents(const nlohmann::json& params);
    Result<nlohmann::json> explain_window(const nlohmann::json& params);
    Result<nlohmann::json> requests(const nlohmann::json& params);
    Result<nlohmann::json> processes(const nlohmann::json& params);
    Result<nlohmann::json> query(const nlohmann::json& params);
    Result<nlohmann::json> export_events(const nlohmann::json& params);
    Result<nlohmann::json> record(const nlohmann::json& params);

    struct Query;
    static Result<Query> to_query(const nlohmann::json& params);
    static Result<void> choose_node(std::unique_ptr<StoreSnapshot>& snapshot, const Query& query);
    Result<std::unique_ptr<StoreSnapshot>> snapshot_for(Query& query);

    std::string node_;
    uint64_t memory_bytes_;
    Result<std::unique_ptr<StoreReader>> store_;
    std::unique_ptr<SqlEngine> sql_;  ///< from the first query on
};

}  // namespace ingero
