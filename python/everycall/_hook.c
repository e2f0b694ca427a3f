/*
 * The hook: each call of a Python function becomes a frame by id in the calling thread's ring.
 *
 * Python 3.11: a frame evaluation function (PEP 523). It costs code that doesn't call nothing, sees
 * all threads at once, and each way out of a frame passes it.
 * Python 3.12 and later: sys.monitoring, with callbacks that have a vectorcall slot of their own.
 * (A frame evaluation function would end deep recursion early there.)
 *
 * A code object's id is in its co_extra, so it dies with it: another one at the same address has
 * none. No frame is held, and no reference kept. All of this runs under the interpreter's lock.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifdef Py_GIL_DISABLED
#error "everycall needs an interpreter with its global lock: use the build of Python that isn't free-threaded"
#endif
#if PY_VERSION_HEX < 0x030B0000
#error "everycall needs Python 3.11 or later"
#endif

#include <everycall.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USES_MONITORING (PY_VERSION_HEX >= 0x030C0000)

#if !USES_MONITORING
#define Py_BUILD_CORE_MODULE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE_MODULE
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#define PyUnstable_Code_SetExtra _PyCode_SetExtra
#define PyUnstable_Code_GetExtra _PyCode_GetExtra
#endif

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/*
 * Ids: functions with the same name, file and line share one, as the trace can't tell them apart.
 */

#define IDS (1u << 20)
/* Code objects that find no id of their own. */
#define LAST_ID (IDS - 1)

/* What is known of a code object, in its co_extra; 0 if nothing is. */
#define KNOWN 1u
/* Of this package: not recorded. */
#define OWN 2u
/* A generator, coroutine or asynchronous generator. */
#define RESUMABLE 4u
/* A coroutine or asynchronous generator, or a generator that may be awaited. */
#define AWAITABLE 8u
/* importlib's function that imports a module, and logging's that handles a record. */
#define IMPORT 16u
#define LOGGING 32u
/* The event loop's functions that have a callback called, such as a task's next step. */
#define CALLS_SOON 64u
/* The module greenlet, at whose end it is there. */
#define GREENLET 128u
/* Decorated: left out, with what they call; recorded where only such functions are. */
#define LEFT_OUT 256u
#define SELECTED 512u
/* threading's functions in which a thread begins, and in which it is renamed. */
#define NAMES_THREAD 1024u
#define ID_SHIFT 11
/* Calls of such do more than to be recorded. */
#define DOES_MORE (AWAITABLE | IMPORT | LOGGING | CALLS_SOON | GREENLET | NAMES_THREAD)

typedef struct {
    uint64_t hash;
    /* One more than the id; 0: free. */
    uint32_t id;
} Named;

static struct {
    Named *places;
    /* A power of two, or 0. */
    size_t size;
    /* By id; half as many as places. NULL without memory. */
    char **names;
    uint32_t used;
    uint64_t without_id;
    uint64_t without_name;
} ids;

static Py_ssize_t extra_index = -1;
/* The folder of this package, with the separator at its end. */
static char own_folder[4096];

/* FNV-1a, 64 bits: two functions of one program have the same with a probability of 1 to 10^8. */
static uint64_t hashed(uint64_t hash, const char *text, size_t length)
{
    for (size_t at = 0; at < length; at++)
        hash = (hash ^ (unsigned char)text[at]) * 0x100000001b3u;
    return (hash ^ 0xff) * 0x100000001b3u;
}

static int grow(void)
{
    size_t size = ids.size ? 2 * ids.size : 1024;
    Named *places = calloc(size, sizeof *places);
    if (!places)
        return -1;
    for (size_t from = 0; from < ids.size; from++) {
        if (!ids.places[from].id)
            continue;
        size_t to = ids.places[from].hash & (size - 1);
        while (places[to].id)
            to = (to + 1) & (size - 1);
        places[to] = ids.places[from];
    }
    free(ids.places);
    ids.places = places;
    ids.size = size;
    char **names = realloc(ids.names, size / 2 * sizeof *names);
    if (names)
        ids.names = names;
    return names ? 0 : -1;
}

static const char *name_of_id(uint32_t id)
{
    return id < ids.used && ids.names[id] ? ids.names[id] : "a function";
}

