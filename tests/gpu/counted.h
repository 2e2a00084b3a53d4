// A CUDA program that counts its own calls: the truth that a tracer is held to. Only functions that ingerod traces are
// counted; no call ends the program, so that without a GPU all are made too, and return errors.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace counted {

/// Calls by name and result.
struct Calls {
    std::mutex mutex;
    std::map<std::string, std::map<int, uint64_t>> by_name;
};

inline Calls& calls() {
    static Calls all;
    return all;
}

/// Notes a call that returned `result`, and gives it back.
template <class Result>
Result note(const char* name, Result result) {
    const std::lock_guard lock(calls().mutex);
    calls().by_name[name][static_cast<int>(result)]++;
    return result;
}

struct Options {
    bool gate = false;     ///< waits for a line of input where ready() says so
    unsigned rounds = 50;  ///< how often the program does its work
    std::string driver = "libcuda.so.1";
    std::string what;  ///< the argument without a name
};

inline Options read_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--gate") == 0) {
            options.gate = true;
        } else if (strcmp(argv[i], "--rounds") == 0 && has_value) {
            options.rounds = static_cast<unsigned>(strtoul(argv[++i], nullptr, 10));
        } else if (strcmp(argv[i], "--driver") == 0 && has_value) {
            options.driver = argv[++i];
        } else if (argv[i][0] != '-' && options.what.empty()) {
            options.what = argv[i];
        } else {
            fprintf(stderr, "usage: %s [WHAT] [--gate] [--rounds N] [--driver LIBRARY]\n", argv[0]);
            exit(2);
        }
    }
    return options;
}

/// Says that what is mapped by now may be attached to, and with --gate waits until somebody has.
inline void ready(const Options& options) {
    if (!options.gate) return;
    printf("ready %d\n", static_cast<int>(getpid()));
    fflush(stdout);
    for (int c = getchar(); c != '\n' && c != EOF;) c = getchar();
}

/// The last line: what was called. `results_right`: what the device computed is what it should have. `figures` are what
/// the program measured.
inline int finish(bool results_right, const std::map<std::string, double>& figures = {}) {
    printf("{\"pid\":%d,\"results_right\":%s,\"figures\":{", static_cast<int>(getpid()),
           results_right ? "true" : "false");
    const char* between = "";
    for (const auto& [name, value] : figures) {
        printf("%s\"%s\":%.3f", between, name.c_str(), value);
        between = ",";
    }
    printf("},\"calls\":{");
    between = "";
    for (const auto& [name, results] : calls().by_name) {
        printf("%s\"%s\":{", between, name.c_str());
        const char* inner = "";
        for (const auto& [result, count] : results) {
            printf("%s\"%d\":%llu", inner, result, static_cast<unsigned long long>(count));
            inner = ",";
        }
        printf("}");
        between = ",";
    }
    printf("}}\n");
    return fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace counted

/// Calls a function and counts the call under the name that stands here, without the suffixes that headers add.
#define COUNTED(function, ...) ::counted::note(#function, function(__VA_ARGS__))
