// Starts XRay's flight recorder: `xray_mode=xray-fdr` alone only installs a handler that records nothing. Threshold 0
// keeps every call, as everycall does.
#include <cstdio>
#include <cstdlib>
#include <xray/xray_log_interface.h>

__attribute__((constructor, xray_never_instrument)) static void begin() {
    if (__xray_log_init_mode("xray-fdr", "func_duration_threshold_us=0") == XRAY_LOG_INITIALIZED) return;
    fputs("XRay's flight recorder doesn't start\n", stderr);
    _Exit(1);
}

__attribute__((destructor, xray_never_instrument)) static void end() {
    __xray_log_finalize();
    __xray_log_flushLog();
}
