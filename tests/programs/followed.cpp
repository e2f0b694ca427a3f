// Does the same at each line of its input, in its main thread and in a new one: recursion, exceptions, tail calls, loops.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

volatile int sum;

APART int leaf(int n) {
    sum += n;
    return n + 1;
}

APART int fibonacci(int n) {
    return n < 2 ? leaf(n) : fibonacci(n - 1) + fibonacci(n - 2);
}

APART int thrower(int n) {
    leaf(n);
    if (n == 0)
        throw n;
    int result = thrower(n - 1);
    leaf(n);
    return result;
}

APART int catcher(int n) {
    try {
        return thrower(n);
    } catch (int) {
        return leaf(n);
    }
}

APART int slow(int n) {
    leaf(n);
    usleep(60000);
    return leaf(n);
}

APART int hidden(int n) {
    return leaf(n) + leaf(n);
}

APART int many(int n) {
    int result = 0;
    for (int i = 0; i < n; i++)
        result += leaf(i);
    return result;
}

extern "C" APART int round_of(int n) {
    int result = fibonacci(5) + catcher(3) + slow(n) + hidden(n) + many(50);
    sum += result;
    return result;
}

static void *helper(void *) {
    pthread_setname_np(pthread_self(), "helper");
    round_of(2);
    return nullptr;
}

int main(int count, char **) {
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "many\n") == 0) {
            many(3000000);
        } else {
            round_of(1);
            pthread_t thread;
            if (count == 1 && pthread_create(&thread, nullptr, helper, nullptr) == 0)
                pthread_join(thread, nullptr);
        }
        puts("ready");
        fflush(stdout);
    }
}
