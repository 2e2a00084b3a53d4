// Where the batches of a training loop come from: made in the loop's own thread, or by processes of their own that work
// ahead, as data loaders do.
#pragma once

#include <memory>

#include "workload.h"

namespace ingero::standin {

class Loader {
  public:
    virtual ~Loader() = default;

    /// Puts the batch of that step, which follow each other from 0, into `batch`.
    virtual void load(uint64_t step, char* batch) = 0;

    /// How long load() waited for others.
    virtual uint64_t waited_ns() const { return 0; }
};

/// By the settings, for one trainer. Processes are forked here: to be called by the main thread, before there are
/// others. They end with the loader, at the latest with the program.
std::unique_ptr<Loader> make_loader(const Settings& settings);

/// "none", "compute", "read" or "workers:N". An empty text if it is one of them, else what is wrong.
std::string check_loader(const std::string& text);

/// A file without a name in that folder.
int make_file(const std::string& folder);
void write_whole(int file, uint64_t bytes);

}  // namespace ingero::standin
