// XRay's interface (clang's <xray/xray_interface.h>), for programs that were written for it.
//
// This object lies in an archive: it is linked into objects that call one of these functions, or
// that contain XRay events. Such an object's sleds call the hooks below, which go on to the usual
// hooks, unless a handler is set. In all other objects, sleds call the usual hooks directly.
#include "runtime.h"

#define HIDDEN __attribute__((visibility("hidden")))
// An executable's functions are visible, as XRay's are: shared objects may call them.
#ifdef EVERYCALL_FOR_EXECUTABLES
#define INTERFACE
#define IS_EXECUTABLE 1
#else
#define INTERFACE HIDDEN
#define IS_EXECUTABLE 0
#endif

// As declared in crates/traced/runtime/src/features/xray.rs.
struct object {
    uint64_t active;         // not 0: a handler is set
    uint64_t save_mask;      // which registers are saved, and how (saving.h)
    uint64_t save_size;      // bytes for registers
    uint32_t save_vectors;
    uint32_t knows_use;
    uint64_t module;         // the object's descriptor
    uint64_t functions[2];   // section xray_fn_idx
    uint64_t number;         // XRay's object id, once it is registered
};

struct call {
    void* handler;
    uint64_t before;
    uint32_t id;
    uint32_t type;
    uint32_t has_argument;
    uint32_t is_recorded;
};

enum operation { REGISTER, UNREGISTER, EVENT, LEAVE, SET_HANDLER, PATCH, ADDRESS, FUNCTIONS, OBJECTS, RECORD, EVENT_TYPE };
enum which { HANDLER, ARGUMENT_HANDLER, CUSTOM_HANDLER, TYPED_HANDLER };

// Instead of an object's number, and of a function's.
#define ALL INT64_MAX

extern char everycall_module[] HIDDEN;
extern const char __start_xray_fn_idx[] EVERYCALL_WEAK HIDDEN;
extern const char __stop_xray_fn_idx[] EVERYCALL_WEAK HIDDEN;
extern int* __errno_location(void) EVERYCALL_WEAK;

HIDDEN struct object everycall_xray_object;

static uint64_t ask(uint32_t operation, uint64_t first, uint64_t second, uint64_t third) {
    const struct everycall_runtime* runtime = &everycall_runtime_v1;
    if (!runtime || runtime->size < offsetof(struct everycall_runtime, xray) + sizeof runtime->xray) return 0;
    return runtime->xray(operation, &everycall_xray_object, first, second, third);
}

#include "saving.h"

// Also called by the interface's functions: initialisers of other objects may call them before
// ours.
static void begin(void) {
    struct object* object = &everycall_xray_object;
    if (!object->module) {
        object->functions[0] = (uint64_t)__start_xray_fn_idx;
        object->functions[1] = (uint64_t)__stop_xray_fn_idx;
        prepare_saving(object);
        object->module = (uint64_t)everycall_module;
        ask(REGISTER, 0, 0, IS_EXECUTABLE);
    }
}

#if IS_EXECUTABLE
static int patch(int64_t object, int64_t function, uint32_t on);

extern char** environ EVERYCALL_WEAK;

// The value of a flag in a list such as XRAY_OPTIONS="verbosity=1 patch_premain=true", or null.
static const char* flag(const char* list, const char* name) {
    for (const char* at = list; *at;) {
        const char* wanted = name;
        while (*wanted && *at == *wanted) at++, wanted++;
        if (!*wanted && *at == '=') return at + 1;
        while (*at && *at != ' ' && *at != ',' && *at != ':' && *at != '\n' && *at != '\t') at++;
        if (*at) at++;
    }
    return 0;
}

static int patches_before_main(void) {
    for (char** entry = &environ ? environ : 0; entry && *entry; entry++) {
        const char* options = flag(*entry, "XRAY_OPTIONS");
        const char* value = options ? flag(options, "patch_premain") : 0;
        // true, yes, 1
        if (value) return *value == 't' || *value == 'y' || *value == '1';
    }
    return 0;
}
#endif

__attribute__((constructor(101))) static void loaded(void) {
    begin();
#if IS_EXECUTABLE
    if (patches_before_main()) patch(ALL, ALL, 1);
#endif
}

#ifndef EVERYCALL_FOR_EXECUTABLES
__attribute__((destructor(101))) static void unloaded(void) { ask(UNREGISTER, 0, 0, 0); }
#endif

// Calls the handler of an event. Returns whether the hook is to record it.
__attribute__((used)) HIDDEN uint32_t everycall_xray_call(uint32_t what, uint64_t site, uint64_t argument, uint64_t pointer) {
    struct call call = {.before = pointer, .type = what, .is_recorded = 1};
    ask(EVENT, site, (uint64_t)&call, 0);
    if (call.handler) {
        int error = __errno_location ? *__errno_location() : 0;
        if (call.has_argument)
            ((void (*)(int32_t, uint32_t, uint64_t))call.handler)((int32_t)call.id, call.type, argument);
        else
            ((void (*)(int32_t, uint32_t))call.handler)((int32_t)call.id, call.type);
        if (__errno_location) *__errno_location() = error;
        ask(LEAVE, call.before, 0, 0);
    }
    return call.is_recorded;
}

