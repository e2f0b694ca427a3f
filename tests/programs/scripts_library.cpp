// What scripts.cpp loads and unloads.
#if defined(__clang__)
#define F __attribute__((noinline))
#else
#define F __attribute__((noipa))
#endif
extern "C" F void library_function(void (*work)()) {
    work();
    __asm__ volatile("" ::: "memory");
}
