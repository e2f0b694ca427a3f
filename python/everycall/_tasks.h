/*
 * Tasks of asyncio: their steps are told to the runtime, so that each task is a track.
 *
 * A step is from the entry of the outermost coroutine's frame, while asyncio says which task is
 * current, to where that frame is left. No task and no frame is held, nor is there a weak reference,
 * which would cost the garbage collector as much as the task. What tasks do tells whether another one
 * is at an address: a task ends where the frame of its coroutine is left for good; its coroutine
 * begins once; before its first step it is called soon only once, and later only by what it waited
 * for or in its own step. All of this runs under the interpreter's lock.
 */
#ifndef EVERYCALL_TASKS_H
#define EVERYCALL_TASKS_H

/* Steps in each other, as of event loops that are run within a step. */
#define STEPS_MAX 16

typedef struct {
    /* Only compared. */
    PyObject *task;
    void *frame;
    uint32_t number;
    /* Whether that frame is of the task's own coroutine. */
    uint32_t is_whole;
    /* Coroutines that were left to wait, and no other was entered since. */
    uint32_t suspended;
    /* How many frames were open in its greenlet before. */
    uint32_t depth;
} Step;

static size_t frames_of_greenlet(void);

static __thread struct {
    Step steps[STEPS_MAX];
    uint32_t open;
    /* Steps of before a stop() are over. */
    uint32_t start;
} own_steps;
/* How often recording was started. */
static uint32_t starts;

typedef struct {
    /* Held, so that a look tells whether the task has another one. */
    PyObject *name;
    /* `fetch (Task-3)` */
    char text[65];
} TaskName;

typedef struct {
    /* Only compared. NULL: the place is free. */
    PyObject *task;
    /* Of its coroutine, where its beginning was seen. Only compared. */
    void *frame;
    TaskName *name;
    uint32_t number;
    /* Whether a step has begun. */
    uint32_t has_begun;
    /* Steps that have begun after a wake, and the last one for which it was woken. */
    uint32_t begun, woken;
} Task;

static struct {
    Task *places;
    /* A power of two, or 0. */
    size_t size, used;
    uint32_t last_number;
    /* Tasks of before a stop() aren't known any more: they may have ended since. */
    uint32_t start;
    /* asyncio's, once it is there. */
    PyObject *running_loop, *current_tasks, *current_task;
    PyObject *name_method, *name_attribute, *coroutine_attribute, *self_attribute;
    /* Of asyncio's objects for a task's next step; NULL if none was seen. */
    PyTypeObject *step_type;
} tasks;

/* Finds what asyncio tells the current task by; whether it is there. */
static __attribute__((noinline)) int find_asyncio(void)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    PyObject *events = modules ? PyDict_GetItemString(modules, "asyncio.events") : NULL;
    PyObject *with_tasks = events ? PyDict_GetItemString(modules, "asyncio.tasks") : NULL;
    if (!with_tasks)
        return 0;
    tasks.name_method = PyUnicode_InternFromString("get_name");
    tasks.name_attribute = PyUnicode_InternFromString("_name");
    tasks.coroutine_attribute = PyUnicode_InternFromString("_coro");
    tasks.self_attribute = PyUnicode_InternFromString("__self__");
    tasks.current_tasks = PyObject_GetAttrString(with_tasks, "_current_tasks");
    if (tasks.current_tasks && !PyDict_Check(tasks.current_tasks))
        Py_CLEAR(tasks.current_tasks);
    PyErr_Clear();
    tasks.current_task = PyObject_GetAttrString(with_tasks, "current_task");
    tasks.running_loop = PyObject_GetAttrString(events, "_get_running_loop");
    if (!tasks.current_task || !tasks.running_loop || !tasks.name_method || !tasks.name_attribute ||
        !tasks.coroutine_attribute || !tasks.self_attribute)
        Py_CLEAR(tasks.running_loop); /* asyncio is being imported */
    PyErr_Clear();
    return tasks.running_loop != NULL;
}

static void is_called_soon(PyObject *callback);
#include "_loops.h"

