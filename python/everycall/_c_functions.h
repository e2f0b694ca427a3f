/*
 * Functions in C, where they are called by Python code: builtins and methods of types in C, which
 * are those that sys.setprofile() tells of.
 *
 * Python 3.11: a profile function of each thread, the only thing that sees them there. Python 3.12
 * and later: further events of sys.monitoring.
 */
#ifndef EVERYCALL_C_FUNCTIONS_H
#define EVERYCALL_C_FUNCTIONS_H

/* By the definition, which lives as long as the functions. */
typedef struct {
    const PyMethodDef *method;
    const char *name;
    uint32_t id;
} CFunction;

static struct {
    CFunction *places;
    /* A power of two, or 0. */
    size_t size, used;
} c_functions;

/* The type among those of `object` that defines a method. */
static PyTypeObject *type_with(PyObject *object, const PyMethodDef *method)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject *order = type->tp_mro;
    for (Py_ssize_t at = 0; order && at < PyTuple_GET_SIZE(order); at++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(order, at);
        for (PyMethodDef *own = PyType_Check((PyObject *)base) ? base->tp_methods : NULL; own && own->ml_name; own++)
            if (own == method)
                return base;
    }
    return type;
}

static __attribute__((noinline)) uint32_t learn_c_function(PyObject *callable, const PyMethodDef *method)
{
    char name[512];
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (!PyCFunction_Check(callable)) {
        snprintf(name, sizeof name, "%s.%s", PyDescr_TYPE(callable)->tp_name, method->ml_name);
    } else {
        PyObject *self = PyCFunction_GET_SELF(callable);
        PyObject *module = ((PyCFunctionObject *)callable)->m_module;
        if (self && PyType_Check(self)) {
            snprintf(name, sizeof name, "%s.%s", ((PyTypeObject *)self)->tp_name, method->ml_name);
        } else if (self && !PyModule_Check(self)) {
            snprintf(name, sizeof name, "%s.%s", type_with(self, method)->tp_name, method->ml_name);
        } else {
            PyObject *bytes = utf8(module && PyUnicode_Check(module) ? module : NULL);
            snprintf(name, sizeof name, "%s%s%s", bytes ? PyBytes_AS_STRING(bytes) : "", bytes ? "." : "", method->ml_name);
            Py_XDECREF(bytes);
        }
    }
    PyErr_Restore(type, value, traceback);
    return id_named(name, strlen(name), "", 0, 0);
}

static inline size_t place_of_method(const PyMethodDef *method)
{
    return ((uintptr_t)method >> 4) * 0x9e3779b97f4a7c15u >> 20 & (c_functions.size - 1);
}

static int grow_c_functions(void)
{
    CFunction *before = c_functions.places;
    size_t count = c_functions.size;
    size_t size = count ? 2 * count : 256;
    CFunction *places = calloc(size, sizeof *places);
    if (!places)
        return -1;
    c_functions.places = places;
    c_functions.size = size;
    for (size_t from = 0; from < count; from++) {
        if (!before[from].method)
            continue;
        size_t to = place_of_method(before[from].method);
        while (places[to].method)
            to = (to + 1) & (size - 1);
        places[to] = before[from];
    }
    free(before);
    return 0;
}

/* The id of a callable's function; LAST_ID + 1 if it isn't one in C. */
#define NO_C_FUNCTION (LAST_ID + 1)
static uint32_t c_function_id(PyObject *callable)
{
    const PyMethodDef *method;
    if (PyCFunction_Check(callable))
        method = ((PyCFunctionObject *)callable)->m_ml;
    else if (Py_IS_TYPE(callable, &PyMethodDescr_Type))
        method = ((PyMethodDescrObject *)callable)->d_method;
    else
        return NO_C_FUNCTION;
    if (UNLIKELY(2 * (c_functions.used + 1) > c_functions.size) && grow_c_functions() < 0)
        return LAST_ID;
    size_t place = place_of_method(method);
    while (c_functions.places[place].method && c_functions.places[place].method != method)
        place = (place + 1) & (c_functions.size - 1);
    CFunction *known = &c_functions.places[place];
    if (LIKELY(known->method && known->name == method->ml_name))
        return known->id;
    c_functions.used += !known->method;
    *known = (CFunction){method, method->ml_name, learn_c_function(callable, method)};
    return known->id;
}

#if !USES_MONITORING

static int profile(PyObject *self, PyFrameObject *frame, int what, PyObject *function)
{
    (void)self;
    if (what != PyTrace_C_CALL && what != PyTrace_C_RETURN && what != PyTrace_C_EXCEPTION)
        return 0;
    if (is_describing || deep || !is_started || known_of(frame->f_frame->f_code) & OWN)
        return 0;
    uint32_t id = function ? c_function_id(function) : NO_C_FUNCTION;
    if (id == NO_C_FUNCTION)
        return 0;
    if (what == PyTrace_C_CALL)
        frame_enters(id, 0);
    else if (what == PyTrace_C_RETURN)
        frame_leaves(id, 0);
    else
        frame_unwinds(id, 0, NULL);
    return 0;
}

/* Puts the profile function into a thread that has none, or takes ours out. */
static int profile_thread(PyThreadState *state, int is_on)
{
    if (is_on ? state->c_profilefunc != NULL : state->c_profilefunc != profile)
        return 0;
    return _PyEval_SetProfile(state, is_on ? profile : NULL, NULL);
}

static int profile_threads(PyInterpreterState *interpreter, int is_on)
{
    int result = 0;
    for (PyThreadState *state = PyInterpreterState_ThreadHead(interpreter); state; state = PyThreadState_Next(state))
        if (profile_thread(state, is_on) < 0)
            result = -1;
    return result;
}

#else

static PyObject *c_enter(PyObject *self, PyObject *const *arguments, size_t count, PyObject *names)
{
    (void)self, (void)count, (void)names;
    uint32_t id = c_function_id(arguments[2]);
    if (id != NO_C_FUNCTION && !(known_of((PyCodeObject *)arguments[0]) & OWN))
        frame_enters(id, 0);
    Py_RETURN_NONE;
}

static PyObject *c_leave(PyObject *self, PyObject *const *arguments, size_t count, PyObject *names)
{
    (void)self, (void)count, (void)names;
    uint32_t id = c_function_id(arguments[2]);
    if (id != NO_C_FUNCTION && !(known_of((PyCodeObject *)arguments[0]) & OWN))
        frame_leaves(id, 0);
    Py_RETURN_NONE;
}

static PyObject *c_unwind(PyObject *self, PyObject *const *arguments, size_t count, PyObject *names)
{
    (void)self, (void)count, (void)names;
    uint32_t id = c_function_id(arguments[2]);
    if (id != NO_C_FUNCTION && !(known_of((PyCodeObject *)arguments[0]) & OWN))
        frame_unwinds(id, 0, NULL);
    Py_RETURN_NONE;
}

#endif

#endif
