// Makes known calls, in a tree of three processes and two threads, once its gate is opened by a line of input. What it
// did is printed as "KEY VALUE" lines. Calls that no library makes by itself are made by number, so that they can be
// counted to the last.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void must(int condition, const char* what) {
    if (condition) return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void make_calls(long number, long argument, int count) {
    for (int i = 0; i < count; i++) syscall(number, argument);
}

static void* thread(void* unused) {
    (void)unused;
    make_calls(SYS_sched_get_priority_max, SCHED_FIFO, 500);
    return NULL;
}

static void* storm(void* count) {
    make_calls(SYS_getppid, 0, (int)(intptr_t)count);
    return NULL;
}

static void run_threads(void* (*work)(void*), void* argument, int count) {
    pthread_t threads[8];
    for (int i = 0; i < count; i++) must(pthread_create(&threads[i], NULL, work, argument) == 0, "pthread_create");
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

static void meet(const struct sockaddr* address, socklen_t size, const char* key) {
    struct sockaddr_storage bound;
    socklen_t bound_size = sizeof bound;
    const int listener = socket(address->sa_family, SOCK_STREAM, 0),
              client = socket(address->sa_family, SOCK_STREAM, 0);
    must(bind(listener, address, size) == 0, "bind");
    must(listen(listener, 1) == 0, "listen");
    must(getsockname(listener, (struct sockaddr*)&bound, &bound_size) == 0, "getsockname");
    must(connect(client, (struct sockaddr*)&bound, bound_size) == 0, "connect");
    must(accept(listener, NULL, NULL) >= 0, "accept");
    struct sockaddr_storage own;
    socklen_t own_size = sizeof own;
    must(getsockname(client, (struct sockaddr*)&own, &own_size) == 0, "getsockname");
    if (address->sa_family == AF_INET)
        printf("%s %d\n%s_client %d\n", key, ntohs(((struct sockaddr_in*)&bound)->sin_port), key,
               ntohs(((struct sockaddr_in*)&own)->sin_port));
    if (address->sa_family == AF_INET6)
        printf("%s %d\n%s_client %d\n", key, ntohs(((struct sockaddr_in6*)&bound)->sin6_port), key,
               ntohs(((struct sockaddr_in6*)&own)->sin6_port));
}

static void use_network(void) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_un local = {.sun_family = AF_UNIX, .sun_path = "local.sock"};
    struct sockaddr_in closed = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in sink = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct iovec piece = {.iov_base = "x", .iov_len = 1};
    struct msghdr message = {.msg_name = &sink, .msg_namelen = sizeof sink, .msg_iov = &piece, .msg_iovlen = 1};
    meet((struct sockaddr*)&v4, sizeof v4, "v4");
    meet((struct sockaddr*)&v6, sizeof v6, "v6");
    meet((struct sockaddr*)&local, sizeof local, "unix");
    must(connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr*)&closed, sizeof closed) != 0, "a closed port");
    // From a socket of its own each: the answer that nobody listens is an error of the next one's.
    for (int i = 0; i < 3; i++) sendto(socket(AF_INET, SOCK_DGRAM, 0), "x", 1, 0, (struct sockaddr*)&sink, sizeof sink);
    sendmsg(socket(AF_INET, SOCK_DGRAM, 0), &message, 0);
}

// Of a name in memory that is not there before the kernel itself reads it.
static void open_by_untouched_name(void) {
    const int file = open("name", O_CREAT | O_RDWR, 0600);
    must(write(file, "./untouched.txt", 16) == 16, "write");
    const char* name = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    must(name != MAP_FAILED, "mmap");
    must(open(name, O_CREAT | O_WRONLY, 0600) >= 0, "an untouched name");
}

