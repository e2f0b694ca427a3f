// libeverycall-exec.so: no program is started with a library that it can't load.
//
// `record` and `count` preload it beside their other libraries. LD_PRELOAD goes to every
// descendant, also to one that has changed its user, its root or its mounts, where these files may
// not be: the dynamic linker would say so on the program's standard error. So before a program is
// executed, our libraries are looked for as its dynamic linker is going to do it, and those that
// can't be opened are left out of its LD_PRELOAD, and an instant says so.
//
// Programs that get an environment of their own, without what record has put there, are executed as
// they are, and an instant says that they aren't recorded.
//
// It also knows of the limit of address space that a program sets for itself, as the wrappers of
// linked programs do (wrappers/limits.h).
//
// Not seen: execve by a system call of the program's own, and in programs without shared libraries.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "copied.h"
#include "everycall.h"

#define EXPORTED __attribute__((visibility("default")))
#define NEXT ((void*)-1l)

extern void* dlsym(void* handle, const char* name);
extern char** environ;

#define FUNCTIONS(F)                                                                                  \
    F(int, execve, (const char*, char* const*, char* const*))                                         \
    F(int, execvpe, (const char*, char* const*, char* const*))                                        \
    F(int, fexecve, (int, char* const*, char* const*))                                                \
    F(int, execveat, (int, const char*, char* const*, char* const*, int))                             \
    F(int, posix_spawn, (pid_t*, const char*, const posix_spawn_file_actions_t*,                      \
                         const posix_spawnattr_t*, char* const*, char* const*))                       \
    F(int, posix_spawnp, (pid_t*, const char*, const posix_spawn_file_actions_t*,                     \
                          const posix_spawnattr_t*, char* const*, char* const*))                      \
    F(int, system, (const char*))                                                                     \
    F(FILE*, popen, (const char*, const char*))                                                       \
    F(int, setrlimit, (int, const uint64_t*))                                                         \
    F(int, getrlimit, (int, uint64_t*))                                                               \
    F(int, prlimit, (pid_t, int, const uint64_t*, uint64_t*))

#include "functions.h"

static void* real[COUNT];

static void* look_up(enum number number) {
    void* function = __atomic_load_n(&real[number], __ATOMIC_RELAXED);
    if (!function) {
        function = dlsym(NEXT, NAMES[number]);
        __atomic_store_n(&real[number], function, __ATOMIC_RELAXED);
    }
    return function;
}

static int begins_with(const char* text, const char* prefix) {
    while (*prefix && *text == *prefix) text++, prefix++;
    return !*prefix;
}

static int has_recorder(char* const* variables) {
    for (; variables && *variables; variables++)
        if (begins_with(*variables, "EVERYCALL_RECORDER=")) return 1;
    return 0;
}

// Whether this program was started with one, by which those that it executes find it.
static int had_recorder;

// They may be called in a child that was forked by one of several threads, where nothing may be
// looked up.
__attribute__((constructor)) static void begin(void) {
    is_filtered();
    had_recorder = has_recorder(environ);
    for (int number = 0; number < COUNT; number++) look_up(number);
}

#define REAL(name) ((type_##name*)look_up(NUMBER_##name))
#define NEED(name, failure)   \
    if (!REAL(name)) {        \
        errno = ENOSYS;       \
        return failure;       \
    }

// Small, as the caller's stack may be; where something doesn't fit, the variables stay as they are.
enum { LONGEST = 1024, VALUE_MAX = 2 * LONGEST };
static const char VARIABLE[] = "LD_PRELOAD=";
static const char OURS[] = "/libeverycall";

static int is_separator(char byte) { return byte == ':' || byte == ' ' || byte == 0; }

// Whether a part of the list is a library of ours that can't be opened.
static int is_out_of_reach(const char* part, size_t length) {
    char path[LONGEST];
    size_t name = length;
    while (name > 0 && part[name - 1] != '/') name--;
    if (name == 0 || length >= sizeof path || !begins_with(part + name - 1, OURS)) return 0;
    for (size_t at = 0; at < length; at++) path[at] = part[at];
    path[length] = 0;
    const long file = system_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (file >= 0) {
        system_call(SYS_close, file, 0, 0, 0, 0, 0);
        return 0;
    }
    return file == -ENOENT || file == -EACCES || file == -ENOTDIR || file == -ELOOP || file == -EPERM;
}

