// What scripts.cpp knows of its stacks, and what it may do next: all but the functions that are traced.
#ifndef SCRIPTS_H
#define SCRIPTS_H
#include "../trees/switch.h"
#include "everycall.h"
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <ucontext.h>

#define C extern "C"
#ifdef NO_TAIL_CALLS
enum { MUST_TELL = 1 };
#else
enum { MUST_TELL = 0 };
#endif

struct Line {
    int depth;
    const char* name;
    const char* mark;
};
// The truth of one stack. Lines as they begin; the open ones are those of the calls that are open.
struct Track {
    Line* lines;
    int count, capacity;
    int open_lines[256], open_count;
};
// What may happen now.
struct State {
    int catchers; // around, within this handler or destructor
    int first_jump; // targets before this one may not be jumped to
    int jumps; // targets
    bool in_handler, on_alternate;
};
// WAITS: its thread waits on it for its turn. GONE: one in a local variable of a function that has returned.
enum Use { UNUSED, SUSPENDED, RUNS, WAITS, GONE };
// A stack: the first ones are the threads' own, the last ones those in local variables.
struct Stack {
    Use use;
    Track* track;
    // In a local variable: the stack around it, and the level of the call there that it goes with.
    Stack* outer;
    int level;
    // The end of that call, or of the one that this one had made, can be seen: nobody has to tell.
    bool is_end_seen;
    State now;
    sigjmp_buf targets[256];
    int target_levels[256];
    int using_library;
    char* low;
    size_t size;
    bool is_told;
    // Where it was left: for a jump or for a switch.
    bool is_left_by_jump;
    sigjmp_buf left_at;
    void* left;
    // The C++ library's: exceptions that are being handled.
    void* handled[2];
};
enum { THREADS = 2, LOCALS = 4, FIRST_LOCAL = 7, STACKS = FIRST_LOCAL + LOCALS, TRACKS = 1 << 17 };
enum { STACK_SIZE = 1 << 20, THREAD_STACK_SIZE = 4 << 20, LOCAL_MIN = 64 << 10, LOCAL_MAX = 192 << 10, ARRAY = 96 << 10 };
// Bytes below the stack pointer: for what the next call needs before it looks again, and for what it goes on with when a stack has been taken in.
enum { ROOM = 32 << 10 };
// Bytes below the end of a stack that are left out of it.
enum { TOP = 40 };
static Stack stacks[STACKS];
// Of the thread whose turn it is.
static Stack* current = stacks;
static int whose_turn;
// Of each thread: what it waits on.
static Stack* stopped_at[THREADS];
static sem_t turns[THREADS];
static bool has_second;
static pthread_t second;
static Track* tracks[TRACKS];
static int track_count;
#define state (current->now)

UNTRACED static void new_track() {
    if (track_count == TRACKS) std::abort();
    current->track = static_cast<Track*>(std::calloc(1, sizeof(Track)));
    tracks[track_count++] = current->track;
}
UNTRACED static int line(const char* name) {
    Track* track = current->track;
    if (track->count == track->capacity) {
        track->capacity = track->capacity ? 2 * track->capacity : 1 << 8;
        track->lines = static_cast<Line*>(std::realloc(track->lines, track->capacity * sizeof(Line)));
    }
    track->lines[track->count] = {track->open_count, name, ""};
    return track->count++;
}
// The level of the call that begins.
UNTRACED static int enter(const char* name) {
    int number = line(name);
    Track* track = current->track;
    track->open_lines[track->open_count] = number;
    return track->open_count++;
}
UNTRACED static void mark_open(Track* track, int level, const char* mark) {
    while (track->open_count > level + 1) track->lines[track->open_lines[--track->open_count]].mark = mark;
}
UNTRACED static void ends(Stack* local);
// What this stack had in the frames of its calls deeper than this level is gone.
UNTRACED static void locals_end(const Stack* stack, int level) {
    for (Stack* local = stacks + FIRST_LOCAL; local < stacks + STACKS; local++)
        if (local->use != GONE && local->outer == stack && local->level > level) ends(local);
}
UNTRACED static void leave(int level) {
    if (current->track->open_count != level + 1) std::abort();
    locals_end(current, level - 1);
    current->track->open_count = level;
}
// All of a stack's calls deeper than this level were left.
UNTRACED static void left(Stack* stack, int level) {
    locals_end(stack, level);
    if (stack->track) mark_open(stack->track, level, "!");
}
// Execution goes on in the call of this level: all within it were left.
UNTRACED static void back_in(int level) { left(current, level); }

static int fuel;
static unsigned long long seed;
static void* library;
static void (*library_function)(void (*)());
static const char* library_path;
static char alternate[THREADS][1 << 17] __attribute__((aligned(16)));

UNTRACED static unsigned random_below(unsigned limit) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return static_cast<unsigned>(seed >> 33) % limit;
}

// Places of stacks in local variables whose end was not registered: a new stack in exactly the
// same place could be taken for the old one, used again.
static struct { const char *low, *high; } untold[1 << 16];
static int untold_count;

