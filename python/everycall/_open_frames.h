/*
 * Which frames are recorded, and in which track: what a call does besides its two events, where that
 * is more than nothing (`does_more`).
 *
 * Greenlets share the stack of their thread, so neither the runtime nor the hook's events tell where
 * another one goes on. greenlet tells it: by the trace function of each thread, settrace(), behind
 * which a program's own is called. Each greenlet but the thread's main one is a task. Where it is
 * left, its open frames are left as calls that wait, and its step ends; where it goes on, they are
 * entered again. All of this runs under the interpreter's lock.
 */
#ifndef EVERYCALL_OPEN_FRAMES_H
#define EVERYCALL_OPEN_FRAMES_H

/* Calls that are open, and from which depth on none is recorded. */
typedef struct {
    uint32_t depth, silent_from;
} Level;

typedef struct {
    uint32_t id;
    uint32_t is_recorded;
} OpenFrame;

typedef struct Greenlet {
    struct Greenlet *next;
    /* Only compared. */
    PyObject *greenlet;
    uint32_t number, start;
    /* Whether its step has begun and not ended. */
    int is_running;
    /* Whether a frame of it may have been entered before it was known. */
    int is_partly_known;
    Level level;
    OpenFrame *frames;
    size_t count, size;
    /* Steps of asyncio's tasks in it; from `first_step` on while it runs, and those of before. */
    Step *steps;
    uint32_t steps_open, first_step;
    char name[65];
} Greenlet;

#define GREENLET_LISTS 1024

static struct {
    /* Whether greenlet was imported. */
    int is_there;
    PyObject *getcurrent, *settrace, *gettrace;
    Greenlet *lists[GREENLET_LISTS];
    uint32_t last_number;
    /* Frames that ended in a greenlet that they weren't entered in. */
    uint64_t doubtful;
} greenlets;

static __thread struct {
    uint32_t start;
    /* Whether this thread's switches are told. */
    int is_followed;
    Level level;
    /* That of the main greenlet, while another one runs. */
    Level main_level;
    /* NULL: the main one. */
    Greenlet *current;
    /* Only compared. */
    PyObject *main;
    /* Recording began in another greenlet: the main one has calls that began before. */
    int was_main_away;
} own;

/* 0: none. */
static uint32_t max_depth;
/* Whether a function was ever left out by a decorator. */
static int has_left_out;
/* Whether calls do more than to be recorded. */
static int does_more;

static void decide_what_calls_do(void)
{
    does_more = wanted & (WANTS_ARGUMENTS | WANTS_SELECTED) || max_depth || has_left_out || greenlets.is_there;
}

static uint32_t silent_from(void)
{
    return max_depth ? max_depth : UINT32_MAX;
}

static size_t frames_of_greenlet(void)
{
    return own.current && own.start == starts ? own.current->count : 0;
}

/* Its trace function: a program's own is called behind it. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *theirs;
} Follower;

static void free_follower(PyObject *self)
{
    Py_XDECREF(((Follower *)self)->theirs);
    PyObject_Free(self);
}

static PyTypeObject follower_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "everycall._hook.Follower",
    .tp_basicsize = sizeof(Follower),
    .tp_vectorcall_offset = offsetof(Follower, call),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = free_follower,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

static size_t list_of(const PyObject *greenlet)
{
    return ((uintptr_t)greenlet >> 4) * 0x9e3779b97f4a7c15u >> 32 & (GREENLET_LISTS - 1);
}

static void forget_greenlet(Greenlet *known)
{
    Greenlet **place = &greenlets.lists[list_of(known->greenlet)];
    while (*place && *place != known)
        place = &(*place)->next;
    if (*place)
        *place = known->next;
    free(known->frames);
    free(known->steps);
    free(known);
}

/* What is known of a greenlet that goes on, which is new if nothing is; NULL without memory. One that
 * has no frames begins: another one was at its address before. */