// Where LD_PRELOAD is among the variables, if libraries of ours in it are out of reach: then `to`
// is what it becomes. -1 otherwise.
static long place_of(char* const* variables, char to[VALUE_MAX]) {
    if (had_recorder && !has_recorder(variables)) {
        everycall_instant("not recorded: what is executed here, its environment was cleared");
        return -1;
    }
    if (!variables || is_filtered()) return -1;
    for (long place = 0; variables[place]; place++) {
        const char* from = variables[place];
        if (!begins_with(from, VARIABLE)) continue;
        int is_changed = 0, is_first = 1;
        size_t used = sizeof VARIABLE - 1;
        for (size_t at = 0; at < used; at++) to[at] = VARIABLE[at];
        for (from += used; *from;) {
            size_t length = 0;
            while (!is_separator(from[length])) length++;
            const int is_left_out = length > 0 && is_out_of_reach(from, length);
            is_changed |= is_left_out;
            if (length > 0 && !is_left_out) {
                if (used + length + 2 > VALUE_MAX) return -1;
                if (!is_first) to[used++] = ':';
                for (size_t at = 0; at < length; at++) to[used++] = from[at];
                is_first = 0;
            }
            from += length + (from[length] != 0);
        }
        to[used] = 0;
        if (!is_changed) return -1;
        everycall_instant("not recorded: waits, output and memory of what is executed here");
        return place;
    }
    return -1;
}

static size_t count_of(char* const* list) {
    size_t count = 0;
    while (list[count]) count++;
    return count;
}

// Defines `kept`: the variables, less what is out of reach. (On the stack: this may be a child that
// shares its parent's memory.)
#define WITHOUT_UNREACHABLE(variables)                                                                \
    char value[VALUE_MAX];                                                                            \
    const int error = errno;                                                                          \
    const long place = place_of(variables, value);                                                    \
    const size_t count = place < 0 ? 0 : count_of(variables);                                         \
    char* copies[count + 1];                                                                          \
    for (size_t at = 0; at < count; at++) copies[at] = variables[at];                                 \
    copies[count] = 0;                                                                                \
    if (place >= 0) copies[place] = value;                                                            \
    char* const* kept = place < 0 ? variables : copies;                                               \
    errno = error

EXPORTED int execve(const char* path, char* const arguments[], char* const variables[]) {
    NEED(execve, -1)
    WITHOUT_UNREACHABLE(variables);
    return REAL(execve)(path, arguments, kept);
}
EXPORTED int execvpe(const char* file, char* const arguments[], char* const variables[]) {
    NEED(execvpe, -1)
    WITHOUT_UNREACHABLE(variables);
    return REAL(execvpe)(file, arguments, kept);
}
EXPORTED int execv(const char* path, char* const arguments[]) { return execve(path, arguments, environ); }
EXPORTED int execvp(const char* file, char* const arguments[]) { return execvpe(file, arguments, environ); }
EXPORTED int fexecve(int file, char* const arguments[], char* const variables[]) {
    NEED(fexecve, -1)
    WITHOUT_UNREACHABLE(variables);
    return REAL(fexecve)(file, arguments, kept);
}
EXPORTED int execveat(int folder, const char* path, char* const arguments[], char* const variables[], int flags) {
    NEED(execveat, -1)
    WITHOUT_UNREACHABLE(variables);
    return REAL(execveat)(folder, path, arguments, kept, flags);
}

// The arguments of execl and its like, and what follows their end.
#define LISTED(first, call)                                                                           \
    va_list all;                                                                                      \
    size_t total = 1;                                                                                 \
    va_start(all, first);                                                                             \
    while (va_arg(all, char*)) total++;                                                               \
    va_end(all);                                                                                      \
    char* arguments[total + 1];                                                                       \
    arguments[0] = (char*)first;                                                                      \
    va_start(all, first);                                                                             \
    for (size_t at = 1; at <= total; at++) arguments[at] = va_arg(all, char*);                        \
    const int result = call;                                                                          \
    va_end(all);                                                                                      \
    return result

