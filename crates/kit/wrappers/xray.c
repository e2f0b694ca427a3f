// XRay's interface (clang's <xray/xray_interface.h>), for programs that were written for it.
//
// This object lies in an archive: it is linked into objects that call one of these functions, or
// that contain XRay events. Such an object's sleds call the hooks below, which go on to the usual
// hooks, unless a handler is set. In all other objects, sleds call the usual hooks directly.
#include "runtime.h"
#include <cpuid.h>

#define HIDDEN __attribute__((visibility("hidden")))
// An executable's functions are visible, as XRay's are: shared objects may call them.
#ifdef EVERYCALL_FOR_EXECUTABLES
#define INTERFACE
#define IS_EXECUTABLE 1
#else
#define INTERFACE HIDDEN
#define IS_EXECUTABLE 0
#endif

// As declared in crates/runtime/src/features/xray.rs.
struct object {
    uint64_t active;         // not 0: a handler is set
    uint64_t save_mask;      // the register state to save around a handler, or 0: by fxsave
    uint64_t save_size;      // bytes of it
    uint64_t save_compacted; // not 0: by xsavec
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

// How the registers are saved around handlers, which may change any of them: all vector registers
// with their masks, x87, and the additional general registers. Not tiles, protection keys and shadow
// stacks: these aren't what compilers use on their own.
static void prepare_saving(struct object* object) {
    const uint64_t components = 0x7 | 0xe0 | 1 << 19;
    const uint32_t xsave_is_on = 1 << 27, has_xsavec = 1 << 1;
    uint32_t a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & xsave_is_on) || !__get_cpuid_count(13, 1, &a, &b, &c, &d)) return;
    uint32_t features = a;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    uint64_t mask = ((uint64_t)high << 32 | low) & components;
    uint64_t standard = 512 + 64, compacted = standard;
    for (uint32_t component = 2; component < 64; component++)
        if (mask >> component & 1) {
            __get_cpuid_count(13, component, &a, &b, &c, &d);
            if ((uint64_t)b + a > standard) standard = (uint64_t)b + a;
            compacted = ((compacted + 63) & ~63ull) + a;
        }
    object->save_size = standard > compacted ? standard : compacted;
    object->save_compacted = (features & has_xsavec) != 0;
    object->save_mask = mask;
}

// Also called by the interface's functions: initialisers of other objects may call them before ours.
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

// The same for a custom or typed event, which is recorded here.
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

