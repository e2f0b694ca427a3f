/*
 * Tasks of asyncio: their steps are told to the runtime, so that each task is a track.
 *
 * A step is from the entry of the outermost coroutine's frame, while asyncio says which task is
 * current, to where that frame is left. No task and no frame is held: a weak reference tells whether
 * an address is still the same task's. All of this runs under the interpreter's lock.
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
    /* Coroutines that were left to wait, and no other was entered since. */
    uint32_t suspended;
} Step;

static __thread struct {
    Step steps[STEPS_MAX];
    uint32_t open;
    /* Steps of before a stop() are over. */
    uint32_t start;
} own_steps;
/* How often recording was started. */
static uint32_t starts;

typedef struct {
    PyObject *task;
    /* NULL: the place is free. */
    PyObject *weak;
    uint32_t number;
    /* Steps that have begun after a wake, and the last one for which it was woken. */
    uint32_t begun, woken;
    /* Its name, held, so that a look tells whether it has another one. */
    PyObject *name;
    /* `fetch (Task-3)` */
    char text[65];
} Task;

static struct {
    Task *places;
    /* A power of two, or 0. */
    size_t size, used;
    uint32_t last_number;
    /* asyncio's, once it is there. */
    PyObject *running_loop, *current_tasks, *current_task;
    PyObject *name_method, *name_attribute, *coroutine_attribute;
} tasks;

/* A weak reference's object without a reference of ours: the caller's frame holds the task. */
static int refers_to(PyObject *weak, PyObject *task)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *found = NULL;
    int is_there = PyWeakref_GetRef(weak, &found) > 0;
    Py_XDECREF(found);
    return is_there && (!task || found == task);
#else
    PyObject *found = PyWeakref_GetObject(weak);
    return found && found != Py_None && (!task || found == task);
#endif
}

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
    tasks.current_tasks = PyObject_GetAttrString(with_tasks, "_current_tasks");
    if (tasks.current_tasks && !PyDict_Check(tasks.current_tasks))
        Py_CLEAR(tasks.current_tasks);
    PyErr_Clear();
    tasks.current_task = PyObject_GetAttrString(with_tasks, "current_task");
    tasks.running_loop = PyObject_GetAttrString(events, "_get_running_loop");
    if (!tasks.current_task || !tasks.running_loop || !tasks.name_method || !tasks.name_attribute ||
        !tasks.coroutine_attribute)
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

