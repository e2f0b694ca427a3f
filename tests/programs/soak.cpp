// Does everything that programs do, at a steady pace, until its standard input ends: threads that work and threads that come and go, signals,
// forks, programs that it starts, exceptions, a shared object loaded again and again, labels and spans, snapshots of itself.
//   soak PLUGIN FOLDER
// PLUGIN is what is loaded. Snapshots go to FOLDER. What isn't as it should be is printed, and is the exit status.
#include <everycall.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <initializer_list>
#include <pthread.h>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

extern char **environ;

static std::atomic<long> failures(0), handled(0), threads(0), children(0), loads(0), snapshots(0);
static std::atomic<bool> stop(false);
static volatile int sink;

EVERYCALL_EXCLUDE static void expect(long is, long wanted, const char *what)
{
    if (is != wanted) {
        std::printf("%s: %ld, not %ld\n", what, is, wanted);
        std::fflush(stdout);
        failures++;
    }
}

// Signals interrupt it.
EVERYCALL_EXCLUDE static void rest(long microseconds)
{
    timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (!stop && nanosleep(&left, &left) == -1 && errno == EINTR) {
    }
}

NOINLINE int leaf(int n) { return sink = n; }

NOINLINE int tree(int depth) { return depth == 0 ? leaf(1) : tree(depth - 1) + tree(depth - 1); }

NOINLINE void throws(int depth)
{
    if (depth == 0)
        throw std::runtime_error("thrown");
    throws(depth - 1);
    leaf(depth);
}

NOINLINE int catches(int depth)
{
    try {
        throws(depth);
    } catch (const std::runtime_error &error) {
        return static_cast<int>(std::strlen(error.what()));
    }
    return 0;
}

NOINLINE void on_signal(int)
{
    int error = errno;
    tree(2);
    handled++;
    errno = error;
}

NOINLINE void *works(void *)
{
    for (uint64_t turn = 0; !stop; turn++) {
        everycall_span_begin("turn");
        everycall_label("number", turn);
        expect(tree(8), 256, "tree");
        expect(catches(5), 6, "catches");
        everycall_span_end("turn");
        rest(500);
    }
    return nullptr;
}

NOINLINE void *is_brief(void *number)
{
    pthread_setname_np(pthread_self(), "brief");
    // Beyond a thread's first, short segment.
    tree(6);
    expect(catches(2), 6, "catches in a thread");
    if (reinterpret_cast<long>(number) % 3 == 0)
        pthread_exit(nullptr);
    return nullptr;
}

NOINLINE void *makes_threads(void *)
{
    for (long number = 0; !stop; number++) {
        pthread_t some[4];
        for (pthread_t &thread : some)
            expect(pthread_create(&thread, nullptr, is_brief, reinterpret_cast<void *>(number)), 0, "pthread_create");
        for (pthread_t thread : some)
            pthread_join(thread, nullptr);
        threads += 4;
        rest(2000);
    }
    return nullptr;
}

NOINLINE void *forks(void *)
{
    for (int number = 0; !stop; number++) {
        pid_t child;
        if (number % 4 == 3) {
            char name[] = "true";
            char *words[] = {name, nullptr};
            expect(posix_spawnp(&child, name, nullptr, nullptr, words, environ), 0, "posix_spawnp");
        } else {
            child = fork();
            if (child == 0)
                _exit(tree(4) + catches(1));
        }
        int status = 0;
        while (waitpid(child, &status, 0) == -1 && errno == EINTR) {
        }
        expect(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), number % 4 == 3 ? 0 : 16 + 6, "child");
        children++;
        rest(20000);
    }
    return nullptr;
}

static const char *plugin, *folder;

NOINLINE void *loads_again(void *)
{
    while (!stop) {
        void *object = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
        if (!object) {
            std::printf("%s\n", dlerror());
            failures++;
            return nullptr;
        }
        auto work = reinterpret_cast<int (*)(int)>(dlsym(object, "library_work"));
        auto thrower = reinterpret_cast<void (*)(int)>(dlsym(object, "library_throw"));
        expect(work(10), 57, "library_work");
        try {
            thrower(3);
            expect(1, 0, "library_throw returned");
        } catch (const std::exception &) {
        }
        dlclose(object);
        loads++;
        rest(25000);
    }
    return nullptr;
}

NOINLINE void *takes_snapshots(void *)
{
    std::string path = std::string(folder) + "/inner.ect";
    while (!stop) {
        everycall_snapshot snapshot = 0;
        int result = everycall_take_snapshot(&snapshot);
        if (result == 0)
            expect(everycall_free_snapshot(snapshot), 0, "free");
        else
            expect(result, EVERYCALL_ERROR_BUSY, "take");
        result = everycall_write_current(path.c_str());
        if (result != EVERYCALL_ERROR_BUSY)
            expect(result, 0, "write");
        snapshots++;
        rest(300000);
    }
    return nullptr;
}

int main(int, char **arguments)
{
    plugin = arguments[1];
    folder = arguments[2];
    struct sigaction action = {};
    action.sa_handler = on_signal;
    sigaction(SIGALRM, &action, nullptr);
    sigaction(SIGUSR1, &action, nullptr);
    pthread_t all[7];
    void *(*const functions[7])(void *) = {works, works, makes_threads, makes_threads, forks, loads_again, takes_snapshots};
    for (int i = 0; i < 7; i++)
        pthread_create(&all[i], nullptr, functions[i], nullptr);
    itimerval every = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &every, nullptr);
    std::puts("ready");
    std::fflush(stdout);
    char byte;
    for (int turn = 0;; turn++) {
        ssize_t count = read(0, &byte, 1);
        if (count == 0 || (count == -1 && errno != EINTR))
            break;
        // To this thread, to others.
        if (turn % 8 == 0)
            pthread_kill(all[turn / 8 % 5], SIGUSR1);
    }
    stop = true;
    for (pthread_t thread : all)
        pthread_join(thread, nullptr);
    itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, nullptr);
    std::printf("signals %ld, threads %ld, children %ld, loads %ld, snapshots %ld\n", handled.load(), threads.load(),
                children.load(), loads.load(), snapshots.load());
    return failures > 100 ? 100 : static_cast<int>(failures);
}
