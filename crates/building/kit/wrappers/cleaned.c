// Linked if all code reports the exits of inlined calls in cleanups (gcc's -finstrument-functions,
// without code of clang).

// Local to this module.
__attribute__((visibility("hidden"))) const char everycall_cleanups_tell_of_exits = 1;
