// What libnvidia-ml says of the GPUs. A process of its own: the driver may keep it waiting for ever.
#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/model/time.h"
#include "daemon/relay/nvml.h"
#include "daemon/relay/poller.h"
#include "daemon/relay/trusted_path.h"

namespace ingero {

using nlohmann::json;
using std::chrono::steady_clock;

namespace {

constexpr const char* source_name = "gpus";
/// Where distributions, the driver's own installer, container toolkits and WSL put it.
constexpr const char* library_places[] = {"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
                                          "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
                                          "/usr/lib64/libnvidia-ml.so.1",
                                          "/usr/lib/libnvidia-ml.so.1",
                                          "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1",
                                          "/usr/lib/nvidia/libnvidia-ml.so.1",
                                          "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
                                          "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
                                          "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
                                          "/usr/lib/wsl/lib/libnvidia-ml.so.1"};
constexpr unsigned max_devices = 64;
/// Processes that are reported: those with the most memory.
constexpr size_t max_processes = 128;
/// Processes that are asked for.
constexpr size_t most_processes = 8'192;

struct Gpu {
    nvml::Device handle = nullptr;
    unsigned index = 0;
    std::string uuid;
    std::string name;
    std::string pci;
    std::optional<int> numa_node;
    std::string local_cpus;  ///< list of the CPUs next to it; may be empty
};

/// From the first byte 0 on there is nothing; a library need not have written one.
std::string bounded(const char* text, size_t size) {
    return {text, std::find(text, text + size, '\0')};
}

template <size_t size, class F>
std::string text_of(F function, nvml::Device device) {
    std::array<char, size> text{};
    if (!function || function(device, text.data(), static_cast<unsigned>(text.size())) != nvml::success) return {};
    return bounded(text.data(), text.size());
}

/// What sysfs says of a device: the first line of one of its files.
std::string pci_line(const std::string& sysfs, const std::string& pci, const char* file) {
    // "00000000:3B:00.0" there, "0000:3b:00.0" in sysfs.
    std::string place = pci.size() == 16 && pci.starts_with("0000") ? pci.substr(4) : pci;
    for (char& c : place) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::string line;
    if (place.empty() || place.find_first_not_of("0123456789abcdef:.") != std::string::npos) return line;
    std::ifstream stream(sysfs + "/bus/pci/devices/" + place + "/" + file);
    std::getline(stream, line);
    return line;
}

std::optional<int> numa_node_of(const std::string& sysfs, const std::string& pci) {
    std::istringstream line(pci_line(sysfs, pci, "numa_node"));
    int node = -1;
    if (!(line >> node) || node < 0) return std::nullopt;
    return node;
}

/// Converts what a function returns to the unit in the value's name.
struct Unit {
    double times;
    double per;
};
constexpr Unit one{1, 1}, a_thousandth{1, 1'000}, a_thousand{1'000, 1};

class Sample {
  public:
    Sample(const nvml::Functions& call, const Gpu& gpu) : call_(call), device_(gpu.handle) {
        values_["gpu_index"] = gpu.index;
        if (gpu.numa_node) values_["numa_node"] = *gpu.numa_node;
    }

    /// A value of one function; its absence costs no other.
    template <class T, class F, class... Before>
    void add(const char* name, F function, Unit unit, Before... before) {
        T value{};
        if (function && succeeds(function(device_, before..., &value)))
            values_[name] = static_cast<double>(value) * unit.times / unit.per;
    }

    void add_load() {
        nvml::Utilization used{};
        if (call_.utilization && succeeds(call_.utilization(device_, &used))) {
            values_["utilization_percent"] = used.gpu;
            values_["memory_utilization_percent"] = used.memory;
        }
        // What the driver keeps for itself is in `used` of the first version.
        nvml::MemoryV2 memory{.version = nvml::memory_v2_version, .total = 0, .reserved = 0, .free = 0, .used = 0};
        nvml::Memory first{};
        if (call_.memory_v2 && succeeds(call_.memory_v2(device_, &memory)))
            add_memory(memory.used, memory.total);
        else if (call_.memory && succeeds(call_.memory(device_, &first)))
            add_memory(first.used, first.total);
        add<unsigned>("graphics_clock_mhz", call_.clock, one, nvml::clock_graphics);
        add<unsigned>("sm_clock_mhz", call_.clock, one, nvml::clock_sm);
        add<unsigned>("memory_clock_mhz", call_.clock, one, nvml::clock_memory);
        add<unsigned>("max_sm_clock_mhz", call_.max_clock, one, nvml::clock_sm);
        add<unsigned long long>("throttle_reasons", call_.throttle_reasons, one);
        add<unsigned>("temperature_celsius", call_.temperature, one, 0U);
        add<unsigned>("power_watts", call_.power, a_thousandth);
        add<unsigned>("power_limit_watts", call_.power_limit, a_thousandth);
    }

