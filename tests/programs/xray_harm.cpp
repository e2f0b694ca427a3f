// Handlers that do what they shouldn't, and threads that patch while others run. Ends with status 0 if
// nothing has come to harm.
#include <xray/xray_interface.h>

#include <atomic>
#include <cerrno>
#include <cfenv>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <execinfo.h>
#include <immintrin.h>
#include <pthread.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define TRACED [[clang::xray_always_instrument]] __attribute__((noinline))
#define UNTRACED [[clang::xray_never_instrument]] __attribute__((noinline))
#define CHECK(condition) \
    do \
        if (!(condition)) std::printf("line %d: %s\n", __LINE__, #condition), std::exit(1); \
    while (0)

static thread_local volatile int sink;
static std::atomic<int> events, entries;

TRACED int work(int n) { return (sink = n) + 1; }
TRACED int outer(int n) { return work(n) + 1; }
TRACED int sets_errno(int n)
{
    errno = n;
    return work(n);
}
TRACED int jumps(int n)
{
    sink = n;
    [[clang::musttail]] return work(n);
}

UNTRACED static void count(int32_t, XRayEntryType type)
{
    events++;
    entries += type == ENTRY;
}

// A handler that throws.
UNTRACED static void throws(int32_t id, XRayEntryType type)
{
    if (type == ENTRY && __xray_function_address(id) == (uintptr_t)work) throw 7;
}
UNTRACED static void throws_late(int32_t id, XRayEntryType type)
{
    if (type == EXIT && __xray_function_address(id) == (uintptr_t)work) throw 8;
}
UNTRACED static int caught(int (*function)(int))
{
    try {
        return function(1);
    } catch (int number) {
        return -number;
    }
}
UNTRACED static void throwing()
{
    for (int turn = 0; turn < 100; turn++) {
        __xray_set_handler(throws);
        CHECK(caught(outer) == -7 && caught(work) == -7);
        __xray_set_handler(throws_late);
        CHECK(caught(outer) == -8 && caught(work) == -8);
        // Handlers are called as before.
        __xray_set_handler(count);
        events = 0;
        CHECK(caught(outer) == 3 && events == 4);
    }
}

// A handler that jumps.
static jmp_buf place;
UNTRACED static void jumps_out(int32_t id, XRayEntryType)
{
    if (__xray_function_address(id) == (uintptr_t)work) std::longjmp(place, 1);
}
UNTRACED static void jumping()
{
    for (volatile int turn = 0; turn < 100; turn = turn + 1) {
        __xray_set_handler(jumps_out);
        if (setjmp(place) == 0) {
            outer(1);
            CHECK(!"jumped");
        }
        __xray_set_handler(count);
        events = 0;
        CHECK(outer(1) == 3 && events == 4);
    }
}

UNTRACED static void spoils_errno(int32_t, XRayEntryType) { errno = 99; }
UNTRACED static void keeps_errno()
{
    __xray_set_handler(spoils_errno);
    for (int n = 0; n < 10; n++) {
        CHECK(sets_errno(n) == n + 1);
        CHECK(errno == n);
    }
}

// Everything that a handler may change.
UNTRACED __attribute__((target("avx"))) static void spoil_vectors()
{
    __m256i all = _mm256_set1_epi32(-1);
    asm volatile("vmovdqa %0, %%ymm0; vmovdqa %0, %%ymm1; vmovdqa %0, %%ymm2; vmovdqa %0, %%ymm3;"
                 "vmovdqa %0, %%ymm4; vmovdqa %0, %%ymm5; vmovdqa %0, %%ymm6; vmovdqa %0, %%ymm7;"
                 "vmovdqa %0, %%ymm8; vmovdqa %0, %%ymm9; vmovdqa %0, %%ymm10; vmovdqa %0, %%ymm11;"
                 "vmovdqa %0, %%ymm12; vmovdqa %0, %%ymm13; vmovdqa %0, %%ymm14; vmovdqa %0, %%ymm15; vzeroupper"
                 :: "m"(all) : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                    "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}
UNTRACED __attribute__((target("avx512f"))) static void spoil_wide()
{
    asm volatile("vpternlogd $255, %%zmm16, %%zmm16, %%zmm16; vpternlogd $255, %%zmm31, %%zmm31, %%zmm31;"
                 "kxnorw %%k1, %%k1, %%k1; kxnorw %%k7, %%k7, %%k7" ::: "xmm16", "xmm31", "k1", "k7");
}
UNTRACED static void spoils(int32_t, XRayEntryType)
{
    events++;
    if (__builtin_cpu_supports("avx")) spoil_vectors();
    if (__builtin_cpu_supports("avx512f")) spoil_wide();
    volatile long double number = 3;
    number = number / 7;
    std::fesetround(FE_UPWARD);
    asm volatile("" ::: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
    asm volatile("xorl %%eax, %%eax; movl %%eax, %%ecx; movl %%eax, %%edx; movl %%eax, %%esi; movl %%eax, %%edi;"
                 "movl %%eax, %%r8d; movl %%eax, %%r9d; movl %%eax, %%r10d; movl %%eax, %%r11d"
                 ::: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc");
}

// A function of one entry sled, an event and one exit sled, which changes nothing by itself.
extern "C" void bare(void);
asm(".text\n"
    ".p2align 4\n"
    ".type bare, @function\n"
    "bare: .cfi_startproc\n"
    ".p2align 1\n"
    ".Lbare_entry: .byte 0xeb, 9, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 2, 0, 0\n"
    ".p2align 1\n"
    ".Lbare_exit: .byte 0xc3, 0x2e, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 2, 0, 0\n"
    ".cfi_endproc\n"
    ".size bare, . - bare\n"
    ".section xray_instr_map, \"ao\", @progbits, bare\n"
    ".Lbare_sleds: .quad .Lbare_entry - ., bare - .\n .byte 0, 1, 2\n .zero 13\n"
    ".quad .Lbare_exit - ., bare - .\n .byte 1, 1, 2\n .zero 13\n"
    ".section xray_fn_idx, \"ao\", @progbits, bare\n"
    ".p2align 4\n"
    ".quad .Lbare_sleds - ., 2\n"
    ".text\n");

struct Registers {
    uint64_t general[15]; // rax, rcx, rdx, rbx, rbp, rsi, rdi, r8 to r15
    uint64_t flags;
    alignas(32) unsigned char vectors[16][32];
    unsigned char wide[2][64];
    uint64_t masks[2];
    uint32_t mxcsr;
    uint16_t control;
    long double top;
};

extern "C" {
// A state for xrstor: all components as they begin.
alignas(64) unsigned char unused[4096];
}
extern "C" void call_bare(Registers *before_and_after, uint64_t has_avx, uint64_t has_wide);
asm(".text\n.type call_bare, @function\ncall_bare: .cfi_startproc\n"
    "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    ".cfi_adjust_cfa_offset 48\n"
    "pushq %rdx\n pushq %rsi\n pushq %rdi\n .cfi_adjust_cfa_offset 24\n"
    "testq %rsi, %rsi\n jz 1f\n"
    "cmpq $2, %rsi\n jne 5f\n"
    // Nothing but xmm0 to xmm15 is in use.
    "movl $0xe4, %eax\n xorl %edx, %edx\n leaq unused(%rip), %rcx\n xrstor (%rcx)\n"
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "movdqu 128 + 32 * \\n(%rdi), %xmm\\n\n"
    ".endr\n"
    "jmp 2f\n"
    "5:\n"
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "vmovdqu 128 + 32 * \\n(%rdi), %ymm\\n\n"
    ".endr\n"
    "1: testq %rdx, %rdx\n jz 2f\n"
    "vmovdqu64 640(%rdi), %zmm16\n vmovdqu64 704(%rdi), %zmm31\n kmovw 768(%rdi), %k1\n kmovw 776(%rdi), %k7\n"
    "2: fldt 800(%rdi)\n"
    "movq (%rdi), %rax\n movq 8(%rdi), %rcx\n movq 16(%rdi), %rdx\n movq 24(%rdi), %rbx\n movq 32(%rdi), %rbp\n"
    "movq 40(%rdi), %rsi\n movq 56(%rdi), %r8\n movq 64(%rdi), %r9\n movq 72(%rdi), %r10\n movq 80(%rdi), %r11\n"
    "movq 88(%rdi), %r12\n movq 96(%rdi), %r13\n movq 104(%rdi), %r14\n movq 112(%rdi), %r15\n"
    "movq 48(%rdi), %rdi\n"
    "call bare\n"
    "pushq %rdi\n movq 8(%rsp), %rdi\n"
    "movq %rax, (%rdi)\n movq %rcx, 8(%rdi)\n movq %rdx, 16(%rdi)\n movq %rbx, 24(%rdi)\n movq %rbp, 32(%rdi)\n"
    "movq %rsi, 40(%rdi)\n movq %r8, 56(%rdi)\n movq %r9, 64(%rdi)\n movq %r10, 72(%rdi)\n movq %r11, 80(%rdi)\n"
    "movq %r12, 88(%rdi)\n movq %r13, 96(%rdi)\n movq %r14, 104(%rdi)\n movq %r15, 112(%rdi)\n"
    "popq %rax\n movq %rax, 48(%rdi)\n"
    "stmxcsr 784(%rdi)\n fnstcw 788(%rdi)\n fstpt 800(%rdi)\n"
    "movq 8(%rsp), %rsi\n movq 16(%rsp), %rdx\n"
    "testq %rsi, %rsi\n jz 3f\n"
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "vmovdqu %ymm\\n, 128 + 32 * \\n(%rdi)\n"
    ".endr\n"
    "3: testq %rdx, %rdx\n jz 4f\n"
    "vmovdqu64 %zmm16, 640(%rdi)\n vmovdqu64 %zmm31, 704(%rdi)\n kmovw %k1, 768(%rdi)\n kmovw %k7, 776(%rdi)\n"
    "4: addq $24, %rsp\n .cfi_adjust_cfa_offset -24\n"
    "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n .cfi_adjust_cfa_offset -48\n"
    "ret\n .cfi_endproc\n .size call_bare, . - call_bare\n");

UNTRACED static void keeps_registers()
{
    static_assert(offsetof(Registers, vectors) == 128 && offsetof(Registers, wide) == 640, "layout");
    static_assert(offsetof(Registers, masks) == 768 && offsetof(Registers, mxcsr) == 784, "layout");
    static_assert(offsetof(Registers, control) == 788 && offsetof(Registers, top) == 800, "layout");
    uint64_t has_avx = !!__builtin_cpu_supports("avx"), has_wide = !!__builtin_cpu_supports("avx512f");
    for (int turn = 0; turn < 100; turn++) {
        Registers before{}, after;
        unsigned char *bytes = (unsigned char *)&before;
        for (size_t i = 0; i < sizeof before; i++) bytes[i] = (unsigned char)(i * 37 + turn);
        before.top = 1.0L / 3 + turn;
        before.masks[0] &= 0xffff, before.masks[1] &= 0xffff;
        asm volatile("stmxcsr %0; fnstcw %1" : "=m"(before.mxcsr), "=m"(before.control));
        bool is_unused = has_avx && turn % 2;
        if (is_unused) {
            for (auto &vector : before.vectors) std::memset(vector + 16, 0, 16);
            std::memset(before.wide, 0, sizeof before.wide);
            before.masks[0] = before.masks[1] = 0;
            std::memcpy(unused + 24, &before.mxcsr, 4);
        }
        after = before;
        __xray_set_handler(spoils);
        events = 0;
        call_bare(&after, is_unused ? 2 : has_avx, has_wide);
        __xray_remove_handler();
        CHECK(events == 2);
        CHECK(std::memcmp(before.general, after.general, sizeof before.general) == 0);
        CHECK(std::memcmp(before.vectors, after.vectors, sizeof before.vectors) == 0);
        CHECK(std::memcmp(before.wide, after.wide, sizeof before.wide) == 0);
        CHECK(std::memcmp(before.masks, after.masks, sizeof before.masks) == 0);
        CHECK(before.mxcsr == after.mxcsr && before.control == after.control && before.top == after.top);
    }
}

// An instrumented handler isn't called for itself.
TRACED static void instrumented(int32_t, XRayEntryType)
{
    events++;
    work(1);
}
UNTRACED static void recursion()
{
    __xray_set_handler(instrumented);
    events = 0;
    CHECK(outer(1) == 3 && events == 4);
}

// Walks through the hook find the callers.
static void *outermost;
static int most_frames;
UNTRACED static void walks(int32_t id, XRayEntryType)
{
    void *frames[64];
    int number = backtrace(frames, 64);
    CHECK(number > 3 && frames[number - 1] == outermost);
    bool is_work = __xray_function_address(id) == (uintptr_t)work;
    if (!is_work) most_frames = number;
    CHECK(!is_work || number == most_frames + 1);
    events++;
}
UNTRACED static void walking()
{
    void *frames[64];
    outermost = frames[backtrace(frames, 64) - 1];
    __xray_set_handler(walks);
    events = 0;
    CHECK(outer(1) == 3 && events == 4);
}

// Handlers that switch what they are called by.
UNTRACED static void unpatches(int32_t id, XRayEntryType)
{
    events++;
    __xray_unpatch_function(id);
}
UNTRACED static void removes(int32_t, XRayEntryType)
{
    events++;
    __xray_remove_handler();
    __xray_unpatch();
}
UNTRACED static void switching()
{
    for (int turn = 0; turn < 100; turn++) {
        __xray_patch();
        events = 0;
        __xray_set_handler(unpatches);
        CHECK(outer(1) == 3 && jumps(1) == 2 && events == 3);
        __xray_patch();
        events = 0;
        __xray_set_handler(removes);
        CHECK(outer(1) == 3 && jumps(1) == 2 && events == 1);
    }
    __xray_patch();
}

// Signals within handlers, and handlers within signal handlers.
UNTRACED static void raises(int32_t, XRayEntryType type)
{
    events++;
    if (type == ENTRY) std::raise(SIGUSR1);
}
TRACED static void on_signal(int) { work(2); }
UNTRACED static void signals()
{
    static char stack[1 << 16];
    stack_t own{};
    own.ss_sp = stack, own.ss_size = sizeof stack;
    for (int flags : {0, SA_ONSTACK}) {
        if (flags) sigaltstack(&own, nullptr);
        struct sigaction action{};
        action.sa_handler = on_signal, action.sa_flags = flags;
        sigaction(SIGUSR1, &action, nullptr);
        __xray_set_handler(raises);
        for (int turn = 0; turn < 100; turn++) CHECK(outer(1) == 3);
        __xray_set_handler(count);
        for (int turn = 0; turn < 100; turn++) std::raise(SIGUSR1);
        events = 0;
        CHECK(outer(1) == 3 && events == 4);
    }
}

UNTRACED static void children()
{
    __xray_set_handler(count);
    pid_t child = fork();
    if (child == 0) {
        events = 0;
        CHECK(outer(1) == 3 && events == 4);
        CHECK(__xray_unpatch() == SUCCESS);
        CHECK(outer(1) == 3 && events == 4);
        CHECK(__xray_patch() == SUCCESS);
        CHECK(outer(1) == 3 && events == 8);
        std::_Exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(status == 0);
    events = 0;
    CHECK(outer(1) == 3 && events == 4);
}

// A thread that is cancelled within a handler.
UNTRACED static void waits(int32_t, XRayEntryType)
{
    events++;
    for (;;) pause();
}
UNTRACED static void *runs(void *)
{
    outer(1);
    return nullptr;
}
UNTRACED static void cancelled()
{
    __xray_set_handler(waits);
    events = 0;
    pthread_t thread;
    pthread_create(&thread, nullptr, runs, nullptr);
    while (events == 0) std::this_thread::yield();
    pthread_cancel(thread);
    void *result;
    pthread_join(thread, &result);
    CHECK(result == PTHREAD_CANCELED);
    __xray_set_handler(count);
    events = 0;
    CHECK(outer(1) == 3 && events == 4);
}

// Threads run, and others patch at random.
static std::atomic<bool> done;
static std::atomic<uint64_t> calls, patched;

TRACED static uint64_t square(uint64_t n) { return n * n + (uint64_t)(sink = 0); }
TRACED static uint64_t sum(uint64_t n)
{
    uint64_t result = 0;
    for (uint64_t i = 1; i <= n; i++) result += square(i);
    return result;
}
TRACED static uint64_t emits(uint64_t n)
{
    // clang doesn't know that the event reads it.
    asm volatile("" :: "r"(&n) : "memory");
    __xray_customevent((const char *)&n, sizeof n);
    __xray_typedevent(1, (const char *)&n, sizeof n);
    return square(n);
}
static std::atomic<int> wrong;
UNTRACED static void checks(int32_t id, XRayEntryType type)
{
    events++;
    if (id <= 0 || (size_t)id > __xray_max_function_id() || type > LOG_ARGS_ENTRY) wrong++;
}
UNTRACED static void checks_custom(void *data, size_t size)
{
    uint64_t n;
    if (size != sizeof n) wrong++;
    std::memcpy(&n, data, sizeof n);
    if (n > 100) wrong++;
}
UNTRACED static void run()
{
    while (!done) {
        for (uint64_t n = 1; n <= 10; n++) {
            if (sum(n) != n * (n + 1) * (2 * n + 1) / 6 || emits(n) != n * n || jumps((int)n) != (int)n + 1) wrong++;
            calls++;
        }
    }
}
UNTRACED static void patch_at_random(uint64_t seed, uint64_t times)
{
    int32_t last = (int32_t)__xray_max_function_id();
    for (uint64_t turn = 0; turn < times; turn++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int32_t id = (int32_t)((seed >> 33) % (uint64_t)last) + 1;
        XRayPatchingStatus status = SUCCESS;
        switch (seed >> 60) {
        case 0: status = __xray_patch(); break;
        case 1: status = __xray_unpatch(); break;
        case 2: __xray_set_handler(checks); break;
        case 3: __xray_remove_handler(); break;
        case 4: __xray_set_customevent_handler(checks_custom); break;
        case 5: __xray_remove_customevent_handler(); break;
        default: status = seed >> 63 ? __xray_patch_function(id) : __xray_unpatch_function(id);
        }
        if (status != SUCCESS && status != ONGOING) wrong++;
        patched += status == SUCCESS;
    }
}
UNTRACED static void threads(uint64_t times)
{
    std::vector<std::thread> all;
    for (int i = 0; i < 2; i++) all.emplace_back(run);
    std::thread one(patch_at_random, 1, times), two(patch_at_random, 2, times);
    one.join(), two.join();
    done = true;
    for (std::thread &thread : all) thread.join();
    CHECK(wrong == 0);
    CHECK(calls > 0 && patched > 0);
    // As if nothing had been.
    __xray_remove_customevent_handler();
    __xray_set_handler(count);
    CHECK(__xray_unpatch() == SUCCESS);
    events = 0;
    CHECK(sum(10) == 385 && events == 0);
    CHECK(__xray_patch() == SUCCESS);
    events = entries = 0;
    CHECK(sum(10) == 385 && events == 22 && entries == 11);
    std::fprintf(stderr, "%llu patched, %llu rounds\n", (unsigned long long)patched.load(), (unsigned long long)calls.load());
}

UNTRACED int main(int number, char **arguments)
{
    uint64_t times = number > 1 ? std::strtoull(arguments[1], nullptr, 10) : 20000;
    CHECK(__xray_patch() == SUCCESS);
    throwing();
    jumping();
    keeps_errno();
    keeps_registers();
    recursion();
    walking();
    switching();
    signals();
    children();
    cancelled();
    threads(times);
    std::printf("unharmed\n");
    return 0;
}
