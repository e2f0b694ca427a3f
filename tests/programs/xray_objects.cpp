// A program and a library, whose functions are patched together, each by themselves, and one by one.
// Prints what happens: the same with XRay's own runtime. With an argument, that library is loaded and
// unloaded.
#include <xray/xray_interface.h>

#include <cstdint>
#include <cstdio>
#include <dlfcn.h>

#define TRACED [[clang::xray_always_instrument]] __attribute__((noinline))
#define UNTRACED [[clang::xray_never_instrument]] __attribute__((noinline))

static volatile int sink;
static int (*library_caller)(int);

TRACED int own(int n) { return sink = n; }
TRACED int own_caller(int n) { return own(n) + own(n); }

UNTRACED static void handler(int32_t id, XRayEntryType type)
{
    std::printf("  %d in %d: %d\n", __xray_unpack_function_id(id), __xray_unpack_object_id(id), (int)type);
}

UNTRACED static void call_all(const char *when)
{
    std::printf("%s\n", when);
    own_caller(1);
    if (library_caller) library_caller(1);
}

#ifdef LINKED
extern "C" int library_caller_linked(int) __asm__("library_caller");
#endif

UNTRACED static void objects()
{
    int32_t count = (int32_t)__xray_num_objects();
    std::printf("%d objects\n", count);
    for (int32_t object = 0; object <= count; object++) {
        XRayPatchingStatus status = __xray_patch_object(object);
        std::printf("object %d: patch %d\n", object, (int)status);
        // Of one that was unloaded, XRay's own runtime says what it was.
        if (status == FAILED) continue;
        std::printf("%zu functions\n", __xray_max_function_id_in_object(object));
        call_all("patched");
        std::printf("unpatch %d\n", (int)__xray_unpatch_object(object));
        for (int32_t function = 1; function <= 2; function++) {
            int32_t id = __xray_pack_id(function, object);
            std::printf("%d and %d: %d\n", function, object, id);
            std::printf("addresses %d\n", __xray_function_address(id) == __xray_function_address_in_object(function, object));
            std::printf("there %d\n", __xray_function_address(id) != 0);
            std::printf("patch %d\n", (int)__xray_patch_function(id));
            call_all("patched");
            std::printf("unpatch %d\n", (int)__xray_unpatch_function_in_object(function, object));
            std::printf("patch %d\n", (int)__xray_patch_function_in_object(function, object));
            call_all("patched");
            std::printf("unpatch %d\n", (int)__xray_unpatch_function(id));
        }
    }
    std::printf("patch all %d\n", (int)__xray_patch());
    call_all("patched");
    std::printf("unpatch all %d\n", (int)__xray_unpatch());
    call_all("unpatched");
}

UNTRACED int main(int count, char **arguments)
{
    __xray_set_handler(handler);
#ifdef LINKED
    library_caller = library_caller_linked;
    objects();
#else
    objects();
    for (int turn = 0; turn < 3; turn++) {
        void *library = dlopen(arguments[count - 1], RTLD_NOW);
        library_caller = (int (*)(int))dlsym(library, "library_caller");
        objects();
        __xray_patch();
        library_caller = nullptr;
        dlclose(library);
        call_all("unloaded");
        std::printf("gone %d %d\n", (int)__xray_patch_object(turn + 1), (int)__xray_patch());
        __xray_unpatch();
    }
#endif
    return 0;
}
