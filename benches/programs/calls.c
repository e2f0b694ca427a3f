// An empty function, and a loop that calls it. Compiled twice into each program, once with hooks and once without:
// -DNAME=traced, -DNAME=plain.
#define JOINED(a, b) a##b
#define OF(name, what) JOINED(name, what)

__attribute__((noinline)) void OF(NAME, _empty)(void) { __asm__ volatile(""); }

void OF(NAME, _loop)(long n) {
    for (; n; n--) OF(NAME, _empty)();
}
