// setrlimit, setrlimit64
#include "limits.h"

extern int EVERYCALL_REAL(int, const uint64_t*) EVERYCALL_WEAK;

EVERYCALL_WRAPPER int EVERYCALL_WRAP(int resource, const uint64_t* limits) {
    if (resource != ADDRESS_SPACE || !limits) return EVERYCALL_REAL(resource, limits);
    uint64_t changed[2] = {limits[0], limits[1]};
    tell(SET, changed);
    return EVERYCALL_REAL(resource, changed);
}
