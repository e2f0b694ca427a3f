/*
 * everycall.h: the interface of a traced program to everycall. C (from C89 on) and C++.
 *
 * Include it and build as usual. In a program that was built with `everycall cc`, and in the
 * shared objects that it loads, these functions call the runtime. Anywhere else they do nothing,
 * cost a load and a test, and need no library.
 *
 * Functions that can fail return 0 on success, or a negative code; everycall_error() returns its
 * text. All functions may be called in any thread and in signal handlers.
 *
 * Full description: docs/reference/c-api.md of everycall.
 */
#ifndef EVERYCALL_H
#define EVERYCALL_H

#include <stddef.h>
#include <stdint.h>

/*
 * Attributes of functions. EVERYCALL_EXCLUDE: never traced, in any mode. EVERYCALL_FORCE: traced
 * even if clang's XRay would omit the function because it is short; the other modes trace every
 * function anyway.
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

/*
 * How much `everycall follow` shows of a function's calls: nothing (0), one line (1), the call (2),
 * the call and everything within it (3). The function is placed in a section of its own for it, so
 * inline functions and templates can't have it.
 */
#if defined(__GNUC__)
#define EVERYCALL_LEVEL_0 __attribute__((section("everycall_level_0")))
#define EVERYCALL_LEVEL_1 __attribute__((section("everycall_level_1")))
#define EVERYCALL_LEVEL_2 __attribute__((section("everycall_level_2")))
#define EVERYCALL_LEVEL_3 __attribute__((section("everycall_level_3")))
#else
#define EVERYCALL_LEVEL_0
#define EVERYCALL_LEVEL_1
#define EVERYCALL_LEVEL_2
#define EVERYCALL_LEVEL_3
#endif

/* Error codes. */
#define EVERYCALL_ERROR_NOT_TRACED (-1)
#define EVERYCALL_ERROR_ARGUMENT (-2)
#define EVERYCALL_ERROR_BUSY (-3)
#define EVERYCALL_ERROR_NO_THREAD (-4)
#define EVERYCALL_ERROR_NO_ROOM (-5)
#define EVERYCALL_ERROR_STARTED_OFF (-6)
#define EVERYCALL_ERROR_OLD_RUNTIME (-7)
#define EVERYCALL_ERROR_NO_MEMORY (-8)
#define EVERYCALL_ERROR_CALLBACK (-9)
#define EVERYCALL_ERROR_NO_FOLDER (-10)
#define EVERYCALL_ERROR_NOT_ALLOWED (-11)
#define EVERYCALL_ERROR_DISK_FULL (-12)
#define EVERYCALL_ERROR_WRITE (-13)
#define EVERYCALL_ERROR_TOO_MANY_STACKS (-14)
#define EVERYCALL_ERROR_NO_FUNCTION (-15)
#define EVERYCALL_ERROR_NO_SELECTION (-16)

#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__ELF__) && defined(__GNUC__)
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

/* What everycall_disable_functions() or everycall_enable_functions() has found. */
typedef struct everycall_switched {
    /* Functions. */
    uint32_t functions;
    /* Their sites; 0 in modes whose hooks are always called. */
    uint32_t sites;
    /* Sites that could not be switched: the process may not change its code, or something else has. */
    uint32_t not_switched;
} everycall_switched;

/* A function of any type. */
typedef void (*everycall_function)(void);

/*
 * The runtime's table. Internal. Later versions add entries at its end; `size` is the size of this
 * one.
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
    int32_t (*snapshot)(uint64_t, uint64_t *);
    int32_t (*snapshot_write)(uint64_t, int32_t, const char *, int (*)(void *, const void *, size_t), void *);
    int32_t (*snapshot_free)(uint64_t);
    void (*reserved_2)(void);
    int32_t (*fiber)(uint32_t, uint64_t, uint64_t, const char *);
    void (*reserved_3)(void);
    void (*reserved_4)(void);
    int32_t (*min_duration)(uint64_t);
    void (*reserved_5)(void);
    const volatile uint32_t *off;
    int32_t (*quick_mark)(uint32_t, const char *, uint64_t, uint64_t);
    int32_t (*log)(const char *, uint32_t, const uint64_t *, uint64_t);
    int32_t (*functions)(uint32_t, const uint64_t *, uint64_t, struct everycall_switched *);
    int32_t (*select)(const char *);
    void (*memory)(uint32_t, uint64_t, uint64_t, uint64_t);
    const volatile uint32_t *memory_wanted;
    void (*frame_enter)(uint64_t);
    void (*frame_leave)(uint64_t);
    int32_t (*frame)(uint32_t, uint32_t, const char *, const char *, uint32_t);
    void (*address_space)(uint32_t, uint64_t *);
    void (*adopt)(const void *);
};

#if EVERYCALL_REACHES_RUNTIME_
extern const struct everycall_runtime_ everycall_runtime_v1 __attribute__((weak, visibility("default")));
#define EVERYCALL_HAS_(entry) \
    (everycall_runtime_v1.size >= offsetof(struct everycall_runtime_, entry) + sizeof(everycall_runtime_v1.entry))
#endif

/* The error code if the runtime lacks `entry`, or 0. */
#if EVERYCALL_REACHES_RUNTIME_
#define EVERYCALL_REFUSAL_(entry) \
    (!&everycall_runtime_v1 ? EVERYCALL_ERROR_NOT_TRACED : !EVERYCALL_HAS_(entry) ? EVERYCALL_ERROR_OLD_RUNTIME : 0)
#endif

/* Whether this process contains everycall's runtime. */
EVERYCALL_INLINE_ int everycall_is_there(void)
{
#if EVERYCALL_REACHES_RUNTIME_
    return EVERYCALL_REFUSAL_(snapshot_free) == 0;
#else
    return 0;
#endif
}

