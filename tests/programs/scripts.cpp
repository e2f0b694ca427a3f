// Runs random scripts over 200 traced functions: calls, calls with arguments on the stack, throws, rethrows, catches, jumps, tail calls,
// signals on the thread's own and an alternate stack, destructors, a library that is loaded, called and unloaded, stacks that are begun, switched
// to, abandoned and begun anew, by either of two threads, which take turns: what one has left the other may go on with. The second one
// ends now and then. Keeps the true call tree of each stack in arrays of its own, from what the functions themselves do, and prints
// them, with `--` between two stacks: one call a line, two columns further for each level, `!` where it was left, `~` where it is open at the
// end; `*throw int` and `*catch int` where these happened.
//
//   scripts FIRST COUNT LIBRARY      seeds FIRST .. FIRST + COUNT
//
// -DNO_TAIL_CALLS: the mode's hooks come behind what would be a tail call. They get the stack pointers of frames, which inlined calls share: so where
// another stack begins in the memory of one that was left has to be told.
#include "../trees/switch.h"
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
// WAITS: its thread waits on it for its turn.
enum Use { UNUSED, SUSPENDED, RUNS, WAITS };
// A stack: the first ones are the threads' own.
struct Stack {
    Use use;
    Track* track;
    State now;
    sigjmp_buf targets[256];
    int using_library;
    void* low;
    bool is_told;
    // Where it was left: for a jump or for a switch.
    bool is_left_by_jump;
    sigjmp_buf left_at;
    void* left;
    // The C++ library's: exceptions that are being handled.
    void* handled[2];
};
enum { THREADS = 2, STACKS = 7, STACK_SIZE = 256 << 10, TRACKS = 1 << 17 };
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
UNTRACED static void leave(int level) {
    if (current->track->open_count != level + 1) std::abort();
    current->track->open_count = level;
}
UNTRACED static void mark_open(Track* track, int level, const char* mark) {
    while (track->open_count > level + 1) track->lines[track->open_lines[--track->open_count]].mark = mark;
}
// Execution goes on in the call of this level: all within it were left.
UNTRACED static void back_in(int level) { mark_open(current->track, level, "!"); }

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

enum Action { NOTHING, CALL, CALL_WITH_ARGUMENTS, RAISE, THROW, JUMP, LOAD, LIBRARY, SWITCH, YIELD };
UNTRACED static Action choose() {
    if (fuel-- <= 0) return NOTHING;
    unsigned what = random_below(100);
    if (what < 8 && state.catchers > 0) return THROW;
    if (what < 16 && state.jumps > state.first_jump) return JUMP;
    if (what < 22 && !state.on_alternate) return SWITCH;
    if (what < 26) return YIELD;
    if (current->track->open_count > 30) return NOTHING;
    what = random_below(100);
    if (what < 7 && !state.in_handler) return RAISE;
    if (what < 11 && !state.in_handler) return LOAD;
    if (what < 23) return LIBRARY;
    return what < 47 ? CALL_WITH_ARGUMENTS : CALL;
}

using Function = void (*)();
using WithArguments = void (*)(int, int, int, int, int, int, int, int, int, int);
extern const Function functions[180];
extern const WithArguments with_arguments[20];
UNTRACED static Function pick() { return functions[random_below(180)]; }
UNTRACED static WithArguments pick_with_arguments() { return with_arguments[random_below(20)]; }

