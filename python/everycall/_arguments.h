/*
 * The arguments of a call that has begun.
 */
#ifndef EVERYCALL_ARGUMENTS_H
#define EVERYCALL_ARGUMENTS_H

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

#endif