/* The task that asyncio runs in this thread, borrowed; NULL if there is none. */
static PyObject *current_task(void)
{
    if (UNLIKELY(!tasks.running_loop) && !find_asyncio())
        return NULL;
    PyObject *loop = PyObject_CallNoArgs(tasks.running_loop);
    PyObject *task = NULL;
    if (loop && loop != Py_None) {
        if (UNLIKELY(Py_TYPE(loop) != looked_at))
            look_at_loop(Py_TYPE(loop));
        /* From 3.14 on, it has tasks of asyncio in Python only. */
        if (tasks.current_tasks)
            task = PyDict_GetItemWithError(tasks.current_tasks, loop);
        if (!task && (PY_VERSION_HEX >= 0x030E0000 || !tasks.current_tasks)) {
            task = PyObject_CallOneArg(tasks.current_task, loop);
            /* asyncio holds it while it is current. */
            Py_XDECREF(task);
        }
    }
    Py_XDECREF(loop);
    return task == Py_None ? NULL : task;
}

/* Tasks of one page of memory are near each other, as they are used one after the other. */
static inline size_t place_of_task(const PyObject *task)
{
    uintptr_t address = (uintptr_t)task, page = (address >> 12) * 0x9e3779b97f4a7c15u >> 32;
    return (page << 5 | (address >> 7 & 31)) & (tasks.size - 1);
}

static int grow_tasks(void)
{
    Task *before = tasks.places;
    size_t count = tasks.size, size = count ? 2 * count : 64;
    Task *places = calloc(size, sizeof *places);
    if (!places)
        return -1;
    tasks.places = places;
    tasks.size = size;
    for (size_t from = 0; from < count; from++) {
        if (!before[from].task)
            continue;
        size_t to = place_of_task(before[from].task);
        while (places[to].task)
            to = (to + 1) & (size - 1);
        places[to] = before[from];
    }
    free(before);
    return 0;
}

static void free_name(TaskName *name)
{
    Py_XDECREF(name->name);
    free(name);
}

static void forget_all_tasks(void)
{
    for (size_t at = 0; at < tasks.size; at++)
        if (tasks.places[at].task)
            free_name(tasks.places[at].name);
    free(tasks.places);
    tasks.places = NULL;
    tasks.size = tasks.used = 0;
}

/* What is known of a task; NULL if nothing is. */
static Task *find_task(const PyObject *task)
{
    if (UNLIKELY(tasks.start != starts)) {
        forget_all_tasks();
        tasks.start = starts;
    }
    if (!tasks.size)
        return NULL;
    size_t place = place_of_task(task);
    while (tasks.places[place].task && tasks.places[place].task != task)
        place = (place + 1) & (tasks.size - 1);
    return tasks.places[place].task ? &tasks.places[place] : NULL;
}

/* A task that find_task() hasn't found, without a name; NULL without memory. */
static Task *add_task(PyObject *task)
{
    TaskName *name = 2 * (tasks.used + 1) > tasks.size && grow_tasks() < 0 ? NULL : malloc(sizeof *name);
    if (!name)
        return NULL;
    name->name = NULL;
    name->text[0] = 0;
    size_t place = place_of_task(task);
    while (tasks.places[place].task)
        place = (place + 1) & (tasks.size - 1);
    tasks.used++;
    tasks.places[place] = (Task){.task = task, .name = name, .number = ++tasks.last_number};
    return &tasks.places[place];
}

/* It has ended. Those behind it that find_task() would look for at its place, or before, move there. */
static void forget_task(Task *known)
{
    size_t mask = tasks.size - 1, hole = (size_t)(known - tasks.places);
    free_name(known->name);
    tasks.used--;
    for (size_t at = (hole + 1) & mask; tasks.places[at].task; at = (at + 1) & mask) {
        if (((at - place_of_task(tasks.places[at].task)) & mask) < ((at - hole) & mask))
            continue;
        tasks.places[hole] = tasks.places[at];
        hole = at;
    }
    tasks.places[hole].task = NULL;
}

