// Exceptions that leave functions which were inlined into the one that handles them, with and without something to clean up; and one that is handled by an inlined function.
#include "../trees/tree.h"

// Reported by no mode.
#if defined(__clang__)
#define HIDDEN __attribute__((no_instrument_function, xray_never_instrument, always_inline))
#else
#define HIDDEN __attribute__((no_instrument_function, always_inline))
#endif
#define INLINED static inline __attribute__((always_inline))

F void leaf() { HERE; }
F void fails() { throw 1; }
F void cleans() { HERE; }
struct Guard {
    HIDDEN ~Guard() { cleans(); }
};
INLINED int parses(int i) {
    fails();
    HERE;
    return i;
}
INLINED int parses_guarded(int i) {
    Guard guard;
    fails();
    HERE;
    return i;
}
INLINED bool is_fine(int i) {
    try {
        fails();
    } catch (int) {
        return false;
    }
    return i > 0;
}
// Handles it and goes on calling; what is inlined into it is left.
INLINED int recovers(int i) {
    int result = 0;
    try {
        result = parses(i);
    } catch (int) {
        cleans();
    }
    leaf();
    return result;
}
F int tells() {
    volatile int i = 0;
    int sum = 0;
    for (int round = 0; round < 2; round++) {
        sum += recovers(i);
        leaf();
    }
    HERE;
    return sum;
}
F void handles() {
    for (volatile int i = 0; i < 2; i = i + 1) try {
            parses(i);
        } catch (int) {
            leaf();
        }
    leaf();
    HERE;
}
F void handles_guarded() {
    for (volatile int i = 0; i < 2; i = i + 1) try {
            parses_guarded(i);
        } catch (int) {
        }
    leaf();
    HERE;
}
F int asks() {
    volatile int i = 0;
    const int fine = is_fine(i) + is_fine(i);
    leaf();
    HERE;
    return fine;
}
// Handles it at each level of a recursion.
INLINED int tries(int depth);
F int recurses(int depth) {
    const int result = tries(depth);
    leaf();
    return result;
}
INLINED int tries(int depth) {
    int result = 0;
    try {
        if (depth) result = recurses(depth - 1);
        fails();
    } catch (int) {
        cleans();
        leaf();
    }
    return result + 1;
}

// One landing pad cleans up for both.
struct Inner {
    F ~Inner() { HERE; }
};
struct Outer {
    F ~Outer() { HERE; }
};
struct Inlined {
    __attribute__((always_inline)) ~Inlined() {
        cleans();
        leaf();
    }
};
INLINED int holds(int i) {
    Inner inner;
    fails();
    HERE;
    return i;
}
INLINED int holds_inlined(int i) {
    Inlined inner;
    Inner innermost;
    fails();
    HERE;
    return i;
}
F int passes(int i) {
    Outer outer;
    i += holds(i);
    HERE;
    return i;
}
F int passes_inlined(int i) {
    Outer outermost;
    Inlined outer;
    i += holds_inlined(i);
    HERE;
    return i;
}
F int catches(int i) {
    for (int round = 0; round < 2; round++) try {
            Outer outer;
            i += holds(i);
        } catch (int) {
            cleans();
            leaf();
        }
    leaf();
    HERE;
    return i;
}
INLINED int catches_itself(int i) {
    try {
        Outer outer;
        i += holds(i);
    } catch (int) {
        cleans();
    }
    leaf();
    return i;
}
F int goes_on(int i) {
    Outer outer;
    i += catches_itself(i);
    leaf();
    i += holds(i);
    HERE;
    return i;
}
// A destructor that handles one itself, as another one is on its way.
struct Careful {
    __attribute__((always_inline)) ~Careful() {
        try {
            fails();
        } catch (int) {
            cleans();
        }
    }
};
INLINED int holds_careful(int i) {
    Careful inner;
    fails();
    HERE;
    return i;
}
F int careful(int i) {
    try {
        Outer outer;
        i += holds_careful(i);
    } catch (int) {
        leaf();
    }
    leaf();
    Outer outer;
    i += holds_careful(i);
    HERE;
    return i;
}
// Functions of one name.
INLINED void over(char) {
    fails();
    HERE;
}
INLINED void over(int) {
    try {
        over('c');
    } catch (int) {
        leaf();
    }
    leaf();
}
struct A {
    __attribute__((always_inline)) void run() {
        fails();
        HERE;
    }
};
template <typename T>
struct Runs {
    __attribute__((always_inline)) void run() {
        try {
            T().run();
        } catch (int) {
            leaf();
            throw;
        }
        leaf();
    }
};
F void names() {
    over(1);
    try {
        Runs<Runs<A>>().run();
    } catch (int) {
        leaf();
    }
    HERE;
}
// A function within one that is inlined, too.
INLINED void asks_within() {
    struct Within {
        __attribute__((always_inline)) void asks() {
            fails();
            HERE;
        }
    };
    try {
        Within().asks();
    } catch (int) {
        cleans();
    }
    leaf();
}
F void within() {
    asks_within();
    HERE;
}
// A handler that throws before it calls anything, and one that calls nothing.
INLINED void rethrows() {
    try {
        fails();
    } catch (int) {
        throw;
    }
    HERE;
}
INLINED void ignores() {
    try {
        holds(1);
    } catch (int) {
    }
    HERE;
}
INLINED void guards() {
    Inlined guard;
    rethrows();
    HERE;
}
F void throws_on() {
    ignores();
    leaf();
    guards();
    HERE;
}
// Arguments on the stack, when it throws.
F int fails_with(int a, int b, int c, int d, int e, int f, int g, int h) {
    if (a + b + c + d + e + f + g + h) throw 1;
    return a;
}
INLINED int holds_with(int i) {
    Inner inner;
    i += fails_with(i, 2, 3, 4, 5, 6, 7, 8);
    HERE;
    return i;
}
F int passes_with(int i) {
    Outer outer;
    i += holds_with(i);
    HERE;
    return i;
}
F int catches_with(int i) {
    try {
        Outer outer;
        i += holds_with(i);
    } catch (int) {
        leaf();
    }
    leaf();
    HERE;
    return i;
}
F void all() {
    volatile int i = 1;
    catches_with(i);
    try {
        passes_with(i);
    } catch (int) {
    }
    names();
    within();
    try {
        throws_on();
    } catch (int) {
    }
    recurses(2);
    catches(i);
    try {
        passes(i);
    } catch (int) {
    }
    try {
        passes_inlined(i);
    } catch (int) {
    }
    try {
        goes_on(i);
    } catch (int) {
    }
    try {
        careful(i);
    } catch (int) {
    }
    HERE;
}
int main() {
    all();
    handles();
    handles_guarded();
    leaf();
    const int fine = asks();
    leaf();
    const int sum = tells();
    leaf();
    return fine + sum;
}
