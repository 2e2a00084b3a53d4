// Calls of CUDA's from the end of a chain of known functions. It says where the functions are before the first call.
#include "../chain/chain.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

#include "workload.h"

namespace ingero::standin {

namespace {

std::string library_path(const std::string& which) {
    if (which.find('/') != std::string::npos) return which;
    return own_folder() + "/lib/libstandin-chain-" + which + ".so";
}

class Chain {
  public:
    explicit Chain(const std::string& which) {
        const std::string path = library_path(which);
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) throw std::runtime_error(dlerror());
        first_ = reinterpret_cast<decltype(first_)>(dlsym(library, "standin_chain_f1"));
        auto* addresses =
            reinterpret_cast<decltype(&standin_chain_addresses)>(dlsym(library, "standin_chain_addresses"));
        if (first_ == nullptr || addresses == nullptr) throw std::runtime_error(path + " has no chain");
        addresses(addresses_);
    }

    int call(const standin_chain_call& call) const { return first_(&call); }

    /// "frame NUMBER NAME ADDRESS OFFSET FILE" a function, the outermost first; the offset is from where the file
    /// begins.
    void print() const {
        for (int i = 0; i < standin_chain_length; ++i) {
            Dl_info found{};
            dladdr(addresses_[i], &found);
            std::printf("frame %d standin_chain_f%d %p 0x%zx %s\n", i + 1, i + 1, addresses_[i],
                        size_t(static_cast<const char*>(addresses_[i]) - static_cast<const char*>(found.dli_fbase)),
                        found.dli_fname);
        }
        std::fflush(stdout);
    }

  private:
    decltype(&standin_chain_f1) first_ = nullptr;
    const void* addresses_[standin_chain_length] = {};
};

std::string run_chain(const Runtime& runtime, const Settings& settings, Totals& totals) {
    const Chain chain(settings.chain_library);
    chain.print();
    const bool launches = settings.chain_op == "launch";
    totals.add(run_threads(runtime, settings.threads, [&](unsigned, Caller& caller) {
        standin_chain_call call{};
        call.call = runtime.cudaStreamSynchronize;
        // By way of a type that says nothing: the two differ only in what their struct of three numbers is called.
        const auto launch = reinterpret_cast<void (*)()>(runtime.cudaLaunchKernel);
        if (launches) call.launch = reinterpret_cast<decltype(call.launch)>(launch);
        call.kernel = kernel_symbol(0);
        for (uint64_t i = 0; i < settings.turns && !stopping(); ++i) {
            caller.count([&] { return chain.call(call); });
            caller.totals.launches += launches;
        }
    }));
    return " library=" + settings.chain_library;
}

}  // namespace

Workload chain_workload() {
    return {
        [](const Settings&) { return std::string("kernel_us=0"); },
        [](const Settings& settings) { return settings.turns * settings.threads * 3 + 64; },
        run_chain,
    };
}

}  // namespace ingero::standin
