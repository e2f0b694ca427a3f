// Frames by id that take long, or not, between calls of machine code; in a child, too. One is named
// after its first call.
#include <sys/wait.h>
#include <unistd.h>

#include "everycall.h"

#define NOINLINE __attribute__((noinline))
enum { SCRIPT = 1, OTHER, LATE };

NOINLINE void work_native(void) {
    usleep(1000);
}

NOINLINE void run(uint32_t id, unsigned milliseconds) {
    everycall_frame_enter(id);
    work_native();
    usleep(milliseconds * 1000);
    everycall_frame_leave(id);
}

int main(void) {
    everycall_frame_name(SCRIPT, "work_script", "/srv/bank.lua", 3);
    everycall_frame_name(OTHER, "other", "/srv/bank.lua", 9);
    run(SCRIPT, 1);
    run(SCRIPT, 300);
    run(OTHER, 300);
    if (fork() == 0) {
        run(SCRIPT, 310);
        usleep(500000);  // until what was kept is written
        return 0;
    }
    wait(NULL);
    run(LATE, 300);
    everycall_frame_name(LATE, "work_late", "/srv/bank.lua", 20);
    run(LATE, 320);
    usleep(500000);
    return 0;
}
