// Threads that work together until somebody ends the program: a queue, maps of strings, virtual calls, recursion, lambdas; some
// threads live for the whole time, others come and go. With an argument, one takes ever more memory. A journal of all calls in `load` is kept (tests/oracle/journal.h).
#include "../oracle/journal.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace load {

struct Random {
    uint64_t state;
    uint64_t next()
    {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }
};

struct Shape {
    virtual ~Shape() {}
    virtual double area() const = 0;
};

struct Box : Shape {
    double side;
    explicit Box(double of) : side(of) {}
    ~Box() override {}
    double area() const override { return side * side; }
};

struct Group : Shape {
    std::vector<std::unique_ptr<Shape>> parts;
    ~Group() override {}
    double area() const override
    {
        double sum = 0;
        for (const auto &part : parts)
            sum += part->area();
        return sum;
    }
};

std::unique_ptr<Shape> make(Random &random, int depth)
{
    if (depth == 0 || random.next() % 3 == 0)
        return std::make_unique<Box>(static_cast<double>(random.next() % 100));
    auto group = std::make_unique<Group>();
    for (uint64_t count = random.next() % 4; count > 0; count--)
        group->parts.push_back(make(random, depth - 1));
    return group;
}

class Queue {
public:
    void put(std::function<void(Random &)> job)
    {
        std::unique_lock<std::mutex> lock(mutex);
        room.wait(lock, [this] { return jobs.size() < 64; });
        jobs.push_back(std::move(job));
        work.notify_one();
    }
    std::function<void(Random &)> take()
    {
        std::unique_lock<std::mutex> lock(mutex);
        work.wait(lock, [this] { return !jobs.empty(); });
        auto job = std::move(jobs.front());
        jobs.pop_front();
        room.notify_one();
        return job;
    }

private:
    std::mutex mutex;
    std::condition_variable work, room;
    std::deque<std::function<void(Random &)>> jobs;
};

int compare_calls(const std::string &a, const std::string &b) { return a.compare(b); }

void count_words(Random &random)
{
    std::map<std::string, int> counts;
    std::vector<std::string> words;
    for (uint64_t count = 20 + random.next() % 50; count > 0; count--) {
        std::string word = std::to_string(random.next() % 40);
        counts[word]++;
        words.push_back(word);
    }
    std::sort(words.begin(), words.end(), [](const auto &a, const auto &b) { return compare_calls(a, b) < 0; });
}

long fibonacci(long n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

Queue queue;

void serve(uint64_t seed)
{
    Random random = {88172645463325252u + seed};
    for (;;)
        queue.take()(random);
}

void brief(uint64_t seed)
{
    Random random = {seed * 2 + 1};
    for (int turn = 0; turn < 30; turn++)
        make(random, 3)->area();
}

// They are counted: the journal has room for few threads.
void come_and_go()
{
    for (uint64_t number = 1; number <= 8; number++) {
        std::thread(brief, number).join();
        usleep(20000);
    }
}

void produce()
{
    Random random = {7};
    for (;;) {
        switch (random.next() % 3) {
        case 0:
            queue.put(count_words);
            break;
        case 1:
            queue.put([](Random &own) { make(own, 4)->area(); });
            break;
        default:
            long n = static_cast<long>(random.next() % 12);
            queue.put([n](Random &) { fibonacci(n); });
        }
    }
}

// Pages take memory once they are written to.
void take_memory()
{
    enum { SIZE = 256 << 10, PAGE = 4096 };
    char volatile *taken = static_cast<char *>(malloc(SIZE));
    for (int at = 0; taken && at < SIZE; at += PAGE)
        taken[at] = 1;
}

void be_hungry()
{
    for (;;) {
        take_memory();
        usleep(2000);
    }
}

} // namespace load

int main(int count, char **)
{
    std::vector<std::thread> threads;
    for (uint64_t seed = 0; seed < 3; seed++)
        threads.emplace_back(load::serve, seed);
    threads.emplace_back(load::come_and_go);
    if (count > 1)
        threads.emplace_back(load::be_hungry);
    load::produce();
}