/* The meaning of an error code and its remedy. A static string; never NULL. */
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
               "1073741824 bytes, shortest durations are up to 100000000 ns, snapshots come from everycall_take_snapshot() and are freed once, stacks of fibers are not empty and "
               "not the running thread's own, and the one that is forgotten is known and isn't running";
    case EVERYCALL_ERROR_BUSY:
        return "everycall is busy in this thread or with other snapshots: call it again later, and free snapshots that are no longer needed";
    case EVERYCALL_ERROR_NO_THREAD:
        return "this thread is not recorded: it was left out before its first call, or there are more threads than the trace has "
               "room for";
    case EVERYCALL_ERROR_NO_ROOM:
        return "there is no room: for so large a ring beside those of the other threads (choose a smaller one, or start the program "
               "with a larger one for all: everycall record --ring-size, EVERYCALL_RING_SIZE), or for more than 1024 functions that are "
               "left out in a mode whose hooks are always called (choose functions by everycall_select_functions instead)";
    case EVERYCALL_ERROR_STARTED_OFF:
        return "the program carries an older everycall runtime and was started with EVERYCALL_START=off, which that one can't undo: "
               "link it again";
    case EVERYCALL_ERROR_OLD_RUNTIME:
        return "the program carries an everycall runtime that is older than this everycall.h: link it again with the everycall that "
               "this header came with";
    case EVERYCALL_ERROR_NO_MEMORY:
        return "the kernel has no memory, for a snapshot's lists (some KiB for each thread) or for the functions that are chosen: free "
               "memory or raise its limit, and try again";
    case EVERYCALL_ERROR_CALLBACK:
        return "the function that was given for the snapshot's bytes didn't return 0: what it has got so far is not a whole trace";
    case EVERYCALL_ERROR_NO_FOLDER:
        return "the trace file can't be made: a folder of its path isn't there; make the folder first";
    case EVERYCALL_ERROR_NOT_ALLOWED:
        return "the trace file can't be made: the process may not write into that folder; name another one";
    case EVERYCALL_ERROR_DISK_FULL:
        return "the trace file can't be written: the disk, the quota or the limit of file sizes is full; make room, or ask for the last "
               "part only (everycall_take_snapshot_up_to_age)";
    case EVERYCALL_ERROR_WRITE:
        return "the trace can't be written: see that the descriptor is open for writing and its reader still there";
    case EVERYCALL_ERROR_TOO_MANY_STACKS:
        return "everycall knows 8192 stacks of fibers, and no more at a time: tell it of those that are gone (everycall_forget_fiber)";
    case EVERYCALL_ERROR_NO_FUNCTION:
        return "none of these functions is traced, or the selection was made of other builds than the ones that are loaded: "
               "`everycall functions FILE` lists those that are";
    case EVERYCALL_ERROR_NO_SELECTION:
        return "the file is not there, is not readable, or is no selection that this version of everycall wrote and that only this "
               "user and root may write: make it with `everycall resolve --only PATTERN -o FILE PROGRAM`";
    default:
        return "an error that this everycall.h doesn't know: it is older than the runtime";
    }
}

/*
 * The time, in ticks of the traces' clock. Always 0 without the runtime.
 */
EVERYCALL_INLINE_ uint64_t everycall_now(void)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (&everycall_runtime_v1) {
#if defined(__x86_64__)
        uint32_t low, high;
        __asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high));
        return (uint64_t)high << 32 | low;
#else
        uint64_t ticks;
        __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
#endif
    }
#endif
    return 0;
}

/*
 * Ticks per second; never 0. Measured since the program's start, so it becomes more exact with
 * time: to one in 100,000 after 10 ms. It reads the kernel's clock, so don't call it in inner
 * loops.
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
/* A runtime that is older than this header. */
EVERYCALL_OUTLINE_ int everycall_old_mark_(uint32_t mark_class, uint32_t has_value, const char *name, uint64_t value)
{
    return mark_class > 4 ? EVERYCALL_ERROR_OLD_RUNTIME : everycall_mark_(mark_class, has_value, name, value);
}

/* Whether the runtime is there, and has all that the functions below need. */
#define EVERYCALL_IS_NEW_ (&everycall_runtime_v1 && EVERYCALL_HAS_(log))
/* The stack pointer of the function that this is inlined into. */
#if defined(__x86_64__)
#define EVERYCALL_STACK_POINTER_(result) __asm__ __volatile__("movq %%rsp, %0" : "=r"(result))
#else
#define EVERYCALL_STACK_POINTER_(result) __asm__ __volatile__("mov %0, sp" : "=r"(result))
#endif
/* One more than the length of a literal; 0 for other names. */
#define EVERYCALL_LENGTH_(name) \
    (__builtin_constant_p(__builtin_strlen(name)) && __builtin_strlen(name) <= 64 ? (uint32_t)__builtin_strlen(name) + 1 : 0)
#define EVERYCALL_MARK_(mark_class, has_value, name, value)                                                                \
    (!EVERYCALL_IS_NEW_            ? (&everycall_runtime_v1 ? everycall_old_mark_(mark_class, has_value, name, value)      \
                                                            : EVERYCALL_ERROR_NOT_TRACED)                                  \
     : *everycall_runtime_v1.off ? 0                                                                                       \
                                   : everycall_quick_mark_((mark_class) | ((has_value) ? 0u : 0x80u), name, value))

EVERYCALL_INLINE_ int everycall_quick_mark_(uint32_t what, const char *name, uint64_t value)
{
    uint64_t stack_pointer;
    uint32_t length = name ? EVERYCALL_LENGTH_(name) : 0;
    EVERYCALL_STACK_POINTER_(stack_pointer);
    return everycall_runtime_v1.quick_mark(what | length << 8, name, value, stack_pointer);
}
#else
#define EVERYCALL_MARK_(mark_class, has_value, name, value) everycall_mark_(mark_class, has_value, name, value)
#endif

/*
 * Labels, instants and spans on the timeline of the calling thread. Names are UTF-8; their first 64
 * bytes are kept. If tracing is off for the thread or the process, nothing happens and the result
 * is 0.
 */

/* A named value of the innermost open call: everycall_label("request", id). */
EVERYCALL_INLINE_ int everycall_label(const char *name, uint64_t value)
{
    return EVERYCALL_MARK_(1, 1, name, value);
}

/* A name without a value, of the innermost open call. */
EVERYCALL_INLINE_ int everycall_label_name(const char *name)
{
    return EVERYCALL_MARK_(1, 0, name, 0);
}

/* An event at this moment. */
EVERYCALL_INLINE_ int everycall_instant(const char *name)
{
    return EVERYCALL_MARK_(2, 0, name, 0);
}

/* The same, with a value. */
EVERYCALL_INLINE_ int everycall_instant_value(const char *name, uint64_t value)
{
    return EVERYCALL_MARK_(2, 1, name, value);
}

/* Begins a span of time. Spans belong to their thread and may overlap calls and each other. */
EVERYCALL_INLINE_ int everycall_span_begin(const char *name)
{
    return EVERYCALL_MARK_(3, 0, name, 0);
}

/* Ends the thread's innermost open span of this name. */
EVERYCALL_INLINE_ int everycall_span_end(const char *name)
{
    return EVERYCALL_MARK_(4, 0, name, 0);
}

/* The same two, for spans that are distinguished by a value, too. */
EVERYCALL_INLINE_ int everycall_span_begin_value(const char *name, uint64_t value)
{
    return EVERYCALL_MARK_(3, 1, name, value);
}

EVERYCALL_INLINE_ int everycall_span_end_value(const char *name, uint64_t value)
{
    return EVERYCALL_MARK_(4, 1, name, value);
}