/* The id of a function, which is told its name if it is new. */
static uint32_t id_named(const char *name, size_t name_length, const char *file, size_t file_length, uint32_t line)
{
    uint64_t hash = hashed(0xcbf29ce484222325u, name, name_length);
    hash = hashed(hash, file, file_length);
    hash = hashed(hash, (const char *)&line, sizeof line);
    if (2 * (size_t)(ids.used + 1) > ids.size && grow() < 0) {
        ids.without_id++;
        return LAST_ID;
    }
    size_t place = hash & (ids.size - 1);
    for (; ids.places[place].id; place = (place + 1) & (ids.size - 1))
        if (ids.places[place].hash == hash)
            return ids.places[place].id - 1;
    if (ids.used >= LAST_ID) {
        ids.without_id++;
        return LAST_ID;
    }
    uint32_t id = ids.used++;
    ids.places[place] = (Named){hash, id + 1};
    ids.names[id] = strdup(name);
    if (everycall_frame_name(id, name, file, line) != 0)
        ids.without_name++;
    return id;
}

/* UTF-8, without what can't be in it; NULL without memory. */
static PyObject *utf8(PyObject *text)
{
    PyObject *bytes = text && PyUnicode_Check(text) ? PyUnicode_AsEncodedString(text, "utf-8", "replace") : NULL;
    if (!bytes)
        PyErr_Clear();
    return bytes;
}

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), of_end = strlen(end);
    return length >= of_end && strcmp(text + length - of_end, end) == 0;
}

static void look_at_uvloop(void);

/* The first time that a code object is seen. There may be an exception on its way. */
static __attribute__((noinline)) uintptr_t learn(PyCodeObject *code)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *name = utf8(code->co_qualname), *file = utf8(code->co_filename);
    void *marked = NULL;
    uintptr_t known = KNOWN;
    if (PyUnstable_Code_GetExtra((PyObject *)code, extra_index, &marked) == 0)
        known |= (uintptr_t)marked;
    if (name && file) {
        const char *path = PyBytes_AS_STRING(file);
        uint32_t line = code->co_firstlineno > 0 ? (uint32_t)code->co_firstlineno : 0;
        if (own_folder[0] && strncmp(path, own_folder, strlen(own_folder)) == 0)
            known |= OWN;
        else
            known |= (uintptr_t)id_named(PyBytes_AS_STRING(name), (size_t)PyBytes_GET_SIZE(name), path,
                                         (size_t)PyBytes_GET_SIZE(file), line)
                     << ID_SHIFT;
    } else {
        ids.without_id++;
        known |= (uintptr_t)LAST_ID << ID_SHIFT;
    }
    if (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
        known |= RESUMABLE;
    if (code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE))
        known |= AWAITABLE;
    if (name && file && strcmp(PyBytes_AS_STRING(file), "<frozen importlib._bootstrap>") == 0 &&
        strcmp(PyBytes_AS_STRING(name), "_find_and_load") == 0)
        known |= IMPORT;
    if (name && file && strcmp(PyBytes_AS_STRING(name), "Logger.handle") == 0 &&
        ends_with(PyBytes_AS_STRING(file), "/logging/__init__.py") && code->co_argcount == 2)
        known |= LOGGING;
    if (name && file && strncmp(PyBytes_AS_STRING(name), "BaseEventLoop.call_soon", 23) == 0 &&
        ends_with(PyBytes_AS_STRING(file), "/asyncio/base_events.py") && code->co_argcount == 2)
        known |= CALLS_SOON;
    if (name && file && ends_with(PyBytes_AS_STRING(file), "/threading.py") &&
        ((strcmp(PyBytes_AS_STRING(name), "Thread._bootstrap_inner") == 0 && code->co_argcount == 1) ||
         (strcmp(PyBytes_AS_STRING(name), "Thread.name") == 0 && code->co_argcount == 2)))
        known |= NAMES_THREAD;
    if (name && file && ends_with(PyBytes_AS_STRING(file), "/uvloop/__init__.py"))
        look_at_uvloop();
    if (name && file && strcmp(PyBytes_AS_STRING(name), "<module>") == 0 && ends_with(PyBytes_AS_STRING(file), "/greenlet/__init__.py"))
        known |= GREENLET;
    Py_XDECREF(name);
    Py_XDECREF(file);
    /* Without memory it is learned again, and gets the same id. */
    if (PyUnstable_Code_SetExtra((PyObject *)code, extra_index, (void *)known) < 0)
        PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return known;
}

/* As in Objects/codeobject.c, from 3.6 to 3.13 at least. */
typedef struct {
    Py_ssize_t size;
    void *extras[1];
} Extra;

static inline uintptr_t known_of(PyCodeObject *code)
{
#if PY_VERSION_HEX < 0x030E0000
    const Extra *extra = code->co_extra;
    if (LIKELY(extra && extra->size > extra_index)) {
        uintptr_t known = (uintptr_t)extra->extras[extra_index];
        if (LIKELY(known & KNOWN))
            return known;
    }
#else
    void *known = NULL;
    if (PyUnstable_Code_GetExtra((PyObject *)code, extra_index, &known) == 0 && LIKELY((uintptr_t)known & KNOWN))
        return (uintptr_t)known;
#endif
    return learn(code);
}

