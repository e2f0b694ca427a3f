// Runs random scripts over 200 traced functions: calls, calls with arguments on the stack, throws, rethrows, catches, jumps, tail calls,
// signals on the thread's own and an alternate stack, destructors, a library that is loaded, called and unloaded. Keeps the true call tree in
// arrays of its own, from what the functions themselves do, and prints it: one call a line, two columns further for each level, `!` where
// it was left; `*throw int` and `*catch int` where these happened.
//
//   scripts FIRST COUNT LIBRARY      seeds FIRST .. FIRST + COUNT
//
// -DNO_TAIL_CALLS: the mode's hooks come behind what would be a tail call.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <vector>

#if defined(__clang__)
#define F extern "C" __attribute__((noinline))
#define M __attribute__((noinline))
#define UNTRACED __attribute__((no_instrument_function, xray_never_instrument, noinline))
#else
#define F extern "C" __attribute__((noipa))
#define M __attribute__((noipa))
#define UNTRACED __attribute__((no_instrument_function, noipa))
#endif
#define HERE __asm__ volatile("" ::: "memory")

// The truth. Lines as they begin; the stack holds the lines of the calls that are open.
struct Line {
    int depth;
    const char* name;
    bool left;
};
static Line* lines;
static int line_count, line_capacity;
static int open_lines[256], open_count;

UNTRACED static int line(const char* name) {
    if (line_count == line_capacity) {
        line_capacity = line_capacity ? 2 * line_capacity : 1 << 16;
        lines = static_cast<Line*>(std::realloc(lines, line_capacity * sizeof *lines));
    }
    lines[line_count] = {open_count, name, false};
    return line_count++;
}
// The level of the call that begins.
UNTRACED static int enter(const char* name) {
    int number = line(name);
    open_lines[open_count] = number;
    return open_count++;
}
UNTRACED static void leave(int level) {
    if (open_count != level + 1) std::abort();
    open_count = level;
}
// Execution goes on in the call of this level: all within it were left.
UNTRACED static void back_in(int level) {
    while (open_count > level + 1) lines[open_lines[--open_count]].left = true;
}

// What may happen now.
struct State {
    int catchers; // around, within this handler or destructor
    int first_jump; // targets before this one may not be jumped to
    int jumps; // targets
    bool in_handler;
};
static State state;
static sigjmp_buf targets[256];
static int fuel;
static unsigned long long seed;
static void* library;
static void (*library_function)(void (*)());
static const char* library_path;
static char alternate[1 << 17] __attribute__((aligned(16)));

UNTRACED static unsigned random_below(unsigned limit) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return static_cast<unsigned>(seed >> 33) % limit;
}

enum Action { NOTHING, CALL, CALL_WITH_ARGUMENTS, RAISE, THROW, JUMP, LOAD, LIBRARY };
UNTRACED static Action choose() {
    if (fuel-- <= 0) return NOTHING;
    unsigned what = random_below(100);
    if (what < 8 && state.catchers > 0) return THROW;
    if (what < 16 && state.jumps > state.first_jump) return JUMP;
    if (open_count > 30) return NOTHING;
    if (what < 22 && !state.in_handler) return RAISE;
    if (what < 25 && !state.in_handler) return LOAD;
    if (what < 35) return LIBRARY;
    return what < 55 ? CALL_WITH_ARGUMENTS : CALL;
}

using Function = void (*)();
using WithArguments = void (*)(int, int, int, int, int, int, int, int, int, int);
extern const Function functions[180];
extern const WithArguments with_arguments[20];
UNTRACED static Function pick() { return functions[random_below(180)]; }
UNTRACED static WithArguments pick_with_arguments() { return with_arguments[random_below(20)]; }

