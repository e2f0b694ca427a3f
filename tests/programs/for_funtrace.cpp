// Written for funtrace: builds unchanged.
#include "funtrace.h"
#include <cstdio>

static volatile int sink;

__attribute__((noinline)) void DOFUNTRACE f(int n) { sink = n; }
NOFUNTRACE __attribute__((noinline)) void unseen(int n) { sink = n; }

int main()
{
    uint64_t start = funtrace_time();
    funtrace_set_thread_log_buf_size(20);
    f(1);
    unseen(1);
    funtrace_snapshot *snapshot = funtrace_pause_and_get_snapshot_starting_at_time(start);
    funtrace_write_snapshot("saved.ect", snapshot);
    funtrace_free_snapshot(snapshot);
    struct funtrace_snapshot *last = funtrace_pause_and_get_snapshot_up_to_age(funtrace_ticks_per_second());
    funtrace_write_snapshot("aged.ect", last);
    funtrace_free_snapshot(last);
    funtrace_free_snapshot(funtrace_pause_and_get_snapshot());
    funtrace_free_snapshot(0);
    funtrace_disable_tracing();
    f(2);
    funtrace_pause_and_write_current_snapshot();
    f(3);
    funtrace_enable_tracing();
    f(4);
    funtrace_ignore_this_thread();
    f(5);
    std::printf("%d\n", (int)((funtrace_time() - start) / funtrace_ticks_per_second()));
    return 0;
}
