// A library whose functions handlers of the program see, too.
#define TRACED [[clang::xray_always_instrument]] __attribute__((noinline))

static volatile int sink;

extern "C" {
TRACED int library_leaf(int n) { return sink = n + 1; }
TRACED int library_caller(int n) { return library_leaf(n) + library_leaf(n); }
}