/* The name that a task has now; NULL if there is none. Runs no Python code. */
static PyObject *name_of_task(PyObject *task)
{
    PyObject *method = _PyType_Lookup(Py_TYPE(task), tasks.name_method); /* borrowed */
    PyObject *name = method && Py_IS_TYPE(method, &PyMethodDescr_Type) ? PyObject_CallOneArg(method, task)
                                                                       : PyObject_GenericGetAttr(task, tasks.name_attribute);
    if (name && !PyUnicode_Check(name))
        Py_CLEAR(name);
    return name;
}

/* Copies at most `most` bytes of a text, in whole characters. Their number. */
static size_t copied(char *to, PyObject *text, size_t most)
{
    Py_ssize_t length = 0;
    const char *bytes = PyUnicode_IS_ASCII(text) ? PyUnicode_AsUTF8AndSize(text, &length) : NULL;
    PyObject *encoded = bytes ? NULL : utf8(text);
    if (encoded) {
        bytes = PyBytes_AS_STRING(encoded);
        length = PyBytes_GET_SIZE(encoded);
    }
    size_t count = bytes ? strnlen(bytes, (size_t)length) : 0;
    if (count > most)
        for (count = most; count && ((unsigned char)bytes[count] & 0xc0) == 0x80;)
            count--;
    if (count)
        memcpy(to, bytes, count);
    Py_XDECREF(encoded);
    return count;
}

/* Gives a task the name that it has now. `coroutine` is the code of its coroutine. */
static void name_task(TaskName *known, PyObject *task, PyCodeObject *coroutine)
{
    PyObject *name = name_of_task(task);
    if (known->text[0] && (!name || name == known->name)) {
        Py_XDECREF(name);
        return;
    }
    /* What the coroutine is called stays. */
    char *behind = known->name ? strrchr(known->text, '(') : NULL;
    size_t length = behind ? (size_t)(behind - known->text) : copied(known->text, coroutine->co_qualname, 38);
    if (name) {
        if (!behind)
            known->text[length++] = ' ';
        known->text[length++] = '(';
        length += copied(known->text + length, name, 22);
        known->text[length++] = ')';
    }
    known->text[length] = 0;
    Py_XSETREF(known->name, name);
    PyErr_Clear();
}

static inline Step *innermost_step(void)
{
    if (own_steps.start != starts) {
        own_steps.start = starts;
        own_steps.open = 0;
    }
    return own_steps.open ? &own_steps.steps[own_steps.open - 1] : NULL;
}