/*
 * Frames by id: calls of functions that have no machine code of their own, such as an
 * interpreter's. They nest between calls of machine code, and are shown and counted as these are.
 * Triggers and selections know them by the names that everycall_frame_name() has told.
 *
 * Ids are numbers from 0 to 1048575, which the program chooses. Greater ones are addresses of code,
 * such as a just-in-time compiler's: they cost more, and have the names that the compiler tells
 * perf (perf-PID.map, jitdump). So do ids that nobody named, where such a file has them as
 * addresses. Call enter and leave in the function that runs the frame, or in functions that aren't
 * traced: a frame that is still open when the traced function that has reported it returns was left
 * there.
 */

/* By this section `everycall record` knows that the program has names beside its symbols. */
#define EVERYCALL_HAS_NAMES_() \
    __asm__(".pushsection .everycall.frames, \"MS\", @progbits, 1\n\t.asciz \"frames\"\n\t.popsection")

/*
 * Names an id, with the file and line of its definition (NULL and 0 if unknown): once, before its
 * first call or later. The strings are copied. If an id is named again, the last name counts, also
 * for its earlier calls.
 */
EVERYCALL_INLINE_ int everycall_frame_name(uint32_t id, const char *name, const char *file, uint32_t line)
{
#if EVERYCALL_REACHES_RUNTIME_
    EVERYCALL_HAS_NAMES_();
    return EVERYCALL_REFUSAL_(frame) ? EVERYCALL_REFUSAL_(frame) : everycall_runtime_v1.frame(0, id, name, file, line);
#else
    (void)id, (void)name, (void)file, (void)line;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

/* A call of the function `id` begins on the calling thread. */
EVERYCALL_INLINE_ void everycall_frame_enter(uint64_t id)
{
#if EVERYCALL_REACHES_RUNTIME_
    EVERYCALL_HAS_NAMES_();
    if (&everycall_runtime_v1 && EVERYCALL_HAS_(frame))
        everycall_runtime_v1.frame_enter(id);
#else
    (void)id;
#endif
}

/* The innermost call of the function `id` ends. Those inside it that haven't ended were left. */
EVERYCALL_INLINE_ void everycall_frame_leave(uint64_t id)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (&everycall_runtime_v1 && EVERYCALL_HAS_(frame))
        everycall_runtime_v1.frame_leave(id);
#else
    (void)id;
#endif
}

/*
 * The TRACE instruction (docs/design/trace-instruction.md of everycall): a call by a number begins
 * or ends; names of numbers. CPUs that exist do nothing but store the number on the stack. For the
 * device, the number is in a register; it is stored because QEMU's plugins see memory only.
 */
#if defined(__GNUC__) && defined(__x86_64__)
#define EVERYCALL_TRACE_(code, number)                                                                                     \
    do {                                                                                                                   \
        uint64_t everycall_held_;                                                                                          \
        __asm__ __volatile__("movq %1, %0\n\t.byte 0x0f, 0x19, " code : "=m"(everycall_held_) : "a"((uint64_t)(number)));     \
    } while (0)
/* Within their callers: what the device takes is the stack pointer of these. */
#define EVERYCALL_TRACE_INLINE_ EVERYCALL_INLINE_ __attribute__((always_inline))
#else
#define EVERYCALL_TRACE_(code, number) ((void)(number))
#define EVERYCALL_TRACE_INLINE_ EVERYCALL_INLINE_
#endif

EVERYCALL_TRACE_INLINE_ void everycall_trace_enter(uint64_t id)
{
    EVERYCALL_TRACE_("0xd8", id);
}

EVERYCALL_TRACE_INLINE_ void everycall_trace_leave(uint64_t id)
{
    EVERYCALL_TRACE_("0xe0", id);
}

EVERYCALL_INLINE_ void everycall_trace_name(uint64_t id, const char *name)
{
    int is_more = 1;
    EVERYCALL_TRACE_("0xe8", id);
    while (is_more) {
        uint64_t word = 0;
        int at;
        for (at = 0; at < 8 && is_more; at++) {
            word |= (uint64_t)(unsigned char)*name << 8 * at;
            is_more = *name++ != 0;
        }
        EVERYCALL_TRACE_("0xe8", word);
    }
}

/*
 * Whether a call of the function `id` that begins now in the calling thread is recorded: 1 or 0. What a
 * program says (labels, lines) belongs to the innermost call that is recorded, so an interpreter that
 * says something about each call asks this before.
 */
EVERYCALL_INLINE_ int everycall_frame_is_recorded(uint32_t id)
{
#if EVERYCALL_REACHES_RUNTIME_
    return EVERYCALL_REFUSAL_(frame) == 0 && everycall_runtime_v1.frame(2, id, NULL, NULL, 0) == 1;
#else
    (void)id;
    return 0;
#endif
}

/*
 * So many frames ended on a stack of calls on which they hadn't begun: something switches between stacks
 * and doesn't tell. Where calls lie is in doubt then, and no summary says that the trace is complete.
 */
EVERYCALL_INLINE_ void everycall_frames_misplaced(uint32_t count)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(frame) == 0)
        everycall_runtime_v1.frame(3, 0, NULL, NULL, count);
#else
    (void)count;
#endif
}

/*
 * The innermost call of the function `id` is left by an exception. In the function that throws it,
 * give the name of its type, which is then shown there; in those that it passes through, NULL.
 */
EVERYCALL_INLINE_ void everycall_frame_unwind(uint32_t id, const char *exception)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(frame) == 0)
        (void)everycall_runtime_v1.frame(1, id, exception, NULL, 0);
#else
    (void)id, (void)exception;
#endif
}

/*
 * Tasks: coroutines without a stack of their own, which a scheduler runs step by step. What a
 * thread does between the begin and the end of a step is shown on the task's track, where the steps
 * follow each other, whichever threads run them. Steps may nest; those of a task don't overlap.
 */

/* A step of task `number`, which is the task's own in this process, begins; 64 bytes of the name are kept. */
EVERYCALL_INLINE_ int everycall_task_begin(uint32_t number, const char *name)
{
    return EVERYCALL_MARK_(14, 1, name, (uint64_t)number);
}

/*
 * Arrows from what wakes a task to the step that follows: everycall_task_wake where it is woken, by
 * whichever thread, and everycall_task_step instead of everycall_task_begin. Both say which step of
 * the task that is, from 1.
 */
EVERYCALL_INLINE_ int everycall_task_wake(uint32_t number, uint32_t step, const char *name)
{
    return EVERYCALL_MARK_(0, 1, name, (uint64_t)step << 32 | number);
}

EVERYCALL_INLINE_ int everycall_task_step(uint32_t number, uint32_t step, const char *name)
{
    return EVERYCALL_MARK_(14, 1, name, (uint64_t)step << 32 | number);
}

