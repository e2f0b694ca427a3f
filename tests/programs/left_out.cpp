// Functions that builds leave out: by size, loop, name, file and attribute.
#include "left_out.h"

#include <cstdio>

#define OWN __attribute__((noinline))

volatile int sink;

namespace shop {
OWN int add(int a, int b) { return a + b; }
OWN int sum(int n) {
    int all = 0;
    for (int i = 0; i < n; i++)
        all += sink ^ i;
    return all;
}
OWN int order(int n) {
    sink = add(n, 1);
    sink = sink * 3 + n;
    std::printf("%d\n", sink);
    sink = add(n, 2);
    sink = sink * 5 + n;
    std::printf("%d\n", sink);
    sink = add(n, 3);
    sink = sink * 7 + n;
    std::printf("%d\n", sink);
    return sink + 1;
}
template <typename T> OWN T doubled(T value) {
    sink = static_cast<int>(value);
    return value + value;
}
OWN int last(int n) {
    sink = n;
    return sum(n);
}
OWN int thrower(int n) {
    if (n > 2)
        throw n;
    return n;
}
OWN int catcher(int n) {
    try {
        return thrower(n);
    } catch (int thrown) {
        return thrown + 1;
    }
}
}

int main() {
    int all = shop::order(3) + shop::sum(4) + shop::doubled(2) + static_cast<int>(shop::doubled(2.5));
    all += shop::last(2) + shop::catcher(1) + shop::catcher(5) + from_header(all);
    std::printf("%d\n", all);
}