UNTRACED static void jump() {
    int target = state.first_jump + random_below(state.jumps - state.first_jump);
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
// Another one begins on this stack. The calls before were left, be it that this is told or that the stack pointers show it.
UNTRACED static void begin_on(Stack* stack) {
    if (stack->track) mark_open(stack->track, -1, "!");
    if (!stack->low || MUST_TELL || random_below(8) == 0) {
        if (!stack->low) stack->low = map_stack(STACK_SIZE);
        if (MUST_TELL || random_below(2)) {
            ucontext_t context;
            getcontext(&context);
            context.uc_stack.ss_sp = stack->low;
            context.uc_stack.ss_size = STACK_SIZE;
            context.uc_link = nullptr;
            makecontext(&context, nullptr, 0);
            // What was a guess before is another stack's.
            if (!stack->is_told) stack->track = nullptr;
            stack->is_told = true;
        }
    }
    stack->now = {};
    stack->using_library = 0;
    stack->is_left_by_jump = false;
    std::memset(stack->handled, 0, sizeof stack->handled);
    stack->left = fresh_stack(stack->low, STACK_SIZE, begins, nullptr);
    switch_to(stack);
}
// To another stack: one that is suspended, or a new one, perhaps where one was suspended that is abandoned.
UNTRACED static void switch_stacks() {
    Stack* stack = &stacks[random_below(STACKS)];
    if (stack == current || stack->use == WAITS || !is_ours(stack)) return;
    bool is_abandoned = stack->use == SUSPENDED && stack - stacks >= THREADS && random_below(6) == 0;
    if (stack->use == UNUSED || is_abandoned)
        begin_on(stack);
    else
        switch_to(stack);
}

// One thing that a function does.
#define DO_SOMETHING                                                    \
    switch (choose()) {                                                 \
    case NOTHING: break;                                                \
    case CALL: pick()(); break;                                         \
    case CALL_WITH_ARGUMENTS: pick_with_arguments()(1, 2, 3, 4, 5, 6, 7, 8, 9, 10); break; \
    case RAISE: raise_signal(random_below(2) ? SIGUSR1 : SIGUSR2); break; \
    case THROW:                                                         \
        line("*throw int");                                             \
        throw 1;                                                        \
    case JUMP: jump(); break;                                           \
    case LOAD:                                                          \
        if (!is_library_used()) load();                                 \
        break;                                                          \
    case LIBRARY:                                                       \
        if (is_loaded()) {                                              \
            int level_ = enter("library_function");                     \
            current->using_library++;                                   \
            library_function(pick());                                   \
            current->using_library--;                                   \
            leave(level_);                                              \
        }                                                               \
        break;                                                          \
    case SWITCH: switch_stacks(); break;                                \
    case YIELD: yield_turn(); break;                                    \
    }                                                                   \
    HERE
#define DO_THINGS for (int left_ = random_below(5); left_ > 0; left_--) { DO_SOMETHING; }

#define PLAIN(name)             \
    C F void name() {             \
        int level = enter(#name); \
        DO_THINGS;              \
        leave(level);           \
        HERE;                   \
    }
#define CATCHES(name)                                          \
    C F void name() {                                            \
        const int level = enter(#name);                        \
        const State before = state;                            \
        const int users = current->using_library;              \
        try {                                                  \
            state.catchers++;                                  \
            DO_THINGS;                                         \
            state.catchers--;                                  \
        } catch (int) {                                        \
            back_in(level);                                    \
            line("*catch int");                                \
            current->using_library = users;                    \
            state = before;                                    \
            state.first_jump = state.jumps;                    \
            DO_SOMETHING;                                      \
            if (state.catchers > 0 && random_below(3) == 0) {  \
                line("*throw int");                            \
                throw;                                         \
            }                                                  \
        }                                                      \
        state = before;                                        \
        DO_SOMETHING;                                          \
        leave(level);                                          \
        HERE;                                                  \
    }
#define IS_TARGET(name)                                \
    C F void name() {                                    \
        static int users[STACKS][256];                 \
        static State befores[STACKS][256];             \
        const int level = enter(#name);                \
        volatile int again = 0;                        \
        volatile int mine = level, stack = current - stacks; \
        users[stack][level] = current->using_library;  \
        befores[stack][level] = state;                 \
        if (sigsetjmp(current->targets[state.jumps], 1)) { \
            back_in(mine);                             \
            state = befores[stack][mine];              \
            current->using_library = users[stack][mine]; \
            again = again + 1;                         \
        }                                              \
        if (again < 2) {                               \
            state.jumps++;                             \
            DO_THINGS;                                 \
        }                                              \
        state = befores[stack][mine];                  \
        DO_SOMETHING;                                  \
        leave(mine);                                   \
        HERE;                                          \
    }
struct Guard {
    F ~Guard() {
        int level = enter("Guard::~Guard()");
        const State before = state;
        state.catchers = 0;
        state.first_jump = state.jumps;
        DO_SOMETHING;
        state = before;
        leave(level);
        HERE;
    }
    // What an exception leaves has ended when the destructor runs.
    int level;
};
struct Unwinding {
    UNTRACED explicit Unwinding(int level) : level(level) {}
    UNTRACED ~Unwinding() { back_in(level); }
    int level;
};
#define GUARDED(name)                         \
    C F void name() {                           \
        int level = enter(#name);             \
        {                                     \
            Guard guard{level};               \
            Unwinding first(level);           \
            DO_THINGS;                        \
        }                                     \
        leave(level);                         \
        HERE;                                 \
    }
#define LARGE(name)                                                            \
    C F void name() {                                                            \
        int level = enter(#name);                                              \
        unsigned char* room = static_cast<unsigned char*>(__builtin_alloca(16 + random_below(3000))); \
        __asm__ volatile("" : : "r"(room) : "memory");                         \
        DO_THINGS;                                                             \
        leave(level);                                                          \
        HERE;                                                                  \
    }
#define ARGUMENTS(name)                                                        \
    C F void name(int a, int, int, int, int, int, int, int, int, int j) {        \
        int level = enter(#name);                                              \
        if (a + j != 11) std::abort();                                         \
        DO_THINGS;                                                             \
        leave(level);                                                          \
        HERE;                                                                  \
    }
#ifdef NO_TAIL_CALLS
#define TAIL(name)                \
    C F void name() {               \
        int level = enter(#name); \
        DO_SOMETHING;             \
        pick()();                 \
        leave(level);             \
        HERE;                     \
    }
#else
#define TAIL(name)                \
    C F void name() {               \
        int level = enter(#name); \
        DO_SOMETHING;             \
        leave(level);             \
        return pick()();          \
    }
#endif
#define TEN(kind, t) kind(t##0) kind(t##1) kind(t##2) kind(t##3) kind(t##4) kind(t##5) kind(t##6) kind(t##7) kind(t##8) kind(t##9)
TEN(PLAIN, plain0) TEN(PLAIN, plain1) TEN(PLAIN, plain2) TEN(PLAIN, plain3)
TEN(CATCHES, catches0) TEN(CATCHES, catches1) TEN(CATCHES, catches2) TEN(CATCHES, catches3)
TEN(IS_TARGET, target0) TEN(IS_TARGET, target1) TEN(IS_TARGET, target2) TEN(IS_TARGET, target3)
TEN(GUARDED, guarded0) TEN(GUARDED, guarded1)
TEN(LARGE, large0) TEN(LARGE, large1)
TEN(TAIL, tail0) TEN(TAIL, tail1)
TEN(ARGUMENTS, arguments0) TEN(ARGUMENTS, arguments1)
#define LISTED(name) name,
const Function functions[180] = {
    TEN(LISTED, plain0) TEN(LISTED, plain1) TEN(LISTED, plain2) TEN(LISTED, plain3)
    TEN(LISTED, catches0) TEN(LISTED, catches1) TEN(LISTED, catches2) TEN(LISTED, catches3)
    TEN(LISTED, target0) TEN(LISTED, target1) TEN(LISTED, target2) TEN(LISTED, target3)
    TEN(LISTED, guarded0) TEN(LISTED, guarded1) TEN(LISTED, large0) TEN(LISTED, large1)
    TEN(LISTED, tail0) TEN(LISTED, tail1)
};
const WithArguments with_arguments[20] = {TEN(LISTED, arguments0) TEN(LISTED, arguments1)};

PLAIN(fiber_main)
C F void handler(int signal) {
    int level = enter("handler");
    const State before = state;
    state.catchers = 0;
    state.in_handler = true;
    state.on_alternate = signal == SIGUSR2;
    DO_THINGS;
    state = before;
    leave(level);
    HERE;
}

UNTRACED static void handle(int signal, int flags) {
    struct sigaction action;
    std::memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(signal, &action, nullptr);
}

// It ends at some of its turns.
UNTRACED static void* second_thread(void*) {
    pthread_detach(pthread_self());
    // It may have been begun in a handler: a signal that waits would be let through by a jump, before it is made.
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    wait_for_turn(1);
    do {
        if (!current->track) new_track();
        plain00();
        while (fuel > 0) plain00();
        if (random_below(4)) yield_turn();
    } while (random_below(8));
    has_second = false;
    current->use = UNUSED;
    give_turn_to(0);
    return nullptr;
}
UNTRACED int main(int count, char** arguments) {
    if (count < 4) return 2;
    library_path = arguments[3];
    for (sem_t& turn : turns) sem_init(&turn, 0, 0);
    // It may be left by a switch: it doesn't keep the next one back.
    handle(SIGUSR1, SA_NODEFER);
    handle(SIGUSR2, SA_ONSTACK);
    unsigned long long first = std::strtoull(arguments[1], nullptr, 10);
    unsigned long long scripts = std::strtoull(arguments[2], nullptr, 10);
    stacks[0].use = RUNS;
    new_track();
    for (unsigned long long script = first; script < first + scripts; script++) {
        seed = (script + 1) * 0x9e3779b97f4a7c15;
        fuel = 60;
        while (fuel > 0) plain00();
    }
    for (int track = 0; track < track_count; track++) {
        if (track > 0) std::puts("--");
        mark_open(tracks[track], -1, "~");
        for (const Line* line = tracks[track]->lines; line < tracks[track]->lines + tracks[track]->count; line++) {
            std::printf("%*s%s%s\n", 2 * line->depth, "", line->name, line->mark);
        }
    }
}
