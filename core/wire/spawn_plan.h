// What starting a program by posix_spawn takes. The child is a vfork of glibc's: nothing of ours runs in it, which a
// daemon with threads needs.
#pragma once

#include <signal.h>
#include <spawn.h>

#include <string>
#include <vector>

namespace ingero {

/// posix_spawn's two objects. The child starts with no signal blocked and none handled: sd-event blocks the daemon's.
struct SpawnPlan {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;

    SpawnPlan() {
        posix_spawn_file_actions_init(&files);
        posix_spawnattr_init(&attributes);
        sigset_t set;
        sigemptyset(&set);
        posix_spawnattr_setsigmask(&attributes, &set);
        sigfillset(&set);
        posix_spawnattr_setsigdefault(&attributes, &set);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    }
    ~SpawnPlan() {
        posix_spawn_file_actions_destroy(&files);
        posix_spawnattr_destroy(&attributes);
    }
    SpawnPlan(const SpawnPlan&) = delete;
    SpawnPlan& operator=(const SpawnPlan&) = delete;
};

/// As argv and envp want it; valid as long as `texts` are not touched.
inline std::vector<char*> spawn_pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
}

}  // namespace ingero
