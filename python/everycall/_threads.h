/*
 * Threads are named in the trace as threading names them. The system's names stay as they are: the
 * program may look at them, and they have room for 15 bytes.
 */
#ifndef EVERYCALL_THREADS_H
#define EVERYCALL_THREADS_H

/* The kernel's id of a thread, which its object has once it runs; 0 if it isn't there. */
static uint32_t number_of_thread(PyObject *thread)
{
    PyObject *number = thread ? PyObject_GetAttrString(thread, "_native_id") : NULL;
    uint32_t is = number && PyLong_Check(number) ? (uint32_t)PyLong_AsUnsignedLongMask(number) : 0;
    Py_XDECREF(number);
    PyErr_Clear();
    return is;
}

/* A new reference to an attribute of the module threading, if it was imported. */
static PyObject *of_threading(const char *attribute)
{
    PyObject *threading = PyDict_GetItemString(PyImport_GetModuleDict(), "threading"); /* borrowed */
    PyObject *found = threading ? PyObject_GetAttrString(threading, attribute) : NULL;
    PyErr_Clear();
    return found;
}

/* Names the thread with an object; `number`: its id if the object doesn't have it yet; `name`: if it
 * isn't the object's own any more. */
static void name_thread(PyObject *thread, uint32_t number, PyObject *name)
{
    PyObject *main = of_threading("_main_thread");
    PyObject *own_name = name ? Py_NewRef(name) : PyObject_GetAttrString(thread, "_name");
    PyObject *text = own_name && PyUnicode_CheckExact(own_name) ? utf8(own_name) : NULL;
    if (!number)
        number = number_of_thread(thread);
    /* Threads of a threading that gevent has patched are greenlets, which have tracks of their own. */
    if (number && text && (thread == main || number != number_of_thread(main)))
        everycall_name_thread(number, PyBytes_AS_STRING(text));
    Py_XDECREF(main);
    Py_XDECREF(own_name);
    Py_XDECREF(text);
    PyErr_Clear();
}

/* A call of one of threading's functions begins: Thread._bootstrap_inner(self), by which a new thread
 * does what it is for, or the setter of Thread.name. */
static __attribute__((noinline)) void thread_is_named(void *frame, PyCodeObject *code)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *thread = plain_argument(frame, code, 0);
    PyObject *name = code->co_argcount == 2 ? plain_argument(frame, code, 1) : NULL;
    int is_in_greenlet = greenlets.is_there && own.start == starts && own.current;
    if (thread && code->co_argcount == 1 && !is_in_greenlet)
        name_thread(thread, (uint32_t)PyThreadState_Get()->native_thread_id, NULL);
    else if (thread && name)
        name_thread(thread, 0, name);
    Py_XDECREF(thread);
    Py_XDECREF(name);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* Names the threads that run already, but for the main one, which the program hasn't named. */
static void name_threads(void)
{
    PyObject *active = of_threading("_active"), *main = of_threading("_main_thread");
    PyObject *all = active && PyDict_CheckExact(active) ? PyDict_Values(active) : NULL;
    for (Py_ssize_t at = 0; all && at < PyList_GET_SIZE(all); at++) {
        PyObject *thread = PyList_GET_ITEM(all, at); /* borrowed */
        if (thread != main)
            name_thread(thread, 0, NULL);
    }
    Py_XDECREF(active);
    Py_XDECREF(main);
    Py_XDECREF(all);
    PyErr_Clear();
}

#endif