    void add_faults() {
        add<unsigned long long>("ecc_corrected", call_.ecc_errors, one, nvml::ecc_corrected, nvml::ecc_since_start);
        add<unsigned long long>("ecc_uncorrected", call_.ecc_errors, one, nvml::ecc_uncorrected, nvml::ecc_since_start);
        unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
        if (call_.remapped_rows &&
            call_.remapped_rows(device_, &corrected, &uncorrected, &pending, &failed) == nvml::success) {
            values_["remapped_rows_corrected"] = corrected;
            values_["remapped_rows_uncorrected"] = uncorrected;
            values_["remap_pending"] = pending;
            values_["remap_failed"] = failed;
        }
    }

    void add_links() {
        add<unsigned>("pcie_sent_bytes_per_s", call_.pcie_throughput, a_thousand, nvml::pcie_sent);
        add<unsigned>("pcie_received_bytes_per_s", call_.pcie_throughput, a_thousand, nvml::pcie_received);
        add<unsigned>("pcie_replays", call_.pcie_replays, one);
        add<unsigned>("pcie_generation", call_.pcie_generation, one);
        add<unsigned>("pcie_max_generation", call_.pcie_max_generation, one);
        add<unsigned>("pcie_width", call_.pcie_width, one);
        add<unsigned>("pcie_max_width", call_.pcie_max_width, one);
        for (unsigned link = 0; call_.nvlink_state && link < nvml::nvlinks; ++link) {
            unsigned active = 0;
            if (call_.nvlink_state(device_, link, &active) != nvml::success) continue;
            count("nvlinks_active", active != 0);
            add_link_errors("nvlink_crc_errors", link, nvml::nvlink_crc_flit);
            add_link_errors("nvlink_crc_errors", link, nvml::nvlink_crc_data);
            add_link_errors("nvlink_replays", link, nvml::nvlink_replay);
            add_link_errors("nvlink_recoveries", link, nvml::nvlink_recovery);
        }
    }

    void add_processes(size_t running) { values_["processes_running"] = running; }

    json take_values() { return std::move(values_); }
    /// A function said that the GPU is there no more.
    bool is_lost() const { return lost_; }

  private:
    bool succeeds(nvml::Return result) {
        lost_ |= result == nvml::gpu_is_lost;
        return result == nvml::success;
    }
    void add_memory(unsigned long long used, unsigned long long total) {
        values_["memory_used_bytes"] = static_cast<double>(used);
        values_["memory_total_bytes"] = static_cast<double>(total);
    }
    void count(const char* name, unsigned long long more) {
        values_[name] = values_.value(name, 0.0) + static_cast<double>(more);
    }
    void add_link_errors(const char* name, unsigned link, unsigned counter) {
        unsigned long long errors = 0;
        if (call_.nvlink_errors && call_.nvlink_errors(device_, link, counter, &errors) == nvml::success)
            count(name, errors);
    }

