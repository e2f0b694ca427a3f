// A loop of calls for a sampling profiler to look at.
#define NOINLINE __attribute__((noinline))
volatile int sink;
NOINLINE int leaf(int n) {
    sink += n;
    return n + 1;
}
NOINLINE int saves(int n) {
    int a = leaf(n), b = leaf(a), c = leaf(b + a);
    return a * b + c + leaf(a + b + c);
}
NOINLINE int jumps(int n) {
    int a = leaf(n);
    return saves(a + n);
}
NOINLINE int outer(int n) { return jumps(n) + saves(n) + 1; }
int main(void) {
    for (int i = 0; i < 1000000; i++) outer(i);
    return 0;
}
