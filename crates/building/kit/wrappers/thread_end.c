// pthread_exit and thrd_exit: the runtime is notified before the thread's frames are left.
#include "jumps.h"

extern void EVERYCALL_REAL(void*) EVERYCALL_WEAK __attribute__((noreturn));
EVERYCALL_WRAPPER __attribute__((noreturn)) void EVERYCALL_WRAP(void* result) {
    everycall_tell(EVERYCALL_THREAD_END, EVERYCALL_HERE, 0);
    EVERYCALL_REAL(result);
}