static Greenlet *known_greenlet(PyObject *greenlet, int has_frames)
{
    Greenlet *known = greenlets.lists[list_of(greenlet)];
    while (known && known->greenlet != greenlet)
        known = known->next;
    if (known && has_frames && known->start == starts)
        return known;
    if (known)
        forget_greenlet(known);
    known = calloc(1, sizeof *known);
    if (!known)
        return NULL;
    known->greenlet = greenlet;
    known->start = starts;
    known->is_partly_known = has_frames;
    known->level.silent_from = silent_from();
    known->next = greenlets.lists[list_of(greenlet)];
    greenlets.lists[list_of(greenlet)] = known;
    return known;
}

/* A step of a greenlet begins with its first frame that is recorded. */
static void begin_greenlet(Greenlet *known, uint32_t id)
{
    if (!known->number) {
        known->number = ++tasks.last_number;
        char number[24];
        int length = snprintf(number, sizeof number, " (greenlet %u)", ++greenlets.last_number);
        const char *name = name_of_id(id);
        size_t most = sizeof known->name - 1 - (size_t)length, count = strnlen(name, most + 1);
        if (count > most)
            for (count = most; count && ((unsigned char)name[count] & 0xc0) == 0x80;)
                count--;
        memcpy(known->name, name, count);
        memcpy(known->name + count, number, (size_t)length + 1);
    }
    known->is_running = 1;
    everycall_task_begin(known->number, known->name);
}

/* A greenlet is left, for another one: its frames wait, and so do the steps of tasks in it. */
static void suspend_greenlet(Greenlet *known)
{
    Step *first = own_steps.steps + known->first_step;
    uint32_t steps = own_steps.start == starts && own_steps.open > known->first_step ? own_steps.open - known->first_step : 0;
    uint32_t left = 0, open = steps;
    for (size_t at = known->count; at-- > 0;) {
        if (known->frames[at].is_recorded) {
            everycall_frame_leave(known->frames[at].id);
            left++;
        }
        for (; open && first[open - 1].depth >= at; open--, left = 0)
            everycall_task_end(first[open - 1].number, left);
    }
    if (known->is_running)
        everycall_task_end(known->number, left);
    known->is_running = 0;
    Step *kept = steps ? realloc(known->steps, steps * sizeof *kept) : NULL;
    if (kept) {
        memcpy(kept, first, steps * sizeof *kept);
        known->steps = kept;
    }
    known->steps_open = kept ? steps : 0;
    if (steps)
        own_steps.open = known->first_step;
}

/* It goes on. */
static void resume_greenlet(Greenlet *known)
{
    (void)innermost_step();
    known->first_step = own_steps.open;
    uint32_t steps = known->steps_open, step = 0;
    if (steps > STEPS_MAX - own_steps.open)
        steps = STEPS_MAX - own_steps.open;
    for (size_t at = 0; at < known->count; at++) {
        if (!known->frames[at].is_recorded)
            continue;
        if (!known->is_running)
            begin_greenlet(known, known->frames[at].id);
        for (; step < steps && known->steps[step].depth <= at; step++) {
            const Task *task = find_task(known->steps[step].task);
            int is_its = task && task->number == known->steps[step].number;
            everycall_task_begin(known->steps[step].number, is_its ? task->name->text : "a task");
            own_steps.steps[own_steps.open++] = known->steps[step];
        }
        everycall_frame_enter(known->frames[at].id);
    }
    known->steps_open = 0;
}

/* Another greenlet of this thread goes on. */
static void switch_greenlets(PyObject *origin, PyObject *target)
{
    Greenlet *left = own.current;
    if (left) {
        suspend_greenlet(left);
        left->level = own.level;
    } else {
        own.main_level = own.level;
    }
    /* One that has ended has no frames; others may have none that are recorded. */
    if (left && !left->count && origin == left->greenlet) {
        PyObject *is_dead = PyObject_GetAttrString(origin, "dead");
        if (is_dead == Py_True)
            forget_greenlet(left);
        Py_XDECREF(is_dead);
        PyErr_Clear();
    }
    own.current = target == own.main ? NULL : known_greenlet(target, current_frame() != NULL);
    own.level = own.current ? own.current->level : own.main_level;
    if (own.current)
        resume_greenlet(own.current);
}

