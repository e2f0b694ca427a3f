// Exceptions that are caught: what they leave is unwound, what runs meanwhile stands under the frame that is being left, and afterwards
// the depth is right.
//
//| main
//|   many_frames()
//|     down(int)! ↓6
//|       *throw std::runtime_error
//|     *catch std::runtime_error
//|     leaf()
//|   leaf()
//|   rethrows()
//|     catches_and_rethrows()!
//|       throws()!
//|         *throw std::runtime_error
//|       *catch std::runtime_error
//|       leaf()
//|       *throw std::runtime_error
//|     *catch std::runtime_error
//|     leaf()
//|   leaf()
//|   rethrows_exception_ptr()
//|     throws()!
//|       *throw std::runtime_error
//|     *catch std::runtime_error
//|     leaf()
//|     *throw std::runtime_error
//|     *catch std::runtime_error
//|     throws_again()!
//|       *throw int
//|     *catch int
//|     leaf()
//|   leaf()
//|   nested()
//|     throws()!
//|       *throw std::runtime_error
//|     *catch std::runtime_error
//|     inner_try()
//|       throws()!
//|         *throw std::runtime_error
//|       *catch std::runtime_error
//|       leaf()
//|     leaf()
//|   leaf()
//|   constructs()
//|     Whole::Whole()!
//|       Part::Part(int)
//|       Part::Part(int)!
//|         throws()!
//|           *throw std::runtime_error
//|       Part::~Part()
//|     *catch std::runtime_error
//|     leaf()
//|   leaf()
//|   destroys()
//|     guarded()!
//|       Guard::Guard()
//|       inner_guarded()!
//|         Guard::Guard()
//|         throws()!
//|           *throw std::runtime_error
//|         Guard::~Guard()
//|           leaf()
//|       Guard::~Guard()
//|         leaf()
//|     *catch std::runtime_error
//|     leaf()
//|   leaf()
//|   throws_in_destructor()
//|     destructor_throws()!
//|       throws()!
//|         *throw std::runtime_error
//|       Thrower::~Thrower()
//|         throws()!
//|           *throw std::runtime_error
//|         *catch std::runtime_error
//|         leaf()
//|     *catch std::runtime_error
//|     leaf()
//|   leaf()
//|   recursion(int) ↓3
//|     recursion(int)! ↓3
//|       throws()!
//|         *throw std::runtime_error
//|     *catch std::runtime_error
//|     leaf()
//|   leaf()
//|   many_arguments()
//|     throws_with_arguments(int, int, int, int, int, int, int, int, int)!
//|       *throw int
//|     *catch int
//|     takes_arguments(int, int, int, int, int, int, int, int, int, int, int, int)
//|       leaf()
//|   leaf()
//|   in_handler_only()
//|     throws()!
//|       *throw std::runtime_error
//|     *catch std::runtime_error
//|   leaf()
//|   function_try()
//|     throws()!
//|       *throw std::runtime_error
//|     *catch std::runtime_error
//|     leaf()
//|   leaf()
#include "tree.h"
#include <exception>
#include <stdexcept>

static volatile int zero;

F void leaf() { HERE; }
F void throws() {
    if (zero == 0) throw std::runtime_error("thrown");
    HERE;
}
F void throws_again() {
    if (zero == 0) throw 42;
    HERE;
}
F void down(int depth) {
    if (depth == 0) throw std::runtime_error("down");
    down(depth - 1);
    HERE;
}
F void many_frames() {
    try {
        down(5);
    } catch (const std::exception&) {
        leaf();
    }
    HERE;
}
F void catches_and_rethrows() {
    try {
        throws();
    } catch (...) {
        leaf();
        throw;
    }
}
F void rethrows() {
    try {
        catches_and_rethrows();
    } catch (const std::runtime_error&) {
        leaf();
    }
    HERE;
}
F void rethrows_exception_ptr() {
    std::exception_ptr kept;
    try {
        throws();
    } catch (...) {
        kept = std::current_exception();
    }
    leaf();
    try {
        std::rethrow_exception(kept);
    } catch (const std::runtime_error&) {
        try {
            throws_again();
        } catch (int) {
            leaf();
        }
    }
    HERE;
}
F void inner_try() {
    try {
        throws();
    } catch (...) {
        leaf();
    }
    HERE;
}
F void nested() {
    try {
        throws();
    } catch (...) {
        inner_try();
        leaf();
    }
    HERE;
}
struct Part {
    int number;
    F explicit Part(int n) : number(n) {
        if (n == 2) throws();
        HERE;
    }
    F ~Part() { HERE; }
};
struct Whole {
    Part one, two;
    F Whole() : one(1), two(2) { HERE; }
    F ~Whole() { HERE; }
};
F void constructs() {
    try {
        Whole whole;
        HERE;
    } catch (...) {
        leaf();
    }
    HERE;
}
struct Guard {
    F Guard() { HERE; }
    F ~Guard() {
        leaf();
        HERE;
    }
};
F void inner_guarded() {
    Guard guard;
    throws();
    HERE;
}
F void guarded() {
    Guard guard;
    inner_guarded();
    HERE;
}
F void destroys() {
    try {
        guarded();
    } catch (...) {
        leaf();
    }
    HERE;
}
struct Thrower {
    F ~Thrower() {
        try {
            throws();
        } catch (...) {
            leaf();
        }
        HERE;
    }
};
F void destructor_throws() {
    Thrower thrower;
    throws();
    HERE;
}
F void throws_in_destructor() {
    try {
        destructor_throws();
    } catch (...) {
        leaf();
    }
    HERE;
}
F void recursion(int depth) {
    if (depth == 0) throws();
    if (depth == 3) {
        try {
            recursion(depth - 1);
        } catch (...) {
            leaf();
        }
    } else {
        recursion(depth - 1);
    }
    HERE;
}
// What is called afterwards lies deeper in the stack than the frame that was left.
F void takes_arguments(int a, int, int, int, int, int, int, int, int, int, int, int l) {
    zero = a + l - a - l;
    leaf();
    HERE;
}
F void throws_with_arguments(int a, int, int, int, int, int, int, int, int i) {
    if (zero == 0) throw a + i;
    HERE;
}
F void many_arguments() {
    try {
        throws_with_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9);
    } catch (int value) {
        takes_arguments(value, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    }
    HERE;
}
F void in_handler_only() {
    try {
        throws();
    } catch (...) {
    }
    HERE;
}
F void function_try() try {
    throws();
    HERE;
} catch (...) {
    leaf();
}
int main() {
    many_frames();
    leaf();
    rethrows();
    leaf();
    rethrows_exception_ptr();
    leaf();
    nested();
    leaf();
    constructs();
    leaf();
    destroys();
    leaf();
    throws_in_destructor();
    leaf();
    recursion(5);
    leaf();
    many_arguments();
    leaf();
    in_handler_only();
    leaf();
    function_try();
    leaf();
}
