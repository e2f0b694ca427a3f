// C++ whose numbers of calls don't depend on how its threads run: a pool of workers that share a
// queue of jobs, with virtual and recursive functions, templates, lambdas, containers and
// algorithms of the standard library, and objects of each thread.
//
//   threaded_counts JOBS
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#define NOINLINE __attribute__((noinline))

namespace shapes {

struct Shape {
    virtual ~Shape() = default;
    virtual uint64_t area() const = 0;
    virtual uint64_t scaled(uint64_t by) const
    {
        return area() * by;
    }
};

class Box final : public Shape {
  public:
    Box(uint64_t width, uint64_t height) : width(width), height(height) {}
    uint64_t area() const override
    {
        return width * height;
    }

  private:
    uint64_t width, height;
};

class Stack final : public Shape {
  public:
    void add(std::unique_ptr<Shape> shape)
    {
        parts.push_back(std::move(shape));
    }
    uint64_t area() const override
    {
        uint64_t sum = 0;
        for (const std::unique_ptr<Shape> &part : parts)
            sum += part->scaled(2);
        return sum;
    }
    uint64_t scaled(uint64_t by) const override
    {
        return Shape::scaled(by) + 1;
    }

  private:
    std::vector<std::unique_ptr<Shape>> parts;
};

NOINLINE std::unique_ptr<Shape> make(unsigned job, unsigned depth)
{
    if (depth == 0)
        return std::make_unique<Box>(job % 7, job % 5);
    auto stack = std::make_unique<Stack>();
    for (unsigned i = 0; i <= job % 3; i++)
        stack->add(make(job + i, depth - 1));
    return stack;
}

} // namespace shapes

namespace numbers {

NOINLINE bool is_odd(unsigned n);
NOINLINE bool is_even(unsigned n)
{
    return n == 0 || is_odd(n - 1);
}
NOINLINE bool is_odd(unsigned n)
{
    return n != 0 && is_even(n - 1);
}

template <typename T> NOINLINE T power(T base, unsigned exponent)
{
    if (exponent == 0)
        return 1;
    T half = power(base, exponent / 2);
    return exponent % 2 ? half * half * base : half * half;
}

NOINLINE uint64_t ackermann(uint64_t m, uint64_t n)
{
    if (m == 0)
        return n + 1;
    uint64_t inner = n == 0 ? 1 : ackermann(m, n - 1);
    return ackermann(m - 1, inner);
}

} // namespace numbers

// One for each thread, made at its first use and destroyed at the thread's end.
struct Scratch {
    Scratch() : values(64)
    {
        std::iota(values.begin(), values.end(), 1);
    }
    NOINLINE ~Scratch();
    NOINLINE uint64_t sum(unsigned job)
    {
        std::sort(values.begin(), values.end(), [job](uint64_t one, uint64_t other) { return one % (job + 2) < other % (job + 2); });
        uint64_t sum = std::accumulate(values.begin(), values.end(), uint64_t(job));
        std::sort(values.begin(), values.end());
        return sum;
    }
    std::vector<uint64_t> values;
};
static std::mutex ended_lock;
static unsigned ended;
Scratch::~Scratch()
{
    std::lock_guard<std::mutex> guard(ended_lock);
    ended++;
}
static thread_local Scratch scratch;

class Pool {
  public:
    NOINLINE void put(std::function<uint64_t()> job)
    {
        std::lock_guard<std::mutex> guard(lock);
        jobs.push_back(std::move(job));
    }
    NOINLINE void run(unsigned count)
    {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < count; i++)
            threads.emplace_back(&Pool::work, this);
        for (std::thread &thread : threads)
            thread.join();
    }
    uint64_t sum = 0;

  private:
    NOINLINE bool take(std::function<uint64_t()> &job)
    {
        std::lock_guard<std::mutex> guard(lock);
        if (jobs.empty())
            return false;
        job = std::move(jobs.front());
        jobs.pop_front();
        return true;
    }
    NOINLINE void work()
    {
        scratch.sum(0);
        std::function<uint64_t()> job;
        while (take(job)) {
            uint64_t found = job();
            std::lock_guard<std::mutex> guard(lock);
            sum += found;
        }
    }
    std::mutex lock;
    std::deque<std::function<uint64_t()>> jobs;
};

NOINLINE uint64_t words(unsigned job)
{
    std::map<std::string, unsigned> counts;
    for (unsigned i = 0; i < 20; i++)
        counts["word" + std::to_string((i * job) % 6)]++;
    uint64_t sum = 0;
    for (const auto &count : counts)
        sum += count.second * count.first.size();
    return sum;
}

int main(int, char **arguments)
{
    unsigned jobs = std::atoi(arguments[1]);
    Pool pool;
    for (unsigned job = 0; job < jobs; job++) {
        pool.put([job] { return shapes::make(job, 4)->area(); });
        pool.put([job] { return numbers::power<uint64_t>(3, job) + numbers::power<unsigned>(5, job) + numbers::is_even(job); });
        pool.put([job] { return numbers::ackermann(2, job % 4) + words(job); });
        pool.put([job] { return scratch.sum(job); });
    }
    pool.run(4);
    std::printf("%llu %u\n", static_cast<unsigned long long>(pool.sum), ended);
}