static PyObject *on_switch(PyObject *self, PyObject *const *arguments, size_t count, PyObject *names)
{
    Follower *follower = (Follower *)self;
    if (is_started && own.is_followed && own.start == starts && PyVectorcall_NARGS(count) == 2 && PyTuple_Check(arguments[1]) &&
        PyTuple_GET_SIZE(arguments[1]) == 2) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        switch_greenlets(PyTuple_GET_ITEM(arguments[1], 0), PyTuple_GET_ITEM(arguments[1], 1));
        PyErr_Restore(type, value, traceback);
    }
    if (!follower->theirs)
        Py_RETURN_NONE;
    /* It may set another one. */
    PyObject *theirs = Py_NewRef(follower->theirs);
    is_describing++; /* as where sys.monitoring tells of calls */
    PyObject *result = PyObject_Vectorcall(theirs, arguments, count, names);
    is_describing--;
    if (!result) {
        /* greenlet takes a trace function off that raises: so ours has to be set again. */
        Py_CLEAR(follower->theirs);
        own.is_followed = 0;
    }
    Py_DECREF(theirs);
    return result;
}

/* This thread's trace function of ours, a new reference; NULL if there is none. */
static Follower *follower_here(void)
{
    PyObject *there = PyObject_CallNoArgs(greenlets.gettrace);
    if (there && Py_IS_TYPE(there, &follower_type))
        return (Follower *)there;
    Py_XDECREF(there);
    PyErr_Clear();
    return NULL;
}

/* From here on this thread's switches are told. */
static __attribute__((noinline)) void follow_greenlets(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    own.is_followed = 1;
    PyObject *current = PyObject_CallNoArgs(greenlets.getcurrent);
    PyObject *main = Py_XNewRef(current);
    for (PyObject *parent; main && (parent = PyObject_GetAttrString(main, "parent")) != Py_None; main = parent) {
        Py_DECREF(main);
        if (!parent) {
            main = NULL;
            break;
        }
    }
    if (main)
        Py_DECREF(Py_None); /* the main one's parent */
    if (main && !own.main) {
        own.main = main;
        own.current = current != main ? known_greenlet(current, 1) : NULL;
        if (own.current) {
            (void)innermost_step();
            own.current->first_step = own_steps.open;
            own.was_main_away = 1;
        }
    } else if (main && current != (own.current ? own.current->greenlet : own.main)) {
        /* A trace function of the program's has raised, so this switch wasn't told. */
        switch_greenlets(NULL, current);
    }
    Follower *follower = main ? follower_here() : NULL;
    if (main && !follower && (follower = PyObject_New(Follower, &follower_type))) {
        follower->call = on_switch;
        follower->theirs = NULL;
        PyObject *before = PyObject_CallOneArg(greenlets.settrace, (PyObject *)follower);
        if (before && before != Py_None)
            follower->theirs = Py_NewRef(before);
        Py_XDECREF(before);
    }
    Py_XDECREF(follower);
    Py_XDECREF(main);
    Py_XDECREF(current);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* greenlet.settrace() and gettrace() while ours is there: they have the program's own. */
static PyObject *settrace(PyObject *self, PyObject *callback)
{
    (void)self;
    if (is_started && !own.is_followed)
        follow_greenlets();
    Follower *follower = follower_here();
    if (!follower)
        return PyObject_CallOneArg(greenlets.settrace, callback);
    PyObject *before = follower->theirs;
    follower->theirs = callback == Py_None ? NULL : Py_NewRef(callback);
    Py_DECREF(follower);
    return before ? before : Py_NewRef(Py_None);
}

static PyObject *gettrace(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    Follower *follower = follower_here();
    if (!follower)
        return PyObject_CallNoArgs(greenlets.gettrace);
    PyObject *theirs = Py_NewRef(follower->theirs ? follower->theirs : Py_None);
    Py_DECREF(follower);
    return theirs;
}

static PyMethodDef greenlet_functions[] = {
    {"settrace", settrace, METH_O, "settrace(callback) -> object\nSets a new tracing function and returns the previous one."},
    {"gettrace", gettrace, METH_NOARGS, "gettrace() -> object\nReturns the currently set tracing function, or None."},
    {NULL, NULL, 0, NULL},
};

/* Puts functions in the place of others, where these are. */
static void replace_in(const char *module_name, const char *name, PyObject *before, PyObject *with)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    PyObject *module = modules ? PyDict_GetItemString(modules, module_name) : NULL;
    PyObject *there = module ? PyObject_GetAttrString(module, name) : NULL;
    if (there && (there == before || (PyCFunction_Check(there) && PyCFunction_Check(before) &&
                                      ((PyCFunctionObject *)there)->m_ml == ((PyCFunctionObject *)before)->m_ml)))
        PyObject_SetAttrString(module, name, with);
    Py_XDECREF(there);
    PyErr_Clear();
}