/*
 * The step ends. The last `suspended` calls that ended in it, one directly after the other, have
 * not ended but wait: where the next step enters their functions again, they go on.
 */
EVERYCALL_INLINE_ int everycall_task_end(uint32_t number, uint32_t suspended)
{
    return EVERYCALL_MARK_(15, 1, "", (uint64_t)suspended << 32 | number);
}

/*
 * The name of a lock or another object that calls wait for, under `everycall record --waits`. The
 * text must stay. Nothing happens without --waits, and in executables that are linked with -no-pie.
 */
#if EVERYCALL_REACHES_RUNTIME_
extern int everycall_waits_name(const void *object, const char *name) __attribute__((weak, visibility("default")));
#endif
EVERYCALL_INLINE_ int everycall_name_object(const void *object, const char *name)
{
#if EVERYCALL_REACHES_RUNTIME_
    return &everycall_waits_name ? everycall_waits_name(object, name) : 0;
#else
    (void)object, (void)name;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

/*
 * A value of a time series. Counters belong to the process: all threads may set one of the same name.
 */
EVERYCALL_INLINE_ int everycall_counter(const char *name, int64_t value)
{
    return EVERYCALL_MARK_(12, 1, name, (uint64_t)value);
}

EVERYCALL_INLINE_ int everycall_counter_double(const char *name, double value)
{
    union {
        double real;
        uint64_t bits;
    } both;
    both.real = value;
    return EVERYCALL_MARK_(13, 1, name, both.bits);
}

/*
 * Log lines: everycall_log("worker %d took %s", id, name), with the formats of printf. Nothing is formatted while the program runs:
 * a line takes the format's address and the arguments as they are, and is formatted when the trace is shown. Compilers check the
 * arguments, as for printf. All arguments are evaluated once, whether tracing is on or off.
 *
 * - At most 10 arguments. `long double` becomes `double`.
 * - Of a string (%s), 96 bytes are kept.
 * - The format should be a literal. Of any other, the first 256 bytes are copied.
 * - %n is shown as it stands, and so are arguments by number (%1$d).
 */
#if EVERYCALL_REACHES_RUNTIME_
#if !defined(__cplusplus) || __cplusplus >= 201103L || defined(__clang__) || !defined(__STRICT_ANSI__)
#define EVERYCALL_HAS_LOG_ 1
#else
/* g++ can't be kept from refusing macros with any number of arguments in strict C++98. */
#define EVERYCALL_HAS_LOG_ 0
#endif
#if EVERYCALL_HAS_LOG_
__attribute__((format(printf, 1, 2))) EVERYCALL_OUTLINE_ int everycall_check_log_(const char *format, ...)
{
    return format != 0;
}

EVERYCALL_INLINE_ int everycall_log_(const char *format, uint32_t types, const uint64_t *arguments)
{
    uint64_t stack_pointer;
    EVERYCALL_STACK_POINTER_(stack_pointer);
    return everycall_runtime_v1.log(format, types, arguments, stack_pointer);
}

#define EVERYCALL_LOG_REFUSAL_ (&everycall_runtime_v1 ? EVERYCALL_ERROR_OLD_RUNTIME : EVERYCALL_ERROR_NOT_TRACED)
/* Of a format that isn't a literal, the text is copied. */
#define EVERYCALL_FORMAT_TYPE_(format) (__builtin_constant_p(format) ? 0u : 0x80000000u)

#ifndef __cplusplus
#define EVERYCALL_IS_A_(x, type) __builtin_types_compatible_p(__typeof__(x), type)
#define EVERYCALL_IS_TEXT_(x)                                                                                              \
    (EVERYCALL_IS_A_(x, char *) || EVERYCALL_IS_A_(x, const char *) || EVERYCALL_IS_A_(x, char[]) ||                       \
     EVERYCALL_IS_A_(x, const char[]) || EVERYCALL_IS_A_(x, signed char *) || EVERYCALL_IS_A_(x, const signed char *) ||   \
     EVERYCALL_IS_A_(x, signed char[]) || EVERYCALL_IS_A_(x, const signed char[]) ||                                       \
     EVERYCALL_IS_A_(x, unsigned char *) || EVERYCALL_IS_A_(x, const unsigned char *) ||                                   \
     EVERYCALL_IS_A_(x, unsigned char[]) || EVERYCALL_IS_A_(x, const unsigned char[]))
#define EVERYCALL_IS_REAL_(x) (__builtin_classify_type(x) == 8)
#define EVERYCALL_TYPE_(x)                                                                                                 \
    (EVERYCALL_IS_REAL_(x)                ? 3u                                                                             \
     : EVERYCALL_IS_TEXT_(x)              ? 5u                                                                             \
     : __builtin_classify_type(x) == 5    ? 4u                                                                             \
     : sizeof(x) <= 4                     ? 1u                                                                             \
                                          : 2u)
EVERYCALL_INLINE_ uint64_t everycall_real_(double value)
{
    union {
        double real;
        uint64_t bits;
    } both;
    both.real = value;
    return both.bits;
}
#define EVERYCALL_BITS_(x)                                                                                                 \
    (__builtin_choose_expr(EVERYCALL_IS_REAL_(x), everycall_real_((double)__builtin_choose_expr(EVERYCALL_IS_REAL_(x), x, 0)), \
                           (uint64_t)__builtin_choose_expr(EVERYCALL_IS_REAL_(x), 0, x)))
#else
#define EVERYCALL_TYPE_(x) ((uint32_t)sizeof(everycall::log_type_(x)))
#define EVERYCALL_BITS_(x) everycall::log_bits_(x)
#endif

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wvariadic-macros"
#else
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wvariadic-macros"
#endif
#define EVERYCALL_LOG0_(format) \
    (__extension__({ \
        (void)sizeof(everycall_check_log_(format)); \
        !EVERYCALL_IS_NEW_ ? EVERYCALL_LOG_REFUSAL_ \
            : *everycall_runtime_v1.off ? 0 \
            : everycall_log_(format, EVERYCALL_FORMAT_TYPE_(format), (const uint64_t *)0); \
    }))
#define EVERYCALL_LOG1_(format, a) \
    (__extension__({ \
        const uint64_t everycall_arguments_[1] = {EVERYCALL_BITS_(a)}; \
        (void)sizeof(everycall_check_log_(format, a)); \
        !EVERYCALL_IS_NEW_ ? EVERYCALL_LOG_REFUSAL_ \
            : *everycall_runtime_v1.off ? 0 \
            : everycall_log_(format, EVERYCALL_FORMAT_TYPE_(format) | EVERYCALL_TYPE_(a) << 0, everycall_arguments_); \
    }))
#define EVERYCALL_LOG2_(format, a, b) \
    (__extension__({ \
        const uint64_t everycall_arguments_[2] = {EVERYCALL_BITS_(a), EVERYCALL_BITS_(b)}; \
        (void)sizeof(everycall_check_log_(format, a, b)); \
        !EVERYCALL_IS_NEW_ ? EVERYCALL_LOG_REFUSAL_ \
            : *everycall_runtime_v1.off ? 0 \
            : everycall_log_(format, EVERYCALL_FORMAT_TYPE_(format) | EVERYCALL_TYPE_(a) << 0 | EVERYCALL_TYPE_(b) << 3, everycall_arguments_); \
    }))
#define EVERYCALL_LOG3_(format, a, b, c) \
    (__extension__({ \
        const uint64_t everycall_arguments_[3] = {EVERYCALL_BITS_(a), EVERYCALL_BITS_(b), EVERYCALL_BITS_(c)}; \
        (void)sizeof(everycall_check_log_(format, a, b, c)); \
        !EVERYCALL_IS_NEW_ ? EVERYCALL_LOG_REFUSAL_ \
            : *everycall_runtime_v1.off ? 0 \
            : everycall_log_(format, EVERYCALL_FORMAT_TYPE_(format) | EVERYCALL_TYPE_(a) << 0 | EVERYCALL_TYPE_(b) << 3 | EVERYCALL_TYPE_(c) << 6, everycall_arguments_); \
    }))
#define EVERYCALL_LOG4_(format, a, b, c, d) \
    (__extension__({ \
        const uint64_t everycall_arguments_[4] = {EVERYCALL_BITS_(a), EVERYCALL_BITS_(b), EVERYCALL_BITS_(c), EVERYCALL_BITS_(d)}; \
        (void)sizeof(everycall_check_log_(format, a, b, c, d)); \
        !EVERYCALL_IS_NEW_ ? EVERYCALL_LOG_REFUSAL_ \
            : *everycall_runtime_v1.off ? 0 \
            : everycall_log_(format, EVERYCALL_FORMAT_TYPE_(format) | EVERYCALL_TYPE_(a) << 0 | EVERYCALL_TYPE_(b) << 3 | EVERYCALL_TYPE_(c) << 6 | EVERYCALL_TYPE_(d) << 9, everycall_arguments_); \
    }))
#define EVERYCALL_LOG5_(format, a, b, c, d, e) \
    (__extension__({ \
        const uint64_t everycall_arguments_[5] = {EVERYCALL_BITS_(a), EVERYCALL_BITS_(b), EVERYCALL_BITS_(c), EVERYCALL_BITS_(d), EVERYCALL_BITS_(e)}; \
        (void)sizeof(everycall_check_log_(format, a, b, c, d, e)); \
        !EVERYCALL_IS_NEW_ ? EVERYCALL_LOG_REFUSAL_ \
            : *everycall_runtime_v1.off ? 0 \
            : everycall_log_(format, EVERYCALL_FORMAT_TYPE_(format) | EVERYCALL_TYPE_(a) << 0 | EVERYCALL_TYPE_(b) << 3 | EVERYCALL_TYPE_(c) << 6 | EVERYCALL_TYPE_(d) << 9 | EVERYCALL_TYPE_(e) << 12, everycall_arguments_); \
    }))
#define EVERYCALL_LOG6_(format, a, b, c, d, e, f) \
    (__extension__({ \
        const uint64_t everycall_arguments_[6] = {EVERYCALL_BITS_(a), EVERYCALL_BITS_(b), EVERYCALL_BITS_(c), EVERYCALL_BITS_(d), EVERYCALL_BITS_(e), EVERYCALL_BITS_(f)}; \
        (void)sizeof(everycall_check_log_(format, a, b, c, d, e, f)); \
        !EVERYCALL_IS_NEW_ ? EVERYCALL_LOG_REFUSAL_ \
            : *everycall_runtime_v1.off ? 0 \
            : everycall_log_(format, EVERYCALL_FORMAT_TYPE_(format) | EVERYCALL_TYPE_(a) << 0 | EVERYCALL_TYPE_(b) << 3 | EVERYCALL_TYPE_(c) << 6 | EVERYCALL_TYPE_(d) << 9 | EVERYCALL_TYPE_(e) << 12 | EVERYCALL_TYPE_(f) << 15, everycall_arguments_); \
    }))
#define EVERYCALL_LOG7_(format, a, b, c, d, e, f, g) \
    (__extension__({ \
        const uint64_t everycall_arguments_[7] = {EVERYCALL_BITS_(a), EVERYCALL_BITS_(b), EVERYCALL_BITS_(c), EVERYCALL_BITS_(d), EVERYCALL_BITS_(e), EVERYCALL_BITS_(f), EVERYCALL_BITS_(g)}; \
        (void)sizeof(everycall_check_log_(format, a, b, c, d, e, f, g)); \
        !EVERYCALL_IS_NEW_ ? EVERYCALL_LOG_REFUSAL_ \
            : *everycall_runtime_v1.off ? 0 \
            : everycall_log_(format, EVERYCALL_FORMAT_TYPE_(format) | EVERYCALL_TYPE_(a) << 0 | EVERYCALL_TYPE_(b) << 3 | EVERYCALL_TYPE_(c) << 6 | EVERYCALL_TYPE_(d) << 9 | EVERYCALL_TYPE_(e) << 12 | EVERYCALL_TYPE_(f) << 15 | EVERYCALL_TYPE_(g) << 18, everycall_arguments_); \
    }))
#define EVERYCALL_LOG8_(format, a, b, c, d, e, f, g, h) \
    (__extension__({ \
        const uint64_t everycall_arguments_[8] = {EVERYCALL_BITS_(a), EVERYCALL_BITS_(b), EVERYCALL_BITS_(c), EVERYCALL_BITS_(d), EVERYCALL_BITS_(e), EVERYCALL_BITS_(f), EVERYCALL_BITS_(g), EVERYCALL_BITS_(h)}; \
        (void)sizeof(everycall_check_log_(format, a, b, c, d, e, f, g, h)); \
        !EVERYCALL_IS_NEW_ ? EVERYCALL_LOG_REFUSAL_ \
            : *everycall_runtime_v1.off ? 0 \
            : everycall_log_(format, EVERYCALL_FORMAT_TYPE_(format) | EVERYCALL_TYPE_(a) << 0 | EVERYCALL_TYPE_(b) << 3 | EVERYCALL_TYPE_(c) << 6 | EVERYCALL_TYPE_(d) << 9 | EVERYCALL_TYPE_(e) << 12 | EVERYCALL_TYPE_(f) << 15 | EVERYCALL_TYPE_(g) << 18 | EVERYCALL_TYPE_(h) << 21, everycall_arguments_); \
    }))
#define EVERYCALL_LOG9_(format, a, b, c, d, e, f, g, h, i) \
    (__extension__({ \
        const uint64_t everycall_arguments_[9] = {EVERYCALL_BITS_(a), EVERYCALL_BITS_(b), EVERYCALL_BITS_(c), EVERYCALL_BITS_(d), EVERYCALL_BITS_(e), EVERYCALL_BITS_(f), EVERYCALL_BITS_(g), EVERYCALL_BITS_(h), EVERYCALL_BITS_(i)}; \
        (void)sizeof(everycall_check_log_(format, a, b, c, d, e, f, g, h, i)); \
        !EVERYCALL_IS_NEW_ ? EVERYCALL_LOG_REFUSAL_ \
            : *everycall_runtime_v1.off ? 0 \
            : everycall_log_(format, EVERYCALL_FORMAT_TYPE_(format) | EVERYCALL_TYPE_(a) << 0 | EVERYCALL_TYPE_(b) << 3 | EVERYCALL_TYPE_(c) << 6 | EVERYCALL_TYPE_(d) << 9 | EVERYCALL_TYPE_(e) << 12 | EVERYCALL_TYPE_(f) << 15 | EVERYCALL_TYPE_(g) << 18 | EVERYCALL_TYPE_(h) << 21 | EVERYCALL_TYPE_(i) << 24, everycall_arguments_); \
    }))
#define EVERYCALL_LOG10_(format, a, b, c, d, e, f, g, h, i, j) \
    (__extension__({ \
        const uint64_t everycall_arguments_[10] = {EVERYCALL_BITS_(a), EVERYCALL_BITS_(b), EVERYCALL_BITS_(c), EVERYCALL_BITS_(d), EVERYCALL_BITS_(e), EVERYCALL_BITS_(f), EVERYCALL_BITS_(g), EVERYCALL_BITS_(h), EVERYCALL_BITS_(i), EVERYCALL_BITS_(j)}; \
        (void)sizeof(everycall_check_log_(format, a, b, c, d, e, f, g, h, i, j)); \
        !EVERYCALL_IS_NEW_ ? EVERYCALL_LOG_REFUSAL_ \
            : *everycall_runtime_v1.off ? 0 \
            : everycall_log_(format, EVERYCALL_FORMAT_TYPE_(format) | EVERYCALL_TYPE_(a) << 0 | EVERYCALL_TYPE_(b) << 3 | EVERYCALL_TYPE_(c) << 6 | EVERYCALL_TYPE_(d) << 9 | EVERYCALL_TYPE_(e) << 12 | EVERYCALL_TYPE_(f) << 15 | EVERYCALL_TYPE_(g) << 18 | EVERYCALL_TYPE_(h) << 21 | EVERYCALL_TYPE_(i) << 24 | EVERYCALL_TYPE_(j) << 27, everycall_arguments_); \
    }))
#define EVERYCALL_ELEVENTH_(f, a, b, c, d, e, g, h, i, j, k, name, ...) name
#define everycall_log(...) \
    EVERYCALL_ELEVENTH_(__VA_ARGS__, EVERYCALL_LOG10_, EVERYCALL_LOG9_, EVERYCALL_LOG8_, EVERYCALL_LOG7_, EVERYCALL_LOG6_, EVERYCALL_LOG5_, EVERYCALL_LOG4_, EVERYCALL_LOG3_, EVERYCALL_LOG2_, EVERYCALL_LOG1_, EVERYCALL_LOG0_, 0) \
    (__VA_ARGS__)
#if defined(__clang__)
#pragma clang diagnostic pop
#else
#pragma GCC diagnostic pop
#endif
#endif
#else
EVERYCALL_INLINE_ int everycall_log(const char *format, ...)
{
    (void)format;
    return EVERYCALL_ERROR_NOT_TRACED;
}
#endif

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

/*
 * Excludes the calling thread or fiber: it records nothing until it is included again. Its recorded
 * events stay.
 */
EVERYCALL_INLINE_ int everycall_leave_thread_out(void)
{
    return everycall_record_thread_(0);
}

/* Includes the calling thread again. The trace shows the time between as a gap. */
EVERYCALL_INLINE_ int everycall_take_thread_back(void)
{
    return everycall_record_thread_(1);
}

/*
 * Switches tracing off in all threads, until everycall_enable(). Recorded events stay. Snapshots,
 * forks and new threads don't switch it on. A thread that is within a hook still writes that event.
 */
EVERYCALL_INLINE_ int everycall_disable(void)
{
    return everycall_record_process_(0);
}

/*
 * Switches tracing on again, or on where the program was started with EVERYCALL_START=off. The trace shows the time between as a gap
 * in each thread that had recorded before.
 */
EVERYCALL_INLINE_ int everycall_enable(void)
{
    return everycall_record_process_(1);
}

EVERYCALL_OUTLINE_ int everycall_functions_(uint32_t what, const everycall_function *functions, size_t count, everycall_switched *result)
{
    if (result)
        result->functions = result->sites = result->not_switched = 0;
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(functions) != 0)
        return EVERYCALL_REFUSAL_(functions);
    return everycall_runtime_v1.functions(what, (const uint64_t *)(const void *)functions, count, result);
#else
    (void)what, (void)functions, (void)count;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

/*
 * Leaves functions out in all threads, until everycall_enable_functions() takes them back, whatever
 * else chooses them. Any address within a function names it. Functions without hooks are ignored;
 * if there are no others, it is an error. `result` may be NULL.
 */
EVERYCALL_INLINE_ int everycall_disable_functions(const everycall_function *functions, size_t count, everycall_switched *result)
{
    return everycall_functions_(0, functions, count, result);
}

/* Takes functions back that everycall_disable_functions() has left out. */
EVERYCALL_INLINE_ int everycall_enable_functions(const everycall_function *functions, size_t count, everycall_switched *result)
{
    return everycall_functions_(1, functions, count, result);
}

/*
 * From now on, records the functions of the selection in the file at `path`, which `everycall
 * resolve --only PATTERN -o FILE PROGRAM` has written, and no others; all functions if it is NULL.
 * It replaces what EVERYCALL_ONLY or `everycall enable` chose.
 */
EVERYCALL_OUTLINE_ int everycall_select_functions(const char *path)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(select) != 0)
        return EVERYCALL_REFUSAL_(select);
    return everycall_runtime_v1.select(path);