    const nvml::Functions& call_;
    nvml::Device device_;
    json values_ = json::object();
    bool lost_ = false;
};

using ProcessFunction = decltype(nvml::Functions::compute_processes);

/// All of them: more may have begun between the answer that says how many there are and the next question.
std::vector<nvml::ProcessInfo> ask_processes(ProcessFunction function, nvml::Device device) {
    constexpr int most_questions = 4;
    std::vector<nvml::ProcessInfo> processes(max_processes);
    for (int question = 0; function && question < most_questions; ++question) {
        auto count = static_cast<unsigned>(processes.size());
        const nvml::Return result = function(device, &count, processes.data());
        if (result == nvml::success) {
            processes.resize(std::min<size_t>(count, processes.size()));
            return processes;
        }
        if (result != nvml::insufficient_size || processes.size() == most_processes) break;
        // An old driver need not say how many.
        const size_t wanted = std::max<size_t>(count + count / 4, 2 * processes.size());
        processes.assign(std::min(wanted, most_processes), {});
    }
    return {};
}

/// Each of them once, with what it has on the GPU; null where that is not known.
json processes_of(const nvml::Functions& call, const Gpu& gpu, size_t& ret_running) {
    std::map<unsigned, uint64_t> found;
    for (const ProcessFunction function : {call.compute_processes, call.graphics_processes})
        for (const nvml::ProcessInfo& one : ask_processes(function, gpu.handle))
            if (one.pid != 0) found.emplace(one.pid, one.used_memory);
    ret_running = found.size();
    std::vector<std::pair<unsigned, uint64_t>> largest(found.begin(), found.end());
    const auto known = [](uint64_t bytes) { return bytes == UINT64_MAX ? 0 : bytes; };
    std::stable_sort(largest.begin(), largest.end(),
                     [&](const auto& a, const auto& b) { return known(a.second) > known(b.second); });
    largest.resize(std::min(largest.size(), max_processes));
    json list = json::array();
    for (const auto& [pid, bytes] : largest)
        list.push_back(json::array({pid, bytes == UINT64_MAX ? json() : json(bytes)}));
    return list;
}

/// What became of it.
enum class Sent { sent, lost, unread };

Sent send_sample(const nvml::Functions& call, const Gpu& gpu) {
    const uint64_t time_ns = monotonic_now_ns();
    Sample sample(call, gpu);
    sample.add_load();
    sample.add_faults();
    sample.add_links();
    if (sample.is_lost()) return Sent::lost;
    size_t running = 0;
    json processes = processes_of(call, gpu, running);
    sample.add_processes(running);
    const bool is_read = emit({{"kind", "gpu"},
                               {"time_ns", time_ns},
                               {"uuid", gpu.uuid},
                               {"name", gpu.name},
                               {"pci", gpu.pci},
                               {"local_cpus", gpu.local_cpus},
                               {"values", sample.take_values()},
                               {"processes", std::move(processes)}});
    return is_read ? Sent::sent : Sent::unread;
}

Result<std::string> find_library(const std::string& given) {
    if (!given.empty()) {
        if (auto trusted = check_trusted_path(given); !trusted) return tl::unexpected(trusted.error());
        return given;
    }
    std::optional<Error> denied;
    for (const char* place : library_places) {
        const auto trusted = check_trusted_path(place);
        if (trusted) return std::string(place);
        if (trusted.error().code == ErrorCode::denied) denied = trusted.error();
    }
    if (denied) return tl::unexpected(*denied);
    return fail(ErrorCode::not_found, "no libnvidia-ml.so.1 where drivers install it");
}

std::vector<Gpu> find_gpus(const nvml::Library& library, const PollerOptions& options, unsigned count) {
    std::vector<Gpu> gpus;
    for (unsigned index = 0; index < std::min(count, max_devices); ++index) {
        Gpu gpu{
            .handle = nullptr, .index = index, .uuid = {}, .name = {}, .pci = {}, .numa_node = {}, .local_cpus = {}};
        // One that has fallen off the bus is left out; the others are reported.
        if (library.call.device_by_index(index, &gpu.handle) != nvml::success) continue;
        gpu.uuid = text_of<96>(library.call.uuid, gpu.handle);
        if (gpu.uuid.empty()) continue;
        gpu.name = text_of<96>(library.call.name, gpu.handle);
        nvml::PciInfo pci{};
        if (library.call.pci_info && library.call.pci_info(gpu.handle, &pci) == nvml::success)
            gpu.pci = bounded(pci.bus_id, sizeof(pci.bus_id));
        gpu.numa_node = numa_node_of(options.sysfs, gpu.pci);
        gpu.local_cpus = pci_line(options.sysfs, gpu.pci, "local_cpulist");
        gpus.push_back(std::move(gpu));
    }
    return gpus;
}

/// Of errors of a kind that the kernel's log calls Xid; nothing where the driver reports none.
class Events {
  public:
    Events(const nvml::Functions& call, const std::vector<Gpu>& gpus) : call_(call), gpus_(gpus) {
        if (!call.event_set_create || !call.register_events || !call.event_set_wait) return;
        if (call.event_set_create(&set_) != nvml::success) return;
        for (const Gpu& gpu : gpus) any_ |= call.register_events(gpu.handle, nvml::event_xid, set_) == nvml::success;
    }

