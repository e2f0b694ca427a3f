// Makes thumbnails of a dozen pictures in two threads, fed by a third. One picture is damaged, which shows as an exception
// that is caught some calls further up; one is much larger than the others, and everything behind it waits.

#include "picture.h"

#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <pthread.h>

namespace {

struct Job {
    std::string name;
    int size;
};

class Queue {
public:
    void push(Job job) {
        {
            std::lock_guard lock(mutex_);
            jobs_.push_back(std::move(job));
        }
        changed_.notify_one();
    }

    void close() {
        {
            std::lock_guard lock(mutex_);
            closed_ = true;
        }
        changed_.notify_all();
    }

    // The next job; nothing when there will be none.
    std::optional<Job> pop() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return closed_ || !jobs_.empty(); });
        if (jobs_.empty()) {
            return std::nullopt;
        }
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        return job;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Job> jobs_;
    bool closed_ = false;
};

void print(const std::string& line) {
    std::printf("%s\n", line.c_str());
}

void make_thumbnail(const Job& job) {
    picture::Picture picture = picture::decode(job.name, job.size);
    picture::blur(picture);
    const int leaves = picture::count_leaves(picture);
    const picture::Picture small = picture::shrink(picture);
    print(job.name + ": " + std::to_string(leaves) + " leaves, thumbnail of " + std::to_string(small.width) + " x " +
          std::to_string(small.height));
}

void handle(const Job& job) {
    try {
        make_thumbnail(job);
    } catch (const picture::Damaged& error) {
        print(error.what());
    }
}

void work(const char* name, Queue& queue) {
    pthread_setname_np(pthread_self(), name);
    while (const std::optional<Job> job = queue.pop()) {
        handle(*job);
    }
}

void feed(Queue& queue) {
    pthread_setname_np(pthread_self(), "feeder");
    for (int i = 1; i <= 12; ++i) {
        const bool large = i == 5;
        const bool damaged = i == 8;
        queue.push({"picture-" + std::to_string(i) + (damaged ? ".bad" : ".pic"), large ? 1024 : 256});
    }
    queue.close();
}

}  // namespace

int main() {
    Queue queue;
    std::thread feeder(feed, std::ref(queue));
    std::thread first(work, "worker-1", std::ref(queue));
    std::thread second(work, "worker-2", std::ref(queue));
    feeder.join();
    first.join();
    second.join();
}