/*
 * The type of an exception that leaves a frame, if it was raised there: its traceback has no other.
 */
static const char *raised(PyTypeObject *type, PyObject *traceback)
{
    int is_here = traceback && PyTraceBack_Check(traceback) && !((PyTracebackObject *)traceback)->tb_next;
    return is_here ? type->tp_name : NULL;
}

/* Whether calls are recorded: between start() and stop(). */
static int is_started;
/* What start() was asked for in addition. */
#define WANTS_C_FUNCTIONS 1u
#define WANTS_ARGUMENTS 2u
#define WANTS_IMPORTS 4u
#define WANTS_LOGGING 8u
#define WANTS_SELECTED 16u
static unsigned wanted;
/* Whether this thread makes texts, of which nothing is recorded. */
static __thread int is_describing;
#if !USES_MONITORING
/* Deep calls that are open: at their depth the hook is off. */
static uint32_t deep;
#endif
/* Calls at whose depth it was taken off. */
static uint64_t deep_calls;

/* The frame that a thread runs; NULL if there is none. */
static void *frame_of(PyThreadState *state)
{
#if PY_VERSION_HEX < 0x030D0000
    return state->cframe->current_frame;
#else
    return state->current_frame;
#endif
}

/* The frame that an event is of. */
static void *current_frame(void)
{
    return frame_of(PyThreadState_Get());
}

#include "_arguments.h"
#include "_tasks.h"
#include "_open_frames.h"
#include "_c_functions.h"
#include "_said.h"
#include "_threads.h"

#if !USES_MONITORING

/*
 * With a frame evaluation function, calls of Python functions by Python functions take C's stack,
 * which they don't otherwise. So the hook takes itself off where a quarter of the stack is used:
 * from there on calls take as much as they do untraced.
 */

/* The hook's address of the stack below which frames are deep. 0: not yet known; 1: unknown. */
static __thread uintptr_t deep_below;
/* Deep calls of this thread that are open. */
static __thread uint32_t own_deep;
/* The last thread's, as it is the same one mostly. */
static uint64_t last_thread = UINT64_MAX;
static uintptr_t last_deep_below;
static _PyFrameEvalFunction next_evaluation = _PyEval_EvalFrameDefault;

#define DEEP_SPAN "calls from here on not recorded: a quarter of the stack is used"

static __attribute__((noinline)) uintptr_t find_deep_below(PyThreadState *state)
{
    if (!deep_below) {
        pthread_attr_t attributes;
        void *low;
        size_t size;
        deep_below = 1;
        if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
            if (pthread_attr_getstack(&attributes, &low, &size) == 0) {
                /* With an unlimited stack, other mappings are in between. */
                size_t usable = size < (64u << 20) ? size : 64u << 20;
                deep_below = (uintptr_t)low + size - usable / 4;
            }
            pthread_attr_destroy(&attributes);
        }
        /* A new thread. */
        if (wanted & WANTS_C_FUNCTIONS && profile_thread(state, 1) < 0)
            PyErr_Clear();
    }
    last_thread = state->id;
    last_deep_below = deep_below;
    return deep_below;
}

static PyObject *evaluate(PyThreadState *state, struct _PyInterpreterFrame *frame, int is_thrown);

static void follow(PyInterpreterState *interpreter)
{
    _PyInterpreterState_SetEvalFrameFunc(interpreter, is_started && !deep ? evaluate : next_evaluation);
}

/* The threads whose deep calls are open aren't in the forked child. */
static void after_fork(void)
{
    if (deep != own_deep) {
        deep = own_deep;
        follow(PyInterpreterState_Main());
    }
}

static __attribute__((noinline)) PyObject *evaluate_deep(PyThreadState *state, struct _PyInterpreterFrame *frame, int is_thrown)
{
    deep_calls++;
    deep++;
    own_deep++;
    follow(state->interp);
    everycall_span_begin(DEEP_SPAN);
    PyObject *result = next_evaluation(state, frame, is_thrown);
    everycall_span_end(DEEP_SPAN);
    own_deep--;
    deep--;
    follow(state->interp);
    return result;
}