/* Puts our functions into greenlet's modules in place of its own; its own again if `is_back`. */
static void exchange_functions(int is_back)
{
    for (int at = 0; at < 2; at++) {
        const char *name = greenlet_functions[at].ml_name;
        PyObject *ours = PyCFunction_New(&greenlet_functions[at], NULL);
        PyObject *original = at ? greenlets.gettrace : greenlets.settrace;
        PyObject *from = is_back ? ours : original, *to = is_back ? original : ours;
        if (ours) {
            replace_in("greenlet", name, from, to);
            replace_in("greenlet._greenlet", name, from, to);
        }
        Py_XDECREF(ours);
    }
}

/* greenlet was imported, or recording starts where it was: its threads are followed from their next calls on. */
static __attribute__((noinline)) void look_at_greenlet(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    PyObject *module = modules ? PyDict_GetItemString(modules, "greenlet") : NULL;
    if (module && !greenlets.is_there && PyType_Ready(&follower_type) == 0) {
        greenlets.getcurrent = PyObject_GetAttrString(module, "getcurrent");
        greenlets.settrace = PyObject_GetAttrString(module, "settrace");
        greenlets.gettrace = PyObject_GetAttrString(module, "gettrace");
        if (greenlets.getcurrent && greenlets.settrace && greenlets.gettrace) {
            greenlets.is_there = 1;
            exchange_functions(0);
        }
    }
    PyErr_Clear();
    decide_what_calls_do();
    PyErr_Restore(type, value, traceback);
}

