// Snapshots that a program takes of itself: while threads run and come and go, in signal handlers, in callbacks, again and again.
#include <everycall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static volatile int sink;
static std::atomic<int> failures(0);
static std::atomic<bool> stop(false);

EVERYCALL_EXCLUDE static void expect(int result, int wanted, const char *what)
{
    if (result != wanted) {
        std::printf("%s: %d, not %d: %s\n", what, result, wanted, everycall_error(result));
        failures++;
    }
}

#define OK(call) expect(call, 0, #call)

NOINLINE void leaf(int n) { sink = n; }

NOINLINE void work(int n)
{
    leaf(n);
    leaf(n + 1);
}

NOINLINE void marked(int n)
{
    OK(everycall_label("turn", static_cast<uint64_t>(n)));
    work(n);
}

static void *runs(void *)
{
    while (!stop)
        work(1);
    return nullptr;
}

static void *short_thread(void *)
{
    work(2);
    return nullptr;
}

static void *comes_and_goes(void *)
{
    while (!stop) {
        pthread_t thread;
        if (pthread_create(&thread, nullptr, short_thread, nullptr) == 0)
            pthread_join(thread, nullptr);
    }
    return nullptr;
}

static void *takes(void *)
{
    for (int turn = 0; turn < 100; turn++) {
        everycall_snapshot snapshot;
        int result = everycall_take_snapshot(&snapshot);
        if (result != EVERYCALL_ERROR_BUSY) {
            OK(result);
            OK(everycall_free_snapshot(snapshot));
        }
    }
    return nullptr;
}

static void many()
{
    pthread_t threads[8], takers[2];
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], nullptr, i < 6 ? runs : comes_and_goes, nullptr);
    for (pthread_t &taker : takers)
        pthread_create(&taker, nullptr, takes, nullptr);
    for (int turn = 0; turn < 20; turn++) {
        char path[32];
        std::snprintf(path, sizeof path, "many-%d.ect", turn);
        usleep(5000);
        marked(turn);
        OK(everycall_write_current(path));
    }
    for (pthread_t taker : takers)
        pthread_join(taker, nullptr);
    stop = true;
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
}

static std::atomic<int> handled(0), written(0);
static double longest = 0;

static double cpu_time()
{
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

static void *waits(void *)
{
    // Half a ring.
    for (int i = 0; i < 10000; i++)
        work(i);
    while (!stop)
        usleep(10000);
    return nullptr;
}

static void handler(int)
{
    everycall_snapshot snapshot;
    double begin = cpu_time();
    int result = everycall_take_snapshot(&snapshot);
    longest = std::max(longest, cpu_time() - begin);
    if (result == 0) {
        if (handled % 64 == 0) {
            OK(everycall_write_snapshot(snapshot, "handler.ect"));
            written++;
        }
        OK(everycall_free_snapshot(snapshot));
    } else if (result != EVERYCALL_ERROR_BUSY) {
        OK(result);
    }
    everycall_label("handled", static_cast<uint64_t>(handled));
    leaf(3);
    handled++;
}

static void in_handlers()
{
    pthread_t threads[50];
    for (pthread_t &thread : threads)
        pthread_create(&thread, nullptr, waits, nullptr);
    std::signal(SIGPROF, handler);
    itimerval every = {{0, 500}, {0, 500}};
    setitimer(ITIMER_PROF, &every, nullptr);
    while (handled < 300) {
        work(4);
        everycall_snapshot snapshot;
        if (everycall_take_snapshot(&snapshot) == 0)
            OK(everycall_free_snapshot(snapshot));
    }
    itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &never, nullptr);
    stop = true;
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
    if (written == 0)
        failures++;
    FILE *file = std::fopen("longest", "w");
    std::fprintf(file, "%.0f", longest);
    std::fclose(file);
}

struct Output {
    FILE *file;
    int calls;
};

// Traced, and takes a snapshot itself.
static int callback(void *context, const void *bytes, size_t count)
{
    Output *output = static_cast<Output *>(context);
    work(5);
    if (output->calls++ == 3)
        OK(everycall_write_current("within.ect"));
    return std::fwrite(bytes, 1, count, output->file) == count ? 0 : 1;
}

static int refuses(void *, const void *, size_t) { return 1; }