/* Coroutines, and calls that say something. */
static __attribute__((noinline)) PyObject *evaluate_more(PyThreadState *state, struct _PyInterpreterFrame *frame, int is_thrown,
                                                         uintptr_t known)
{
    uint32_t id = (uint32_t)(known >> ID_SHIFT);
    /* Who has resumed it holds it. */
    PyGenObject *generator = known & RESUMABLE ? _PyFrame_GetGenerator(frame) : NULL;
    int begins = !is_thrown && (!generator || _PyInterpreterFrame_LASTI(frame) < frame->f_code->_co_firsttraceable);
    PyObject *import = known & IMPORT && wanted & WANTS_IMPORTS ? import_text(frame, frame->f_code) : NULL;
    if (known & AWAITABLE)
        coroutine_enters(frame->f_code, frame, begins);
    if (import)
        everycall_span_begin(PyBytes_AS_STRING(import));
    int is_recorded = frame_enters(id, known);
    if (known & LOGGING && wanted & WANTS_LOGGING)
        say_record(frame, frame->f_code);
    if (known & CALLS_SOON)
        call_soon_begins(frame, frame->f_code);
    if (known & NAMES_THREAD && begins)
        thread_is_named(frame, frame->f_code);
    if (wanted & WANTS_ARGUMENTS && begins && is_recorded && may_say(id))
        say_arguments(frame, frame->f_code);
    PyObject *result = next_evaluation(state, frame, is_thrown);
    int has_yielded = result && generator && generator->gi_frame_state == FRAME_SUSPENDED;
    int waits = has_yielded && known & AWAITABLE && waits_for(result);
    if (wanted & WANTS_ARGUMENTS && result && !waits && is_recorded && may_say(id))
        say_result(has_yielded ? "yielded" : "returned", result);
    if (LIKELY(result))
        frame_leaves(id, known);
    else
        frame_unwinds(id, known, raised((PyTypeObject *)state->curexc_type, state->curexc_traceback));
    if (known & GREENLET)
        look_at_greenlet();
    if (import)
        everycall_span_end(PyBytes_AS_STRING(import));
    Py_XDECREF(import);
    if (known & AWAITABLE)
        coroutine_leaves(frame, waits, is_recorded && may_say(id));
    return result;
}

static PyObject *evaluate(PyThreadState *state, struct _PyInterpreterFrame *frame, int is_thrown)
{
    uintptr_t limit = LIKELY(state->id == last_thread) ? last_deep_below : find_deep_below(state);
    if (UNLIKELY((uintptr_t)__builtin_frame_address(0) < limit))
        return evaluate_deep(state, frame, is_thrown);
    /* It ends before its first instruction, by a RecursionError. */
    if (UNLIKELY(state->recursion_remaining <= 0))
        return next_evaluation(state, frame, is_thrown);
    uintptr_t known = known_of(frame->f_code);
    if (UNLIKELY(known & (OWN | RESUMABLE)))
        /* A generator that is made runs only up to there. */
        if (known & OWN || frame->owner != FRAME_OWNED_BY_GENERATOR)
            return next_evaluation(state, frame, is_thrown);
    if (UNLIKELY(known & DOES_MORE) || UNLIKELY(does_more)) {
        if (is_describing)
            return next_evaluation(state, frame, is_thrown);
        return evaluate_more(state, frame, is_thrown, known);
    }
    if (UNLIKELY(wanted & WANTS_LOGGING) && is_describing)
        return next_evaluation(state, frame, is_thrown);
    uint32_t id = (uint32_t)(known >> ID_SHIFT);
    everycall_frame_enter(id);
    PyObject *result = next_evaluation(state, frame, is_thrown);
    if (LIKELY(result)) {
        everycall_frame_leave(id);
    } else {
        everycall_frame_unwind(id, raised((PyTypeObject *)state->curexc_type, state->curexc_traceback));
    }
    return result;
}

/* Whether calls are still recorded, and no other tool has replaced the hook. */
static int is_in_place(void)
{
    return !deep && _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Main()) == evaluate;
}

static int install(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Main();
    _PyFrameEvalFunction before = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (before != evaluate && !deep)
        next_evaluation = before;
    if (wanted & WANTS_C_FUNCTIONS && profile_threads(interpreter, 1) < 0)
        return -1;
    is_started = 1;
    follow(interpreter);
    return 0;
}

static int uninstall(void)
{
    is_started = 0;
    if (wanted & WANTS_C_FUNCTIONS && profile_threads(PyInterpreterState_Main(), 0) < 0)
        return -1;
    /* Another tool's function may call ours. */
    if (is_in_place())
        follow(PyInterpreterState_Main());
    return 0;
}

#else