#else
    (void)path;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

EVERYCALL_OUTLINE_ int everycall_fiber_(uint32_t what, const void *low, size_t size, const char *name)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(fiber) != 0)
        return EVERYCALL_REFUSAL_(fiber);
    return everycall_runtime_v1.fiber(what, (uint64_t)(uintptr_t)low, size, name);
#else
    (void)what, (void)low, (void)size, (void)name;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

/*
 * Fibers, coroutines with stacks, green threads: each stack that threads switch to is a track of
 * its own. The runtime detects context switches without these functions. A scheduler may register
 * more:
 *
 * A fiber begins on the stack from `low` to `low + size`. Calls that were open there were unwound.
 * If the caller itself runs on that stack, its fiber continues. `name` may be NULL; its first 15
 * bytes are kept. Exact bounds are needed if a stack lies within another one, or next to another
 * one without a guard between them. makecontext() needs no such call.
 */
EVERYCALL_INLINE_ int everycall_fiber(const void *low, size_t size, const char *name)
{
    return everycall_fiber_(0, low, size, name);
}

/* Ends the fiber: its stack's memory is about to be freed or reused. */
EVERYCALL_INLINE_ int everycall_forget_fiber(const void *low, size_t size)
{
    return everycall_fiber_(1, low, size, 0);
}