UNTRACED static bool was_untold(const char* low, const char* high) {
    for (int index = 0; index < untold_count; index++)
        if (untold[index].low == low && untold[index].high == high) return true;
    return false;
}
UNTRACED static void ends(Stack* local) {
    if (local->use == RUNS || local->use == WAITS) std::abort();
    left(local, -1);
    const bool tells = !local->is_end_seen || random_below(4) == 0;
    if (!tells || everycall_forget_fiber(local->low, local->size)) {
        if (untold_count == 1 << 16) std::abort();
        untold[untold_count++] = {local->low, local->low + local->size};
    }
    local->use = GONE;
    local->using_library = 0;
}
UNTRACED static bool is_local_within(const char* low, const char* high) {
    for (const Stack* local = stacks + FIRST_LOCAL; local < stacks + STACKS; local++)
        if (local->use != GONE && low <= local->low && local->low + local->size <= high + TOP) return true;
    return false;
}
// Bytes that are left on the running stack.
UNTRACED static size_t room_left() {
    return static_cast<char*>(__builtin_frame_address(0)) - current->low;
}
// If the running stack isn't registered, calls in a large frame are taken for those of another stack.
UNTRACED static bool has_large_frames() { return current->is_told || current - stacks < THREADS; }
// Of bytes for a stack in a local variable of the call that runs, so many; 0 for none.
UNTRACED static size_t local_size() {
#ifdef NO_LOCAL_STACKS
    // That one is gone is inferred from calls in its memory, by functions that may be switched off.
    return 0;
#endif
    if (state.on_alternate || !has_large_frames() || random_below(4) == 0 || room_left() < LOCAL_MIN + 2 * ROOM) return 0;
    bool is_one_free = false;
    for (int index = FIRST_LOCAL; index < STACKS; index++) is_one_free |= stacks[index].use == GONE;
    if (!is_one_free) return 0;
    size_t most = room_left() - 2 * ROOM;
    if (most > LOCAL_MAX) most = LOCAL_MAX;
    return most / 2 < LOCAL_MIN || random_below(2) ? most : most / 2;
}
UNTRACED static void begin_on(Stack* stack);
// A stack in a local variable that goes with the innermost call. Mostly, something begins there at once.
UNTRACED static Stack* take_in(char* low, size_t size, bool is_end_seen) {
    Stack* local = stacks + FIRST_LOCAL;
    while (local->use != GONE) local++;
    std::memset(static_cast<void*>(local), 0, sizeof *local);
    local->outer = current;
    local->level = current->track->open_count - 1;
    local->is_end_seen = is_end_seen;
    local->low = low;
    local->size = size;
    while (was_untold(local->low, local->low + local->size)) {
        unsigned from = 16 * random_below(256);
        local->low = low + from;
        local->size = size - from - 16 * random_below(256);
    }
    if (random_below(4)) begin_on(local);
    return local;
}

enum Action { NOTHING, CALL, CALL_WITH_ARGUMENTS, RAISE, THROW, JUMP, LOAD, LIBRARY, SWITCH, YIELD, DEEPER };
UNTRACED static Action choose() {
    if (fuel-- <= 0) return NOTHING;
    unsigned what = random_below(100);
    if (what < 8 && state.catchers > 0) return THROW;
    if (what < 16 && state.jumps > state.first_jump) return JUMP;
    if (what < 22 && !state.on_alternate) return SWITCH;
    if (what < 26) return YIELD;
    if (current->track->open_count > 30 || (!state.on_alternate && room_left() < ROOM)) return NOTHING;
    if (random_below(20) == 0) return DEEPER;
    what = random_below(100);
    if (what < 7 && !state.in_handler) return RAISE;
    if (what < 11 && !state.in_handler) return LOAD;
    if (what < 23) return LIBRARY;
    return what < 47 ? CALL_WITH_ARGUMENTS : CALL;
}

using Function = void (*)();
using WithArguments = void (*)(int, int, int, int, int, int, int, int, int, int);
enum { FUNCTIONS = 200 };
extern const Function functions[FUNCTIONS];
extern const WithArguments with_arguments[20];
UNTRACED static Function pick() { return functions[random_below(FUNCTIONS)]; }
UNTRACED static WithArguments pick_with_arguments() { return with_arguments[random_below(20)]; }

UNTRACED static void jump() {
    int target = state.first_jump + random_below(state.jumps - state.first_jump);
    // What has to be told is told while the frame is there.
    for (Stack* local = stacks + FIRST_LOCAL; local < stacks + STACKS; local++) {
        bool is_left = local->use != GONE && local->outer == current && local->level > current->target_levels[target];
        if (is_left && !local->is_end_seen) ends(local);
    }
    siglongjmp(current->targets[target], 1);
}
UNTRACED static void load() {
    if (library) {
        dlclose(library);
        library = nullptr;
    } else {
        library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
        library_function = reinterpret_cast<void (*)(void (*)())>(dlsym(library, "library_function"));
    }
}
UNTRACED static bool is_loaded() { return library && library_function; }
UNTRACED static bool is_library_used() {
    for (Stack& stack : stacks)
        if (stack.using_library > 0) return true;
    return false;
}