/* An object that is a callback of sys.monitoring: its vectorcall slot is the callback. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
} Callback;

#include "_before.h"

/* What a call of a coroutine, or one that says something, does besides: as it is entered. */
static __attribute__((noinline)) void enter_more(PyCodeObject *code, uintptr_t known, int begins)
{
    if (known & AWAITABLE)
        coroutine_enters(code, current_frame(), begins);
    PyObject *import = known & IMPORT && wanted & WANTS_IMPORTS ? import_text(NULL, code) : NULL;
    if (import)
        everycall_span_begin(PyBytes_AS_STRING(import));
    Py_XDECREF(import);
    uint32_t id = (uint32_t)(known >> ID_SHIFT);
    int is_recorded = frame_enters(id, known);
    if (known & LOGGING && wanted & WANTS_LOGGING)
        say_record(NULL, code);
    if (known & CALLS_SOON)
        call_soon_begins(current_frame(), code);
    if (known & NAMES_THREAD && begins)
        thread_is_named(current_frame(), code);
    if (wanted & WANTS_ARGUMENTS && begins && is_recorded && may_say(id))
        say_arguments(NULL, code);
}

/* And as it is left: by returning, yielding or, without `what`, an exception. */
static __attribute__((noinline)) void leave_more(PyCodeObject *code, uintptr_t known, const char *what, PyObject *value)
{
    uint32_t id = (uint32_t)(known >> ID_SHIFT);
    int waits = what && *what == 'y' && known & AWAITABLE && waits_for(value);
    int is_recorded = is_innermost_recorded(known);
    if (wanted & WANTS_ARGUMENTS && what && !waits && is_recorded && may_say(id))
        say_result(what, value);
    if (what)
        frame_leaves(id, known);
    else
        frame_unwinds(id, known, raised(Py_TYPE(value), ((PyBaseExceptionObject *)value)->traceback));
    if (known & GREENLET)
        look_at_greenlet();
    PyObject *import = known & IMPORT && wanted & WANTS_IMPORTS ? import_text(NULL, code) : NULL;
    if (import)
        everycall_span_end(PyBytes_AS_STRING(import));
    Py_XDECREF(import);
    if (known & AWAITABLE)
        coroutine_leaves(current_frame(), waits, is_recorded && may_say(id));
}

static inline PyObject *enter_any(PyObject *const *arguments, int begins)
{
    PyCodeObject *code = (PyCodeObject *)arguments[0];
    uintptr_t known = known_of(code);
    if (UNLIKELY(known & OWN))
        Py_RETURN_NONE;
    if (UNLIKELY(known & DOES_MORE) || UNLIKELY(does_more))
        enter_more(code, known, begins);
    else
        everycall_frame_enter((uint32_t)(known >> ID_SHIFT));
    Py_RETURN_NONE;
}

static inline PyObject *leave_any(PyObject *const *arguments, const char *what)
{
    PyCodeObject *code = (PyCodeObject *)arguments[0];
    uintptr_t known = known_of(code);
    if (UNLIKELY(known & OWN) || (UNLIKELY(before_open) && was_begun_before()))
        Py_RETURN_NONE;
    if (UNLIKELY(known & DOES_MORE) || UNLIKELY(does_more))
        leave_more(code, known, what, arguments[2]);
    else if (what)
        everycall_frame_leave((uint32_t)(known >> ID_SHIFT));
    else
        everycall_frame_unwind((uint32_t)(known >> ID_SHIFT),
                               raised(Py_TYPE(arguments[2]), ((PyBaseExceptionObject *)arguments[2])->traceback));
    Py_RETURN_NONE;
}

#define CALLBACK(name, result)                                                                            \
    static PyObject *name(PyObject *self, PyObject *const *arguments, size_t count, PyObject *names)      \
    {                                                                                                     \
        (void)self, (void)count, (void)names;                                                             \
        return result;                                                                                    \
    }

CALLBACK(enter, enter_any(arguments, 1))
CALLBACK(resume, enter_any(arguments, 0))
CALLBACK(leave, leave_any(arguments, "returned"))
CALLBACK(yield, leave_any(arguments, "yielded"))
CALLBACK(unwind, leave_any(arguments, NULL))

