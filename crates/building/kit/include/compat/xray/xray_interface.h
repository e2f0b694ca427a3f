/*
 * XRay's interface, implemented by everycall, for compilers whose own <xray/xray_interface.h> isn't
 * installed; that one comes first. Differences: docs/reference/xray.md of everycall.
 */
#ifndef XRAY_XRAY_INTERFACE_H
#define XRAY_XRAY_INTERFACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What happened. */
enum XRayEntryType {
    ENTRY = 0,
    EXIT = 1,
    /* The function jumps into another. */
    TAIL = 2,
    /* An entry whose first argument is passed on. */
    LOG_ARGS_ENTRY = 3,
    CUSTOM_EVENT = 4,
    TYPED_EVENT = 5
};

enum XRayPatchingStatus {
    /* The process isn't traced, or there is nothing to patch. */
    NOT_INITIALIZED = 0,
    SUCCESS = 1,
    /* Another thread patches: try again. */
    ONGOING = 2,
    FAILED = 3
};

/* Handlers: set and removed for the whole process. 1: done, 0: the process isn't traced. */
int __xray_set_handler(void (*handler)(int32_t function, enum XRayEntryType type));
int __xray_remove_handler(void);
int __xray_set_handler_arg1(void (*handler)(int32_t function, enum XRayEntryType type, uint64_t argument));
int __xray_remove_handler_arg1(void);
int __xray_set_customevent_handler(void (*handler)(void *data, size_t size));
int __xray_remove_customevent_handler(void);
int __xray_set_typedevent_handler(void (*handler)(size_t type, const void *data, size_t size));
int __xray_remove_typedevent_handler(void);
uint16_t __xray_register_event_type(const char *description);

/* Functions that handlers are called for. */
enum XRayPatchingStatus __xray_patch(void);
enum XRayPatchingStatus __xray_unpatch(void);
enum XRayPatchingStatus __xray_patch_object(int32_t object);
enum XRayPatchingStatus __xray_unpatch_object(int32_t object);
enum XRayPatchingStatus __xray_patch_function(int32_t id);
enum XRayPatchingStatus __xray_unpatch_function(int32_t id);
enum XRayPatchingStatus __xray_patch_function_in_object(int32_t function, int32_t object);
enum XRayPatchingStatus __xray_unpatch_function_in_object(int32_t function, int32_t object);

/* Which functions there are: ids from 1, in each object. 0: there is none. */
uintptr_t __xray_function_address(int32_t id);
uintptr_t __xray_function_address_in_object(int32_t function, int32_t object);
size_t __xray_max_function_id(void);
size_t __xray_max_function_id_in_object(int32_t object);
size_t __xray_num_objects(void);
int32_t __xray_unpack_function_id(int32_t id);
int32_t __xray_unpack_object_id(int32_t id);
int32_t __xray_pack_id(int32_t function, int32_t object);

void __xray_init(void);

#ifdef __cplusplus
}
#endif

#endif
