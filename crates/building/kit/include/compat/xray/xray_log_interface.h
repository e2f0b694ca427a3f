/*
 * XRay's log interface, implemented by everycall for the program's own implementations, for compilers
 * whose own <xray/xray_log_interface.h> isn't installed. Differences: docs/reference/xray.md of
 * everycall.
 */
#ifndef XRAY_XRAY_LOG_INTERFACE_H
#define XRAY_XRAY_LOG_INTERFACE_H

#include "xray_interface.h"

#ifdef __cplusplus
extern "C" {
#endif

enum XRayLogInitStatus {
    XRAY_LOG_UNINITIALIZED = 0,
    XRAY_LOG_INITIALIZING = 1,
    XRAY_LOG_INITIALIZED = 2,
    XRAY_LOG_FINALIZING = 3,
    XRAY_LOG_FINALIZED = 4
};

enum XRayLogFlushStatus { XRAY_LOG_NOT_FLUSHING = 0, XRAY_LOG_FLUSHING = 1, XRAY_LOG_FLUSHED = 2 };

enum XRayLogRegisterStatus {
    XRAY_REGISTRATION_OK = 0,
    XRAY_DUPLICATE_MODE = 1,
    XRAY_MODE_NOT_FOUND = 2,
    XRAY_INCOMPLETE_IMPL = 3
};

/* An implementation of the program's own. */
struct XRayLogImpl {
    enum XRayLogInitStatus (*log_init)(size_t, size_t, void *, size_t);
    enum XRayLogInitStatus (*log_finalize)(void);
    void (*handle_arg0)(int32_t, enum XRayEntryType);
    enum XRayLogFlushStatus (*flush_log)(void);
};

struct XRayBuffer {
    const void *Data;
    size_t Size;
};

void __xray_set_log_impl(struct XRayLogImpl implementation);
void __xray_remove_log_impl(void);
enum XRayLogRegisterStatus __xray_log_register_mode(const char *mode, struct XRayLogImpl implementation);
enum XRayLogRegisterStatus __xray_log_select_mode(const char *mode);
const char *__xray_log_get_current_mode(void);
enum XRayLogInitStatus __xray_log_init(size_t size, size_t most, void *arguments, size_t arguments_size);
enum XRayLogInitStatus __xray_log_init_mode(const char *mode, const char *configuration);
enum XRayLogInitStatus __xray_log_init_mode_bin(const char *mode, const char *configuration, size_t size);
enum XRayLogInitStatus __xray_log_finalize(void);
enum XRayLogFlushStatus __xray_log_flushLog(void);
void __xray_log_set_buffer_iterator(struct XRayBuffer (*next)(struct XRayBuffer));
void __xray_log_remove_buffer_iterator(void);
enum XRayLogFlushStatus __xray_log_process_buffers(void (*process)(const char *mode, struct XRayBuffer buffer));

#ifdef __cplusplus
}
#endif

#endif