// Goes on where `to` was left, and leaves `mine` to be gone on with.
UNTRACED static void switch_to(Stack* to) {
    Stack* mine = current;
    void** handled = reinterpret_cast<void**>(abi::__cxa_get_globals());
    std::memcpy(mine->handled, handled, sizeof mine->handled);
    std::memcpy(handled, to->handled, sizeof to->handled);
    if (mine->use == RUNS) mine->use = SUSPENDED;
    to->use = RUNS;
    current = to;
    if (to->is_left_by_jump || random_below(2)) {
        mine->is_left_by_jump = true;
        if (sigsetjmp(mine->left_at, 0)) return;
        if (to->is_left_by_jump) siglongjmp(to->left_at, 1);
        void* left;
        switch_stack(&left, to->left);
    } else {
        mine->is_left_by_jump = false;
        switch_stack(&mine->left, to->left);
    }
}
// One that the thread may go on with: not the other one's own.
UNTRACED static bool is_ours(const Stack* stack) {
    return stack - stacks >= THREADS || stack - stacks == whose_turn;
}
UNTRACED static Stack* pick_suspended() {
    for (;;) {
        Stack* stack = &stacks[random_below(STACKS)];
        if (stack->use == SUSPENDED && is_ours(stack)) return stack;
    }
}
UNTRACED static void use_alternate_stack() {
    stack_t stack;
    std::memset(&stack, 0, sizeof stack);
    stack.ss_sp = alternate[whose_turn];
    stack.ss_size = sizeof alternate[whose_turn];
    sigaltstack(&stack, nullptr);
}
// A handler that returns in another thread leaves it the alternate stack of the one that it began in.
UNTRACED static void raise_signal(int signal) {
    use_alternate_stack();
    std::raise(signal);
}
UNTRACED static void wait_for_turn(int thread) {
    while (sem_wait(&turns[thread])) {}
}
UNTRACED static void give_turn_to(int thread) {
    whose_turn = thread;
    current = stopped_at[thread];
    current->use = RUNS;
    sem_post(&turns[thread]);
}
UNTRACED static void* second_thread(void*);
// The other thread's turn.
UNTRACED static void yield_turn() {
    // What lies in a frame of a stack would keep that one waiting, too.
    if (current - stacks >= FIRST_LOCAL) return;
    int mine = whose_turn;
    stopped_at[mine] = current;
    current->use = WAITS;
    if (!has_second) {
        has_second = true;
        stacks[1] = {};
        stopped_at[1] = &stacks[1];
        if (pthread_create(&second, nullptr, second_thread, nullptr)) std::abort();
    }
    give_turn_to(1 - mine);
    wait_for_turn(mine);
}
C F void fiber_main();
UNTRACED static void begins(void*) {
    if (!current->track) new_track();
    fiber_main();
    current->use = UNUSED;
    switch_to(pick_suspended());
    std::abort();
}
UNTRACED static void tell(Stack* stack) {
    if (random_below(3) == 0) {
        if (everycall_fiber(stack->low, stack->size, nullptr)) std::abort();
        return;
    }
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack->low;
    context.uc_stack.ss_size = stack->size;
    context.uc_link = nullptr;
    makecontext(&context, nullptr, 0);
}
// Another one begins on this stack. The calls before were left, be it that this is told or that the stack pointers show it.
UNTRACED static void begin_on(Stack* stack) {
    left(stack, -1);
    const bool is_local = stack - stacks >= FIRST_LOCAL;
    if (!stack->low || (is_local && !stack->is_told) || MUST_TELL || random_below(8) == 0) {
        if (!stack->low) {
            stack->size = STACK_SIZE;
            stack->low = static_cast<char*>(map_stack(stack->size));
        }
        if (is_local || MUST_TELL || random_below(2)) {
            tell(stack);
            // What was a guess before is another stack's.
            if (!stack->is_told) stack->track = nullptr;
            stack->is_told = true;
        }
    }
    stack->now = {};
    stack->using_library = 0;
    stack->is_left_by_jump = false;
    std::memset(stack->handled, 0, sizeof stack->handled);
    stack->left = fresh_stack(stack->low, stack->size, begins, nullptr);
    switch_to(stack);
}
// Whether the running stack lies in a frame of this one.
UNTRACED static bool is_around(const Stack* stack) {
    for (const Stack* inner = current->outer; inner; inner = inner->outer)
        if (inner == stack) return true;
    return false;
}
// To another stack: one that is suspended, or a new one, perhaps where one was suspended that is abandoned.
UNTRACED static void switch_stacks() {
    Stack* stack = &stacks[random_below(STACKS)];
    while (stack->use == GONE) stack = &stacks[random_below(STACKS)];
    if (stack == current || stack->use == WAITS || !is_ours(stack)) return;
    bool may_abandon = stack->use == SUSPENDED && stack - stacks >= THREADS && !is_around(stack);
    bool is_abandoned = may_abandon && random_below(6) == 0;
    if (stack->use == UNUSED || is_abandoned)
        begin_on(stack);
    else
        switch_to(stack);
}
#endif
