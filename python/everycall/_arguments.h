/*
 * The arguments of a call that has begun.
 */
#ifndef EVERYCALL_ARGUMENTS_H
#define EVERYCALL_ARGUMENTS_H

#if USES_MONITORING
/* _PyInterpreterFrame in 3.12, 3.13 and 3.14, whose frames in addition have a pointer to their stack. */
typedef struct Frame {
    void *code;
    struct Frame *previous;
    void *others[6];
#if PY_VERSION_HEX >= 0x030E0000
    void *stack;
#endif
    struct {
#if PY_VERSION_HEX < 0x030E0000
        int32_t top;
#endif
        uint16_t offset;
        unsigned char owner;
    } state;
    uintptr_t variables[1];
} Frame;
_Static_assert(offsetof(Frame, variables) == (PY_VERSION_HEX >= 0x030E0000 ? 80 : 72), "as the interpreter has it");
/* From here on, owners are C functions that run the interpreter: no call's. */
#define OWNED_BY_C 3
#endif

/* A new reference to the argument with a number, and its name (also new); NULL if it isn't there
 * any more. */
#if USES_MONITORING
static PyObject *argument(void *frame, PyCodeObject *code, int number, PyObject **name)
{
    (void)frame;
    PyObject *value = NULL;
    PyFrameObject *current = PyEval_GetFrame(); /* borrowed */
    PyObject *variables = PyCode_GetVarnames(code);
    *name = variables && number < PyTuple_GET_SIZE(variables) ? Py_NewRef(PyTuple_GET_ITEM(variables, number)) : NULL;
    if (*name && current)
        value = PyFrame_GetVar(current, *name);
    PyErr_Clear();
    Py_XDECREF(variables);
    return value;
}
#else
static PyObject *argument(void *frame, PyCodeObject *code, int number, PyObject **name)
{
    *name = Py_NewRef(PyTuple_GET_ITEM(code->co_localsplusnames, number));
    return Py_XNewRef(((struct _PyInterpreterFrame *)frame)->localsplus[number]);
}
#endif

/* The same one without its name, where it is no variable of an inner function. */
static PyObject *plain_argument(void *frame, PyCodeObject *code, int number)
{
#if USES_MONITORING && PY_VERSION_HEX < 0x030F0000
    (void)code;
    /* The lowest bits are tags. A frame object isn't made for it, as by the interpreter's functions. */
    PyObject *value = (PyObject *)(((Frame *)frame)->variables[number] & ~(uintptr_t)3);
    return value && !PyCell_Check(value) ? Py_NewRef(value) : NULL;
#else
    PyObject *name, *value = argument(frame, code, number, &name);
    Py_XDECREF(name);
    return value;
#endif
}

#endif
