// Uses XRay's interface in the ways in which programs written for it do. Prints what happens: the
// same with XRay's own runtime.
#include <xray/xray_interface.h>
#include <xray/xray_log_interface.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#define TRACED [[clang::xray_always_instrument]] __attribute__((noinline))
#define UNTRACED [[clang::xray_never_instrument]] __attribute__((noinline))

static volatile int sink;

TRACED int leaf(int n) { return sink = n + 1; }
TRACED int caller(int n) { return leaf(n) + leaf(n + 1); }
TRACED int jumper(int n)
{
    sink = n;
    [[clang::musttail]] return leaf(n);
}
[[clang::xray_always_instrument, clang::xray_log_args(1)]] __attribute__((noinline)) long logged(long n)
{
    sink = (int)n;
    return n;
}
TRACED int custom(int n)
{
    __xray_customevent("request", 7);
    return leaf(n);
}
TRACED int typed(int n, uint16_t type)
{
    char data[100];
    std::memset(data, 'x', sizeof data);
    // clang doesn't know that the event reads it.
    asm volatile("" ::"r"(data) : "memory");
    __xray_typedevent(type, data, sizeof data);
    __xray_customevent("", 0);
    return sink = n;
}
UNTRACED int never(int n) { return sink = n; }
struct Object {
    int value;
    TRACED int method(int n) { return sink = value + n; }
    TRACED virtual ~Object() { sink = value; }
};

static const char *const types[] = {"ENTRY", "EXIT", "TAIL", "LOG_ARGS_ENTRY", "CUSTOM", "TYPED"};

UNTRACED static const char *name_of(int32_t id)
{
    uintptr_t address = __xray_function_address(id);
    if (address == (uintptr_t)leaf) return "leaf";
    if (address == (uintptr_t)caller) return "caller";
    if (address == (uintptr_t)jumper) return "jumper";
    if (address == (uintptr_t)logged) return "logged";
    if (address == (uintptr_t)custom) return "custom";
    if (address == (uintptr_t)typed) return "typed";
    return address ? "another" : "none";
}
UNTRACED static void handler(int32_t id, XRayEntryType type)
{
    // Handlers are called with an aligned stack.
    alignas(16) volatile char aligned[16];
    if ((uintptr_t)aligned % 16 != 0) std::printf("not aligned\n");
    std::printf("  %s %s\n", types[type], name_of(id));
}
UNTRACED static void argument_handler(int32_t id, XRayEntryType type, uint64_t argument)
{
    std::printf("  %s %s(%lld)\n", types[type], name_of(id), (long long)argument);
}
UNTRACED static void custom_handler(void *data, size_t size) { std::printf("  event \"%.*s\"\n", (int)size, (char *)data); }
UNTRACED static void typed_handler(size_t type, const void *data, size_t size)
{
    std::printf("  event of type %zu, %zu bytes, %c\n", type, size, *(const char *)data);
}

UNTRACED static void call_all(const char *when)
{
    std::printf("%s\n", when);
    caller(1);
    jumper(2);
    logged(-3);
    custom(4);
    typed(5, 1);
    never(6);
    Object object{};
    object.method(7);
}

UNTRACED static void patching()
{
    call_all("at first");
    std::printf("set %d\n", __xray_set_handler(handler));
    call_all("not patched");
    std::printf("patch %d\n", (int)__xray_patch());
    call_all("patched");
    std::printf("patch again %d\n", (int)__xray_patch());
    call_all("patched again");
    std::printf("unpatch %d\n", (int)__xray_unpatch());
    call_all("unpatched");
    std::printf("unpatch again %d\n", (int)__xray_unpatch());
    std::printf("patch %d remove %d\n", (int)__xray_patch(), __xray_remove_handler());
    call_all("no handler");
    std::printf("set %d\n", __xray_set_handler(handler));
    call_all("handler again");
    __xray_unpatch();
}

UNTRACED static void functions()
{
    size_t last = __xray_max_function_id();
    std::printf("functions %zu\n", last);
    __xray_set_handler(handler);
    for (int32_t id = 0; id <= (int32_t)last + 1; id++) {
        std::printf("%d is %s: patch %d\n", id, name_of(id), (int)__xray_patch_function(id));
        call_all("calls");
        std::printf("unpatch %d\n", (int)__xray_unpatch_function(id));
    }
    call_all("unpatched");
    std::printf("negative: %d %d\n", (int)__xray_patch_function(-1), (int)__xray_unpatch_function(-1));
    std::printf("negative address: %d\n", __xray_function_address(-1) != 0);
    // All but one.
    __xray_patch();
    for (int32_t id = 1; id <= (int32_t)last; id++)
        if (__xray_function_address(id) == (uintptr_t)leaf) __xray_unpatch_function(id);
    call_all("all but leaf");
    __xray_unpatch();
}

UNTRACED static void arguments()
{
    __xray_set_handler(handler);
    __xray_patch();
    call_all("without a handler of arguments");
    std::printf("set %d\n", __xray_set_handler_arg1(argument_handler));
    call_all("with one");
    __xray_remove_handler();
    call_all("with that one alone");
    std::printf("remove %d\n", __xray_remove_handler_arg1());
    call_all("with none");
    __xray_unpatch();
}

