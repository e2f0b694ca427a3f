// Steps through traced functions by the trap flag and walks the stack at every instruction, as a profiler's signal
// handler would. Between traced functions stand frames of assembly that hold a known value in each callee-saved register.
// A walk is right if it gets through to `main`, past the very functions that are open, and finds those values.
//
// Arguments: gcc (libgcc's unwinder), llvm PATH (LLVM's), or nongnu PATH (libunwind's, which gperftools takes).
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#define UNTRACED __attribute__((no_instrument_function, noinline))
#if defined(__clang__)
#define NEVER __attribute__((no_instrument_function, noinline, xray_never_instrument))
#else
#define NEVER UNTRACED
#endif

// Each frame fills the six registers with its own value, plus 0 to 5, calls what it was given, and ends.
#define FRAME(name, value)                                                                                             \
    __asm__(".pushsection .text\n" #name ":\n.cfi_startproc\n"                                                         \
            "pushq %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset %rbx, -16\n"                                              \
            "pushq %rbp\n.cfi_def_cfa_offset 24\n.cfi_offset %rbp, -24\n"                                              \
            "pushq %r12\n.cfi_def_cfa_offset 32\n.cfi_offset %r12, -32\n"                                              \
            "pushq %r13\n.cfi_def_cfa_offset 40\n.cfi_offset %r13, -40\n"                                              \
            "pushq %r14\n.cfi_def_cfa_offset 48\n.cfi_offset %r14, -48\n"                                              \
            "pushq %r15\n.cfi_def_cfa_offset 56\n.cfi_offset %r15, -56\n"                                              \
            "movq $" #value ", %rbx\nmovq $" #value "+1, %rbp\nmovq $" #value "+2, %r12\n"                             \
            "movq $" #value "+3, %r13\nmovq $" #value "+4, %r14\nmovq $" #value "+5, %r15\n"                           \
            "movq %rdi, %rax\nmovq %rsi, %rdi\ncall *%rax\n" #name "_called:\n"                                        \
            "popq %r15\n.cfi_def_cfa_offset 48\npopq %r14\n.cfi_def_cfa_offset 40\npopq %r13\n"                        \
            ".cfi_def_cfa_offset 32\npopq %r12\n.cfi_def_cfa_offset 24\npopq %rbp\n.cfi_def_cfa_offset 16\n"           \
            "popq %rbx\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n.size " #name ", .-" #name                           \
            "\n.type " #name ", @function\n.popsection");                                                              \
    extern "C" long name(long (*function)(long), long argument) __attribute__((visibility("hidden")));                 \
    extern "C" char name##_called[] __attribute__((visibility("hidden")));

FRAME(frame_outer, 0x5100000)
FRAME(frame_inner, 0x6200000)

static const int registers[6] = {3, 6, 12, 13, 14, 15};

// ---- What is walked through -----------------------------------------------------------------------------------------

#define TRACED extern "C" __attribute__((noinline, visibility("hidden")))
volatile long sink;
long (*volatile indirect)(long);

TRACED long leaf(long n) {
    sink = sink + n;
    return n + 1;
}
TRACED long empty(long n) { return n; }
TRACED long saves_all(long n) {
    long a = leaf(n), b = leaf(a), c = leaf(b + a), d = leaf(c + b), e = leaf(d + c), f = leaf(e + d);
    return a + b * 3 + c * 5 + d * 7 + e * 11 + f * 13 + frame_inner(leaf, a + b + c + d + e + f) + a + b + c + d + e + f;
}
TRACED long early(long n) {
    if (n < 100) return n;
    long s = 0;
    for (long i = 0; i < 2; i++) s += leaf(i) * n;
    return s + frame_inner(empty, s);
}
TRACED long early_taken(long n) { return early(n) + early(n + 200); }
TRACED long jumps(long n) {
    long a = leaf(n), b = leaf(a + n);
    return saves_all(a + b + n);
}
TRACED long jumps_indirectly(long n) {
    long a = leaf(n), b = leaf(a + n);
    return indirect(a + b + n);
}
TRACED long jumps_at_once(long n) { return early(n + 100); }
TRACED long aligned(long n) {
    alignas(64) volatile long wide[16];
    char *some = static_cast<char *>(__builtin_alloca(static_cast<size_t>(n & 31) + 16));
    wide[n & 15] = n;
    some[0] = static_cast<char>(n);
    sink = reinterpret_cast<intptr_t>(some) & 1;
    long a = frame_inner(leaf, wide[n & 15]);
    return leaf(a) + wide[n & 15];
}
TRACED long large(long n) {
    volatile char much[5000];
    much[n & 1023] = 3;
    long a = leaf(n);
    return frame_inner(leaf, much[n & 1023]) + a;
}
TRACED long varies(long n, ...) {
    va_list list;
    va_start(list, n);
    long a = va_arg(list, long) + leaf(n), b = va_arg(list, long);
    va_end(list);
    return frame_inner(leaf, a) + a * b;
}
TRACED long calls_varying(long n) { return varies(n, n, n) + n; }
struct Pair {
    long values[5];
};
TRACED Pair pairs(long a, long b, long c, long d, long e, long f, long g, long h) {
    long x = leaf(a + b), y = leaf(c + d);
    return Pair{{x + y, e, f, g + frame_inner(leaf, x), h + y}};
}
TRACED long calls_pairs(long n) { return pairs(n, n, n, n, n, n, n, n).values[3] + n; }
TRACED long recurses(long n) { return n < 1 ? frame_inner(leaf, n) : recurses(n - 1) + leaf(n); }
TRACED long floats(long n) {
    double x = static_cast<double>(n), y = x * 2;
    leaf(n);
    y = y * x;
    return frame_inner(leaf, static_cast<long>(y)) + static_cast<long>(x + y);
}

struct Case {
    const char *name;
    long (*function)(long);
};
static const Case cases[] = {
    {"leaf", leaf},         {"empty", empty},
    {"saves_all", saves_all}, {"early", early_taken},
    {"jumps", jumps},       {"jumps_indirectly", jumps_indirectly},
    {"jumps_at_once", jumps_at_once}, {"aligned", aligned},
    {"large", large},       {"varies", calls_varying},
    {"pairs", calls_pairs}, {"recurses", recurses},
    {"floats", floats},
};
static const struct {
    const char *name;
    void *start;
} known[] = {
#define KNOWN(f) {#f, reinterpret_cast<void *>(f)}
    KNOWN(leaf),          KNOWN(empty),   KNOWN(saves_all),     KNOWN(early),    KNOWN(early_taken), KNOWN(jumps),
    KNOWN(jumps_indirectly), KNOWN(jumps_at_once), KNOWN(aligned), KNOWN(large), KNOWN(varies), KNOWN(calls_varying),
    KNOWN(pairs),         KNOWN(calls_pairs), KNOWN(recurses),  KNOWN(floats),   KNOWN(frame_outer), KNOWN(frame_inner),
};

// It is asked for return addresses, and looks at the byte before.
NEVER static uintptr_t function_of(uintptr_t ip) {
    return reinterpret_cast<uintptr_t>(_Unwind_FindEnclosingFunction(reinterpret_cast<void *>(ip + 1)));
}
NEVER static const char *name_of(uintptr_t ip) {
    uintptr_t start = function_of(ip);
    for (auto &function : known)
        if (reinterpret_cast<uintptr_t>(function.start) == start) return function.name;
    return nullptr;
}

// ---- Walks ----------------------------------------------------------------------------------------------------------

struct Walk {
    bool past_signal;
    bool in_main;
    int depth;
    uintptr_t instruction;
    uintptr_t values_wrong_at; // return address of the frame whose registers were wrong
    int register_wrong;
    uintptr_t value_found;
    uintptr_t ips[16];
    char names[512];
};
static uintptr_t main_start;

NEVER static void frame(Walk &walk, uintptr_t ip, bool is_before, uintptr_t (*value)(void *, int), void *context) {
    walk.depth++;
    const char *name = name_of(is_before ? ip : ip - 1);
    if (name && strlen(walk.names) + strlen(name) + 2 < sizeof walk.names) {
        strcat(walk.names, name);
        strcat(walk.names, " ");
    }
    if (function_of(ip - 1) == main_start) walk.in_main = true;
    if (walk.depth <= 16) walk.ips[walk.depth - 1] = ip;
    uintptr_t expected = ip == reinterpret_cast<uintptr_t>(frame_outer_called)   ? 0x5100000
                         : ip == reinterpret_cast<uintptr_t>(frame_inner_called) ? 0x6200000
                                                                                 : 0;
    // An instruction that is about to run isn't a call that is open.
    for (int i = 0; expected && !is_before && i < 6; i++)
        if (value(context, registers[i]) != expected + static_cast<uintptr_t>(i)) {
            walk.values_wrong_at = ip;
            walk.register_wrong = registers[i];
            walk.value_found = value(context, registers[i]);
        }
}

NEVER static uintptr_t value_here(void *context, int number) {
    return _Unwind_GetGR(static_cast<_Unwind_Context *>(context), number);
}
NEVER static _Unwind_Reason_Code step(_Unwind_Context *context, void *data) {
    Walk &walk = *static_cast<Walk *>(data);
    int is_before = 0;
    uintptr_t ip = _Unwind_GetIPInfo(context, &is_before);
    if (!walk.past_signal && ip == walk.instruction) walk.past_signal = true, is_before = 1;
    if (walk.past_signal) frame(walk, ip, is_before != 0, value_here, context);
    return walk.depth > 60 || walk.in_main ? _URC_END_OF_STACK : _URC_NO_REASON;
}

// The interface that LLVM's library and the older libunwind share: a cursor that begins at the interrupted instruction. (LLVM's own
// library looks up the instruction before in any case, so it is given the next byte.) Numbers of registers are DWARF's.
static int (*cursor_init)(void *, void *), (*cursor_init_signal)(void *, void *, int), (*cursor_step)(void *);
static int (*cursor_register)(void *, int, uintptr_t *);
NEVER static uintptr_t value_at(void *cursor, int number) {
    uintptr_t value = 0;
    cursor_register(cursor, number, &value);
    return value;
}
NEVER static void walk_by_cursor(Walk &walk, ucontext_t *context) {
    uintptr_t cursor[256];
    // As LLVM's library has them: rax, rbx, rcx, rdx, rdi, rsi, rbp, rsp, r8 to r15, rip, flags.
    static const int order[17] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RDI, REG_RSI, REG_RBP, REG_RSP, REG_R8,
                                  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
    uintptr_t values[64] = {};
    for (int i = 0; i < 17; i++) values[i] = static_cast<uintptr_t>(context->uc_mcontext.gregs[order[i]]);
    values[16] += cursor_init ? 1 : 0;
    if (cursor_init)
        cursor_init(cursor, values);
    else
        cursor_init_signal(cursor, context, 1);
    bool is_first = true;
    do {
        frame(walk, is_first ? walk.instruction : value_at(cursor, 16), is_first, value_at, cursor);
        is_first = false;
    } while (walk.depth < 60 && !walk.in_main && cursor_step(cursor) > 0);
}

static long steps, walks_wrong, steps_in_hooks;
static const char *case_now;
static uintptr_t run_start;
static char last_known[64];
static bool is_entered;

NEVER static void trapped(int, siginfo_t *, void *data) {
    ucontext_t *context = static_cast<ucontext_t *>(data);
    Walk walk;
    memset(&walk, 0, sizeof walk);
    walk.instruction = static_cast<uintptr_t>(context->uc_mcontext.gregs[REG_RIP]);
    const char *here = name_of(walk.instruction);
    if (here && !strcmp(here, "frame_outer")) is_entered = true;
    if (function_of(walk.instruction) == run_start) is_entered = false;
    if (!is_entered) return;
#if !defined(__clang__)
    // gcc's own description of frames that it aligns is wrong at some instructions, without us, too.
    if (here && !strcmp(here, "aligned")) {
        strcpy(last_known, here);
        return;
    }
#endif
    if (cursor_step)
        walk_by_cursor(walk, context);
    else
        _Unwind_Backtrace(step, &walk);
    steps++;
    if (here) strcpy(last_known, here);
    else steps_in_hooks++;
    // In a hook, the function that called it is the innermost.
    size_t length = strlen(last_known);
    bool is_innermost = !strncmp(walk.names, last_known, length) && walk.names[length] == ' ';
    size_t all = strlen(walk.names);
    bool is_whole = walk.in_main && (!strcmp(last_known, "frame_outer") ||
                                     (all > 12 && !strcmp(walk.names + all - 12, "frame_outer ")));
    if (is_innermost && is_whole && !walk.values_wrong_at) return;
    if (walks_wrong++ < 10) {
        Dl_info info;
        memset(&info, 0, sizeof info);
        dladdr(reinterpret_cast<void *>(walk.instruction), &info);
        printf("%s, behind %s: frames %sin main %d, register %d was %#lx:", case_now, last_known, walk.names, walk.in_main,
               walk.values_wrong_at ? walk.register_wrong : -1, walk.value_found);
        for (int i = 0; i < walk.depth && i < 16; i++)
            printf(" %#lx", walk.ips[i] - reinterpret_cast<uintptr_t>(info.dli_fbase));
        printf("\n");
        fflush(stdout);
    }
}

NEVER static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        printf("no %s\n", name);
        exit(3);
    }
    return found;
}

