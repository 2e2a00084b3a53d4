// A library of the name of the CUDA runtime and nothing behind it. PAD moves its functions, so that an offset of one
// build lies inside an instruction of the other. cudaFree points into the instruction that cudaMalloc begins with.
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

#ifdef MISPLACED
__asm__(".globl cudaFree\n.type cudaFree, %function\n.set cudaFree, cudaMalloc + 1\n");
#ifdef MISPLACED_UNSIZED
// Neither symbol says how long it is: the unwind table alone does.
__asm__(".size cudaMalloc, 0\n.size cudaFree, 0\n");
#endif
#endif
