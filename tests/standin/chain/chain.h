// A library with a chain of calls f1 to f8 that ends in a call of CUDA's, for tests of native stacks. f7 and f8 are not
// exported: only a symbol table names them, and a stripped copy has none.
#pragma once

#include <stddef.h>

extern "C" {

struct standin_chain_dim3 {
    unsigned x, y, z;
};

/// What f8 calls: `launch` if there is one, else `call`.
struct standin_chain_call {
    int (*call)(void* argument);
    void* argument;
    int (*launch)(const void* kernel, standin_chain_dim3 grid, standin_chain_dim3 block, void** arguments,
                  size_t shared_bytes, void* stream);
    const void* kernel;
    void* stream;
};

enum { standin_chain_length = 8 };

/// The result of what f8 called.
int standin_chain_f1(const standin_chain_call* call);

/// Where the functions are, f1 first.
void standin_chain_addresses(const void* addresses[standin_chain_length]);
}
