// Random inputs of tests: the same in each run that every change must pass, new ones in `scripts/test --full`. What was
// chosen is printed; INGERO_SEED has a test choose the same again.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace ingero::test {

inline uint64_t chosen_seed() {
    const char* given = std::getenv("INGERO_SEED");
    const uint64_t seed = given != nullptr                        ? std::strtoull(given, nullptr, 10)
                          : std::getenv("INGERO_FULL") != nullptr ? std::random_device()()
                                                                  : 1;
    std::cout << "INGERO_SEED=" << seed << "\n";
    return seed;
}

}  // namespace ingero::test
