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
    uint64_t save_mask;      // the register state that xsave saves, or 0: fxsave
    uint64_t save_size;      // bytes for registers
    uint32_t save_vectors;   // how vectors are saved: 0 xmm, 1 ymm, 2 zmm and masks, 4 by xsave
    uint32_t knows_use;      // not 0: xgetbv tells which are in use
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

// How the registers are saved around handlers, which may change any of them. Not tiles, protection
// keys and shadow stacks: these aren't what compilers use on their own. At entries and exits no more
// than vectors is in use; within a function, x87 may be, too. There, and where there is more than
// we know, xsave is used, which takes ten times as long.
static void prepare_saving(struct object* object) {
    const uint64_t legacy = 0x7, wide = 0xe0, more_general = 1 << 19;
    const uint32_t xsave_is_on = 1 << 27, has_use = 1 << 2, has_avx = 1 << 28, has_masks_of_64 = 1 << 30;
    uint32_t a, b, c, d, low, high;
    object->save_size = 64 + 512;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & xsave_is_on)) return;
    int is_avx = (c & has_avx) != 0;
    if (!__get_cpuid_count(13, 1, &a, &b, &c, &d)) return;
    int knows_use = (a & has_use) != 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    uint64_t enabled = (uint64_t)high << 32 | low, mask = enabled & (legacy | wide | more_general);
    uint64_t size = 512 + 64;
    for (uint32_t component = 2; component < 64; component++)
        if (mask >> component & 1) {
            __get_cpuid_count(13, component, &a, &b, &c, &d);
            if ((uint64_t)b + a > size) size = (uint64_t)b + a;
        }
    // The area of our own is smaller than xsave's.
    object->save_size = 64 + size;
    int has_wide = (enabled & wide) == wide;
    int has_masks = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & has_masks_of_64);
    if ((enabled & more_general) || (has_wide && !has_masks))
        object->save_vectors = 4;
    else if (has_wide)
        object->save_vectors = 2;
    else if (is_avx && (enabled & legacy) == legacy)
        object->save_vectors = 1;
    object->knows_use = knows_use && object->save_vectors;
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
    // Saves everything: a handler may use any register. rbp is the frame. In it, from its lower end: MXCSR, the
    // x87 control word, at 8 how the vectors are saved, and from 64 on the vectors. By xsave: its area, from 64 on.
    "    .macro  everycall_xray_save whole\n"
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
    "    subq    everycall_xray_object + 16(%rip), %rsp\n"
    "    andq    $-64, %rsp\n"
    "    stmxcsr (%rsp)\n"
    "    fnstcw  4(%rsp)\n"
    "    .if \\whole\n"
    "    movl    $4, %ecx\n"
    "    .else\n"
    "    movl    everycall_xray_object + 24(%rip), %ecx\n"
    "    .endif\n"
    "    cmpl    $0, everycall_xray_object + 28(%rip)\n" // can it be told which vectors are in use?
    "    je      1f\n"
    "    cmpl    $3, %ecx\n"
    "    jae     1f\n"
    "    movl    %ecx, %ebx\n"
    "    movl    $1, %ecx\n"
    "    xgetbv\n"
    "    movl    %ebx, %ecx\n"
    "    testl   $0xe4, %eax\n" // upper halves, masks, further vectors
    "    jnz     1f\n"
    "    movl    $3, %ecx\n"
    "1:  movq    %rcx, 8(%rsp)\n"
    "    cmpl    $1, %ecx\n"
    "    je      2f\n"
    "    cmpl    $2, %ecx\n"
    "    je      3f\n"
    "    cmpl    $4, %ecx\n"
    "    je      4f\n"
    "    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "    movaps  %xmm\\n, 64 + 16 * \\n(%rsp)\n"
    "    .endr\n"
    "    jmp     7f\n"
    "2:\n"
    "    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "    vmovdqa %ymm\\n, 64 + 32 * \\n(%rsp)\n"
    "    .endr\n"
    "    jmp     7f\n"
    "3:\n"
    "    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
    "    vmovdqa64 %zmm\\n, 64 + 64 * \\n(%rsp)\n"
    "    .endr\n"
    "    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7\n"
    "    kmovq   %k\\n, 2112 + 8 * \\n(%rsp)\n"
    "    .endr\n"
    "    jmp     7f\n"
    "4:  movq    everycall_xray_object + 8(%rip), %rax\n"
    "    testq   %rax, %rax\n"
    "    jz      5f\n"
    "    xorl    %ecx, %ecx\n" // the header
    "    .irp    n, 0, 8, 16, 24, 32, 40, 48, 56\n"
    "    movq    %rcx, 64 + 512 + \\n(%rsp)\n"
    "    .endr\n"
    "    movq    %rax, %rdx\n"
    "    shrq    $32, %rdx\n"
    "    xsave64 64(%rsp)\n"
    "    jmp     6f\n"
    "5:  fxsave64 64(%rsp)\n"
    "6:  fninit\n" // within a function, its stack may be in use
    "    fldcw   4(%rsp)\n"
    "7:\n"
    "    .endm\n"
    "    .macro  everycall_xray_restore\n"
    "    movq    8(%rsp), %rcx\n"
    "    cmpl    $1, %ecx\n"
    "    je      2f\n"
    "    cmpl    $2, %ecx\n"
    "    je      3f\n"
    "    cmpl    $4, %ecx\n"
    "    je      4f\n"
    "    cmpl    $3, %ecx\n"
    "    jne     8f\n"
    "    vzeroupper\n" // they were not in use
    "    cmpl    $2, everycall_xray_object + 24(%rip)\n"
    "    jne     8f\n"
    "    .irp    n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
    "    vpxord  %zmm\\n, %zmm\\n, %zmm\\n\n"
    "    .endr\n"
    "    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7\n"
    "    kxorq   %k\\n, %k\\n, %k\\n\n"
    "    .endr\n"
    "8:\n"
    "    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "    movaps  64 + 16 * \\n(%rsp), %xmm\\n\n"
    "    .endr\n"
    "    jmp     7f\n"
    "2:\n"
    "    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "    vmovdqa 64 + 32 * \\n(%rsp), %ymm\\n\n"
    "    .endr\n"
    "    jmp     7f\n"
    "3:\n"
    "    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
    "    vmovdqa64 64 + 64 * \\n(%rsp), %zmm\\n\n"
    "    .endr\n"
    "    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7\n"
    "    kmovq   2112 + 8 * \\n(%rsp), %k\\n\n"
    "    .endr\n"
    "    jmp     7f\n"
    "4:  movq    everycall_xray_object + 8(%rip), %rax\n"
    "    testq   %rax, %rax\n"
    "    jz      5f\n"
    "    movq    %rax, %rdx\n"
    "    shrq    $32, %rdx\n"
    "    xrstor64 64(%rsp)\n"
    "    jmp     7f\n"
    "5:  fxrstor64 64(%rsp)\n"
    "7:  ldmxcsr (%rsp)\n"
    "    fldcw   4(%rsp)\n"
    "    testl   %ebx, %ebx\n" // the result; the flags stay until they are restored themselves
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
    "    everycall_xray_save 0\n"
    "    movq    -32(%rbp), %rdx\n"
    "    movq    8(%rbp), %rsi\n"
    "    leaq    8(%rbp), %rcx\n"
    "    movl    $\\what, %edi\n"
    "    call    everycall_xray_call\n"
    "    movl    %eax, %ebx\n"
    "    everycall_xray_restore\n"
    "    jz      9f\n"
    "    .cfi_remember_state\n"
    "    everycall_xray_pop\n"
    "    jmp     \\hook\n"
    "    .cfi_restore_state\n"
    "9:  everycall_xray_pop\n"
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
    "    everycall_xray_save 1\n"
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
    "    everycall_xray_hook everycall_xray_entry, 0, everycall_called_entry\n"
    "    everycall_xray_hook everycall_xray_exit, 1, everycall_called_exit\n"
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