static void use_files(void) {
    must(mkdir("folder", 0700) == 0, "mkdir");
    const int folder = open("folder", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 5; i++) close(openat(folder, "inner.txt", O_CREAT | O_RDWR, 0600));
    for (int i = 0; i < 3; i++) must(open("missing.txt", O_RDONLY) < 0, "a file that is not there");
    close(open("evil\033[31m\nname\377", O_CREAT | O_WRONLY, 0600));
    char name[PATH_MAX + 8] = "";
    for (int i = 0; i < 60; i++) strcat(name, "./././././././././././././././././././");
    must(open(strcat(name, "long.txt"), O_CREAT | O_WRONLY, 0600) >= 0, "a long path");
    close(folder);
    open_by_untouched_name();
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void sleep_twice(void) {
    const struct timespec time = {0, 50000000};
    const uint64_t before = now_ns();
    syscall(SYS_nanosleep, &time, NULL);
    syscall(SYS_nanosleep, &time, NULL);
    printf("slept_ns %llu\n", (unsigned long long)(now_ns() - before));
}

static void run_tree(const char* program, const char* library) {
    const int child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        make_calls(SYS_getpgid, -1, 700);
        const int grandchild = fork();
        must(grandchild >= 0, "fork");
        if (grandchild == 0) execl(program, "the first argument", "exec", "a secret", (char*)NULL);
        waitpid(grandchild, NULL, 0);
        _exit(0);
    }
    make_calls(SYS_getpgid, 0, 1000);
    run_threads(thread, NULL, 2);
    use_files();
    use_network();
    must(dlopen(library, RTLD_NOW) != NULL, "dlopen");
    must(execl("/nonexistent/program", "program", (char*)NULL) < 0, "execl");
    sleep_twice();
    int status = 0;
    must(waitpid(child, &status, 0) == child && status == 0, "a child");
}

static sigjmp_buf no_such_way;

static void leave(int signal) {
    (void)signal;
    siglongjmp(no_such_way, 1);
}

// By the 32-bit way, where 5 is open(2), of a name that is in no memory. Not every kernel has that way.
static void make_compat_calls(int count) {
    volatile int made = 0;
#ifdef __x86_64__
    signal(SIGSEGV, leave);
    if (sigsetjmp(no_such_way, 1) != 0) count = 0;
    for (; made < count; made = made + 1) {
        long result = 5;
        __asm__ volatile("int $0x80" : "+a"(result) : "b"(16), "c"(0) : "memory", "r8", "r9", "r10", "r11");
        must(result == -EFAULT, "a 32-bit call");
    }
    signal(SIGSEGV, SIG_DFL);
#else
    (void)count;
#endif
    printf("compat %d\n", made);
}

static void* exec_there(void* program) {
    execl(program, "the first argument", "exec", (char*)NULL);
    return NULL;
}

int main(int argc, char** argv) {
    if (argc > 1 && strcmp(argv[1], "exec") == 0) {
        make_calls(SYS_sched_get_priority_min, SCHED_FIFO, 300);
        return 0;
    }
    if (argc < 5) return 2;
    must(chdir(argv[2]) == 0, "chdir");
    printf("ready\n");
    fflush(stdout);
    char line[16];
    must(read(0, line, sizeof line) > 0, "gate");
    if (strcmp(argv[1], "tree") == 0) run_tree(argv[3], argv[4]);
    if (strcmp(argv[1], "storm") == 0) run_threads(storm, (void*)(intptr_t)250000, 4);
    if (strcmp(argv[1], "files") == 0) {
        char name[64];
        for (int i = 0; i < 200000; i++) {
            snprintf(name, sizeof name, "/nonexistent/%d", i);
            must(open(name, O_RDONLY) < 0, "a file that is not there");
        }
    }
    if (strcmp(argv[1], "compat") == 0) make_compat_calls(4);
    if (strcmp(argv[1], "io_uring") == 0) make_calls(SYS_io_uring_enter, -1, 3);
    if (strcmp(argv[1], "thread") == 0) run_threads(exec_there, argv[3], 1);
    if (strcmp(argv[1], "become") == 0) {  // argv[3] has another user's rights
        make_calls(SYS_getpgid, 0, 10);
        execl(argv[3], "the first argument", "exec", (char*)NULL);
    }
    fflush(stdout);
    return 0;
}
