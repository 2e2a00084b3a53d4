// A workload in processes of its own.
#pragma once

#include <functional>

#include "workload.h"

namespace ingero::standin {

/// Ends the program with SIGKILL when the thread that started it ends, or now if `parent` is gone already.
void die_with_parent(int parent);

/// Forks so many children at once, in each of which `body` fills its totals, and waits for all. The sum. Told to stop,
/// it tells them. Throws when one does not end in order.
Totals run_forked(unsigned count, const std::function<void(Totals&)>& body);

/// Becomes this program again, with these arguments after its name. Returns only when that is not possible.
void run_again(const std::vector<std::string>& arguments);

}  // namespace ingero::standin