/* The modules get back what they had, and so does this thread. Others' functions only pass on. */
static void leave_greenlets(void)
{
    if (!greenlets.is_there)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    greenlets.is_there = 0;
    decide_what_calls_do();
    exchange_functions(1);
    Follower *follower = follower_here();
    if (follower) {
        PyObject *before = PyObject_CallOneArg(greenlets.settrace, follower->theirs ? follower->theirs : Py_None);
        Py_XDECREF(before);
        Py_DECREF(follower);
    }
    own.is_followed = 0;
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

static __attribute__((noinline)) void begin_own(void)
{
    own.start = starts;
    own.is_followed = 0;
    own.current = NULL;
    own.main = NULL;
    own.was_main_away = 0;
    own.level = own.main_level = (Level){0, silent_from()};
}

/* Whether calls of the function are recorded, at a depth. */
static inline int is_wanted_at(uint32_t depth, uintptr_t known)
{
    return depth < own.level.silent_from && (!(wanted & WANTS_SELECTED) || known & SELECTED);
}

/* A frame ended where it hadn't begun, if that is so. */
static inline void doubt(int is_so)
{
    if (is_so) {
        greenlets.doubtful++;
        everycall_frames_misplaced(1);
    }
}

/* A frame of a greenlet that isn't the main one is entered. */
static __attribute__((noinline)) void push_frame(Greenlet *known, uint32_t id, int is_recorded)
{
    if (known->count == known->size) {
        size_t size = known->size ? 2 * known->size : 16;
        OpenFrame *frames = realloc(known->frames, size * sizeof *frames);
        if (!frames) {
            doubt(1);
            return;
        }
        known->frames = frames;
        known->size = size;
    }
    is_recorded = is_recorded && everycall_frame_is_recorded(id);
    known->frames[known->count++] = (OpenFrame){id, (uint32_t)is_recorded};
    if (is_recorded && !known->is_running)
        begin_greenlet(known, id);
}

/* A frame of such a greenlet is left. Returns whether its entry was recorded: where somebody attaches,
 * the hook is there before the session that records. */
static __attribute__((noinline)) int pop_frame(Greenlet *known, uint32_t id)
{
    for (size_t at = known->count; at-- > 0;) {
        if (known->frames[at].id == id) {
            doubt(at + 1 != known->count);
            known->count = at;
            return (int)known->frames[at].is_recorded;
        }
    }
    doubt(!known->is_partly_known);
    return 0;
}

/* A call of the function begins. Returns whether it is recorded, as far as the hook decides that. */
static inline int frame_enters(uint32_t id, uintptr_t known)
{
    if (LIKELY(!does_more)) {
        everycall_frame_enter(id);
        return 1;
    }
    if (UNLIKELY(own.start != starts))
        begin_own();
    if (UNLIKELY(greenlets.is_there) && UNLIKELY(!own.is_followed))
        follow_greenlets();
    uint32_t depth = own.level.depth++;
    if (known & LEFT_OUT && depth < own.level.silent_from)
        own.level.silent_from = depth;
    int is_recorded = is_wanted_at(depth, known);
    if (own.current)
        push_frame(own.current, id, is_recorded);
    if (is_recorded)
        everycall_frame_enter(id);
    return is_recorded;
}

/* Whether a frame's end is recorded: it is left. */
static inline int frame_ends(uint32_t id, uintptr_t known)
{
    if (LIKELY(!does_more))
        return 1;
    if (UNLIKELY(own.start != starts))
        begin_own();
    if (UNLIKELY(greenlets.is_there) && UNLIKELY(!own.is_followed))
        follow_greenlets();
    if (UNLIKELY(own.was_main_away) && !own.current && !own.level.depth)
        return 0;
    /* Calls that began before anything of this was wanted aren't counted. */
    uint32_t depth = own.level.depth ? --own.level.depth : 0;
    int is_recorded = is_wanted_at(depth, known);
    if (depth == own.level.silent_from)
        own.level.silent_from = silent_from();
    return own.current && !pop_frame(own.current, id) ? 0 : is_recorded;
}

/* Whether the innermost call, of the function, is recorded, as far as the hook decides that. */
static inline int is_innermost_recorded(uintptr_t known)
{
    return !does_more || own.start != starts || is_wanted_at(own.level.depth ? own.level.depth - 1 : 0, known);
}

/* Whether a call of the function that is open now is recorded, so that it may say something. */
static inline int may_say(uint32_t id)
{
    return everycall_frame_is_recorded(id);
}

static inline void frame_leaves(uint32_t id, uintptr_t known)
{
    if (frame_ends(id, known))
        everycall_frame_leave(id);
}

static inline void frame_unwinds(uint32_t id, uintptr_t known, const char *exception)
{
    if (frame_ends(id, known))
        everycall_frame_unwind(id, exception);
}

#endif