EXPORTED int execl(const char* path, const char* first, ...) {
    if (!first) return execv(path, (char*[]){0});
    LISTED(first, execv(path, arguments));
}
EXPORTED int execlp(const char* file, const char* first, ...) {
    if (!first) return execvp(file, (char*[]){0});
    LISTED(first, execvp(file, arguments));
}
EXPORTED int execle(const char* path, const char* first, ...) {
    LISTED(first, execve(path, arguments, va_arg(all, char**)));
}

EXPORTED int posix_spawn(pid_t* child, const char* path, const posix_spawn_file_actions_t* actions,
                         const posix_spawnattr_t* attributes, char* const arguments[], char* const variables[]) {
    if (!REAL(posix_spawn)) return ENOSYS;
    WITHOUT_UNREACHABLE(variables);
    return REAL(posix_spawn)(child, path, actions, attributes, arguments, kept);
}
EXPORTED int posix_spawnp(pid_t* child, const char* file, const posix_spawn_file_actions_t* actions,
                          const posix_spawnattr_t* attributes, char* const arguments[], char* const variables[]) {
    if (!REAL(posix_spawnp)) return ENOSYS;
    WITHOUT_UNREACHABLE(variables);
    return REAL(posix_spawnp)(child, file, actions, attributes, arguments, kept);
}

// These take the process's own variables. Once its libraries are out of reach, they stay so.
static void leave_out_of_own(void) {
    static char value[VALUE_MAX];
    static int is_used;
    char found[VALUE_MAX];
    const long place = place_of(environ, found);
    if (place < 0 || __atomic_exchange_n(&is_used, 1, __ATOMIC_ACQ_REL)) return;
    for (size_t at = 0; at < sizeof value; at++) value[at] = found[at];
    __atomic_store_n(&environ[place], value, __ATOMIC_RELEASE);
}
EXPORTED int system(const char* command) {
    NEED(system, -1)
    if (command) leave_out_of_own();
    return REAL(system)(command);
}
EXPORTED FILE* popen(const char* command, const char* type) {
    NEED(popen, 0)
    leave_out_of_own();
    return REAL(popen)(command, type);
}

// The limit of address space.
enum { ADDRESS_SPACE = 9, SET = 0, GOT = 1 };

static void tell_limit(uint32_t what, uint64_t* limits) {
    if (&everycall_runtime_v1 && EVERYCALL_HAS_(address_space)) everycall_runtime_v1.address_space(what, limits);
}

EXPORTED int setrlimit(int resource, const uint64_t* limits) {
    NEED(setrlimit, -1)
    if (resource != ADDRESS_SPACE || !limits) return REAL(setrlimit)(resource, limits);
    uint64_t changed[2] = {limits[0], limits[1]};
    tell_limit(SET, changed);
    return REAL(setrlimit)(resource, changed);
}
EXPORTED int getrlimit(int resource, uint64_t* limits) {
    NEED(getrlimit, -1)
    const int result = REAL(getrlimit)(resource, limits);
    if (result == 0 && resource == ADDRESS_SPACE && limits) tell_limit(GOT, limits);
    return result;
}
EXPORTED int prlimit(pid_t process, int resource, const uint64_t* limits, uint64_t* before) {
    NEED(prlimit, -1)
    const int is_own = process == 0 || process == (pid_t)system_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
    if (resource != ADDRESS_SPACE || !is_own) return REAL(prlimit)(process, resource, limits, before);
    uint64_t found[2], changed[2] = {0, 0};
    // What was set before is known only until the new limit is.
    int result = REAL(prlimit)(process, resource, 0, found);
    if (result != 0) return result;
    tell_limit(GOT, found);
    if (limits) {
        changed[0] = limits[0], changed[1] = limits[1];
        tell_limit(SET, changed);
        result = REAL(prlimit)(process, resource, changed, 0);
    }
    if (result == 0 && before) before[0] = found[0], before[1] = found[1];
    return result;
}
// As C libraries for large files call them. Both have 64 bits here.
EXPORTED int setrlimit64(int resource, const uint64_t* limits) { return setrlimit(resource, limits); }
EXPORTED int getrlimit64(int resource, uint64_t* limits) { return getrlimit(resource, limits); }
EXPORTED int prlimit64(pid_t process, int resource, const uint64_t* limits, uint64_t* before) {
    return prlimit(process, resource, limits, before);
}
