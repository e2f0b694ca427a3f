// Functions with levels for `everycall follow`.
#include <everycall.h>

#define APART __attribute__((noinline, noclone))

volatile int sum;

APART void leaf(int n) {
    sum += n;
}

APART EVERYCALL_LEVEL_0 void quiet(int n) {
    leaf(n);
    sum += n;
}

APART EVERYCALL_LEVEL_1 void brief(int n) {
    leaf(n);
    sum += n;
}

APART EVERYCALL_LEVEL_2 void other(int n) {
    quiet(n);
    brief(n);
    sum += n;
}

int main(void) {
    for (int n = 0; n < 3; n++)
        other(n);
    return 0;
}
