// Linked where the build chose that tracing is off when the program starts: the runtime refers to
// it weakly.
__attribute__((visibility("hidden"))) const char everycall_starts_off = 1;
