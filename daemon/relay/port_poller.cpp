// What sysfs says of InfiniBand and RoCE ports. A process of its own: to read a counter asks the adapter.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "core/model/time.h"
#include "daemon/relay/poller.h"

namespace ingero {

using nlohmann::json;
using std::chrono::steady_clock;

namespace {

constexpr const char* source_name = "ports";
constexpr size_t max_ports = 64;

struct Counter {
    const char* file;
    const char* name;
    double factor;
};
/// Of data in words of four bytes: IB specification, PortCounters.
constexpr Counter counters[] = {{"counters/symbol_error", "symbol_errors", 1},
                                {"counters/link_error_recovery", "link_recoveries", 1},
                                {"counters/link_downed", "link_downed", 1},
                                {"counters/port_rcv_errors", "receive_errors", 1},
                                {"counters/port_xmit_discards", "transmit_discards", 1},
                                {"counters/port_xmit_wait", "transmit_wait", 1},
                                {"counters/port_rcv_data", "received_bytes", 4},
                                {"counters/port_xmit_data", "sent_bytes", 4},
                                {"hw_counters/out_of_sequence", "out_of_sequence", 1},
                                {"hw_counters/packet_seq_err", "packet_sequence_errors", 1},
                                {"hw_counters/local_ack_timeout_err", "local_ack_timeouts", 1}};

struct Port {
    std::filesystem::path place;
    std::string device;
    unsigned number = 0;
};

std::string line_of(const std::filesystem::path& path) {
    std::string line;
    std::ifstream file(path);
    std::getline(file, line);
    return line;
}

template <class T>
std::optional<T> number_of(std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end == text.data()) return std::nullopt;
    return value;
}

/// "4: ACTIVE" without its number.
std::string state_of(const std::filesystem::path& path) {
    const std::string line = line_of(path);
    const size_t colon = line.find(": ");
    return colon == std::string::npos ? line : line.substr(colon + 2);
}

std::vector<Port> find_ports(const std::filesystem::path& sysfs) {
    std::vector<Port> ports;
    std::error_code error;
    for (const auto& device : std::filesystem::directory_iterator(sysfs / "class/infiniband", error)) {
        std::error_code none;
        for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", none))
            if (const auto number = number_of<unsigned>(port.path().filename().string());
                number && ports.size() < max_ports)
                ports.push_back({port.path(), device.path().filename().string(), *number});
    }
    return ports;
}

bool send_sample(const Port& port) {
    json values = json::object();
    // "100 Gb/sec (4X EDR)"; "2.5 Gb/sec (1X SDR)"
    if (const auto rate = number_of<double>(line_of(port.place / "rate"))) values["rate_bits_per_s"] = *rate * 1e9;
    for (const Counter& counter : counters)
        if (const auto value = number_of<uint64_t>(line_of(port.place / counter.file)))
            values[counter.name] = counter.factor * static_cast<double>(*value);
    return emit({{"kind", "port"},
                 {"time_ns", monotonic_now_ns()},
                 {"device", port.device},
                 {"port", port.number},
                 {"state", state_of(port.place / "state")},
                 {"physical_state", state_of(port.place / "phys_state")},
                 {"link_layer", line_of(port.place / "link_layer")},
                 {"values", std::move(values)}});
}

}  // namespace

int poll_ports(const PollerOptions& options) {
    std::optional<size_t> reported;
    for (auto next = steady_clock::now();;) {
        // An adapter comes and goes with its driver.
        const std::vector<Port> ports = find_ports(options.sysfs);
        if (ports.empty()) {
            emit_state(source_name, "absent", "no InfiniBand port in " + options.sysfs);
            return poller_absent;
        }
        if (reported != ports.size() &&
            !emit_state(source_name, "polling",
                        std::to_string(ports.size()) + (ports.size() == 1 ? " port" : " ports")))
            return 0;
        reported = ports.size();
        for (const Port& port : ports)
            if (!send_sample(port)) return 0;
        if (!emit({{"kind", "round"}})) return 0;
        next = std::max(next + options.interval, steady_clock::now());
        if (!sleep_until(next)) return 0;
    }
}

}  // namespace ingero