__asm__(
    // Saves everything: a handler may use any register. rbp is the frame.
    "    .macro  everycall_xray_save\n"
    "    pushq   %rbp\n"
    "    .cfi_def_cfa_offset 16\n"
    "    .cfi_offset %rbp, -16\n"
    "    movq    %rsp, %rbp\n"
    "    .cfi_def_cfa_register %rbp\n"
    "    pushfq\n"
    "    cld\n"
    "    pushq   %rdx\n" // typed events: type in rdi, then rsi, rdx
    "    pushq   %rsi\n"
    "    pushq   %rdi\n" // at -32(%rbp): the arguments
    "    pushq   %rax\n"
    "    pushq   %rcx\n"
    "    pushq   %r8\n"
    "    pushq   %r9\n"
    "    pushq   %r10\n"
    "    pushq   %r11\n"
    "    pushq   %rbx\n" // at -88(%rbp)
    "    .cfi_offset %rbx, -104\n"
    "    movl    $640, %eax\n"
    "    movq    everycall_xray_object + 16(%rip), %rcx\n"
    "    cmpq    %rax, %rcx\n"
    "    cmovbq  %rax, %rcx\n"
    "    subq    %rcx, %rsp\n"
    "    andq    $-64, %rsp\n"
    "    movq    everycall_xray_object + 8(%rip), %rax\n"
    "    testq   %rax, %rax\n"
    "    jz      2f\n"
    "    xorl    %ecx, %ecx\n" // the header
    "    movq    %rcx, 512(%rsp)\n"
    "    movq    %rcx, 520(%rsp)\n"
    "    movq    %rcx, 528(%rsp)\n"
    "    movq    %rcx, 536(%rsp)\n"
    "    movq    %rcx, 544(%rsp)\n"
    "    movq    %rcx, 552(%rsp)\n"
    "    movq    %rcx, 560(%rsp)\n"
    "    movq    %rcx, 568(%rsp)\n"
    "    movq    %rax, %rdx\n"
    "    shrq    $32, %rdx\n"
    "    cmpq    %rcx, everycall_xray_object + 24(%rip)\n"
    "    jne     1f\n"
    "    xsave64 (%rsp)\n"
    "    jmp     3f\n"
    "1:  xsavec64 (%rsp)\n"
    "    jmp     3f\n"
    "2:  fxsave64 (%rsp)\n"
    "3:\n"
    "    .endm\n"
    "    .macro  everycall_xray_restore\n"
    "    movq    everycall_xray_object + 8(%rip), %rax\n"
    "    testq   %rax, %rax\n"
    "    jz      4f\n"
    "    movq    %rax, %rdx\n"
    "    shrq    $32, %rdx\n"
    "    xrstor64 (%rsp)\n"
    "    jmp     5f\n"
    "4:  fxrstor64 (%rsp)\n"
    "5:  testl   %ebx, %ebx\n" // the result; the flags stay until they are restored themselves
    "    leaq    -88(%rbp), %rsp\n"
    "    .endm\n"
    "    .macro  everycall_xray_pop\n"
    "    popq    %rbx\n"
    "    .cfi_restore %rbx\n"
    "    popq    %r11\n"
    "    popq    %r10\n"
    "    popq    %r9\n"
    "    popq    %r8\n"
    "    popq    %rcx\n"
    "    popq    %rax\n"
    "    popq    %rdi\n"
    "    popq    %rsi\n"
    "    popq    %rdx\n"
    "    popfq\n"
    "    popq    %rbp\n"
    "    .cfi_def_cfa %rsp, 8\n"
    "    .cfi_restore %rbp\n"
    "    .endm\n"
    "    .macro  everycall_xray_hook name, what, hook\n"
    "    .globl  \\name\n"
    "    .hidden \\name\n"
    "    .type   \\name, @function\n"
    "    .p2align 4\n"
    "\\name:\n"
    "    .cfi_startproc\n"
    "    cmpq    $0, everycall_xray_object(%rip)\n"
    "    je      \\hook\n"
    "    everycall_xray_save\n"
    "    movq    -32(%rbp), %rdx\n"
    "    movq    8(%rbp), %rsi\n"
    "    leaq    8(%rbp), %rcx\n"
    "    movl    $\\what, %edi\n"
    "    call    everycall_xray_call\n"
    "    movl    %eax, %ebx\n"
    "    everycall_xray_restore\n"
    "    jz      6f\n"
    "    .cfi_remember_state\n"
    "    everycall_xray_pop\n"
    "    jmp     \\hook\n"
    "    .cfi_restore_state\n"
    "6:  everycall_xray_pop\n"
    "    ret\n"
    "    .cfi_endproc\n"
    "    .size   \\name, . - \\name\n"
    "    .endm\n"
    "    .macro  everycall_xray_event_hook name, what\n"
    "    .globl  \\name\n"
#ifndef EVERYCALL_FOR_EXECUTABLES
    "    .hidden \\name\n"
#endif
    "    .type   \\name, @function\n"
    "    .p2align 4\n"
    "\\name:\n"
    "    .cfi_startproc\n"
    "    everycall_xray_save\n"
    "    leaq    -32(%rbp), %rdx\n"
    "    movq    8(%rbp), %rsi\n"
    "    leaq    8(%rbp), %rcx\n"
    "    movl    $\\what, %edi\n"
    "    call    everycall_xray_event\n"
    "    everycall_xray_restore\n"
    "    everycall_xray_pop\n"
    "    ret\n"
    "    .cfi_endproc\n"
    "    .size   \\name, . - \\name\n"
    "    .endm\n"
    "    .text\n"
    "    everycall_xray_hook everycall_xray_entry, 0, everycall_entry\n"
    "    everycall_xray_hook everycall_xray_exit, 1, everycall_exit\n"
    "    everycall_xray_hook everycall_xray_tail_exit, 2, everycall_tail_exit\n"
    "    everycall_xray_event_hook __xray_CustomEvent, 4\n"
    "    everycall_xray_event_hook __xray_TypedEvent, 5\n");

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
