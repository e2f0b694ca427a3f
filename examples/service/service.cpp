// A service with two workers and a cache. Some requests are slow: which, and why?
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static std::mutex cache_lock;
static std::vector<std::string> cache(1000, "a page of the cache");

[[gnu::noinline]] static void read_from_disk(std::string &page) {
    usleep(50'000);
    page = "a page of the disk";
}

[[gnu::noinline]] static std::string look_up(int id) {
    std::lock_guard guard(cache_lock);
    std::string &page = cache[id % cache.size()];
    if (id == 7777)
        read_from_disk(page); // the lock is held meanwhile
    return page;
}

[[gnu::noinline]] static int render(const std::string &page) {
    int sum = 0;
    for (int round = 0; round < 500; round++)
        for (char letter : page)
            sum += letter * round;
    return sum;
}

[[gnu::noinline]] int handle_request(int id) {
    std::string page = look_up(id);
    return render(page);
}

int main() {
    auto work = [](int first) {
        for (int id = first; id < 20'000; id += 2)
            handle_request(id);
    };
    std::thread even(work, 0), odd(work, 1);
    even.join();
    odd.join();
}