static PyTypeObject callback_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "everycall._hook.Callback",
    .tp_basicsize = sizeof(Callback),
    .tp_vectorcall_offset = offsetof(Callback, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

static const struct {
    const char *event;
    vectorcallfunc call;
    /* What it is for; 0: always there. */
    unsigned wanted;
} callbacks[] = {
    {"PY_START", enter, 0}, {"PY_RESUME", resume, 0}, {"PY_THROW", resume, 0},
    {"PY_RETURN", leave, 0}, {"PY_YIELD", yield, 0}, {"PY_UNWIND", unwind, 0},
    {"CALL", c_enter, WANTS_C_FUNCTIONS}, {"C_RETURN", c_leave, WANTS_C_FUNCTIONS}, {"C_RAISE", c_unwind, WANTS_C_FUNCTIONS},
};

/* The tool id of sys.monitoring that is ours. 2 is left to profilers that take calls apart. */
static int tool = -1;

static PyObject *monitoring(void)
{
    PyObject *monitoring = PySys_GetObject("monitoring"); /* borrowed */
    if (!monitoring)
        PyErr_SetString(PyExc_RuntimeError, "this Python has no sys.monitoring, which everycall needs: use CPython 3.12 or later");
    return monitoring;
}

/* Calls a function of sys.monitoring; steals nothing. 0, or -1 with an exception. */
#define MONITORING(function, ...) is_done(PyObject_CallMethod(monitoring(), function, __VA_ARGS__))

static int is_done(PyObject *result)
{
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static int register_callbacks(int is_on, long *events)
{
    PyObject *values = PyObject_GetAttrString(monitoring(), "events");
    *events = 0;
    for (size_t at = 0; values && at < sizeof callbacks / sizeof *callbacks; at++) {
        PyObject *value = PyObject_GetAttrString(values, callbacks[at].event);
        long event = value ? PyLong_AsLong(value) : -1;
        Py_XDECREF(value);
        PyObject *callback = Py_NewRef(Py_None);
        int is_wanted = is_on && (callbacks[at].wanted & wanted) == callbacks[at].wanted;
        if (is_wanted) {
            Callback *made = PyObject_New(Callback, &callback_type);
            if (made)
                made->call = callbacks[at].call;
            Py_SETREF(callback, (PyObject *)made);
        }
        if (event < 0 || !callback || MONITORING("register_callback", "ilO", tool, event, callback) < 0)
            Py_CLEAR(values);
        if (is_wanted)
            *events |= event;
        Py_XDECREF(callback);
    }
    Py_XDECREF(values);
    return values ? 0 : -1;
}

static int uninstall(void)
{
    long events;
    is_started = 0;
    if (tool < 0)
        return 0;
    if (MONITORING("set_events", "ii", tool, 0) < 0 || register_callbacks(0, &events) < 0 || MONITORING("free_tool_id", "i", tool) < 0)
        return -1;
    tool = -1;
    note_stop();
    return 0;
}

static int install(void)
{
    long events;
    if (!monitoring() || PyType_Ready(&callback_type) < 0)
        return -1;
    for (int candidate = 3; tool < 0 && candidate <= 4; candidate++) {
        if (MONITORING("use_tool_id", "is", candidate, "everycall") == 0)
            tool = candidate;
        else if (!PyErr_ExceptionMatches(PyExc_ValueError))
            return -1;
        else
            PyErr_Clear();
    }
    if (tool < 0) {
        PyErr_SetString(PyExc_RuntimeError, "other tools have the tool ids 3 and 4 of sys.monitoring, of which everycall needs one: "
                                            "start without one of them");
        return -1;
    }
    if (register_callbacks(1, &events) < 0 || MONITORING("set_events", "il", tool, events) < 0) {
        PyObject *exception = PyErr_GetRaisedException();
        uninstall();
        PyErr_SetRaisedException(exception);
        return -1;
    }
    note_start();
    is_started = 1;
    return 0;
}

static int is_in_place(void)
{
    long held = 0;
    PyObject *events = tool < 0 ? NULL : PyObject_CallMethod(monitoring(), "get_events", "i", tool);
    if (events)
        held = PyLong_AsLong(events);
    Py_XDECREF(events);
    PyErr_Clear();
    return held != 0;
}

#endif

/* The functions of the module. */

static int refuse(int code)
{
    if (code != 0)
        PyErr_SetString(PyExc_RuntimeError, everycall_error(code));
    return code;
}

/* Whether this has disabled recording; and whether stop() has to do so again, for start(False). */
static int is_disabled, was_disabled;

static int set_enabled(int is_enabled)
{
    is_disabled = !is_enabled;
    return refuse(is_enabled ? everycall_enable() : everycall_disable());
}

static int find_extra_index(void)
{
    if (extra_index < 0)
        extra_index = PyUnstable_Eval_RequestCodeExtraIndex(NULL);
    if (extra_index < 0)
        PyErr_SetString(PyExc_RuntimeError, "other tools have all places that this Python has for data of code objects (co_extra), "
                                            "of which everycall needs one: start without one of them");
    return extra_index < 0 ? -1 : 0;
}

PyDoc_STRVAR(start_text, "start(wanted: int, texts: module, is_base: bool, max_depth: int) -> bool: records calls of Python functions from\n"
                         "now on; the bits are those of everycall.WANTED. Without is_base, those that sessions and triggers want. False without the runtime.");
static PyObject *start(PyObject *self, PyObject *arguments)
{
    (void)self;
    unsigned asked, deepest;
    PyObject *maker;
    int is_base;
    if (!PyArg_ParseTuple(arguments, "IOpI", &asked, &maker, &is_base, &deepest))
        return NULL;
    if (!everycall_is_there())
        Py_RETURN_FALSE;
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_RuntimeError, "everycall records the main interpreter only: call start() there");
        return NULL;
    }
    if (is_started && asked == wanted && deepest == max_depth)
        Py_RETURN_TRUE;
    if (is_started && uninstall() < 0)
        return NULL;
    Py_XSETREF(texts, Py_NewRef(maker));
    if (find_extra_index() < 0)
        return NULL;
    if (!starts) {
        if (refuse(everycall_frame_name(LAST_ID, "(a function without a name of its own)", NULL, 0)))
            return NULL;
#if !USES_MONITORING
        pthread_atfork(NULL, NULL, after_fork);
#endif
    }
    starts++;
    wanted = asked;
    max_depth = deepest;
    decide_what_calls_do();
    look_at_greenlet();
    was_disabled = is_disabled && !is_base;
    if (((is_base || was_disabled) && set_enabled(1)) || install() < 0)
        return NULL;
    name_threads();
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(stop_text, "stop(is_base: bool): records nothing until start(); without is_base, sessions and triggers still see native functions.");
static PyObject *stop(PyObject *self, PyObject *arguments)
{
    (void)self;
    int is_base;
    if (!PyArg_ParseTuple(arguments, "p", &is_base))
        return NULL;
    if (PyInterpreterState_Get() != PyInterpreterState_Main())
        Py_RETURN_NONE;
    if (is_started) {
        leave_loops();
        leave_greenlets();
    }
    if (is_started && (uninstall() < 0 || ((is_base || was_disabled) && set_enabled(0))))
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(disable_text, "disable(): records nothing of native code either, until start().");
static PyObject *disable(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    if (set_enabled(0))
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(load_text, "load(path: bytes): loads a library that others find.");
static PyObject *load(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *path;
    if (!PyArg_ParseTuple(arguments, "y", &path))
        return NULL;
    if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL)) {
        PyErr_SetString(PyExc_RuntimeError, dlerror());
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(is_there_text, "is_there() -> bool: whether this process contains the runtime.");
static PyObject *is_there(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyBool_FromLong(everycall_is_there());
}

PyDoc_STRVAR(is_main_text, "is_main() -> bool: whether this is the main interpreter, the one that is recorded.");
static PyObject *is_main(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyBool_FromLong(PyInterpreterState_Get() == PyInterpreterState_Main());
}

PyDoc_STRVAR(now_text, "now() -> int: the time in ticks of the trace's clock; 0 without the runtime.");
static PyObject *now(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyLong_FromUnsignedLongLong(everycall_now());
}

PyDoc_STRVAR(ticks_text, "ticks_per_second() -> int");
static PyObject *ticks(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyLong_FromUnsignedLongLong(everycall_ticks_per_second());
}

/* Names are those of the program, so that one that isn't UTF-8 isn't an error. */
static PyObject *marked(PyObject *arguments, int (*plain)(const char *), int (*valued)(const char *, uint64_t))
{
    PyObject *text, *value = Py_None;
    if (!PyArg_ParseTuple(arguments, "U|O", &text, &value))
        return NULL;
    uint64_t number = 0;
    if (value != Py_None) {
        number = PyLong_AsUnsignedLongLongMask(value);
        if (number == UINT64_MAX && PyErr_Occurred())
            return NULL;
    }
    PyObject *name = everycall_is_there() ? utf8(text) : NULL;
    if (name && value == Py_None)
        plain(PyBytes_AS_STRING(name));
    else if (name)
        valued(PyBytes_AS_STRING(name), number);
    Py_XDECREF(name);
    Py_RETURN_NONE;
}

#define MARK(function, plain, valued, text)                           \
    PyDoc_STRVAR(function##_text, text);                              \
    static PyObject *function(PyObject *self, PyObject *arguments)    \
    {                                                                 \
        (void)self;                                                   \
        return marked(arguments, plain, valued);                      \
    }

MARK(label, everycall_label_name, everycall_label, "label(name, value=None): a value of the innermost open call; an int, modulo 2**64.")
MARK(instant, everycall_instant, everycall_instant_value, "instant(name, value=None): an event at this moment.")
MARK(span_begin, everycall_span_begin, everycall_span_begin_value, "span_begin(name, value=None): a span of time begins in this thread.")
MARK(span_end, everycall_span_end, everycall_span_end_value, "span_end(name, value=None): it ends.")

PyDoc_STRVAR(counter_text, "counter(name, value): a value of a time series, an int of 64 bits or a float.");
static PyObject *counter(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *text, *value;
    if (!PyArg_ParseTuple(arguments, "UO", &text, &value))
        return NULL;
    int is_real = PyFloat_Check(value), overflows = 0;
    double real = is_real ? PyFloat_AsDouble(value) : 0;
    long long whole = is_real ? 0 : PyLong_AsLongLongAndOverflow(value, &overflows);
    if (PyErr_Occurred())
        return NULL;
    if (overflows) {
        PyErr_SetString(PyExc_OverflowError, "a counter's value is an int of 64 bits or a float");
        return NULL;
    }
    PyObject *name = everycall_is_there() ? utf8(text) : NULL;
    if (name && is_real)
        everycall_counter_double(PyBytes_AS_STRING(name), real);
    else if (name)
        everycall_counter(PyBytes_AS_STRING(name), whole);
    Py_XDECREF(name);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(mark_text, "mark(code, is_left_out): whether calls of a function, and what they call, are left out, or the function is selected.");
static PyObject *mark(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *code;
    int is_left_out;
    void *known = NULL;
    if (!PyArg_ParseTuple(arguments, "O!p", &PyCode_Type, &code, &is_left_out) || find_extra_index() < 0)
        return NULL;
    if (PyUnstable_Code_GetExtra(code, extra_index, &known) < 0 ||
        PyUnstable_Code_SetExtra(code, extra_index, (void *)((uintptr_t)known | (is_left_out ? LEFT_OUT : SELECTED))) < 0)
        return NULL;
    has_left_out |= is_left_out;
    decide_what_calls_do();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(snapshot_text, "snapshot(path: bytes, since: int): writes what the rings hold, from a time in ticks on.");
static PyObject *snapshot(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *path;
    unsigned long long since;
    int result;
    if (!PyArg_ParseTuple(arguments, "yK", &path, &since))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    result = everycall_write_since(since, path);
    Py_END_ALLOW_THREADS
    if (refuse(result))
        return NULL;
    Py_RETURN_NONE;
}

/* Whether functions in C are recorded in this thread, if they are wanted. */
static int are_c_functions_in_place(void)
{
#if USES_MONITORING
    return 1;
#else
    return !is_started || !(wanted & WANTS_C_FUNCTIONS) || PyThreadState_Get()->c_profilefunc == profile;
#endif
}

PyDoc_STRVAR(status_text, "status() -> dict: what the hook has done.");
static PyObject *status(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return Py_BuildValue("{sNsNsNsIsKsKsKsK}", "started", PyBool_FromLong(is_started), "in_place", PyBool_FromLong(is_in_place()),
                         "c_functions_in_place", PyBool_FromLong(are_c_functions_in_place()), "functions", ids.used, "deep_calls", (unsigned long long)deep_calls, "without_id",
                         (unsigned long long)ids.without_id, "without_name", (unsigned long long)ids.without_name,
                         "misplaced", (unsigned long long)greenlets.doubtful);
}

PyDoc_STRVAR(leave_out_text, "leave_out(folder: bytes): functions of files in it aren't recorded; it ends with a separator.");
static PyObject *leave_out(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *folder;
    if (!PyArg_ParseTuple(arguments, "y", &folder))
        return NULL;
    if (PyInterpreterState_Get() == PyInterpreterState_Main() && strlen(folder) < sizeof own_folder)
        strcpy(own_folder, folder);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, start_text},
    {"stop", stop, METH_VARARGS, stop_text},
    {"disable", disable, METH_NOARGS, disable_text},
    {"load", load, METH_VARARGS, load_text},
    {"is_there", is_there, METH_NOARGS, is_there_text},
    {"is_main", is_main, METH_NOARGS, is_main_text},
    {"now", now, METH_NOARGS, now_text},
    {"ticks_per_second", ticks, METH_NOARGS, ticks_text},
    {"label", label, METH_VARARGS, label_text},
    {"instant", instant, METH_VARARGS, instant_text},
    {"counter", counter, METH_VARARGS, counter_text},
    {"mark", mark, METH_VARARGS, mark_text},
    {"span_begin", span_begin, METH_VARARGS, span_begin_text},
    {"span_end", span_end, METH_VARARGS, span_end_text},
    {"snapshot", snapshot, METH_VARARGS, snapshot_text},
    {"status", status, METH_NOARGS, status_text},
    {"on_gc", on_gc, METH_VARARGS, "Of gc.callbacks."},
    {"leave_out", leave_out, METH_VARARGS, leave_out_text},
    {NULL, NULL, 0, NULL},
};

/*
 * One state for the process: only the main interpreter is recorded. Others have the module to say
 * so; what they call changes nothing here.
 */
static PyModuleDef_Slot slots[] = {
#if USES_MONITORING
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "everycall._hook", .m_doc = "The hook of everycall.", .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__hook(void)
{
    return PyModuleDef_Init(&definition);
}
