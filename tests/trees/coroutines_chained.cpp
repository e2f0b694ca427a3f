// Coroutines that wait for each other: each hands over to the next one by a tail call (symmetric transfer), and whoever owns one destroys it.
//
// flags: -std=c++20 -fcoroutines
// levels: -O2 -O3 -Os
// not in: gcc-finstrument clang-19-finstrument
// (gcc 12 ends with an internal error at -finstrument-functions with symmetric transfer from -O2 on, also without us; clang puts no hooks
// into what it splits off.)
// hidden: [await_suspend] +0x
//| main
//|   awaits()
//|     sum()
//gcc|       sum() [resume]
//|     sum() [resume]
//|       add(int)
//gcc|         add(int) [resume]
//|     add(int) [resume]
//|       leaf()
//|     sum() [resume]
//|       add(int) [destroy]
//gcc|       add(int) [resume]
//|       leaf()
//|       add(int)
//gcc|         add(int) [resume]
//|     add(int) [resume]
//|       leaf()
//|     sum() [resume]
//|       add(int) [destroy]
//gcc|       add(int) [resume]
//|     sum() [destroy]
//gcc|     sum() [resume]
//|   leaf()
//|   through_three()
//|     catches()
//gcc|       catches() [resume]
//|     catches() [resume]
//|       passes()
//gcc|         passes() [resume]
//|     passes() [resume]
//|       fails()
//gcc|         fails() [resume]
//|     fails() [resume]
//|       throws()!
//|         *throw std::runtime_error
//|       *catch std::runtime_error
//|     passes() [resume]
//|       *throw std::runtime_error
//|       *catch std::runtime_error
//|       fails() [destroy]
//gcc|       fails() [resume]
//|     catches() [resume]
//|       *throw std::runtime_error
//|       *catch std::runtime_error
//|       passes() [destroy]
//gcc|       passes() [resume]
//|       leaf()
//|     leaf()
//|     catches() [destroy]
//gcc|     catches() [resume]
//|   never_run()
//|     add(int)
//gcc|       add(int) [resume]
//|     leaf()
//|     add(int) [destroy]
//gcc|     add(int) [resume]
//|   recursive()
//|     down(int)
//gcc|       down(int) [resume]
//|     down(int) [resume]
//|       down(int)
//gcc|         down(int) [resume]
//|     down(int) [resume]
//|       down(int)
//gcc|         down(int) [resume]
//|     down(int) [resume]
//|     down(int) [resume]
//|       down(int) [destroy]
//gcc|       down(int) [resume]
//|     down(int) [resume]
//|       down(int) [destroy]
//gcc|       down(int) [resume]
//|     down(int) [destroy]
//gcc|     down(int) [resume]
//|   leaf()
#include "tree.h"
#include <coroutine>
#include <exception>
#include <stdexcept>
#include <utility>

F void leaf() { HERE; }

// Begins when it is awaited; its end goes on with who awaited it.
struct Task {
    struct promise_type {
        std::coroutine_handle<> then = std::noop_coroutine();
        std::exception_ptr error;
        int value = 0;
        struct Final {
            UNTRACED bool await_ready() noexcept { return false; }
            UNTRACED std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) noexcept {
                return ended.promise().then;
            }
            UNTRACED void await_resume() noexcept {}
        };
        UNTRACED promise_type() {}
        UNTRACED ~promise_type() {}
        UNTRACED Task get_return_object() {
            return Task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        UNTRACED std::suspend_always initial_suspend() noexcept { return {}; }
        UNTRACED Final final_suspend() noexcept { return {}; }
        UNTRACED void unhandled_exception() { error = std::current_exception(); }
        UNTRACED void return_value(int result) { value = result; }
    };
    std::coroutine_handle<promise_type> handle;
    UNTRACED explicit Task(std::coroutine_handle<promise_type> handle) : handle(handle) {}
    Task(const Task&) = delete;
    UNTRACED ~Task() { handle.destroy(); }
    UNTRACED bool await_ready() { return false; }
    UNTRACED std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
        handle.promise().then = caller;
        return handle;
    }
    UNTRACED int await_resume() {
        if (handle.promise().error) std::rethrow_exception(handle.promise().error);
        return handle.promise().value;
    }
    UNTRACED int run() {
        handle.resume();
        return await_resume();
    }
};

F Task add(int value) {
    leaf();
    co_return value + 1;
}
F Task sum() {
    int all = co_await add(1);
    leaf();
    all += co_await add(2);
    co_return all;
}
F int awaits() {
    Task it = sum();
    return it.run();
}
F void throws() {
    throw std::runtime_error("");
}
F Task fails() {
    throws();
    co_return 0;
}
F Task passes() {
    int value = co_await fails();
    leaf();
    co_return value;
}
F Task catches() {
    try {
        co_await passes();
    } catch (std::runtime_error&) {
        leaf();
    }
    co_return 1;
}
F void through_three() {
    Task it = catches();
    it.run();
    leaf();
}
F void never_run() {
    Task it = add(3);
    leaf();
}
F Task down(int depth) {
    if (depth > 0) co_await down(depth - 1);
    co_return depth;
}
F void recursive() {
    Task it = down(2);
    it.run();
}
int main() {
    if (awaits() != 5) return 1;
    leaf();
    through_three();
    never_run();
    recursive();
    leaf();
    return 0;
}