// Calls the handler of a custom or typed event, which is recorded here.
__attribute__((used)) HIDDEN void everycall_xray_event(uint32_t what, uint64_t site, const uint64_t* arguments, uint64_t pointer) {
    struct call call = {.before = pointer, .type = what, .is_recorded = 1};
    int error = __errno_location ? *__errno_location() : 0;
    ask(EVENT, site, (uint64_t)&call, 0);
    if (call.is_recorded) ask(RECORD, what, (uint64_t)arguments, pointer);
    if (call.handler) {
        if (what == 4)
            ((void (*)(void*, size_t))call.handler)((void*)arguments[0], arguments[1]);
        else
            ((void (*)(size_t, const void*, size_t))call.handler)(arguments[0], (const void*)arguments[1], arguments[2]);
        ask(LEAVE, call.before, 0, 0);
    }
    if (__errno_location) *__errno_location() = error;
}

#include "entry_of_xray.h"

// The functions of <xray/xray_interface.h>.

static int set_handler(uint32_t which, const void* handler) {
    begin();
    return (int)ask(SET_HANDLER, which, (uint64_t)handler, 0);
}

INTERFACE int __xray_set_handler(void (*handler)(int32_t, int)) { return set_handler(HANDLER, (const void*)handler); }
INTERFACE int __xray_remove_handler(void) { return set_handler(HANDLER, 0); }
INTERFACE int __xray_set_handler_arg1(void (*handler)(int32_t, int, uint64_t)) {
    return set_handler(ARGUMENT_HANDLER, (const void*)handler);
}
INTERFACE int __xray_remove_handler_arg1(void) { return set_handler(ARGUMENT_HANDLER, 0); }
INTERFACE int __xray_set_customevent_handler(void (*handler)(void*, size_t)) {
    return set_handler(CUSTOM_HANDLER, (const void*)handler);
}
INTERFACE int __xray_remove_customevent_handler(void) { return set_handler(CUSTOM_HANDLER, 0); }
INTERFACE int __xray_set_typedevent_handler(void (*handler)(size_t, const void*, size_t)) {
    return set_handler(TYPED_HANDLER, (const void*)handler);
}
INTERFACE int __xray_remove_typedevent_handler(void) { return set_handler(TYPED_HANDLER, 0); }

INTERFACE uint16_t __xray_register_event_type(const char* type) {
    begin();
    return (uint16_t)ask(EVENT_TYPE, (uint64_t)type, 0, 0);
}

// Function ids: 24 bits in an object, below 8 bits of the object's own.
INTERFACE int32_t __xray_unpack_function_id(int32_t id) { return id & 0xffffff; }
INTERFACE int32_t __xray_unpack_object_id(int32_t id) { return (int32_t)((uint32_t)id >> 24); }
INTERFACE int32_t __xray_pack_id(int32_t function, int32_t object) {
    return (int32_t)((uint32_t)object << 24 | ((uint32_t)function & 0xffffff));
}

static int patch(int64_t object, int64_t function, uint32_t on) {
    begin();
    return (int)ask(PATCH, (uint64_t)object, (uint64_t)function, on);
}

INTERFACE int __xray_patch(void) { return patch(ALL, ALL, 1); }
INTERFACE int __xray_unpatch(void) { return patch(ALL, ALL, 0); }
INTERFACE int __xray_patch_object(int32_t object) { return patch(object, ALL, 1); }
INTERFACE int __xray_unpatch_object(int32_t object) { return patch(object, ALL, 0); }
INTERFACE int __xray_patch_function_in_object(int32_t function, int32_t object) { return patch(object, function, 1); }
INTERFACE int __xray_unpatch_function_in_object(int32_t function, int32_t object) { return patch(object, function, 0); }
INTERFACE int __xray_patch_function(int32_t id) {
    return patch(__xray_unpack_object_id(id), __xray_unpack_function_id(id), 1);
}
INTERFACE int __xray_unpatch_function(int32_t id) {
    return patch(__xray_unpack_object_id(id), __xray_unpack_function_id(id), 0);
}

INTERFACE uintptr_t __xray_function_address_in_object(int32_t function, int32_t object) {
    begin();
    return ask(ADDRESS, (uint64_t)(int64_t)object, (uint64_t)(int64_t)function, 0);
}
INTERFACE uintptr_t __xray_function_address(int32_t id) {
    return __xray_function_address_in_object(__xray_unpack_function_id(id), __xray_unpack_object_id(id));
}
INTERFACE size_t __xray_max_function_id_in_object(int32_t object) {
    begin();
    return ask(FUNCTIONS, (uint64_t)(int64_t)object, 0, 0);
}
INTERFACE size_t __xray_max_function_id(void) { return __xray_max_function_id_in_object(0); }
INTERFACE size_t __xray_num_objects(void) {
    begin();
    return ask(OBJECTS, 0, 0, 0);
}
INTERFACE void __xray_init(void) { begin(); }
