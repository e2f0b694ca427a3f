// Where glibc jumps to clean up at a thread's end: see register_cancel.c.
#include "runtime.h"

// The program goes on in a frame, to clean up at the thread's end. What was inlined into the frame
// has been left, too.
__attribute__((visibility("hidden"), used)) void everycall_cleans_up_at(uint64_t stack_pointer) {
    everycall_tell(EVERYCALL_JUMP, stack_pointer, 0);
    // A name, though an empty one, says that this frame runs yet.
    everycall_tell(EVERYCALL_THREAD_END, stack_pointer, "");
}

#include "entry_of_cleanup.h"
