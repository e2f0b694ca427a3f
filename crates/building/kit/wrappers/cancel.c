// pthread_cancel: the runtime learns which thread is to end.
#include "runtime.h"

// In glibc and musl, a pthread_t is the thread pointer. A cancelled thread reports nothing itself
// if none of its frames cleans up.
extern int __real_pthread_cancel(uint64_t) EVERYCALL_WEAK;
EVERYCALL_WRAPPER int __wrap_pthread_cancel(uint64_t thread) {
    enum { ESRCH_ = 3 };
    if (!__real_pthread_cancel) return ESRCH_;
    everycall_tell(EVERYCALL_CANCEL, thread, 0);
    return __real_pthread_cancel(thread);
}