UNTRACED static void jump() {
    int target = state.first_jump + random_below(state.jumps - state.first_jump);
    siglongjmp(targets[target], 1);
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
static int using_library;

// One thing that a function does.
#define DO_SOMETHING                                                    \
    switch (choose()) {                                                 \
    case NOTHING: break;                                                \
    case CALL: pick()(); break;                                         \
    case CALL_WITH_ARGUMENTS: pick_with_arguments()(1, 2, 3, 4, 5, 6, 7, 8, 9, 10); break; \
    case RAISE: std::raise(random_below(2) ? SIGUSR1 : SIGUSR2); break; \
    case THROW:                                                         \
        line("*throw int");                                             \
        throw 1;                                                        \
    case JUMP: jump(); break;                                           \
    case LOAD:                                                          \
        if (!using_library) load();                                     \
        break;                                                          \
    case LIBRARY:                                                       \
        if (is_loaded()) {                                              \
            int level_ = enter("library_function");                     \
            using_library++;                                            \
            library_function(pick());                                   \
            using_library--;                                            \
            leave(level_);                                              \
        }                                                               \
        break;                                                          \
    }                                                                   \
    HERE
#define DO_THINGS for (int left_ = random_below(5); left_ > 0; left_--) { DO_SOMETHING; }

#define PLAIN(name)             \
    F void name() {             \
        int level = enter(#name); \
        DO_THINGS;              \
        leave(level);           \
        HERE;                   \
    }
#define CATCHES(name)                                          \
    F void name() {                                            \
        const int level = enter(#name);                        \
        const State before = state;                            \
        const int users = using_library;                       \
        try {                                                  \
            state.catchers++;                                  \
            DO_THINGS;                                         \
            state.catchers--;                                  \
        } catch (int) {                                        \
            back_in(level);                                    \
            line("*catch int");                                \
            using_library = users;                             \
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
    F void name() {                                    \
        static int users[256];                         \
        static State befores[256];                     \
        const int level = enter(#name);                \
        users[level] = using_library;                  \
        befores[level] = state;                        \
        volatile int again = 0;                        \
        volatile int mine = level;                     \
        if (sigsetjmp(targets[state.jumps], 1)) {      \
            back_in(mine);                             \
            state = befores[mine];                     \
            using_library = users[mine];               \
            again = again + 1;                         \
        }                                              \
        if (again < 2) {                               \
            state.jumps++;                             \
            DO_THINGS;                                 \
        }                                              \
        state = befores[mine];                         \
        DO_SOMETHING;                                  \
        leave(mine);                                   \
        HERE;                                          \
    }
struct Guard {
    M ~Guard() {
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
    F void name() {                           \
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
    F void name() {                                                            \
        int level = enter(#name);                                              \
        unsigned char* room = static_cast<unsigned char*>(__builtin_alloca(16 + random_below(3000))); \
        __asm__ volatile("" : : "r"(room) : "memory");                         \
        DO_THINGS;                                                             \
        leave(level);                                                          \
        HERE;                                                                  \
    }
#define ARGUMENTS(name)                                                        \
    F void name(int a, int, int, int, int, int, int, int, int, int j) {        \
        int level = enter(#name);                                              \
        if (a + j != 11) std::abort();                                         \
        DO_THINGS;                                                             \
        leave(level);                                                          \
        HERE;                                                                  \
    }
#ifdef NO_TAIL_CALLS
#define TAIL(name)                \
    F void name() {               \
        int level = enter(#name); \
        DO_SOMETHING;             \
        pick()();                 \
        leave(level);             \
        HERE;                     \
    }
#else
#define TAIL(name)                \
    F void name() {               \
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

F void handler(int) {
    int level = enter("handler");
    const State before = state;
    state.catchers = 0;
    state.in_handler = true;
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

UNTRACED int main(int count, char** arguments) {
    if (count < 4) return 2;
    library_path = arguments[3];
    stack_t stack;
    std::memset(&stack, 0, sizeof stack);
    stack.ss_sp = alternate;
    stack.ss_size = sizeof alternate;
    sigaltstack(&stack, nullptr);
    handle(SIGUSR1, 0);
    handle(SIGUSR2, SA_ONSTACK);
    unsigned long long first = std::strtoull(arguments[1], nullptr, 10);
    unsigned long long scripts = std::strtoull(arguments[2], nullptr, 10);
    for (unsigned long long script = first; script < first + scripts; script++) {
        seed = (script + 1) * 0x9e3779b97f4a7c15;
        fuel = 60;
        state = {};
        using_library = 0;
        while (fuel > 0) plain00();
    }
    for (int i = 0; i < line_count; i++)
        std::printf("%*s%s%s\n", 2 * lines[i].depth, "", lines[i].name, lines[i].left ? "!" : "");
}