UNTRACED static void events()
{
    static const char one[] = "one", two[] = "two";
    std::printf("types %d %d %d\n", __xray_register_event_type(one), __xray_register_event_type(two),
                __xray_register_event_type(one));
    std::printf("set %d %d\n", __xray_set_customevent_handler(custom_handler), __xray_set_typedevent_handler(typed_handler));
    call_all("not patched");
    __xray_patch();
    call_all("patched");
    std::printf("remove %d %d\n", __xray_remove_customevent_handler(), __xray_remove_typedevent_handler());
    call_all("removed");
    __xray_unpatch();
}

// A log of the program's own.
static int logged_calls;

UNTRACED static void log_handler(int32_t, XRayEntryType) { logged_calls++; }
UNTRACED static XRayLogInitStatus log_init(size_t size, size_t most, void *arguments, size_t arguments_size)
{
    std::printf("  init %zu %zu %s %zu\n", size, most, arguments ? (char *)arguments : "none", arguments_size);
    __xray_set_handler(log_handler);
    return XRayLogInitStatus::XRAY_LOG_INITIALIZED;
}
UNTRACED static XRayLogInitStatus log_finalize()
{
    std::printf("  finalize\n");
    return XRayLogInitStatus::XRAY_LOG_FINALIZED;
}
UNTRACED static XRayLogFlushStatus log_flush()
{
    std::printf("  flush\n");
    return XRayLogFlushStatus::XRAY_LOG_FLUSHED;
}
UNTRACED static XRayBuffer next_buffer(XRayBuffer before)
{
    static const char data[] = "ab";
    if (!before.Data) return {data, 1};
    if (before.Data == data) return {data + 1, 1};
    return {nullptr, 0};
}
UNTRACED static void show_buffer(const char *mode, XRayBuffer buffer)
{
    std::printf("  buffer of %s: %.*s\n", mode, (int)buffer.Size, (const char *)buffer.Data);
}
UNTRACED static const char *current()
{
    const char *mode = __xray_log_get_current_mode();
    return mode ? mode : "none";
}

UNTRACED static void logs()
{
    XRayLogImpl own = {log_init, log_finalize, log_handler, log_flush};
    std::printf("nothing: %d %d %d %s\n", (int)__xray_log_finalize(), (int)__xray_log_flushLog(),
                (int)__xray_log_process_buffers(show_buffer), current());
    std::printf("unknown: %d %d\n", (int)__xray_log_select_mode("unknown"), (int)__xray_log_init_mode("unknown", ""));
    std::printf("register: %d %d\n", (int)__xray_log_register_mode("own", own), (int)__xray_log_register_mode("own", own));
    std::printf("select: %d %s\n", (int)__xray_log_select_mode("own"), current());
    std::printf("init: %d\n", (int)__xray_log_init_mode("own", "a=b"));
    std::printf("init another: %d\n", (int)__xray_log_init_mode("another", "a=b"));
    std::printf("init without: %d\n", (int)__xray_log_init_mode("own", nullptr));
    __xray_patch();
    caller(1);
    __xray_unpatch();
    std::printf("calls: %d\n", logged_calls);
    __xray_log_set_buffer_iterator(next_buffer);
    std::printf("buffers: %d\n", (int)__xray_log_process_buffers(show_buffer));
    __xray_log_remove_buffer_iterator();
    std::printf("finalize: %d flush: %d\n", (int)__xray_log_finalize(), (int)__xray_log_flushLog());
    __xray_remove_log_impl();
    std::printf("removed: %d %d\n", (int)__xray_log_finalize(), (int)__xray_log_flushLog());
    __xray_patch();
    caller(1);
    std::printf("calls: %d\n", logged_calls);
    __xray_set_log_impl(own);
    char arguments[] = "text";
    std::printf("set: %d\n", (int)__xray_log_init(1, 2, arguments, 4));
    caller(1);
    std::printf("calls: %d\n", logged_calls);
    __xray_set_log_impl({nullptr, log_finalize, log_handler, log_flush});
    std::printf("incomplete: %d\n", (int)__xray_log_init(1, 2, arguments, 4));
    caller(1);
    std::printf("calls: %d\n", logged_calls);
    __xray_unpatch();
}

UNTRACED int main(int count, char **arguments_given)
{
    __xray_init();
    const char *what = count > 1 ? arguments_given[1] : "all";
    bool all = std::strcmp(what, "all") == 0;
    if (all || std::strcmp(what, "patching") == 0) patching();
    if (all || std::strcmp(what, "functions") == 0) functions();
    if (all || std::strcmp(what, "arguments") == 0) arguments();
    if (all || std::strcmp(what, "events") == 0) events();
    if (all || std::strcmp(what, "logs") == 0) logs();
    if (std::strcmp(what, "premain") == 0) {
        __xray_set_handler(handler);
        call_all("patched before main");
    }
    return 0;
}