NEVER __attribute__((noinline)) static void run(const Case &what) {
    case_now = what.name;
    is_entered = false;
    strcpy(last_known, "frame_outer");
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
    frame_outer(what.function, 5);
    __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

NEVER int main(int count, char **words) {
    // Link-time optimisation must not make variants of it, whose last instructions would be walked from, too.
    void (*volatile run_one)(const Case &) = run;
    main_start = function_of(reinterpret_cast<uintptr_t>(main));
    run_start = function_of(reinterpret_cast<uintptr_t>(run));
    if (count > 2) {
        void *library = dlopen(words[2], RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            printf("%s\n", dlerror());
            return 3;
        }
        bool is_llvm = !strcmp(words[1], "llvm");
        void *init = symbol(library, is_llvm ? "unw_init_local" : "_ULx86_64_init_local2");
        if (is_llvm)
            cursor_init = reinterpret_cast<int (*)(void *, void *)>(init);
        else
            cursor_init_signal = reinterpret_cast<int (*)(void *, void *, int)>(init);
        cursor_step = reinterpret_cast<int (*)(void *)>(symbol(library, is_llvm ? "unw_step" : "_ULx86_64_step"));
        cursor_register = reinterpret_cast<int (*)(void *, int, uintptr_t *)>(
            symbol(library, is_llvm ? "unw_get_reg" : "_ULx86_64_get_reg"));
    }
    indirect = saves_all;
    // The first walk loads what the unwinder needs; the first call prepares the thread.
    Walk walk;
    memset(&walk, 0, sizeof walk);
    _Unwind_Backtrace(step, &walk);

    static char stack[1 << 18];
    stack_t alternate = {};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = trapped;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGTRAP, &action, nullptr);
    for (int round = 0; round < 2; round++)
        for (auto &what : cases) run_one(what);
    printf("%ld steps, %ld of them in hooks, %ld walks were wrong\n", steps, steps_in_hooks, walks_wrong);
    return walks_wrong ? 1 : 0;
}