/* Names the running fiber. (Threads have their names from the system, or by the next function.) */
EVERYCALL_INLINE_ int everycall_name_fiber(const char *name)
{
    return name ? everycall_fiber_(2, 0, 0, name) : EVERYCALL_ERROR_ARGUMENT;
}

/*
 * Names a thread in the trace, in place of the name that the system has for it, which stays: up to
 * 1,024 bytes. `thread` is the kernel's id of one of the process's threads, which may be yet to record
 * something; gettid() gives the calling one's. The last name counts.
 */
EVERYCALL_INLINE_ int everycall_name_thread(uint32_t thread, const char *name)
{
#if EVERYCALL_REACHES_RUNTIME_
    return EVERYCALL_REFUSAL_(frame) ? EVERYCALL_REFUSAL_(frame) : everycall_runtime_v1.frame(4, thread, name, NULL, 0);
#else
    (void)thread, (void)name;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

/*
 * Sets the size of the calling thread's ring: a power of two from 65536 (64 KiB) to 1073741824 (1
 * GiB) bytes, 8 for each entry and exit. Recorded events stay as far as they fit.
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

/*
 * From now on, calls that take less than `nanoseconds` and call nothing that is recorded are dropped: the rings reach further back.
 * They are counted for each function. At most 100,000,000 (100 ms); 0 records every call. The other threads follow with their next
 * event, at the latest within 2 seconds of calls. See --min-duration of everycall record.
 */
EVERYCALL_INLINE_ int everycall_set_min_duration(uint64_t nanoseconds)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(min_duration) != 0)
        return EVERYCALL_REFUSAL_(min_duration);
    return everycall_runtime_v1.min_duration(nanoseconds);
