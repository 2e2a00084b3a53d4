#include "core/model/process/footprint.h"

#include <cstring>

namespace ingero {

// Those above 511 are the kernel's own; a tracer sees them, a program does not.
std::string errno_name(int error) {
    switch (error) {
        case 512:
            return "ERESTARTSYS";
        case 513:
            return "ERESTARTNOINTR";
        case 514:
            return "ERESTARTNOHAND";
        case 516:
            return "ERESTART_RESTARTBLOCK";
        default:
            break;
    }
    const char* name = strerrorname_np(error);
    return name ? name : std::to_string(error);
}

}  // namespace ingero
