// A made-up interpreter: frames by id between calls of machine code, left by returning, by
// exceptions and by jumps. What it does is random by SEED; it prints its own calls, from its own
// journal, in the form of the tests: `main(a(f1 f2!))`.
//
//   frames SEED [fork]
//
// With `fork`, a child does the same with another seed and prints to its own line; the parent waits
// first.
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "everycall.h"

#define NOINLINE __attribute__((noinline))
enum { IDS = 6, FIRST_ID = 1000, UNNAMED = 77, DEPTH = 7, TEXT = 1 << 20 };

static uint32_t random_state;
static char journal[TEXT];
static size_t length;
static int is_first_in_line = 1;

EVERYCALL_EXCLUDE static uint32_t dice(uint32_t sides) {
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 16) % sides;
}

// The journal: `name(`, then what is inside, then `)` or nothing. A call that was left has a mark
// before its parenthesis.
static struct { size_t name_end; int has_inside; } open_calls[4096];
static int depth;

EVERYCALL_EXCLUDE static void append(const char *text) {
    size_t more = strlen(text);
    if (length + more < TEXT)
        memcpy(journal + length, text, more), length += more;
}

EVERYCALL_EXCLUDE static void opened(const char *name) {
    if (depth > 0) {
        append(open_calls[depth - 1].has_inside ? " " : "(");
        open_calls[depth - 1].has_inside = 1;
    } else if (!is_first_in_line) {
        append(" ");
    }
    append(name);
    open_calls[depth].name_end = length;
    open_calls[depth++].has_inside = 0;
}

EVERYCALL_EXCLUDE static void closed(int was_left) {
    depth--;
    if (was_left && length + 1 < TEXT) {
        size_t at = open_calls[depth].name_end;
        memmove(journal + at + 1, journal + at, length - at);
        journal[at] = '!';
        length++;
    }
    if (open_calls[depth].has_inside)
        append(")");
    is_first_in_line = 0;
}

EVERYCALL_EXCLUDE static void closed_down_to(int wanted) {
    while (depth > wanted)
        closed(1);
}

static jmp_buf places[64];
static int depths[64];
static int jumps;

static void run(int level);

EVERYCALL_EXCLUDE static const char *name_of(uint32_t id) {
    static const char *const names[IDS] = { "main.lua", "f<int>", "Class.method", "<lambda>", "a b", "f" };
    return id == UNNAMED ? "frame 77" : names[id - FIRST_ID];
}

EVERYCALL_EXCLUDE static void frame(int level) {
    uint32_t id = dice(10) == 0 ? UNNAMED : FIRST_ID + dice(IDS);
    opened(name_of(id));
    everycall_frame_enter(id);
    for (uint32_t i = dice(4); i > 0; i--)
        run(level - 1);
    if (dice(6) == 0) {
        everycall_frame_unwind(id, dice(2) ? "ValueError" : NULL);
        closed(1);
    } else {
        everycall_frame_leave(id);
        closed(0);
    }
}

// A frame that is left by an exception which passes through the one around it.
EVERYCALL_EXCLUDE static void two_frames(int level) {
    uint32_t first = dice(IDS), second = (first + 1 + dice(IDS - 1)) % IDS;
    uint32_t outer = FIRST_ID + first, inner = FIRST_ID + second;
    opened(name_of(outer));
    everycall_frame_enter(outer);
    opened(name_of(inner));
    everycall_frame_enter(inner);
    run(level - 1);
    // The interpreter reports only where it is caught.
    closed_down_to(depth - 1);
    everycall_frame_leave(outer);
    closed(0);
}

NOINLINE void leaf(void) {
    opened("leaf");
    __asm__ volatile("");
    closed(0);
}

NOINLINE void native(int level) {
    opened("native");
    run(level - 1);
    closed(0);
}

NOINLINE void jumper(int level) {
    opened("jumper");
    if (jumps > 0 && dice(2) == 0) {
        jumps--;
        closed_down_to(depths[jumps]);
        longjmp(places[jumps], 1);
    }
    run(level - 1);
    closed(0);
}

NOINLINE void catcher(int level) {
    opened("catcher");
    int before = jumps;
    if (jumps < 64) {
        depths[jumps] = depth;
        if (setjmp(places[jumps]) == 0) {
            jumps++;
            run(level - 1);
        }
    }
    jumps = before;
    leaf();
    closed(0);
}

// A frame that is still open when the traced function that has reported it returns.
NOINLINE void forgetful(int level) {
    opened("forgetful");
    opened(name_of(FIRST_ID));
    everycall_frame_enter(FIRST_ID);
    run(level - 1);
    closed(1);
    closed(0);
}

EVERYCALL_EXCLUDE static void run(int level) {
    if (level <= 0)
        return leaf();
    for (uint32_t i = dice(4); i > 0; i--) {
        switch (dice(9)) {
        case 0: leaf(); break;
        case 1: native(level); break;
        case 2: jumper(level); break;
        case 3: catcher(level); break;
        case 4: two_frames(level); break;
        case 5: forgetful(level); break;
        default: frame(level); break;
        }
    }
}

NOINLINE void work(int rounds) {
    opened("work");
    for (int i = 0; i < rounds; i++) {
        frame(DEPTH);
        catcher(DEPTH);
    }
    closed(0);
}

EVERYCALL_EXCLUDE int main(int argc, char **argv) {
    random_state = (uint32_t)strtoul(argv[1], NULL, 10);
    for (int i = 0; i < IDS; i++)
        if (everycall_frame_name(FIRST_ID + i, i == 2 ? "old name" : name_of(FIRST_ID + i), "script.lua", 10 + i) != 0 && everycall_is_there())
            return 2;
    if (everycall_frame_name(1 << 20, "too high", NULL, 0) == 0 || everycall_frame_name(5, NULL, NULL, 0) == 0)
        return 3;
    everycall_frame_name(FIRST_ID + 2, name_of(FIRST_ID + 2), "script.lua", 12);
    int is_child = 0;
    if (argc > 2 && strcmp(argv[2], "fork") == 0) {
        pid_t pid = fork();
        is_child = pid == 0;
        if (is_child)
            random_state += 1;
        else
            waitpid(pid, NULL, 0);
    }
    work(6);
    printf("%s %s\n", is_child ? "child" : "parent", journal);
    return 0;
}
