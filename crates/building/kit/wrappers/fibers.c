// Stacks of fibers: the runtime learns their bounds before a new fiber begins on them.
#include "context.h"
#include "runtime.h"

__attribute__((used)) static void context_is_made(const struct context* context) {
    everycall_tell_stack(context->stack_low, context->stack_size);
}

#include "entry_of_makecontext.h"