#else
    (void)nanoseconds;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

/*
 * Snapshots: the contents of all threads' rings at the moment of the request, which are their last
 * calls.
 *
 * - No thread is paused: threads leave the pinned memory unchanged and continue in other memory.
 * - So each snapshot must be freed. At most 29 may exist at a time, including those that other
 *   processes take of this process.
 * - If more than 64 MiB beyond the rings are pinned, threads overwrite the oldest part, and the
 *   trace counts what was lost.
 */

/* A snapshot; 0 means no snapshot. */
typedef uint64_t everycall_snapshot;

/* Receives the bytes of a trace file, in order; returns 0 to continue. */
typedef int (*everycall_sink)(void *context, const void *bytes, size_t count);

/*
 * Takes a snapshot of the time from `since` (everycall_now()) on. Only whole segments of 64 KiB are
 * dropped, so it may contain some older events.
 */
EVERYCALL_INLINE_ int everycall_take_snapshot_since(uint64_t since, everycall_snapshot *result)
{
    if (!result)
        return EVERYCALL_ERROR_ARGUMENT;
    *result = 0;
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(snapshot) != 0)
        return EVERYCALL_REFUSAL_(snapshot);
    return everycall_runtime_v1.snapshot(since, result);
#else
    (void)since;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

/* Takes a snapshot of everything. */
EVERYCALL_INLINE_ int everycall_take_snapshot(everycall_snapshot *result)
{
    return everycall_take_snapshot_since(0, result);
}

/* Takes a snapshot of the last `ticks`. */
EVERYCALL_INLINE_ int everycall_take_snapshot_up_to_age(uint64_t ticks, everycall_snapshot *result)
{
    uint64_t now = everycall_now();
    return everycall_take_snapshot_since(now > ticks ? now - ticks : 0, result);
}

EVERYCALL_INLINE_ int everycall_write_snapshot_(everycall_snapshot snapshot, int descriptor, const char *path, everycall_sink sink,
                                                void *context)
{
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(snapshot_write) != 0)
        return EVERYCALL_REFUSAL_(snapshot_write);
    return everycall_runtime_v1.snapshot_write(snapshot, descriptor, path, sink, context);
#else
    (void)snapshot, (void)descriptor, (void)path, (void)sink, (void)context;
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

/*
 * Writes a snapshot to a trace file (.ect). The file appears under its name only when it is
 * complete, and replaces an existing file. Only its owner can read it. The snapshot stays.
 */
EVERYCALL_INLINE_ int everycall_write_snapshot(everycall_snapshot snapshot, const char *path)
{
    return everycall_write_snapshot_(snapshot, -1, path, 0, 0);
}

/* The same to an open file descriptor: a file, a pipe, a socket. */
EVERYCALL_INLINE_ int everycall_write_snapshot_to_descriptor(everycall_snapshot snapshot, int descriptor)
{
    return everycall_write_snapshot_(snapshot, descriptor, 0, 0, 0);
}

/* The same to a function. It must not free the snapshot. */
EVERYCALL_INLINE_ int everycall_write_snapshot_to(everycall_snapshot snapshot, everycall_sink sink, void *context)
{
    return everycall_write_snapshot_(snapshot, -1, 0, sink, context);
}

/* Frees a snapshot. 0 is allowed. */
EVERYCALL_INLINE_ int everycall_free_snapshot(everycall_snapshot snapshot)
{
    if (snapshot == 0)
        return 0;
#if EVERYCALL_REACHES_RUNTIME_
    if (EVERYCALL_REFUSAL_(snapshot_free) != 0)
        return EVERYCALL_REFUSAL_(snapshot_free);
    return everycall_runtime_v1.snapshot_free(snapshot);
#else
    return EVERYCALL_ERROR_NOT_TRACED;
#endif
}

/* Takes a snapshot of everything from `since` on, writes it to a file and frees it. */
EVERYCALL_INLINE_ int everycall_write_since(uint64_t since, const char *path)
{
    everycall_snapshot snapshot;
    int result = everycall_take_snapshot_since(since, &snapshot);
    if (result == 0) {
        result = everycall_write_snapshot(snapshot, path);
        everycall_free_snapshot(snapshot);
    }
    return result;
}

