// A library of the name of the CUDA runtime and nothing behind it. PAD moves its functions, so that an offset of one
// build lies inside an instruction of the other. In two more builds cudaFree points into an instruction.
#define FUNCTION(name, result)                 \
    __attribute__((noinline)) int name(void) { \
        volatile int number = 0x12345678;      \
        return (number & 0) + (result);        \
    }

#ifdef PAD
__attribute__((noinline)) int padding(int x) {
    volatile int number = 0x1badcafe;
    return number + x;
}
#if defined(__x86_64__)
__asm__(".text\nnop\nnop\nnop\n");
#else
__asm__(".text\nnop\n");
#endif
#endif

FUNCTION(cudaMalloc, RESULT + 1)
FUNCTION(cudaDeviceSynchronize, RESULT + 2)
FUNCTION(cudaStreamSynchronize, RESULT + 3)
FUNCTION(cudaLaunchKernel, RESULT + 4)

#if defined(MISPLACED_UNSIZED)
// Of a function that no dynamic symbol names: the unwind table alone tells where it begins.
__attribute__((visibility("hidden"), used))
FUNCTION(hidden, RESULT + 5) __asm__(".globl cudaFree\n.type cudaFree, %function\n.set cudaFree, hidden + 1\n");
#elif defined(MISPLACED)
__asm__(".globl cudaFree\n.type cudaFree, %function\n.set cudaFree, cudaMalloc + 1\n");
#endif
