// Symbols of a file, read by a worker, for a caller that waits: ELF is never parsed in this process.
#pragma once

#include <string>
#include <vector>

#include "core/symbols/elf_symbols.h"
#include "daemon/ingerod/check/check.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/workers/worker_pool.h"

namespace ingero {

class SymbolReader {
  public:
    explicit SymbolReader(const std::string& worker_program);

    /// A worker starts, enters its sandbox and answers. To be asked first: where it does not, read() fails at once.
    CheckResult check();
    /// Of the file behind `fd`, which stays the caller's. Errors: the worker's (corrupt, limit), or the pool's.
    Result<std::vector<FunctionSymbol>> read(int fd, const std::vector<std::string>& wanted);

  private:
    Result<nlohmann::json> request(const std::string& method, nlohmann::json params, std::optional<int> fd);

    EventLoop loop_;
    WorkerPool pool_;
    bool works_ = false;
};

}  // namespace ingero
