/*
 * everycall.h: what a program can tell everycall and ask of it. C (from C89 on) and C++.
 *
 * Include it and build as ever. In a program that was built with `everycall cc`, and in the shared objects that it loads, these
 * functions reach the runtime; anywhere else they do nothing, cost a load and a test, and nothing has to be linked.
 *
 * Functions that can fail return 0, or a negative code that everycall_error() turns into a sentence. All of them may be
 * called in any thread and in signal handlers.
 *
 * Full description: docs/c-api.md of everycall.
 */
#ifndef EVERYCALL_H
#define EVERYCALL_H

#include <stddef.h>
#include <stdint.h>

/*
 * Attributes of functions. EVERYCALL_EXCLUDE: never traced, in whichever mode. EVERYCALL_FORCE: traced also where clang's XRay
 * would leave the function out because it is short; the other modes trace every function anyway.
 */
#if defined(__clang__)
#define EVERYCALL_EXCLUDE __attribute__((no_instrument_function, xray_never_instrument))
#define EVERYCALL_FORCE __attribute__((xray_always_instrument))
#elif defined(__GNUC__)
#define EVERYCALL_EXCLUDE __attribute__((no_instrument_function))
#define EVERYCALL_FORCE
#else
#define EVERYCALL_EXCLUDE
#define EVERYCALL_FORCE
#endif

/* Codes of errors. */
#define EVERYCALL_ERROR_NOT_TRACED (-1)
#define EVERYCALL_ERROR_ARGUMENT (-2)
#define EVERYCALL_ERROR_BUSY (-3)
#define EVERYCALL_ERROR_NO_THREAD (-4)
#define EVERYCALL_ERROR_NO_ROOM (-5)
#define EVERYCALL_ERROR_STARTED_OFF (-6)
#define EVERYCALL_ERROR_OLD_RUNTIME (-7)

#if defined(__x86_64__) && defined(__ELF__) && defined(__GNUC__)
#define EVERYCALL_REACHES_RUNTIME_ 1
#else
#define EVERYCALL_REACHES_RUNTIME_ 0
#endif

#if defined(__GNUC__)
#define EVERYCALL_INLINE_ static __inline__ __attribute__((unused)) EVERYCALL_EXCLUDE
#define EVERYCALL_OUTLINE_ static __attribute__((unused, noinline)) EVERYCALL_EXCLUDE
#elif defined(__cplusplus)
#define EVERYCALL_INLINE_ static inline
#define EVERYCALL_OUTLINE_ static inline
#else
#define EVERYCALL_INLINE_ static
#define EVERYCALL_OUTLINE_ static
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The runtime's table. Not for use; later versions add to its end, `size` tells how far this one goes.
 */
struct everycall_runtime_ {
    uint32_t abi;
    uint32_t size;
    void (*reserved_0)(void);
    void (*reserved_1)(void);
    int32_t (*mark)(uint32_t, uint32_t, const char *, uint64_t, uint64_t);
    uint64_t (*ticks_per_second)(void);
    int32_t (*record_thread)(uint32_t, uint64_t);
    int32_t (*record_process)(uint32_t, uint64_t);
    int32_t (*ring_size)(uint64_t);
};

#if EVERYCALL_REACHES_RUNTIME_
extern const struct everycall_runtime_ everycall_runtime_v1 __attribute__((weak, visibility("default")));
#define EVERYCALL_HAS_(entry) \
    (everycall_runtime_v1.size >= offsetof(struct everycall_runtime_, entry) + sizeof(everycall_runtime_v1.entry))
#endif

/* Why a call of the runtime isn't made; 0 where it can be. */
#if EVERYCALL_REACHES_RUNTIME_
#define EVERYCALL_REFUSAL_(entry) \
    (!&everycall_runtime_v1 ? EVERYCALL_ERROR_NOT_TRACED : !EVERYCALL_HAS_(entry) ? EVERYCALL_ERROR_OLD_RUNTIME : 0)
#endif

/* Whether this process carries everycall's runtime. */
EVERYCALL_INLINE_ int everycall_is_there(void)
{
#if EVERYCALL_REACHES_RUNTIME_
    return EVERYCALL_REFUSAL_(ring_size) == 0;
#else
    return 0;
#endif
}

/* What an error code means and what is needed. A text that stays; never NULL. */
EVERYCALL_INLINE_ const char *everycall_error(int code)
{
    switch (code) {
    case 0:
        return "no error";
    case EVERYCALL_ERROR_NOT_TRACED:
        return "this process is not traced: build the program with `everycall cc -- COMPILER ...`, and see that it is not started "
               "with more rights than its user has";
    case EVERYCALL_ERROR_ARGUMENT:
        return "an argument is out of its range: names and paths are not NULL, ring sizes are powers of two from 65536 to "
               "1073741824 bytes, snapshots come from everycall_snapshot() and are freed once";
    case EVERYCALL_ERROR_BUSY:
        return "everycall is busy in this thread or with other snapshots: call it again later, and free snapshots that are no longer needed";
    case EVERYCALL_ERROR_NO_THREAD:
        return "this thread is not recorded: it was left out before its first call, or there are more threads than the trace has "
               "room for";
    case EVERYCALL_ERROR_NO_ROOM:
        return "there is no room for so large a ring beside those of the other threads: choose a smaller one, or start the program "
               "with a larger one for all (everycall record --ring-size, EVERYCALL_RING_SIZE)";
    case EVERYCALL_ERROR_STARTED_OFF:
        return "the program was started with EVERYCALL_START=off, which leaves its hooks out for good: start it without that, and "
               "call everycall_disable() first";
    case EVERYCALL_ERROR_OLD_RUNTIME:
        return "the program carries an everycall runtime that is older than this everycall.h: link it again with the everycall that "
               "this header came with";
    default:
        return "an error that this everycall.h doesn't know: it is older than the runtime";
    }
}

