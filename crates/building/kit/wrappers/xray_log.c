// XRay's log interface (clang's <xray/xray_log_interface.h>), as far as programs bring their own
// implementation: they register and select it, and these functions call it. XRay's own modes
// ("xray-basic", "xray-fdr", "xray-profiling") are not there: everycall records instead of them.
#include "processor.h"
#include "runtime.h"

#define HIDDEN __attribute__((visibility("hidden")))
#ifdef EVERYCALL_FOR_EXECUTABLES
#define INTERFACE
#else
#define INTERFACE HIDDEN
#endif

enum { UNINITIALIZED = 0 };
enum { NOT_FLUSHING = 0, FLUSHED = 2 };
enum { REGISTERED = 0, DUPLICATE = 1, NOT_FOUND = 2, INCOMPLETE = 3 };

struct implementation {
    int (*init)(size_t, size_t, void*, size_t);
    int (*finalize)(void);
    void (*handle)(int32_t, int);
    int (*flush)(void);
};

struct buffer {
    const void* data;
    size_t size;
};

struct mode {
    const char* name;
    struct implementation implementation;
};

enum { MODES = 32 };

static struct mode modes[MODES];
static size_t mode_count;
static struct implementation installed;
static int is_installed;
static const char* selected;
static struct buffer (*iterator)(struct buffer);
static char is_locked;

extern int __xray_remove_handler(void) INTERFACE;
extern int __xray_remove_handler_arg1(void) INTERFACE;

static void lock(void) {
    while (__atomic_test_and_set(&is_locked, __ATOMIC_ACQUIRE)) pause_a_little();
}

static void unlock(void) { __atomic_clear(&is_locked, __ATOMIC_RELEASE); }

static int is_same(const char* one, const char* other) {
    while (*one && *one == *other) one++, other++;
    return *one == *other;
}

static int is_complete(const struct implementation* of) { return of->init && of->finalize && of->handle && of->flush; }

// What is installed; its functions are called without the lock.
static int get(struct implementation* result) {
    lock();
    int is_there = is_installed;
    *result = installed;
    unlock();
    return is_there;
}

INTERFACE void __xray_remove_log_impl(void) {
    lock();
    is_installed = 0;
    unlock();
    __xray_remove_handler();
    __xray_remove_handler_arg1();
}

INTERFACE void __xray_set_log_impl(struct implementation implementation) {
    if (!is_complete(&implementation)) {
        lock();
        selected = 0;
        unlock();
        __xray_remove_log_impl();
        return;
    }
    lock();
    installed = implementation;
    is_installed = 1;
    unlock();
}

INTERFACE int __xray_log_register_mode(const char* name, struct implementation implementation) {
    if (!is_complete(&implementation)) return INCOMPLETE;
    int result = REGISTERED;
    lock();
    for (size_t i = 0; i < mode_count; i++)
        if (is_same(modes[i].name, name)) result = DUPLICATE;
    if (result == REGISTERED && mode_count < MODES)
        modes[mode_count++] = (struct mode){name, implementation};
    else if (result == REGISTERED)
        result = INCOMPLETE;
    unlock();
    return result;
}

INTERFACE int __xray_log_select_mode(const char* name) {
    int result = NOT_FOUND;
    lock();
    if (!name) {
        selected = 0;
        is_installed = 0;
        result = REGISTERED;
    }
    for (size_t i = 0; name && i < mode_count; i++)
        if (is_same(modes[i].name, name)) {
            selected = modes[i].name;
            installed = modes[i].implementation;
            is_installed = 1;
            result = REGISTERED;
        }
    unlock();
    return result;
}

INTERFACE const char* __xray_log_get_current_mode(void) {
    lock();
    const char* name = selected;
    unlock();
    return name;
}

INTERFACE int __xray_log_init(size_t size, size_t most, void* arguments, size_t arguments_size) {
    struct implementation implementation;
    return get(&implementation) ? implementation.init(size, most, arguments, arguments_size) : UNINITIALIZED;
}

// As documented: sizes of 0 say that the arguments are a string.
INTERFACE int __xray_log_init_mode_bin(const char* mode, const char* configuration, size_t size) {
    struct implementation implementation;
    const char* current = __xray_log_get_current_mode();
    if (!mode || !configuration || !current || !is_same(mode, current) || !get(&implementation)) return UNINITIALIZED;
    return implementation.init(0, 0, (void*)configuration, size);
}

INTERFACE int __xray_log_init_mode(const char* mode, const char* configuration) {
    return __xray_log_init_mode_bin(mode, configuration, 0);
}

INTERFACE int __xray_log_finalize(void) {
    struct implementation implementation;
    return get(&implementation) ? implementation.finalize() : UNINITIALIZED;
}

INTERFACE int __xray_log_flushLog(void) {
    struct implementation implementation;
    return get(&implementation) ? implementation.flush() : NOT_FLUSHING;
}

INTERFACE void __xray_log_set_buffer_iterator(struct buffer (*next)(struct buffer)) {
    __atomic_store_n(&iterator, next, __ATOMIC_RELEASE);
}

INTERFACE void __xray_log_remove_buffer_iterator(void) { __xray_log_set_buffer_iterator(0); }

INTERFACE int __xray_log_process_buffers(void (*process)(const char*, struct buffer)) {
    struct implementation implementation;
    struct buffer (*next)(struct buffer) = __atomic_load_n(&iterator, __ATOMIC_ACQUIRE);
    const char* mode = __xray_log_get_current_mode();
    if (!get(&implementation) || !next) return NOT_FLUSHING;
    struct buffer buffer = next((struct buffer){0, 0});
    while (buffer.data) {
        process(mode, buffer);
        buffer = next(buffer);
    }
    return FLUSHED;
}
