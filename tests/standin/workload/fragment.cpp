// Fills the device's memory with pieces, frees every other one, and asks for more than a piece at once.
#include "workload.h"

namespace ingero::standin {

namespace {

uint64_t free_bytes(Caller& caller, uint64_t& total) {
    size_t free = 0, all = 0;
    caller.count([&] { return caller.runtime().cudaMemGetInfo(&free, &all); });
    total = all;
    return free;
}

std::string run_fragment(const Runtime& runtime, const Settings& settings, Totals& totals) {
    Caller caller(runtime);
    uint64_t total = 0;
    const uint64_t room = free_bytes(caller, total);
    const uint64_t piece = settings.piece_mib << 20;
    std::vector<void*> pieces;
    for (uint64_t i = 0; i < room / piece && !stopping(); ++i) pieces.push_back(caller.allocate(piece));
    for (size_t i = 0; i < pieces.size(); i += 2) {
        caller.free(pieces[i]);
        pieces[i] = nullptr;
    }
    const uint64_t free_before = free_bytes(caller, total);
    const uint64_t wanted = settings.want_mib == 0 ? 2 * piece : settings.want_mib << 20;
    void* large = nullptr;
    const int result = caller.count([&] { return runtime.cudaMalloc(&large, wanted); });
    if (large != nullptr) pieces.push_back(large);
    for (void* left : pieces) {
        if (left != nullptr) caller.free(left);
    }
    totals.add(caller.totals);
    return " free_bytes=" + std::to_string(free_before) + " wanted_bytes=" + std::to_string(wanted) +
           " result=" + std::to_string(result);
}

}  // namespace

Workload fragment_workload() {
    return {
        [](const Settings&) { return std::string("fragment=1,memory_mb=1024,kernel_us=0"); },
        [](const Settings&) { return uint64_t(1) << 16; },
        run_fragment,
    };
}

}  // namespace ingero::standin
