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
int main() {
    handles();
    handles_guarded();
    leaf();
    const int fine = asks();
    leaf();
    const int sum = tells();
    leaf();
    return fine + sum;
}
