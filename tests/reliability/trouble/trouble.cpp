// What one user can do to a tracer, each until standard input ends; a line when it is under way. Run as any user.
//   trouble exec FILE                opens FILE, of a file system that answers no flush, and executes itself: all who
//                                    look at this process's memory wait until the flush is answered
//   trouble register LIBRARY FILE    a thread on each CPU registers kernels whose names lie in FILE, of a file system
//                                    that answers no read, with LIBRARY, which reads no name
//   trouble map LIBRARY DIRECTORY N  maps N copies of pages of files with long paths below DIRECTORY, executable, and
//                                    calls cudaMalloc of LIBRARY
//   trouble loop LIBRARY             executes itself again and again, and calls cudaMalloc of LIBRARY each time
//   trouble link FILE                maps FILE executable; its file system answers no question about it any more
//   trouble many LIBRARY N           N processes, of which each calls cudaMalloc of LIBRARY and stays
//   trouble elves LIBRARY DIRECTORY N SEED
//                                    maps N copies of LIBRARY below DIRECTORY under its name, each with other bytes
//                                    changed where a reader of ELF files looks, and calls cudaMalloc of LIBRARY
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

void under_way() {
    std::cout << "under way" << std::endl;
}

[[noreturn]] void until_the_end() {
    char byte = 0;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    _exit(0);
}

[[noreturn]] void fail(const std::string& what) {
    perror(what.c_str());
    _exit(1);
}

template <typename Function>
Function function_of(const std::string& library, const char* name) {
    void* handle = dlopen(library.c_str(), RTLD_NOW);
    const auto function = handle ? reinterpret_cast<Function>(dlsym(handle, name)) : nullptr;
    if (!function) fail(std::string(name) + " of " + library + ": " + dlerror());
    return function;
}

using Malloc = int (*)(void**, size_t);

void call_malloc(Malloc cuda_malloc) {
    void* memory = nullptr;
    cuda_malloc(&memory, 4096);
}

void execute(const std::string& program, const std::string& file) {
    if (open(file.c_str(), O_RDONLY | O_CLOEXEC) < 0) fail(file);
    under_way();
    execl(program.c_str(), program.c_str(), "wait", nullptr);
    fail("execl");
}

void register_kernels(const std::string& library, const std::string& file) {
    using Register = void (*)(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
    const auto function = function_of<Register>(library, "__cudaRegisterFunction");
    const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    const unsigned cpus = std::thread::hardware_concurrency();
    char* name = static_cast<char*>(mmap(nullptr, 65536, PROT_READ, MAP_PRIVATE, fd, 0));
    if (name == MAP_FAILED) fail(file);
    static char stub;
    for (unsigned cpu = 0; cpu < cpus; ++cpu)
        std::thread([=] {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET(cpu, &set);
            sched_setaffinity(0, sizeof(set), &set);
            // Again and again, since the first may come before anybody looks.
            for (char* at = name + 4096 * cpu;; poll(nullptr, 0, 10))
                function(nullptr, &stub, at, at, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
        }).detach();
    under_way();
}

void map_much(const std::string& library, const std::string& directory, int count) {
    const Malloc cuda_malloc = function_of<Malloc>(library, "cudaMalloc");
    std::string path = directory;
    for (int depth = 0; depth < 12; ++depth) {
        path += "/" + std::string(250, static_cast<char>('a' + depth));
        mkdir(path.c_str(), 0755);
    }
    path += "/file";
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0755);
    if (fd < 0 || ftruncate(fd, 2 * 4096) != 0) fail(path);
    // Not one mapping of all: each begins where the one before it does not end in the file.
    for (int i = 0; i < count; ++i)
        if (mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, i % 2 * 4096) == MAP_FAILED) break;
    call_malloc(cuda_malloc);
    under_way();
    for (pollfd end{STDIN_FILENO, POLLIN, 0}; poll(&end, 1, 100) == 0;) call_malloc(cuda_malloc);
}

void loop(const std::string& program, const std::string& library) {
    call_malloc(function_of<Malloc>(library, "cudaMalloc"));
    if (pollfd end{STDIN_FILENO, POLLIN, 0}; poll(&end, 1, 0) != 0) _exit(0);
    execl(program.c_str(), program.c_str(), "again", library.c_str(), nullptr);
    fail("execl");
}

