// getrlimit, getrlimit64
#include "limits.h"

extern int EVERYCALL_REAL(int, uint64_t*) EVERYCALL_WEAK;

EVERYCALL_WRAPPER int EVERYCALL_WRAP(int resource, uint64_t* limits) {
    const int result = EVERYCALL_REAL(resource, limits);
    if (result == 0 && resource == ADDRESS_SPACE && limits) tell(GOT, limits);
    return result;
}
