// What the functions that launches name by handle are called.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/model/event.h"
#include "core/store/store.h"
#include "core/symbols/symbolizer.h"

namespace ingero {

/// What a function is called while its name is not known.
std::string function_label(uint64_t handle);

class KernelNames {
  public:
    /// Names nothing.
    KernelNames() = default;
    /// All names that the store knows. Errors: those of the store.
    static Result<KernelNames> read(const StoreSnapshot& snapshot);

    /// A number for the name of a launch's function, the same for the same name; 0: it is not known.
    uint32_t number(const ProcessKey& process, uint64_t function) const;
    /// A text that function_label() made becomes the name where it is known.
    void name(const ProcessKey& process, std::string& label) const;
    /// As a reader knows it: demangled where it is a C++ name and the budget for that is not used up. Empty for 0.
    std::string text(uint32_t number) const;

  private:
    std::map<std::pair<ProcessKey, uint64_t>, uint32_t> numbers_;
    std::vector<std::string> names_{1};
    mutable Demangler demangler_;
};

}  // namespace ingero