    ~Events() {
        if (set_ && call_.event_set_free) call_.event_set_free(set_);
    }
    Events(const Events&) = delete;
    Events& operator=(const Events&) = delete;

    /// Until then. False where nobody reads any more.
    bool wait_until(steady_clock::time_point then) const {
        while (any_) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(then - steady_clock::now()).count();
            if (left <= 0) return true;
            nvml::EventData data{};
            const nvml::Return result = call_.event_set_wait(set_, &data, static_cast<unsigned>(left));
            if (result == nvml::timeout) continue;
            if (result != nvml::success) break;
            const auto gpu =
                std::find_if(gpus_.begin(), gpus_.end(), [&](const Gpu& one) { return one.handle == data.device; });
            if (data.type != nvml::event_xid || gpu == gpus_.end()) continue;
            if (!emit(
                    {{"kind", "gpu_event"}, {"time_ns", monotonic_now_ns()}, {"uuid", gpu->uuid}, {"xid", data.data}}))
                return false;
        }
        return sleep_until(then);
    }

  private:
    const nvml::Functions& call_;
    const std::vector<Gpu>& gpus_;
    nvml::EventSet set_ = nullptr;
    bool any_ = false;
};

int give_up(const char* state, const std::string& reason, int code) {
    emit_state(source_name, state, reason);
    return code;
}

/// Asks all GPUs, again and again.
class Rounds {
  public:
    Rounds(const nvml::Library& library, const PollerOptions& options) : library_(library), options_(options) {}

    /// The exit code.
    int run() {
        for (auto next = steady_clock::now();;) {
            // The driver finds one that is put in, and strikes out one that it gave up.
            unsigned count = 0;
            if (library_.call.device_count(&count) != nvml::success) count = count_;
            if (count != count_ || gpus_.empty()) find(count);
            if (gpus_.empty()) {
                send_inventory({});
                return give_up("absent", "the driver has no GPU", poller_absent);
            }
            if (!round()) return 0;
            next = std::max(next + options_.interval, steady_clock::now());
            if (!events_->wait_until(next)) return 0;
        }
    }

  private:
    void find(unsigned count) {
        count_ = count;
        gpus_ = find_gpus(library_, options_, count);
        events_.emplace(library_.call, gpus_);
    }

    static bool send_inventory(const std::set<std::string>& there) {
        return emit({{"kind", "inventory"}, {"time_ns", monotonic_now_ns()}, {"uuids", there}});
    }

    /// False where nobody reads any more.
    bool round() {
        std::set<std::string> there;
        for (const Gpu& gpu : gpus_) {
            const Sent sent = send_sample(library_.call, gpu);
            if (sent == Sent::unread) return false;
            if (sent == Sent::sent) there.insert(gpu.uuid);
        }
        if (reported_ != there) {
            const size_t lost = gpus_.size() - there.size();
            const std::string text = std::to_string(there.size()) + (there.size() == 1 ? " GPU" : " GPUs");
            if (!send_inventory(there) ||
                !emit_state(source_name, "polling", lost == 0 ? text : text + ", " + std::to_string(lost) + " lost"))
                return false;
            reported_ = there;
        }
        return emit({{"kind", "round"}});
    }

    const nvml::Library& library_;
    const PollerOptions& options_;
    unsigned count_ = 0;
    std::vector<Gpu> gpus_;
    std::optional<Events> events_;
    std::optional<std::set<std::string>> reported_;
};

}  // namespace

int poll_gpus(const PollerOptions& options) {
    const auto path = find_library(options.library);
    if (!path && path.error().code == ErrorCode::denied) return give_up("refused", path.error().message, poller_absent);
    if (!path) return give_up("absent", path.error().message, poller_absent);
    const auto library = nvml::Library::load(*path);
    if (!library) return give_up("failed", library.error().message, poller_absent);
    const nvml::Functions& call = (*library)->call;
    unsigned count = 0;
    nvml::Return result = call.init();
    if (result == nvml::success) result = call.device_count(&count);
    if (result != nvml::success) return give_up("failed", (*library)->describe(result), poller_absent);
    return Rounds(**library, options).run();
}

}  // namespace ingero
