// A CUDA runtime that calls itself by a call and by a jump: whoever is jumped to returns for the one that jumped. Each
// place is to be told from its stack, so all calls are made without frame pointers.
#define EXPORTED __attribute__((noinline, visibility("default")))

int cudaEventSynchronize(void* event);
int cudaDeviceSynchronize(void);
int cudaStreamSynchronize(void* stream);
int cudaMalloc(void** pointer, unsigned long bytes);
int cudaFree(void* pointer);

EXPORTED int cudaEventSynchronize(void* event) {
    volatile int result = event ? 1 : 0;
    return result;
}

EXPORTED int cudaDeviceSynchronize(void) {
    const int result = cudaEventSynchronize(0);
    __asm__ volatile("" : : "r"(result) : "memory"); /* no tail call */
    return result;
}

#if defined(__x86_64__)
__asm__(
    ".text\n.globl cudaStreamSynchronize\n.type cudaStreamSynchronize, %function\n"
    "cudaStreamSynchronize:\n  .cfi_startproc\n  nop\n  jmp cudaDeviceSynchronize@PLT\n  .cfi_endproc\n"
    ".size cudaStreamSynchronize, . - cudaStreamSynchronize\n");
#elif defined(__aarch64__)
__asm__(
    ".text\n.globl cudaStreamSynchronize\n.type cudaStreamSynchronize, %function\n"
    "cudaStreamSynchronize:\n  .cfi_startproc\n  nop\n  b cudaDeviceSynchronize\n  .cfi_endproc\n"
    ".size cudaStreamSynchronize, . - cudaStreamSynchronize\n");
#endif

EXPORTED int cudaMalloc(void** pointer, unsigned long bytes) {
    volatile unsigned long kept = bytes;
    const int result = cudaStreamSynchronize(0);
    *pointer = 0;
    __asm__ volatile("" : : "r"(result), "r"(kept) : "memory");
    return result;
}

EXPORTED int cudaFree(void* pointer) {
    return pointer ? 1 : 0;
}
