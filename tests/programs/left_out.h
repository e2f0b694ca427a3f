extern volatile int sink;
__attribute__((noinline)) static int from_header(int n) {
    sink = n;
    return n + 1;
}
