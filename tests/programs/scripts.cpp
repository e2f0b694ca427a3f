// Runs random scripts over 200 traced functions: calls, calls with arguments on the stack, throws, rethrows, catches, jumps, tail calls,
// signals on the thread's own and an alternate stack, destructors, a library that is loaded, called and unloaded, stacks that are begun, switched
// to, abandoned and begun anew, by either of two threads, which take turns: what one has left the other may go on with. The second one
// ends now and then. Some stacks lie in local variables, of traced functions and of others, on threads' stacks and in each other: they
// are gone when the function has returned, has thrown or was jumped over. Keeps the true call tree of each stack in arrays of its own, from what the functions themselves do, and prints
// them, with `--` between two stacks: one call a line, two columns further for each level, `!` where it was left, `~` where it is open at the
// end; `*throw int` and `*catch int` where these happened.
//
//   scripts FIRST COUNT LIBRARY      seeds FIRST .. FIRST + COUNT
//
// -DNO_TAIL_CALLS: the mode's hooks come behind what would be a tail call. They get the stack pointers of frames, which inlined calls share: so where
// another stack begins in the memory of one that was left has to be told.
#include "scripts.h"

C F void deeper(int more);
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
        if (!is_library_used() && has_large_frames()) load();           \
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
    case DEEPER: deeper(10 + random_below(30)); break;                  \
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
        current->target_levels[state.jumps] = level;   \
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
// A stack in a local variable, on which hooks within the frame have a stack pointer above it.
#define HOUSES(name)                                                           \
    C F void name() {                                                            \
        int level = enter(#name);                                              \
        if (size_t size = local_size()) take_in(static_cast<char*>(__builtin_alloca(size)), size, true); \
        DO_THINGS;                                                             \
        leave(level);                                                          \
        HERE;                                                                  \
    }
// One in a frame that they lie below. What its caller does next, it does from another place, deep enough to come to the stack's memory; not with
// arguments on the stack.
C F void has_array() {
    char stack[ARRAY] __attribute__((aligned(16)));
    int level = enter("has_array");
    take_in(stack, sizeof stack, true);
    DO_THINGS;
    leave(level);
    HERE;
}
#define HOSTS(name)                            \
    C F void name() {                            \
        int level = enter(#name);              \
        DO_SOMETHING;                          \
        if (local_size() >= ARRAY) {           \
            has_array();                       \
            if (MUST_TELL) deeper(10 + random_below(10)); \
        }                                      \
        DO_THINGS;                             \
        leave(level);                          \
        HERE;                                  \
    }
// One in a frame that isn't traced: no more can be seen than the end of the traced call around it.
struct Lodging {
    UNTRACED ~Lodging() {
        if (local) ends(local);
    }
    Stack* local;
};
UNTRACED static void lodge() {
    Lodging lodging{nullptr};
    if (size_t size = local_size()) lodging.local = take_in(static_cast<char*>(__builtin_alloca(size)), size, false);
    DO_THINGS;
}
UNTRACED static void lodge_at_last() {
    if (size_t size = local_size()) take_in(static_cast<char*>(__builtin_alloca(size)), size, true);
    DO_THINGS;
}
#define LODGES(name)                           \
    C F void name() {                            \
        int level = enter(#name);              \
        if (random_below(2)) {                 \
            lodge();                           \
            DO_THINGS;                         \
        } else {                               \
            lodge_at_last();                   \
        }                                      \
        leave(level);                          \
        HERE;                                  \
    }
C F void deeper(int more) {
    int level = enter("deeper");
    char room[400];
    __asm__ volatile("" : : "r"(room) : "memory");
    if (more > 0) {
        deeper(more - 1);
    } else {
        DO_SOMETHING;
    }
    leave(level);
    HERE;
}
#define TEN(kind, t) kind(t##0) kind(t##1) kind(t##2) kind(t##3) kind(t##4) kind(t##5) kind(t##6) kind(t##7) kind(t##8) kind(t##9)
TEN(PLAIN, plain0) TEN(PLAIN, plain1) TEN(PLAIN, plain2)
TEN(HOUSES, houses0) TEN(HOSTS, hosts0) TEN(LODGES, lodges0)
TEN(CATCHES, catches0) TEN(CATCHES, catches1) TEN(CATCHES, catches2) TEN(CATCHES, catches3)
TEN(IS_TARGET, target0) TEN(IS_TARGET, target1) TEN(IS_TARGET, target2) TEN(IS_TARGET, target3)
TEN(GUARDED, guarded0) TEN(GUARDED, guarded1)
TEN(LARGE, large0) TEN(LARGE, large1)
TEN(TAIL, tail0) TEN(TAIL, tail1)
TEN(ARGUMENTS, arguments0) TEN(ARGUMENTS, arguments1)
#define LISTED(name) name,
const Function functions[FUNCTIONS] = {
    TEN(LISTED, plain0) TEN(LISTED, plain1) TEN(LISTED, plain2)
    TEN(LISTED, houses0) TEN(LISTED, hosts0) TEN(LISTED, lodges0)
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
    stacks[1].low = static_cast<char*>(__builtin_frame_address(0)) - THREAD_STACK_SIZE;
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
    stacks[0].low = static_cast<char*>(__builtin_frame_address(0)) - THREAD_STACK_SIZE;
    for (Stack* local = stacks + FIRST_LOCAL; local < stacks + STACKS; local++) local->use = GONE;
    new_track();
    for (unsigned long long script = first; script < first + scripts; script++) {
        seed = (script + 1) * 0x9e3779b97f4a7c15;
        fuel = 60;
        while (fuel > 0) plain00();
    }
    // Where nothing happened since, nothing shows that they are gone.
    for (int index = 0; index < untold_count; index++)
        if (!is_local_within(untold[index].low, untold[index].high))
            everycall_forget_fiber(untold[index].low, untold[index].high - untold[index].low);
    for (int track = 0; track < track_count; track++) {
        if (track > 0) std::puts("--");
        mark_open(tracks[track], -1, "~");
        for (const Line* line = tracks[track]->lines; line < tracks[track]->lines + tracks[track]->count; line++) {
            std::printf("%*s%s%s\n", 2 * line->depth, "", line->name, line->mark);
        }
    }
}
