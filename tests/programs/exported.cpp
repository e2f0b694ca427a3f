/* Threads, recursion of the depth that the argument says, templates and exceptions. */
#include <pthread.h>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

static int depth;

__attribute__((noinline)) int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

__attribute__((noinline)) int deep(int n)
{
    int below = n > 0 ? deep(n - 1) : 0;
    asm volatile("" ::: "memory");
    return below + 1;
}

template <typename T, int N> __attribute__((noinline)) int sum(const T (&values)[N])
{
    int all = 0;
    for (const T &value : values)
        all += fib(value);
    return all;
}

__attribute__((noinline)) void may_throw(int i)
{
    if (i % 3 == 0)
        throw std::runtime_error("every third");
    asm volatile("" ::: "memory");
}

/* Calls itself by another function. */
__attribute__((noinline)) int odd(int n);
__attribute__((noinline)) int even(int n)
{
    int is = n == 0 ? 1 : odd(n - 1);
    asm volatile("" ::: "memory");
    return is;
}
int odd(int n)
{
    int is = n == 0 ? 0 : even(n - 1);
    asm volatile("" ::: "memory");
    return is;
}

__attribute__((noinline)) int work(int seed)
{
    const short few[] = {3, 5, 8};
    int all = seed + odd(1) + even(0);
    for (int i = 0; i < 50; i++) {
        try {
            may_throw(i);
        } catch (const std::exception &) {
            all++;
        }
        all += sum(few);
    }
    return all + deep(depth);
}

static void *thread(void *seed)
{
    return reinterpret_cast<void *>(static_cast<long>(work(*static_cast<int *>(seed))));
}

int main(int, char **arguments)
{
    depth = std::atoi(arguments[1]);
    pthread_t threads[2];
    int seeds[2] = {1, 2};
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], nullptr, thread, &seeds[i]);
    for (pthread_t &started : threads)
        pthread_join(started, nullptr);
    std::printf("%d\n", work(3));
}
