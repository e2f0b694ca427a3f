/*
 * What calls say on the timeline where it is wanted: their arguments and results, modules that are
 * imported, records of logging, collections of garbage.
 *
 * Texts are made by everycall/_texts.py, which never raises. Nothing of that is recorded.
 */
#ifndef EVERYCALL_SAID_H
#define EVERYCALL_SAID_H

/* The longest text of a line, in parts of 96 bytes. */
#define PART 96
#define PARTS 5

/* A line in the innermost open call. */
static void say(const char *text, size_t length)
{
    char parts[PARTS][PART + 1];
    for (size_t at = 0; at < PARTS; at++) {
        size_t here = length < PART ? length : PART;
        /* Characters are not cut. */
        while (here && here < length && ((unsigned char)text[here] & 0xc0) == 0x80)
            here--;
        memcpy(parts[at], text, here);
        parts[at][here] = 0;
        text += here;
        length -= here;
    }
    /* Not a literal, so that the trace has it: it doesn't know this library's file. */
    static char format[] = "%s%s%s%s%s";
    everycall_log(format, &parts[0][0], &parts[1][0], &parts[2][0], &parts[3][0], &parts[4][0]);
}

static PyObject *texts;

/* Says what a function of _texts.py makes of these; steals `arguments`. */
static void say_of(const char *function, PyObject *arguments)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    is_describing++;
    PyObject *maker = arguments && texts ? PyObject_GetAttrString(texts, function) : NULL;
    PyObject *text = maker ? PyObject_CallObject(maker, arguments) : NULL;
    PyObject *bytes = text && text != Py_None ? utf8(text) : NULL;
    if (bytes)
        say(PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(maker);
    Py_XDECREF(arguments);
    is_describing--;
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

static int parameters(const PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) + !!(code->co_flags & CO_VARKEYWORDS);
}

/* A call has begun. */
static void say_arguments(void *frame, PyCodeObject *code)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int count = parameters(code);
    PyObject *pairs = PyList_New(0);
    for (int number = 0; pairs && number < count; number++) {
        PyObject *name, *given = argument(frame, code, number, &name);
        PyObject *pair = name && given ? PyTuple_Pack(2, name, given) : NULL;
        if (pair)
            PyList_Append(pairs, pair);
        Py_XDECREF(pair);
        Py_XDECREF(given);
        Py_XDECREF(name);
    }
    say_of("arguments", Py_BuildValue("(N)", pairs));
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

static void say_result(const char *what, PyObject *result)
{
    say_of("result", Py_BuildValue("(sO)", what, result));
}

/* logging.Logger.handle(self, record) has begun. */
static void say_record(void *frame, PyCodeObject *code)
{
    PyObject *name, *record = argument(frame, code, 1, &name);
    Py_XDECREF(name);
    if (record)
        say_of("record", Py_BuildValue("(N)", record));
}

/* What the span of importlib._bootstrap._find_and_load(name, import_) is called: a new reference, or NULL. */
static PyObject *import_text(void *frame, PyCodeObject *code)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *name, *module = argument(frame, code, 0, &name);
    PyObject *bytes = module ? utf8(module) : NULL;
    PyObject *text = bytes ? PyBytes_FromFormat("import %s", PyBytes_AS_STRING(bytes)) : NULL;
    Py_XDECREF(bytes);
    Py_XDECREF(module);
    Py_XDECREF(name);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return text;
}

/* Of gc.callbacks. */
static PyObject *on_gc(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *phase;
    PyObject *facts;
    if (!PyArg_ParseTuple(arguments, "sO!", &phase, &PyDict_Type, &facts))
        return NULL;
    PyObject *generation = PyDict_GetItemString(facts, "generation"), *collected = PyDict_GetItemString(facts, "collected");
    uint64_t number = generation ? PyLong_AsUnsignedLongLongMask(generation) : 0;
    if (is_started && strcmp(phase, "start") == 0) {
        everycall_span_begin_value("gc", number);
    } else if (is_started) {
        everycall_instant_value("gc collected", collected ? PyLong_AsUnsignedLongLongMask(collected) : 0);
        everycall_span_end_value("gc", number);
    }
    PyErr_Clear();
    Py_RETURN_NONE;
}

#endif