static void errors()
{
    everycall_snapshot snapshot, all[40];
    OK(everycall_take_snapshot(&snapshot));
    expect(everycall_write_snapshot(snapshot, "/nowhere/at/all"), EVERYCALL_ERROR_NO_FOLDER, "no folder");
    expect(everycall_write_snapshot(snapshot, "/proc/x"), EVERYCALL_ERROR_NO_FOLDER, "proc");
    expect(everycall_write_snapshot(snapshot, nullptr), EVERYCALL_ERROR_ARGUMENT, "no path");
    // Nothing that isn't a file is replaced by one.
    std::remove("pipe.ect");
    if (mkfifo("pipe.ect", 0600) != 0)
        expect(errno, 0, "mkfifo");
    for (const char *path : {"/dev/null", ".", "pipe.ect"})
        expect(everycall_write_snapshot(snapshot, path), EVERYCALL_ERROR_ARGUMENT, path);
    struct stat of_pipe;
    expect(stat("pipe.ect", &of_pipe) == 0 && S_ISFIFO(of_pipe.st_mode), 1, "the pipe stays");
    expect(everycall_write_snapshot_to(snapshot, refuses, nullptr), EVERYCALL_ERROR_CALLBACK, "refused");
    expect(everycall_write_snapshot_to_descriptor(snapshot, 999), EVERYCALL_ERROR_WRITE, "no descriptor");
    int full = open("/dev/full", O_WRONLY);
    expect(everycall_write_snapshot_to_descriptor(snapshot, full), EVERYCALL_ERROR_DISK_FULL, "full");
    close(full);
    expect(everycall_write_snapshot(snapshot + 256, "x"), EVERYCALL_ERROR_ARGUMENT, "another use");
    OK(everycall_free_snapshot(snapshot));
    expect(everycall_free_snapshot(snapshot), EVERYCALL_ERROR_ARGUMENT, "freed twice");
    expect(everycall_write_snapshot(snapshot, "x"), EVERYCALL_ERROR_ARGUMENT, "freed");
    expect(everycall_free_snapshot(12345), EVERYCALL_ERROR_ARGUMENT, "nonsense");
    expect(everycall_take_snapshot(nullptr), EVERYCALL_ERROR_ARGUMENT, "no result");
    OK(everycall_free_snapshot(0));
    int count = 0;
    while (count < 40 && everycall_take_snapshot(&all[count]) == 0)
        count++;
    expect(count, 29, "at a time");
    expect(everycall_take_snapshot(&snapshot), EVERYCALL_ERROR_BUSY, "one more");
    while (count > 0)
        OK(everycall_free_snapshot(all[--count]));
    OK(everycall_take_snapshot(&snapshot));
    OK(everycall_free_snapshot(snapshot));
}

static void one_by_one()
{
    for (int i = 0; i < 100000; i++)
        work(i);
    uint64_t since = everycall_now();
    marked(7);
    OK(everycall_disable());
    everycall_snapshot all, last;
    OK(everycall_take_snapshot(&all));
    OK(everycall_take_snapshot_since(since, &last));
    work(8);
    OK(everycall_enable());
    // What comes now isn't in them, and doesn't harm them.
    for (int i = 0; i < 300000; i++)
        work(i);
    OK(everycall_write_snapshot(all, "all.ect"));
    OK(everycall_write_snapshot(last, "last.ect"));
    int descriptor = open("descriptor.ect", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    OK(everycall_write_snapshot_to_descriptor(all, descriptor));
    close(descriptor);
    Output output = {std::fopen("callback.ect", "wb"), 0};
    OK(everycall_write_snapshot_to(all, callback, &output));
    std::fclose(output.file);
    OK(everycall_free_snapshot(all));
    OK(everycall_free_snapshot(last));
}

static int slow_ones = 0;

EVERYCALL_EXCLUDE static void keep(void *, everycall_snapshot snapshot, uint64_t nanoseconds)
{
    slow_ones += nanoseconds >= 1000000000;
    OK(everycall_write_snapshot(snapshot, "function.ect"));
    OK(everycall_free_snapshot(snapshot));
}

NOINLINE void turn(int milliseconds, everycall::Slowest &slowest)
{
    everycall::SlowScope guard("slowest.ect", slowest);
    everycall::SlowScope threshold(keep, nullptr, static_cast<uint64_t>(1000000000));
    OK(everycall_label("turn", static_cast<uint64_t>(milliseconds)));
    usleep(static_cast<useconds_t>(milliseconds) * 1000);
}

static void guards()
{
    static everycall::Slowest slowest(1000000);
    for (int milliseconds : {0, 5, 1200, 10, 0, 15})
        turn(milliseconds, slowest);
    expect(slow_ones, 1, "slow ones");
}

int main(int, char **arguments)
{
    const char *what = arguments[1];
    if (!everycall_is_there()) {
        everycall_snapshot snapshot;
        expect(everycall_take_snapshot(&snapshot), EVERYCALL_ERROR_NOT_TRACED, "take");
        expect(everycall_write_current("x"), EVERYCALL_ERROR_NOT_TRACED, "write");
        std::puts("not there");
        return failures;
    } else if (std::strcmp(what, "many") == 0)
        many();
    else if (std::strcmp(what, "handlers") == 0)
        in_handlers();
    else if (std::strcmp(what, "errors") == 0)
        errors();
    else if (std::strcmp(what, "one") == 0)
        one_by_one();
    else if (std::strcmp(what, "guards") == 0)
        guards();
    std::puts("there");
    return failures;
}
