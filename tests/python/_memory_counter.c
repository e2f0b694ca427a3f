/*
 * Counts what Python's allocators are asked for between begin(n) and end(), by itself: blocks, and
 * the bytes that the C library sets apart. Every domain is asked, so nothing is allocated otherwise.
 * A block that is made larger is a new one.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <malloc.h>

static struct { unsigned long long blocks, bytes; } counts[8];
static int now = -1;
static PyMemAllocatorEx before[3];

static void *counted(void *block)
{
    if (now >= 0 && block) {
        counts[now].blocks++;
        counts[now].bytes += malloc_usable_size(block);
    }
    return block;
}

static void *my_malloc(void *context, size_t size)
{
    PyMemAllocatorEx *next = context;
    return counted(next->malloc(next->ctx, size));
}

static void *my_calloc(void *context, size_t count, size_t size)
{
    PyMemAllocatorEx *next = context;
    return counted(next->calloc(next->ctx, count, size));
}

static void *my_realloc(void *context, void *block, size_t size)
{
    PyMemAllocatorEx *next = context;
    return counted(next->realloc(next->ctx, block, size));
}

static void my_free(void *context, void *block)
{
    PyMemAllocatorEx *next = context;
    next->free(next->ctx, block);
}

static PyObject *begin(PyObject *self, PyObject *index)
{
    now = (int)PyLong_AsLong(index);
    Py_RETURN_NONE;
}

static PyObject *end(PyObject *self, PyObject *none)
{
    now = -1;
    Py_RETURN_NONE;
}

static PyObject *counted_by(PyObject *self, PyObject *index)
{
    long at = PyLong_AsLong(index);
    return Py_BuildValue("KK", counts[at].blocks, counts[at].bytes);
}

static PyMethodDef methods[] = {
    {"begin", begin, METH_O, NULL}, {"end", end, METH_NOARGS, NULL}, {"counted", counted_by, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_memory_counter", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__memory_counter(void)
{
    for (int domain = 0; domain < 3; domain++) {
        PyMem_GetAllocator(domain, &before[domain]);
        PyMemAllocatorEx mine = {&before[domain], my_malloc, my_calloc, my_realloc, my_free};
        PyMem_SetAllocator(domain, &mine);
    }
    return PyModule_Create(&module);
}
