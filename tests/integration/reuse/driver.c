// A library of the name of the CUDA driver that gives out the same handles each time: a program of the pid of another
// one meets those of the other.
#include <stddef.h>

typedef unsigned long long handle;
#define CONTEXT 0x51000000c0ffeeULL
#define FUNCTION 0x52000000beef00ULL

// Something to save first, as the real ones have: the function then begins with a push.
#if defined(__x86_64__)
#define BEGIN __asm__ volatile("" : : : "rbx", "memory")
#else
#define BEGIN __asm__ volatile("" : : : "x19", "memory")
#endif

int cuDevicePrimaryCtxRetain(handle* context, int device) {
    BEGIN;
    *context = CONTEXT + (device & 0);
    return 0;
}
int cuCtxSetCurrent(handle context) {
    BEGIN;
    return context == CONTEXT ? 0 : 201;
}
int cuModuleGetFunction(handle* function, handle module, const char* name) {
    BEGIN;
    *function = FUNCTION;
    return module == 0 && name != NULL ? 0 : 1;
}
int cuLaunchKernel(handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void** extra) {
    BEGIN;
    return function == FUNCTION && gx + gy + gz + bx + by + bz + shared != 0 && !stream && !parameters && !extra ? 0
                                                                                                                 : 1;
}
