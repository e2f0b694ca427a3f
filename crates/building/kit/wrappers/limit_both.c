// prlimit, prlimit64
#include "limits.h"
#include "system_call.h"

extern int EVERYCALL_REAL(int, int, const uint64_t*, uint64_t*) EVERYCALL_WEAK;

static int own_id(void) { return (int)system_call(CALL_GETPID, 0, 0, 0, 0, 0, 0); }

EVERYCALL_WRAPPER int EVERYCALL_WRAP(int process, int resource, const uint64_t* limits, uint64_t* before) {
    if (resource != ADDRESS_SPACE || (process != 0 && process != own_id()))
        return EVERYCALL_REAL(process, resource, limits, before);
    uint64_t found[2], changed[2] = {0, 0};
    // What was set before is known only until the new limit is.
    int result = EVERYCALL_REAL(process, resource, 0, found);
    if (result != 0) return result;
    tell(GOT, found);
    if (limits) {
        changed[0] = limits[0], changed[1] = limits[1];
        tell(SET, changed);
        result = EVERYCALL_REAL(process, resource, changed, 0);
    }
    if (result == 0 && before) before[0] = found[0], before[1] = found[1];
    return result;
}
