// Coroutines: what makes one has its plain name, what runs of it at a time is `[resume]`. gcc calls that one from the
// first on; clang's maker holds the beginning. (clang's finstrument puts no hooks into what it splits off.)
//
// flags: -std=c++20 -fcoroutines -pthread
// hidden: [await_suspend] +0x
// not in: clang-19-finstrument
//| main
//|   takes_turns()
//gcc|     counts(int)
//gcc|       counts(int) [resume]
//gcc|     counts(int)
//gcc|       counts(int) [resume]
//clang|     counts(int) ×2
//|     counts(int) [resume]
//|       leaf()
//|     counts(int) [resume]
//|       leaf()
//|     counts(int) [resume]
//|       leaf()
//|     counts(int) [resume]
//|       leaf()
//|     leaf()
//|   of_a_template()
//|     Generator ns::Thing::twice<long>(long)
//gcc|       Generator ns::Thing::twice<long>(long) [resume]
//|     Generator ns::Thing::twice<long>(long) [resume]
//|       leaf()
//|     Generator ns::Thing::twice<long>(long) [resume]
//|       leaf()
//|     Generator ns::Thing::twice<long>(long) [resume]
//|     leaf()
//|   caught_inside()
//|     catches()
//gcc|       catches() [resume]
//|     catches() [resume]
//|       throws()!
//|         *throw std::runtime_error
//|       *catch std::runtime_error
//|       leaf()
//|     leaf()
//|     catches() [resume]
//|       leaf()
//|     leaf()
//|   caught_outside()
//|     guarded()
//gcc|       guarded() [resume]
//|     guarded() [resume]
//|       Guard::Guard()
//|     guarded() [resume]!
//|       throws()!
//|         *throw std::runtime_error
//|       *catch std::runtime_error
//|       Guard::~Guard()
//|         leaf()
//|       *throw std::runtime_error
//|     *catch std::runtime_error
//|     leaf() ×2
//|   through_two()
//|     outer()
//gcc|       outer() [resume]
//|     outer() [resume]
//|       inner()
//gcc|         inner() [resume]
//|       inner() [resume]
//|         leaf()
//|       leaf()
//|       inner() [resume]!
//|         throws()!
//|           *throw std::runtime_error
//|         *catch std::runtime_error
//|         *throw std::runtime_error
//|       *catch std::runtime_error
//|       leaf()
//|     leaf()
//|     outer() [resume]
//|   on_another_thread()
//|     counts(int)
//gcc|       counts(int) [resume]
//|     counts(int) [resume]
//|       leaf()
//|     counts(int) [resume]
//|       leaf()
//|     leaf()
//| --
//| goes_on(void*)
//|   counts(int) [resume]
//|     leaf()
//|   leaf()
#include "tree.h"
#include <coroutine>
#include <exception>
#include <pthread.h>
#include <stdexcept>

F void leaf() { HERE; }

// Is suspended at its beginning, and gone at its end.
struct Generator {
    struct promise_type {
        int value = 0;
        UNTRACED promise_type() {}
        UNTRACED ~promise_type() {}
        UNTRACED Generator get_return_object() {
            return Generator(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        UNTRACED std::suspend_always initial_suspend() noexcept { return {}; }
        UNTRACED std::suspend_never final_suspend() noexcept { return {}; }
        UNTRACED std::suspend_always yield_value(int next) {
            value = next;
            return {};
        }
        UNTRACED void return_void() {}
        UNTRACED void unhandled_exception() { throw; }
    };
    std::coroutine_handle<promise_type> handle;
    UNTRACED explicit Generator(std::coroutine_handle<promise_type> handle) : handle(handle) {}
    UNTRACED int next() {
        handle.resume();
        return handle.promise().value;
    }
    UNTRACED void finish() { handle.resume(); }
};

// Lets another coroutine run to its next suspension, then goes on.
struct RunOther {
    Generator other;
    UNTRACED bool await_ready() { return false; }
    UNTRACED bool await_suspend(std::coroutine_handle<>) {
        other.handle.resume();
        return false;
    }
    UNTRACED void await_resume() {}
};

struct Guard {
    F Guard() { HERE; }
    F ~Guard() { leaf(); HERE; }
};

namespace ns {
struct Thing {
    template <class T> Generator twice(T value);
};
} // namespace ns
template <class T> F Generator ns::Thing::twice(T value) {
    leaf();
    co_yield int(value);
    leaf();
    co_yield int(value);
}

F Generator counts(int from) {
    for (;;) {
        leaf();
        co_yield from++;
    }
}
F void takes_turns() {
    Generator one = counts(1), other = counts(10);
    int sum = 0;
    for (int i = 0; i < 2; i++) sum += one.next() + other.next();
    if (sum != 24) throw 1;
    leaf();
}
F void of_a_template() {
    ns::Thing thing;
    Generator twice = thing.twice(7L);
    twice.next();
    twice.next();
    twice.finish();
    leaf();
}
F void throws() {
    throw std::runtime_error("");
}
F Generator catches() {
    try {
        throws();
    } catch (std::runtime_error&) {
        leaf();
    }
    co_yield 1;
    leaf();
}
F void caught_inside() {
    Generator it = catches();
    it.next();
    leaf();
    it.finish();
    leaf();
}
F Generator guarded() {
    Guard guard;
    co_yield 1;
    throws();
    leaf();
}
F void caught_outside() {
    Generator it = guarded();
    it.next();
    try {
        it.finish();
    } catch (std::runtime_error&) {
        leaf();
    }
    leaf();
}
F Generator inner() {
    leaf();
    co_yield 1;
    throws();
}
F Generator outer() {
    Generator other = inner();
    co_await RunOther{other};
    leaf();
    try {
        co_await RunOther{other};
    } catch (std::runtime_error&) {
        leaf();
    }
    co_yield 2;
}
F void through_two() {
    Generator it = outer();
    it.next();
    leaf();
    it.finish();
}
F void* goes_on(void* generator) {
    static_cast<Generator*>(generator)->next();
    leaf();
    return nullptr;
}
F void on_another_thread() {
    Generator it = counts(5);
    it.next();
    pthread_t thread;
    pthread_create(&thread, nullptr, goes_on, &it);
    pthread_join(thread, nullptr);
    it.next();
    leaf();
}
int main() {
    takes_turns();
    of_a_template();
    caught_inside();
    caught_outside();
    through_two();
    on_another_thread();
    return 0;
}