void map_file(const std::string& file) {
    const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) fail(file);
    under_way();
}

void fork_many(const std::string& library, int count) {
    const Malloc cuda_malloc = function_of<Malloc>(library, "cudaMalloc");
    for (int i = 0; i < count; ++i) {
        const pid_t child = fork();
        if (child < 0) fail("fork " + std::to_string(i));
        if (child != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        call_malloc(cuda_malloc);
        until_the_end();
    }
    under_way();
}

/// Changes up to 64 values, most to extreme ones: of the header, of the program and section headers, and of those
/// sections that readers walk.
void spoil(std::vector<char>& file, std::mt19937_64& random) {
    Elf64_Ehdr header;
    memcpy(&header, file.data(), sizeof(header));
    std::vector<std::pair<size_t, size_t>> places = {{EI_NIDENT, sizeof(header) - EI_NIDENT},
                                                     {header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr)},
                                                     {header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr)}};
    for (int i = 0; i < header.e_shnum; ++i) {
        Elf64_Shdr section;
        memcpy(&section, file.data() + header.e_shoff + i * sizeof(section), sizeof(section));
        switch (section.sh_type) {
            case SHT_DYNSYM:
            case SHT_SYMTAB:
            case SHT_NOTE:
            case SHT_DYNAMIC:
            case SHT_GNU_HASH:
            case SHT_STRTAB:
                places.emplace_back(section.sh_offset, section.sh_size);
                break;
            default:
                break;
        }
    }
    constexpr uint64_t extremes[] = {0, 1, 0xff, 0xffff, 0x7fffffff, 0xffffffff, UINT64_MAX, uint64_t{1} << 63};
    for (uint64_t changes = 1 + random() % 64; changes > 0; --changes) {
        const auto [from, bytes] = places[random() % places.size()];
        if (bytes < sizeof(uint64_t) || from + bytes > file.size()) continue;
        const size_t width = size_t{1} << random() % 4;
        const uint64_t value = random() % 4 == 0 ? random() : extremes[random() % std::size(extremes)];
        memcpy(file.data() + from + random() % (bytes / width) * width, &value, width);
    }
}

void map_elves(const std::string& library, const std::string& directory, int count, uint64_t seed) {
    const Malloc cuda_malloc = function_of<Malloc>(library, "cudaMalloc");
    std::ifstream stream(library, std::ios::binary);
    const std::vector<char> whole{std::istreambuf_iterator<char>(stream), {}};
    if (whole.size() < sizeof(Elf64_Ehdr)) fail(library);
    std::mt19937_64 random(seed);
    for (int i = 0; i < count; ++i) {
        std::vector<char> spoilt = whole;
        spoil(spoilt, random);
        const std::filesystem::path path =
            std::filesystem::path(directory) / std::to_string(i) / std::filesystem::path(library).filename();
        std::filesystem::create_directory(path.parent_path());
        std::ofstream(path, std::ios::binary).write(spoilt.data(), static_cast<std::streamsize>(spoilt.size()));
        const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0 || mmap(nullptr, spoilt.size(), PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) fail(path);
        close(fd);
    }
    call_malloc(cuda_malloc);
    under_way();
}

}  // namespace

int main(int count, char** arguments) {
    const std::vector<std::string> words(arguments, arguments + count);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count == 2 && words[1] == "wait") until_the_end();
    if (count == 3 && words[1] == "exec") execute(words[0], words[2]);
    if (count == 4 && words[1] == "register") register_kernels(words[2], words[3]);
    if (count == 5 && words[1] == "map") map_much(words[2], words[3], std::stoi(words[4]));
    if (count == 3 && words[1] == "loop") under_way();
    if (count == 3 && (words[1] == "loop" || words[1] == "again")) loop(words[0], words[2]);
    if (count == 3 && words[1] == "link") map_file(words[2]);
    if (count == 4 && words[1] == "many") fork_many(words[2], std::stoi(words[3]));
    if (count == 6 && words[1] == "elves") map_elves(words[2], words[3], std::stoi(words[4]), std::stoull(words[5]));
    until_the_end();
}
