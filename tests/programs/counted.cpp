// Counts its own calls, of all threads and processes, and prints them at its end: "NAME COUNT" for each function.
//   counted LIBRARY [kill|wait]
// With "kill" it ends by SIGKILL, with "wait" it prints "ready" and waits for the end of its input before it goes on.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNTRACED __attribute__((no_instrument_function, noinline))
#define COUNTED extern "C" __attribute__((noinline, used))

enum { EARLY, LEAF, BRANCH, RECURSIVE, THROWS, CATCHES, HANDLER, IN_THREAD, AT_END, IN_CHILD, IN_LIBRARY, LIBRARY_LEAF, LATE, FUNCTIONS };
static const char *const names[] = {"early", "leaf", "branch", "recursive", "throws", "catches", "handler", "in_thread", "at_end", "in_child",
                                    "in_library", "library_leaf", "late"};

// Shared with children.
static long *counts;

__attribute__((no_instrument_function)) static inline void count(int function)
{
    __atomic_fetch_add(&counts[function], 1, __ATOMIC_RELAXED);
}

COUNTED void early()
{
    count(EARLY);
}
__attribute__((constructor, no_instrument_function)) static void before_main()
{
    counts = static_cast<long *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    early();
}

COUNTED int leaf(int n)
{
    count(LEAF);
    return n + 1;
}
COUNTED int branch(int n)
{
    count(BRANCH);
    int sum = 0;
    for (int i = 0; i < n % 7; i++)
        sum += leaf(i);
    return sum + 1;
}
COUNTED int recursive(int n)
{
    count(RECURSIVE);
    if (n <= 0)
        return 1;
    // Calls that stay calls.
    int sum = recursive(n - 1);
    __asm__ volatile("" : "+r"(sum));
    sum += recursive(n - 3);
    __asm__ volatile("" : "+r"(sum));
    return sum;
}
COUNTED int throws(int n)
{
    count(THROWS);
    if (n % 3 == 0)
        throw n;
    return leaf(n) + 1;
}
COUNTED int catches(int n)
{
    count(CATCHES);
    try {
        return throws(n) + 1;
    } catch (int) {
        return 2;
    }
}
COUNTED void handler(int)
{
    count(HANDLER);
    leaf(1);
}
COUNTED void at_end(void *)
{
    count(AT_END);
    leaf(2);
}
static pthread_key_t key;
COUNTED void *in_thread(void *)
{
    count(IN_THREAD);
    pthread_setspecific(key, &key);
    for (int i = 0; i < 20000; i++) {
        branch(i);
        catches(i);
    }
    recursive(15);
    return nullptr;
}
COUNTED void in_child()
{
    count(IN_CHILD);
    for (int i = 0; i < 1000; i++)
        leaf(i);
}
COUNTED void late()
{
    count(LATE);
}

// Called by the library, which has no counts of its own.
extern "C" __attribute__((no_instrument_function, visibility("default"))) void count_of_library(int which)
{
    count(which ? LIBRARY_LEAF : IN_LIBRARY);
}

UNTRACED static void use(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::exit(1);
    }
    auto function = reinterpret_cast<void (*)(void (*)(int))>(dlsym(library, "in_library"));
    for (int i = 0; i < 100; i++)
        function(count_of_library);
    dlclose(library);
}

__attribute__((no_instrument_function)) int main(int, char **words)
{
    pthread_key_create(&key, at_end);
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &action, nullptr);
    itimerval every = {{0, 700}, {0, 700}}, never = {};
    setitimer(ITIMER_PROF, &every, nullptr);
    for (int round = 0; round < 3; round++) {
        pthread_t threads[3];
        for (pthread_t &thread : threads)
            pthread_create(&thread, nullptr, in_thread, nullptr);
        use(words[1]);
        for (pthread_t thread : threads)
            pthread_join(thread, nullptr);
    }
    if (fork() == 0) {
        in_child();
        _exit(0);
    }
    wait(nullptr);
    setitimer(ITIMER_PROF, &never, nullptr);
    if (words[2] && !std::strcmp(words[2], "wait")) {
        std::puts("ready");
        std::fflush(stdout);
        char byte;
        while (read(0, &byte, 1) > 0) {
            std::puts("ready");
            std::fflush(stdout);
        }
    }
    late();
    for (int i = 0; i < FUNCTIONS; i++)
        std::printf("%s %ld\n", names[i], counts[i]);
    std::fflush(stdout);
    if (words[2] && !std::strcmp(words[2], "kill"))
        kill(getpid(), SIGKILL);
    return 7;
}
