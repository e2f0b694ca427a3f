// Linked where all code tells of the exits of inlined calls in cleanups (gcc's -finstrument-functions, without code of clang's).

// Of this module alone.
__attribute__((visibility("hidden"))) const char everycall_cleanups_tell_of_exits = 1;
