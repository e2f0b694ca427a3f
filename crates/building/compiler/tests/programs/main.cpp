// Two threads call everything; the sum is printed, so that a damaged register shows.
#include <pthread.h>
#include <stdio.h>
#include "shapes.h"

static NOINLINE int t_through_bases(tt::First &first, tt::Second &second) {
    return first.one(3) + second.two(4) + second.self()->two(1);
}

static void *t_thread(void *argument) {
    long sum = 0;
    for (int i = 0; i < 100; i++) {
        tt::Both both;
        sum += tt::use(i) + tt::catching(i) + t_through_bases(both, both) + tt::comdat(i);
    }
    *static_cast<long *>(argument) = sum;
    return nullptr;
}

int main() {
    pthread_t threads[2];
    long sums[2] = {};
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], nullptr, t_thread, &sums[i]);
    for (pthread_t thread : threads) pthread_join(thread, nullptr);
    printf("%d %ld %ld\n", t_plain(5), sums[0], sums[1]);
}
