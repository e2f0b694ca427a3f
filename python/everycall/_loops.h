/*
 * Event loops that aren't written in Python, such as uvloop's: their call_soon() has no frame, so
 * while calls are recorded, their class has a call_soon() of ours that notes what it is told and
 * calls theirs.
 */
#ifndef EVERYCALL_LOOPS_H
#define EVERYCALL_LOOPS_H

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    /* As it is in the class or one of its bases. */
    PyObject *original;
} Wrapper;

#define LOOPS_MAX 8

static struct {
    /* Held, so that it can get back what it had. */
    PyTypeObject *type;
    /* NULL: it was inherited. */
    PyObject *own;
} wrapped[LOOPS_MAX];
static unsigned wrapped_count;
/* The last class that was looked at, only compared. */
static PyTypeObject *looked_at;

static PyObject *call_wrapped(PyObject *self, PyObject *const *arguments, size_t count, PyObject *names)
{
    if (is_started && PyVectorcall_NARGS(count) >= 2)
        is_called_soon(arguments[1]);
    return PyObject_Vectorcall(((Wrapper *)self)->original, arguments, count, names);
}

static PyObject *get_wrapped(PyObject *self, PyObject *loop, PyObject *type)
{
    (void)type;
    return loop && loop != Py_None ? PyMethod_New(self, loop) : Py_NewRef(self);
}

/* Its name, text and the like are the original's. */
static PyObject *wrapped_attribute(PyObject *self, PyObject *name)
{
    return PyObject_GetAttr(((Wrapper *)self)->original, name);
}

static PyObject *wrapped_text(PyObject *self)
{
    return PyObject_Repr(((Wrapper *)self)->original);
}

static void free_wrapped(PyObject *self)
{
    Py_DECREF(((Wrapper *)self)->original);
    PyObject_Free(self);
}

static PyTypeObject wrapper_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "everycall._hook.call_soon",
    .tp_basicsize = sizeof(Wrapper),
    .tp_vectorcall_offset = offsetof(Wrapper, call),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = get_wrapped,
    .tp_getattro = wrapped_attribute,
    .tp_repr = wrapped_text,
    .tp_dealloc = free_wrapped,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

/* A class's own call_soon, a new reference; NULL if it inherits that. */
static PyObject *own_call_soon(PyTypeObject *type)
{
    PyObject *own = NULL, *names = PyObject_GetAttrString((PyObject *)type, "__dict__");
    if (names)
        own = PyMapping_GetItemString(names, "call_soon");
    Py_XDECREF(names);
    PyErr_Clear();
    return own;
}

static int is_mutable(const PyTypeObject *type)
{
    return type->tp_flags & Py_TPFLAGS_HEAPTYPE && !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE);
}

/* Looks at the class of an event loop that is new. */
static __attribute__((noinline)) void look_at_loop(PyTypeObject *type)
{
    PyObject *order = type->tp_mro, *own = NULL;
    PyTypeObject *place = NULL;
    looked_at = type;
    for (Py_ssize_t at = 0; order && at < PyTuple_GET_SIZE(order); at++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(order, at);
        own = own_call_soon(base);
        /* Functions in Python are seen themselves, and call that of a base perhaps. */
        if (own && PyFunction_Check(own)) {
            Py_CLEAR(own);
            place = NULL;
        } else if (is_mutable(base)) {
            place = base;
        }
        if (own)
            break;
    }
    if (own && place && !Py_IS_TYPE(own, &wrapper_type) && wrapped_count < LOOPS_MAX && PyType_Ready(&wrapper_type) == 0) {
        PyObject *before = own_call_soon(place);
        Wrapper *wrapper = PyObject_New(Wrapper, &wrapper_type);
        if (wrapper) {
            wrapper->call = call_wrapped;
            wrapper->original = Py_NewRef(own);
            if (PyObject_SetAttrString((PyObject *)place, "call_soon", (PyObject *)wrapper) == 0) {
                wrapped[wrapped_count].type = (PyTypeObject *)Py_NewRef(place);
                wrapped[wrapped_count++].own = Py_XNewRef(before);
            }
            Py_DECREF(wrapper);
        }
        Py_XDECREF(before);
    }
    Py_XDECREF(own);
    PyErr_Clear();
}

/* uvloop makes its first tasks before it runs one. */
static void look_at_uvloop(void)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    PyObject *uvloop = modules ? PyDict_GetItemString(modules, "uvloop") : NULL;
    PyObject *type = uvloop ? PyObject_GetAttrString(uvloop, "Loop") : NULL;
    if (type && PyType_Check(type))
        look_at_loop((PyTypeObject *)type);
    Py_XDECREF(type);
    PyErr_Clear();
}

/* Classes get back what they had. */
static void leave_loops(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    looked_at = NULL;
    while (wrapped_count) {
        PyTypeObject *place = wrapped[--wrapped_count].type;
        PyObject *own = own_call_soon(place);
        /* Unless another tool has put its own there. */
        if (own && Py_IS_TYPE(own, &wrapper_type))
            PyObject_SetAttrString((PyObject *)place, "call_soon", wrapped[wrapped_count].own);
        PyErr_Clear();
        Py_XDECREF(own);
        Py_DECREF(place);
        Py_CLEAR(wrapped[wrapped_count].own);
    }
    PyErr_Restore(type, value, traceback);
}

#endif
