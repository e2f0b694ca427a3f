// A library that the tests load into programs that run. Its initialiser allocates, and has
// thread-local memory.
#include <stdlib.h>
#include <string.h>

static _Thread_local int calls = 40;
static char *kept;

__attribute__((constructor)) static void begin(void) {
    kept = malloc(100000);
    memset(kept, 1, 100000);
}

int loaded_answer(void) { return (kept ? calls : 0) + 2; }
