// What libbpf says goes to the log, line by line; its last words are kept for the error that follows.
#pragma once

#include <string>

namespace ingero {

/// From now on, on this thread. Nothing said so far counts.
void listen_to_libbpf();

struct LibbpfWords {
    std::string last;  ///< the last line said
    std::string
        verifier;  ///< why the kernel's verifier refused a program, with the program's name; empty if it did not
};

/// What this thread's calls of libbpf have said since listen_to_libbpf().
const LibbpfWords& libbpf_words();

}  // namespace ingero