static int grow_tasks(void)
{
    size_t alive = 0;
    for (size_t at = 0; at < tasks.size; at++)
        alive += tasks.places[at].weak && refers_to(tasks.places[at].weak, NULL);
    size_t size = 64;
    while (size < 4 * (alive + 1))
        size *= 2;
    Task *places = calloc(size, sizeof *places);
    if (!places)
        return -1;
    tasks.used = 0;
    for (size_t from = 0; from < tasks.size; from++) {
        Task *task = &tasks.places[from];
        if (!task->weak)
            continue;
        if (!refers_to(task->weak, NULL)) {
            Py_DECREF(task->weak);
            Py_XDECREF(task->name);
            continue;
        }
        size_t to = ((uintptr_t)task->task >> 4) & (size - 1);
        while (places[to].weak)
            to = (to + 1) & (size - 1);
        places[to] = *task;
        tasks.used++;
    }
    free(tasks.places);
    tasks.places = places;
    tasks.size = size;
    return 0;
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

/* What is known of a task, without a name if it is new; NULL without memory. */
static Task *known_task(PyObject *task)
{
    if (2 * (tasks.used + 1) > tasks.size && grow_tasks() < 0)
        return NULL;
    size_t place = ((uintptr_t)task >> 4) & (tasks.size - 1);
    while (tasks.places[place].weak && tasks.places[place].task != task)
        place = (place + 1) & (tasks.size - 1);
    Task *known = &tasks.places[place];
    if (known->weak && !refers_to(known->weak, task)) {
        /* Another one was there before. */
        Py_CLEAR(known->weak);
        Py_CLEAR(known->name);
        tasks.used--;
    }
    if (!known->weak) {
        Task *places = tasks.places;
        PyObject *weak = PyWeakref_NewRef(task, NULL);
        if (!weak)
            return NULL;
        if (tasks.places != places) {
            /* Garbage was collected meanwhile, which ran coroutines of new tasks. */
            Py_DECREF(weak);
            return known_task(task);
        }
        /* Without a callback it is in no cycle: the collector needn't look at it, which took it a third
         * longer in programs that are mostly tasks. */
        PyObject_GC_UnTrack(weak);
        tasks.used++;
        *known = (Task){.task = task, .weak = weak, .number = ++tasks.last_number};
    }
    return known;
}

/* Gives a task the name that it has now. `coroutine` is the code of its coroutine. */
static void name_task(Task *known, PyObject *task, PyCodeObject *coroutine)
{
    PyObject *name = name_of_task(task);
    if (known->text[0] && (!name || name == known->name)) {
        Py_XDECREF(name);
        return;
    }
    /* What the coroutine is called stays. */
    char *behind = known->name ? strrchr(known->text, '(') : NULL;
    PyObject *bytes = name ? utf8(name) : NULL, *function = behind ? NULL : utf8(coroutine->co_qualname);
    if (!bytes) {
        snprintf(known->text, sizeof known->text, "%s", function ? PyBytes_AS_STRING(function) : "");
    } else {
        size_t length = behind ? (size_t)(behind - known->text)
                               : (size_t)snprintf(known->text, 41, "%.39s ", function ? PyBytes_AS_STRING(function) : "");
        if (length > 40)
            length = 40;
        snprintf(known->text + length, sizeof known->text - length, "(%.*s)", 22, PyBytes_AS_STRING(bytes));
        Py_XSETREF(known->name, Py_NewRef(name));
    }
    Py_XDECREF(function);
    Py_XDECREF(bytes);
    Py_XDECREF(name);
}

static inline Step *innermost_step(void)
{
    if (own_steps.start != starts) {
        own_steps.start = starts;
        own_steps.open = 0;
    }
    return own_steps.open ? &own_steps.steps[own_steps.open - 1] : NULL;
}

/* A coroutine's frame is about to be entered. */
static __attribute__((noinline)) void coroutine_enters(PyCodeObject *code, void *frame)
{
    Step *step = innermost_step();
    if (step)
        step->suspended = 0;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *task = current_task();
    if (task && (!step || step->task != task) && own_steps.open < STEPS_MAX) {
        Task *known = known_task(task);
        if (known) {
            name_task(known, task, code);
            own_steps.steps[own_steps.open++] = (Step){task, frame, known->number, 0};
            /* An exception that is thrown into coroutines in each other enters one after the other: only
             * the first one is a step that the task was woken for. */
            if (known->woken > known->begun)
                everycall_task_step(known->number, ++known->begun, known->text);
            else
                everycall_task_begin(known->number, known->text);
        }
    }
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* A new reference to the task whose next step a callback is; NULL if it is something else. */
static PyObject *task_called_by(PyObject *callback)
{
    /* asyncio in C has an object for the next step, and a function for when a future is done. */
    if (PyCFunction_Check(callback))
        return strcmp(((PyCFunctionObject *)callback)->m_ml->ml_name, "task_wakeup") == 0
                   ? Py_XNewRef(PyCFunction_GET_SELF(callback))
                   : NULL;
    if (ends_with(Py_TYPE(callback)->tp_name, "TaskStepMethWrapper"))
        return PyObject_GetAttrString(callback, "__self__");
    /* asyncio in Python has methods. */
    if (!PyMethod_Check(callback) || !PyFunction_Check(PyMethod_GET_FUNCTION(callback)))
        return NULL;
    PyObject *name = ((PyCodeObject *)PyFunction_GET_CODE(PyMethod_GET_FUNCTION(callback)))->co_name;
    int is_step = PyUnicode_CompareWithASCIIString(name, "__step") == 0 || PyUnicode_CompareWithASCIIString(name, "__wakeup") == 0;
    return is_step ? Py_NewRef(PyMethod_GET_SELF(callback)) : NULL;
}

/* The code of a task's coroutine, a new reference; NULL if it isn't Python's. Runs no Python code. */
static PyCodeObject *code_of_task(PyObject *task)
{
    PyObject *coroutine = PyObject_GenericGetAttr(task, tasks.coroutine_attribute);
    PyObject *code = NULL;
    if (coroutine && PyCoro_CheckExact(coroutine))
        code = PyObject_GetAttrString(coroutine, "cr_code");
    else if (coroutine && PyGen_CheckExact(coroutine))
        code = PyObject_GetAttrString(coroutine, "gi_code");
    Py_XDECREF(coroutine);
    if (code && !PyCode_Check(code))
        Py_CLEAR(code);
    return (PyCodeObject *)code;
}

/* The event loop is to call a callback soon: if that is a task's step, the task is woken here. Of
 * several wakes for a step, the first one counts. */
static __attribute__((noinline)) void is_called_soon(PyObject *callback)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *task = LIKELY(tasks.running_loop) || find_asyncio() ? task_called_by(callback) : NULL;
    Task *known = task ? known_task(task) : NULL;
    PyCodeObject *coroutine = known && !known->text[0] ? code_of_task(task) : NULL;
    if (coroutine)
        name_task(known, task, coroutine);
    if (known && known->text[0] && known->woken <= known->begun) {
        known->woken = known->begun + 1;
        everycall_task_wake(known->number, known->woken, known->text);
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
    PyObject *name, *callback = argument(frame, code, 1, &name);
    if (callback)
        is_called_soon(callback);
    Py_XDECREF(callback);
    Py_XDECREF(name);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* A coroutine's frame was left: `waits` if it is to be entered again where it has awaited. */
static __attribute__((noinline)) void coroutine_leaves(void *frame, int waits)
{
    Step *step = innermost_step();
    if (!step)
        return;
    step->suspended = waits ? step->suspended + 1 : 0;
    if (step->frame == frame) {
        own_steps.open--;
        everycall_task_end(step->number, step->suspended);
    }
}

/* Whether a coroutine that has yielded this waits: an asynchronous generator may have a value. */
static int waits_for(PyObject *yielded)
{
    return strcmp(Py_TYPE(yielded)->tp_name, "async_generator_wrapped_value") != 0;
}

#endif
