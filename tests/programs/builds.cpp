// Threads, exceptions, a lock, containers: for builds with every option. Prints one number.
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

static std::mutex lock;
static long total;

__attribute__((noinline)) int leaf(int v) {
    asm volatile("" : "+r"(v));
    return v + 1;
}
__attribute__((noinline)) int thrower(int v) {
    if (v % 3 == 0) throw std::runtime_error("every third");
    return leaf(v);
}
__attribute__((noinline)) int catcher(int v) {
    try {
        return thrower(v);
    } catch (const std::exception&) {
        return -1;
    }
}
__attribute__((noinline)) void work(int count) {
    long sum = 0;
    std::vector<int> values;
    for (int i = 0; i < count; i++) {
        values.push_back(catcher(i));
        sum += values.back();
    }
    std::lock_guard<std::mutex> guard(lock);
    total += sum;
}

int main() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) threads.emplace_back(work, 600);
    for (auto& thread : threads) thread.join();
    std::printf("%ld\n", total);
    return 0;
}
