// Threads that pthread_exit ends in the midst of calls.
#include <pthread.h>
#include <unistd.h>

// Much longer than a thread that has nothing to wait for waits for a CPU.
enum { PAUSE_US = 160000 };

struct Guard {
    ~Guard() { usleep(PAUSE_US); }
};

// Slow before the exit, and nothing is cleaned up.
extern "C" __attribute__((noinline)) void exiting() {
    usleep(PAUSE_US);
    pthread_exit(nullptr);
}

// Slow before the exit, and then cleaned up in.
extern "C" __attribute__((noinline)) void guarded() {
    Guard guard;
    usleep(PAUSE_US);
    pthread_exit(nullptr);
}

// Slow only for what is cleaned up in it, and so is its caller.
extern "C" __attribute__((noinline)) void late() {
    Guard guard;
    pthread_exit(nullptr);
}

__attribute__((noinline)) static void around() {
    Guard guard;
    late();
}

// Fast.
extern "C" __attribute__((noinline)) void quick() { pthread_exit(nullptr); }

static void *run(void *number) {
    switch ((long)number) {
    case 0: exiting(); break;
    case 1: guarded(); break;
    case 2: around(); break;
    default: quick(); break;
    }
    return nullptr;
}

int main() {
    for (long number = 0; number < 4; number++) {
        pthread_t thread;
        pthread_create(&thread, nullptr, run, (void *)number);
        pthread_join(thread, nullptr);
    }
}
