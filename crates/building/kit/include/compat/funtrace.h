/*
 * funtrace's API, implemented by everycall: programs for funtrace build unchanged. Traces are
 * everycall's (.ect). The functions of everycall.h are available, too.
 *
 * Differences:
 * - no thread is paused;
 * - tracing that was disabled stays disabled through snapshots;
 * - a ring has 64 KiB to 1 GiB;
 * - a snapshot file has one snapshot and replaces the one before it;
 * - the current snapshot goes to funtrace.ect.
 *
 * funtrace takes a snapshot on SIGTRAP. Here, `kill -TRAP` ends the program, as any other program.
 * Instead, run `everycall snapshot PID`, or start the program with EVERYCALL_SNAPSHOT_SIGNAL=USR2
 * and send it that signal.
 */
#ifndef EVERYCALL_COMPAT_FUNTRACE_H
#define EVERYCALL_COMPAT_FUNTRACE_H

#include "../everycall.h"

#define NOFUNTRACE EVERYCALL_EXCLUDE
#define DOFUNTRACE EVERYCALL_FORCE

#ifdef __cplusplus
extern "C" {
#endif

typedef struct funtrace_snapshot funtrace_snapshot;

EVERYCALL_INLINE_ uint64_t funtrace_time(void)
{
    return everycall_now();
}

EVERYCALL_INLINE_ uint64_t funtrace_ticks_per_second(void)
{
    return everycall_ticks_per_second();
}

EVERYCALL_INLINE_ void funtrace_pause_and_write_current_snapshot(void)
{
    everycall_write_current("funtrace.ect");
}

EVERYCALL_INLINE_ struct funtrace_snapshot *funtrace_pause_and_get_snapshot_starting_at_time(uint64_t time)
{
    everycall_snapshot snapshot;
    everycall_take_snapshot_since(time, &snapshot);
    return (struct funtrace_snapshot *)(uintptr_t)snapshot;
}

EVERYCALL_INLINE_ struct funtrace_snapshot *funtrace_pause_and_get_snapshot(void)
{
    return funtrace_pause_and_get_snapshot_starting_at_time(0);
}

EVERYCALL_INLINE_ struct funtrace_snapshot *funtrace_pause_and_get_snapshot_up_to_age(uint64_t max_age_ticks)
{
    everycall_snapshot snapshot;
    everycall_take_snapshot_up_to_age(max_age_ticks, &snapshot);
    return (struct funtrace_snapshot *)(uintptr_t)snapshot;
}

EVERYCALL_INLINE_ void funtrace_write_snapshot(const char *filename, struct funtrace_snapshot *snapshot)
{
    everycall_write_snapshot((uintptr_t)snapshot, filename);
}

EVERYCALL_INLINE_ void funtrace_free_snapshot(struct funtrace_snapshot *snapshot)
{
    everycall_free_snapshot((uintptr_t)snapshot);
}

EVERYCALL_INLINE_ void funtrace_ignore_this_thread(void)
{
    everycall_leave_thread_out();
}

/* Bytes as a power of two; below 32 bytes the thread is left out. */
EVERYCALL_INLINE_ void funtrace_set_thread_log_buf_size(int log_buf_size)
{
    if (log_buf_size < 5) {
        everycall_leave_thread_out();
        return;
    }
    everycall_take_thread_back();
    everycall_set_ring_size((uint64_t)1 << (log_buf_size < 16 ? 16 : log_buf_size > 30 ? 30 : log_buf_size));
}

EVERYCALL_INLINE_ void funtrace_disable_tracing(void)
{
    everycall_disable();
}

EVERYCALL_INLINE_ void funtrace_enable_tracing(void)
{
    everycall_enable();
}

#ifdef __cplusplus
}
#endif

#endif
