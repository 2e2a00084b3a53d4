#include "processes.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace ingero::standin {

namespace {

// The status of one child. A signal to stop that comes meanwhile goes to all from that one on.
int wait_for(const std::vector<pid_t>& children, size_t index) {
    int status = 0;
    while (waitpid(children[index], &status, 0) < 0) {
        if (errno != EINTR) return -1;
        if (!stopping()) continue;
        for (size_t i = index; i < children.size(); ++i) kill(children[i], SIGTERM);
    }
    return status;
}

}  // namespace

void die_with_parent(int parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
}

Totals run_forked(unsigned count, const std::function<void(Totals&)>& body) {
    void* shared = mmap(nullptr, count * sizeof(Totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw std::runtime_error("no shared memory for the children's counts");
    auto* totals = static_cast<Totals*>(shared);
    const pid_t parent = getpid();
    fflush(stdout);
    std::vector<pid_t> children;
    for (unsigned i = 0; i < count; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            die_with_parent(parent);
            try {
                body(totals[i]);
            } catch (const std::exception& error) {
                fprintf(stderr, "standin-workload: child: %s\n", error.what());
                _exit(1);
            }
            fflush(stdout);
            _exit(0);
        }
        if (child < 0) break;
        children.push_back(child);
    }
    bool in_order = children.size() == count;
    Totals sum;
    for (size_t i = 0; i < children.size(); ++i) {
        in_order = wait_for(children, i) == 0 && in_order;
        sum.add(totals[i]);
    }
    munmap(shared, count * sizeof(Totals));
    if (!in_order) throw std::runtime_error("a child could not be started, or did not end in order");
    return sum;
}

void run_again(const std::vector<std::string>& arguments) {
    std::vector<std::string> all{"standin-workload"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& argument : all) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    execv("/proc/self/exe", pointers.data());
}

}  // namespace ingero::standin
