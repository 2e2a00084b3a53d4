// Calls the library at its first argument as it is told on standard input, a line a command, and says "done" to each.
//   retain DEVICE   makes the context the device's
//   current         sets it, whoever made it
//   name TEXT       asks for the function by that name
//   launch          launches the function, whoever asked for it
//   again           becomes this program anew, which says "ready"
#include <dlfcn.h>
#include <unistd.h>

#include <iostream>
#include <string>

namespace {

using Handle = unsigned long long;
constexpr Handle context = 0x51000000c0ffee, function = 0x52000000beef00;

template <class Function>
Function* find(void* library, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

int main(int count, char** arguments) {
    void* library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : nullptr;
    if (!library) return 1;
    const auto retain = find<int(Handle*, int)>(library, "cuDevicePrimaryCtxRetain");
    const auto set_current = find<int(Handle)>(library, "cuCtxSetCurrent");
    const auto get_function = find<int(Handle*, Handle, const char*)>(library, "cuModuleGetFunction");
    const auto launch =
        find<int(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)>(
            library, "cuLaunchKernel");
    std::cout << "ready " << getpid() << std::endl;
    std::string command, argument;
    while (std::cin >> command) {
        if (command == "again") execv("/proc/self/exe", arguments);
        Handle handle = 0;
        int result = 1;
        if (command == "retain" && std::cin >> argument) result = retain(&handle, std::stoi(argument));
        if (command == "current") result = set_current(context);
        if (command == "name" && std::cin >> argument) result = get_function(&handle, 0, argument.c_str());
        if (command == "launch") result = launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
        if (result != 0) return 1;
        std::cout << "done" << std::endl;
    }
    return 0;
}