/* A coroutine's frame is about to be entered, for the first time if it `begins`. */
static __attribute__((noinline)) void coroutine_enters(PyCodeObject *code, void *frame, int begins)
{
    Step *step = innermost_step();
    if (step)
        step->suspended = 0;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *task = current_task();
    if (task && (!step || step->task != task) && own_steps.open < STEPS_MAX) {
        Task *known = find_task(task);
        if (known && begins && known->has_begun) {
            /* Another one was there before. */
            forget_task(known);
            known = NULL;
        }
        if (known || (known = add_task(task))) {
            if (begins)
                known->frame = frame;
            known->has_begun = 1;
            name_task(known->name, task, code);
            own_steps.steps[own_steps.open++] = (Step){task, frame, known->number, known->frame == frame, 0,
                                                            (uint32_t)frames_of_greenlet()};
            /* An exception that is thrown into coroutines in each other enters one after the other: only
             * the first one is a step that the task was woken for. */
            if (known->woken > known->begun)
                everycall_task_step(known->number, ++known->begun, known->name->text);
            else
                everycall_task_begin(known->number, known->name->text);
        }
    }
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* A new reference to the task whose next step a callback is, and whether it `was_waiting` for a
 * future that is done now; NULL if it is something else. */
static PyObject *task_called_by(PyObject *callback, int *was_waiting)
{
    /* asyncio in C has an object for the next step, and a function for when a future is done. */
    *was_waiting = PyCFunction_Check(callback);
    if (*was_waiting)
        return strcmp(((PyCFunctionObject *)callback)->m_ml->ml_name, "task_wakeup") == 0
                   ? Py_XNewRef(PyCFunction_GET_SELF(callback))
                   : NULL;
    if (!tasks.step_type && ends_with(Py_TYPE(callback)->tp_name, "TaskStepMethWrapper"))
        tasks.step_type = (PyTypeObject *)Py_NewRef(Py_TYPE(callback));
    if (Py_TYPE(callback) == tasks.step_type)
        return PyObject_GetAttr(callback, tasks.self_attribute);
    /* asyncio in Python has methods. */
    if (!PyMethod_Check(callback) || !PyFunction_Check(PyMethod_GET_FUNCTION(callback)))
        return NULL;
    PyObject *name = ((PyCodeObject *)PyFunction_GET_CODE(PyMethod_GET_FUNCTION(callback)))->co_name;
    *was_waiting = PyUnicode_CompareWithASCIIString(name, "__wakeup") == 0;
    int is_its = *was_waiting || PyUnicode_CompareWithASCIIString(name, "__step") == 0;
    return is_its ? Py_NewRef(PyMethod_GET_SELF(callback)) : NULL;
}

/* The code of a task's coroutine, a new reference; NULL if it isn't Python's. Runs no Python code. */
static PyCodeObject *code_of_task(PyObject *task)
{
    PyObject *coroutine = PyObject_GenericGetAttr(task, tasks.coroutine_attribute);
    PyCodeObject *code = NULL;
    if (coroutine && (PyCoro_CheckExact(coroutine) || PyGen_CheckExact(coroutine)))
#if PY_VERSION_HEX >= 0x030C0000
        code = PyGen_GetCode((PyGenObject *)coroutine);
#else
        code = (PyCodeObject *)Py_NewRef(((PyGenObject *)coroutine)->gi_code);
#endif
    Py_XDECREF(coroutine);
    return code;
}

/* The event loop is to call a callback soon: if that is a task's step, the task is woken here. Of
 * several wakes for a step, the first one counts. */
static __attribute__((noinline)) void is_called_soon(PyObject *callback)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int was_waiting = 0;
    PyObject *task = LIKELY(tasks.running_loop) || find_asyncio() ? task_called_by(callback, &was_waiting) : NULL;
    Task *known = task ? find_task(task) : NULL;
    if (known && !was_waiting && (known->has_begun ? current_task() != task : known->woken)) {
        /* Another one was there before. */
        forget_task(known);
        known = NULL;
    }
    PyCodeObject *coroutine = task && !known ? code_of_task(task) : NULL;
    if (coroutine && (known = add_task(task)))
        name_task(known->name, task, coroutine);
    if (known && known->woken <= known->begun) {
        known->woken = known->begun + 1;
        everycall_task_wake(known->number, known->woken, known->name->text);
    }
    Py_XDECREF(coroutine);
    Py_XDECREF(task);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* A call_soon() in Python has begun. */
static __attribute__((noinline)) void call_soon_begins(void *frame, PyCodeObject *code)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *callback = plain_argument(frame, code, 1);
    if (callback)
        is_called_soon(callback);
    Py_XDECREF(callback);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* A coroutine's frame was left: `waits` if it is to be entered again where it has awaited. */
static __attribute__((noinline)) void coroutine_leaves(void *frame, int waits, int is_recorded)
{
    Step *step = innermost_step();
    if (!step)
        return;
    /* Only of calls that are recorded is there an end that doesn't count. */
    step->suspended = waits ? step->suspended + (uint32_t)is_recorded : 0;
    if (step->frame == frame) {
        own_steps.open--;
        everycall_task_end(step->number, step->suspended);
        Task *known = !waits && step->is_whole ? find_task(step->task) : NULL;
        if (known && known->number == step->number)
            forget_task(known);
    }
}

/* Whether a coroutine that has yielded this waits: an asynchronous generator may have a value. */
static int waits_for(PyObject *yielded)
{
    return strcmp(Py_TYPE(yielded)->tp_name, "async_generator_wrapped_value") != 0;
}

#endif
