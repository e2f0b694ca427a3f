// Boost.Context and Boost.Coroutine2, as their library is installed, shared and static: each stack is a track of its own, also where it is
// left by an exception, or unwound because nobody is to go on with it.
// hidden: boost:: Kept _ZSt _GLOBAL__ __static_initialization __cxx_global_var_init
// behind: -lboost_context
// behind: -l:libboost_context.a
//
//| main
//|   takes_turns
//|     leaf ×3
//|   throws_there
//|     leaf
//|   abandons
//|     leaf
//|   pulls
//|     leaf ×3
//|   leaves_generator
//|     leaf
//|   leaf
//| --
//| runs
//|   work
//|     leaf ×2
//|   work
//|     leaf ×2
//| --
//| catches
//|   throws!
//|     *throw int
//|   *catch int
//|   leaf ×2
//| --
//| is_abandoned!
//|   *throw boost::context::detail::forced_unwind
//|   Guard::~Guard()
//|     leaf
//| *catch boost::context::detail::forced_unwind
//| --
//| counts
//|   leaf ×3
//| *throw boost::context::detail::forced_unwind
//| *catch boost::context::detail::forced_unwind
//| --
//| counts!
//|   leaf
//|   *throw boost::context::detail::forced_unwind
//| *catch boost::context::detail::forced_unwind
//| *throw boost::context::detail::forced_unwind
//| *catch boost::context::detail::forced_unwind
#include "tree.h"
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <boost/coroutine2/all.hpp>
#include <memory>

#define C extern "C"

namespace context = boost::context;
using Generator = boost::coroutines2::coroutine<int>;

// The one that is gone on with: the names of functions of ours say nothing of Boost's types.
static context::fiber other;
UNTRACED static void go_on() { other = std::move(other).resume(); }

C F void leaf() { HERE; }
C F void work() {
    leaf();
    go_on();
    leaf();
    HERE;
}
C F void runs() {
    work();
    go_on();
    work();
    HERE;
}
// Each has memory of its own: one that is begun where another one was is the same track.
template <class Stack>
struct Kept : Stack {
    using Stack::Stack;
    UNTRACED void deallocate(context::stack_context&) noexcept {}
};
template <class Stack>
UNTRACED static void begin(Stack stack, void (*entry)()) {
    other = context::fiber(std::allocator_arg, stack, [entry](context::fiber&& from) {
        other = std::move(from);
        entry();
        return std::move(other);
    });
}
C F void takes_turns() {
    begin(Kept<context::fixedsize_stack>(64 << 10), runs);
    while (other) {
        go_on();
        if (other) leaf();
    }
    HERE;
}

C F void throws() {
    go_on();
    throw 1;
}
C F void catches() {
    try {
        throws();
    } catch (int) {
        leaf();
    }
    go_on();
    leaf();
    HERE;
}
C F void throws_there() {
    begin(Kept<context::protected_fixedsize_stack>(64 << 10), catches);
    go_on();
    go_on();
    leaf();
    go_on();
    HERE;
}

struct Guard {
    F ~Guard() {
        leaf();
        HERE;
    }
};
C F void is_abandoned() {
    Guard guard;
    go_on();
    HERE;
}
// Its destructor unwinds the stack.
C F void abandons() {
    begin(Kept<context::fixedsize_stack>(64 << 10), is_abandoned);
    go_on();
    leaf();
    other = context::fiber();
    HERE;
}

static Generator::push_type* sink;
UNTRACED static void give(int number) { (*sink)(number); }
C F void counts() {
    for (int number = 0; number < 3; number++) {
        leaf();
        give(number);
    }
    HERE;
}
UNTRACED static Generator::pull_type* generator() {
    return new Generator::pull_type(Kept<boost::coroutines2::fixedsize_stack>(), [](Generator::push_type& to) {
        sink = &to;
        counts();
    });
}
C F void pulls() {
    Generator::pull_type* numbers = generator();
    for (; *numbers; (*numbers)()) leaf();
    delete numbers;
    HERE;
}
C F void leaves_generator() {
    Generator::pull_type* numbers = generator();
    leaf();
    delete numbers;
    HERE;
}

int main() {
    takes_turns();
    throws_there();
    abandons();
    pulls();
    leaves_generator();
    leaf();
    return 0;
}