/* The same of everything. */
EVERYCALL_INLINE_ int everycall_write_current(const char *path)
{
    return everycall_write_since(0, path);
}

#ifdef __cplusplus
} /* extern "C" */

namespace everycall {

#if EVERYCALL_REACHES_RUNTIME_ && EVERYCALL_HAS_LOG_
__extension__ typedef long long log_long_;
__extension__ typedef unsigned long long log_unsigned_long_;

/* The type of an argument of a log line, as the size of the result. Never called. */
char (&log_type_(bool))[1];
char (&log_type_(char))[1];
char (&log_type_(signed char))[1];
char (&log_type_(unsigned char))[1];
char (&log_type_(short))[1];
char (&log_type_(unsigned short))[1];
char (&log_type_(int))[1];
char (&log_type_(unsigned))[1];
char (&log_type_(long))[2];
char (&log_type_(unsigned long))[2];
char (&log_type_(log_long_))[2];
char (&log_type_(log_unsigned_long_))[2];
char (&log_type_(float))[3];
char (&log_type_(double))[3];
char (&log_type_(long double))[3];
char (&log_type_(const volatile void *))[4];
char (&log_type_(const char *))[5];
char (&log_type_(const signed char *))[5];
char (&log_type_(const unsigned char *))[5];

EVERYCALL_INLINE_ uint64_t log_bits_(bool value) { return (uint64_t)value; }
EVERYCALL_INLINE_ uint64_t log_bits_(char value) { return (uint64_t)value; }
EVERYCALL_INLINE_ uint64_t log_bits_(signed char value) { return (uint64_t)value; }
EVERYCALL_INLINE_ uint64_t log_bits_(unsigned char value) { return (uint64_t)value; }
EVERYCALL_INLINE_ uint64_t log_bits_(short value) { return (uint64_t)value; }
EVERYCALL_INLINE_ uint64_t log_bits_(unsigned short value) { return (uint64_t)value; }
EVERYCALL_INLINE_ uint64_t log_bits_(int value) { return (uint64_t)value; }
EVERYCALL_INLINE_ uint64_t log_bits_(unsigned value) { return (uint64_t)value; }
EVERYCALL_INLINE_ uint64_t log_bits_(long value) { return (uint64_t)value; }
EVERYCALL_INLINE_ uint64_t log_bits_(unsigned long value) { return (uint64_t)value; }
EVERYCALL_INLINE_ uint64_t log_bits_(log_long_ value) { return (uint64_t)value; }
EVERYCALL_INLINE_ uint64_t log_bits_(log_unsigned_long_ value) { return (uint64_t)value; }
EVERYCALL_INLINE_ uint64_t log_bits_(double value)
{
    uint64_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}
EVERYCALL_INLINE_ uint64_t log_bits_(float value) { return log_bits_((double)value); }
EVERYCALL_INLINE_ uint64_t log_bits_(long double value) { return log_bits_((double)value); }
EVERYCALL_INLINE_ uint64_t log_bits_(const volatile void *value) { return (uint64_t)value; }
#if __cplusplus >= 201103L
char (&log_type_(decltype(nullptr)))[4];
EVERYCALL_INLINE_ uint64_t log_bits_(decltype(nullptr)) { return 0; }
#endif
#endif

/* The longest duration of scopes of one kind; shared by all of them, also between threads. Initially 0. */
class Slowest {
public:
    EVERYCALL_EXCLUDE explicit Slowest(uint64_t at_least_ns = 0) : ns_(at_least_ns) {}

    /* Whether `ns` exceeds all durations before it. Records it. */
    EVERYCALL_EXCLUDE bool is_beaten_by(uint64_t ns)
    {
        uint64_t before = __atomic_load_n(&ns_, __ATOMIC_RELAXED);
        while (ns > before)
            if (__atomic_compare_exchange_n(&ns_, &before, ns, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                return true;
        return false;
    }

    EVERYCALL_EXCLUDE uint64_t nanoseconds() const { return __atomic_load_n(&ns_, __ATOMIC_RELAXED); }

private:
    uint64_t ns_;
};

/*
 * Takes a snapshot of the time that its scope took, if that was at least `threshold_ns`, or more
 * than in any scope with the same Slowest before, and writes it to a file or hands it to a
 * function, which may keep it and has to free it.
 *
 *     static everycall::Slowest slowest;
 *     everycall::SlowScope guard("slowest.ect", slowest);
 */
class SlowScope {
public:
    typedef void (*Function)(void *context, everycall_snapshot snapshot, uint64_t nanoseconds);

    EVERYCALL_EXCLUDE SlowScope(const char *path, uint64_t threshold_ns)
        : start_(everycall_now()), threshold_ns_(threshold_ns), slowest_(0), path_(path), function_(0), context_(0)
    {
    }
    EVERYCALL_EXCLUDE SlowScope(const char *path, Slowest &slowest)
        : start_(everycall_now()), threshold_ns_(slowest.nanoseconds()), slowest_(&slowest), path_(path), function_(0), context_(0)
    {
    }
    EVERYCALL_EXCLUDE SlowScope(Function function, void *context, uint64_t threshold_ns)
        : start_(everycall_now()), threshold_ns_(threshold_ns), slowest_(0), path_(0), function_(function), context_(context)
    {
    }
    EVERYCALL_EXCLUDE SlowScope(Function function, void *context, Slowest &slowest)
        : start_(everycall_now()), threshold_ns_(slowest.nanoseconds()), slowest_(&slowest), path_(0), function_(function),
          context_(context)
    {
    }

    EVERYCALL_EXCLUDE ~SlowScope()
    {
        uint64_t ticks = everycall_now() - start_;
        /* No counter is slower than half a tick in a nanosecond: the rate is only needed for scopes that may be too slow. */
        if (start_ == 0 || ticks < threshold_ns_ / 2)
            return;
        uint64_t ns = (uint64_t)((double)ticks * 1e9 / (double)everycall_ticks_per_second());
        if (slowest_ ? !slowest_->is_beaten_by(ns) : ns < threshold_ns_)
            return;
        if (path_) {
            everycall_write_since(start_, path_);
        } else if (function_) {
            everycall_snapshot snapshot;
            if (everycall_take_snapshot_since(start_, &snapshot) == 0)
                function_(context_, snapshot, ns);
        }
    }

private:
    SlowScope(const SlowScope &);
    SlowScope &operator=(const SlowScope &);

    uint64_t start_;
    uint64_t threshold_ns_;
    Slowest *slowest_;
    const char *path_;
    Function function_;
    void *context_;
};

} /* namespace everycall */
#endif

#endif