/*
 * The time, in ticks of the clock that traces have. Stands still at 0 without the runtime.
 */
EVERYCALL_INLINE_ uint64_t everycall_now(void)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (&everycall_runtime_v1) {
        uint32_t low, high;
        __asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high));
        return (uint64_t)high << 32 | low;
    }
#endif
    return 0;
}

/*
 * Ticks in a second; never 0. Measured since the program's start, so it becomes more exact with time: to one in 100,000 after
 * 10 ms. It asks the kernel for the time: not for inner loops.
 */
EVERYCALL_INLINE_ uint64_t everycall_ticks_per_second(void)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(ticks_per_second) == 0)
        return everycall_runtime_v1.ticks_per_second();
#endif
    return 1000000000u;
}

EVERYCALL_OUTLINE_ int everycall_mark_(uint32_t mark_class, uint32_t has_value, const char *name, uint64_t value)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(mark) != 0)
        return EVERYCALL_REFUSAL_(mark);
    return everycall_runtime_v1.mark(mark_class, has_value, name, value, (uint64_t)(uintptr_t)__builtin_frame_address(0));
#else
    (void)mark_class, (void)has_value, (void)name, (void)value;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

#if EVERYCALL_REACHES_RUNTIME_
#define EVERYCALL_MARK_(mark_class, has_value, name, value) \
    (&everycall_runtime_v1 ? everycall_mark_(mark_class, has_value, name, value) : EVERYCALL_ERROR_NOT_TRACED)
#else
#define EVERYCALL_MARK_(mark_class, has_value, name, value) everycall_mark_(mark_class, has_value, name, value)
#endif

/*
 * Labels, instants and spans on the timeline of the calling thread. Names are UTF-8; their first 64 bytes are kept. Where
 * tracing is off for the thread or the process, nothing happens and the result is 0.
 */

/* A named value of the call that is being made: everycall_label("request", id). */
EVERYCALL_INLINE_ int everycall_label(const char *name, uint64_t value)
{
    return EVERYCALL_MARK_(1, 1, name, value);
}

/* A name without a value, of the call that is being made. */
EVERYCALL_INLINE_ int everycall_label_name(const char *name)
{
    return EVERYCALL_MARK_(1, 0, name, 0);
}

/* Something happens now. */
EVERYCALL_INLINE_ int everycall_instant(const char *name)
{
    return EVERYCALL_MARK_(2, 0, name, 0);
}

/* The same, with a value. */
EVERYCALL_INLINE_ int everycall_instant_value(const char *name, uint64_t value)
{
    return EVERYCALL_MARK_(2, 1, name, value);
}

/* A span of time begins. Spans belong to their thread and overlap calls and each other as they like. */
EVERYCALL_INLINE_ int everycall_span_begin(const char *name)
{
    return EVERYCALL_MARK_(3, 0, name, 0);
}

/* The thread's innermost open span of this name ends. */
EVERYCALL_INLINE_ int everycall_span_end(const char *name)
{
    return EVERYCALL_MARK_(4, 0, name, 0);
}

/* The same two, for spans that are told apart by a value too. */
EVERYCALL_INLINE_ int everycall_span_begin_value(const char *name, uint64_t value)
{
    return EVERYCALL_MARK_(3, 1, name, value);
}

EVERYCALL_INLINE_ int everycall_span_end_value(const char *name, uint64_t value)
{
    return EVERYCALL_MARK_(4, 1, name, value);
}

EVERYCALL_OUTLINE_ int everycall_record_thread_(uint32_t on)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(record_thread) != 0)
        return EVERYCALL_REFUSAL_(record_thread);
    return everycall_runtime_v1.record_thread(on, (uint64_t)(uintptr_t)__builtin_frame_address(0));
#else
    (void)on;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

EVERYCALL_OUTLINE_ int everycall_record_process_(uint32_t on)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(record_process) != 0)
        return EVERYCALL_REFUSAL_(record_process);
    return everycall_runtime_v1.record_process(on, (uint64_t)(uintptr_t)__builtin_frame_address(0));
#else
    (void)on;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

/* Leaves the calling thread out: it records nothing until it is taken back. What it recorded stays. */
EVERYCALL_INLINE_ int everycall_leave_thread_out(void)
{
    return everycall_record_thread_(0);
}

/* Takes the calling thread back. The trace shows the time between as a gap. */
EVERYCALL_INLINE_ int everycall_take_thread_back(void)
{
    return everycall_record_thread_(1);
}

/*
 * Switches tracing off in all threads, until everycall_enable(). What was recorded stays. Snapshots, forks and new threads
 * don't switch it on. Hooks of threads that are in the middle of one still write that event.
 */
EVERYCALL_INLINE_ int everycall_disable(void)
{
    return everycall_record_process_(0);
}

/* Switches tracing on again. The trace shows the time between as a gap in each thread. */
EVERYCALL_INLINE_ int everycall_enable(void)
{
    return everycall_record_process_(1);
}

/*
 * Sets the size of the calling thread's ring: a power of two from 65536 (64 KiB) to 1073741824 (1 GiB) bytes, 8 for each entry and
 * exit. What was recorded stays, as far as it fits.
 */
EVERYCALL_INLINE_ int everycall_set_ring_size(uint64_t bytes)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(ring_size) != 0)
        return EVERYCALL_REFUSAL_(ring_size);
    return everycall_runtime_v1.ring_size(bytes);
#else
    (void)bytes;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

#ifdef __cplusplus
}
#endif

#endif
