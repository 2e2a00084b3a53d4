#include "options.h"

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>

namespace ingero::standin {

void reject(std::string_view what, std::string_view text) {
    std::fprintf(stderr, "stand-in: %.*s: '%.*s'\n", int(what.size()), what.data(), int(text.size()), text.data());
    std::_Exit(2);
}

double to_number(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0) reject("not a number", text);
    return value;
}

namespace {

uint64_t to_ns(std::string_view text, double unit_ns) {
    return uint64_t(to_number(text) * unit_ns);
}

bool to_bool(std::string_view text) {
    if (text == "1" || text == "on") return true;
    if (text == "0" || text == "off") return false;
    reject("neither 0 nor 1", text);
}

Wait to_wait(std::string_view text) {
    if (text == "spin") return Wait::spin;
    if (text == "yield") return Wait::yield;
    if (text == "block") return Wait::block;
    reject("sync is spin, yield or block, not", text);
}

LogCpu to_log_cpu(std::string_view text) {
    if (text == "outer") return LogCpu::outermost;
    return to_bool(text) ? LogCpu::all : LogCpu::none;
}

bool set_device_option(Options& options, std::string_view key, std::string_view value) {
    if (key == "kernel_us")
        options.kernel_ns = to_ns(value, 1e3);
    else if (key == "queue")
        options.queue = uint32_t(to_number(value));
    else if (key == "sync")
        options.sync = to_wait(value);
    else if (key == "copy_gbps")
        options.copy_gbps = to_number(value);
    else if (key == "copy_us")
        options.copy_ns = to_ns(value, 1e3);
    else if (key == "memory_mb")
        options.memory_bytes = uint64_t(to_number(value) * double(1 << 20));
    else if (key == "devices")
        options.devices = uint32_t(to_number(value));
    else if (key == "lazy_ms")
        options.lazy_ns = to_ns(value, 1e6);
    else if (key == "call_ns")
        options.call_ns = to_ns(value, 1);
    else if (key == "free_sync")
        options.free_sync = to_bool(value);
    else if (key == "staging")
        options.staging = to_bool(value);
    else if (key == "fragment")
        options.fragment = to_bool(value);
    else
        return false;
    return true;
}

void set_option(Options& options, std::string_view key, std::string_view value) {
    if (set_device_option(options, key, value)) return;
    if (key == "log_capacity")
        options.log_capacity = uint64_t(to_number(value));
    else if (key == "log_populate")
        options.log_populate = uint64_t(to_number(value));
    else if (key == "log_cpu")
        options.log_cpu = to_log_cpu(value);
    else if (key == "scratch")
        options.scratch = value;
    else if (key == "waits")
        options.waits = value;
    else if (key == "at")
        options.rules.emplace_back(value);
    else if (key.starts_with("kernel.") && key.ends_with("_us") && key.size() > 10) {
        options.kernels.push_back({std::string(key.substr(7, key.size() - 10)), to_ns(value, 1e3)});
    } else
        reject("no such option", key);
}

void set_from_text(Options& options, std::string_view text, char separator) {
    while (!text.empty()) {
        const size_t end = text.find(separator);
        const std::string_view item = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (item.empty() || item.front() == '#') continue;
        const size_t equals = item.find('=');
        if (equals == std::string_view::npos) reject("not key=value", item);
        set_option(options, item.substr(0, equals), item.substr(equals + 1));
    }
}

void set_from_script(Options& options, const char* path) {
    std::ifstream file(path);
    if (!file) reject("cannot read the script", path);
    for (std::string line; std::getline(file, line);) set_from_text(options, line, '\n');
}

// %p becomes the process id, so that ranks that were started alike keep logs apart.
std::string expand_path(std::string path) {
    if (const size_t place = path.find("%p"); place != std::string::npos) {
        path.replace(place, 2, std::to_string(getpid()));
    }
    return path;
}

Options parse() {
    Options options;
    if (const char* path = std::getenv("INGERO_STANDIN_SCRIPT")) set_from_script(options, path);
    if (const char* text = std::getenv("INGERO_STANDIN")) set_from_text(options, text, ',');
    if (const char* path = std::getenv("INGERO_STANDIN_LOG")) options.log_path = expand_path(path);
    if (options.queue == 0 || options.queue > 1u << 20) reject("from 1 to 1048576", "queue");
    if (options.devices == 0 || options.devices > 16) reject("from 1 to 16", "devices");
    if (options.copy_gbps <= 0) reject("must be over 0", "copy_gbps");
    return options;
}

}  // namespace

const Options& options() {
    // Never destroyed: programs call into CUDA from their exit handlers.
    static const Options& parsed = *std::make_unique<Options>(parse()).release();
    return parsed;
}

}  // namespace ingero::standin
