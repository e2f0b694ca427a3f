#include "shapes.h"

namespace tt {

int First::one(int x) { return x + a; }
int Second::two(int x) { return x + b; }
Second *Second::self() { return this; }
int Both::one(int x) { return First::one(x) * 2; }
int Both::two(int x) { return Second::two(x) * 3; }
Both *Both::self() { return this; }

struct Global { int value; Global() : value(t_leaf(1)) {} ~Global() { t_leaf(2); } };
static Global global;

[[noreturn]] NOINLINE void t_noreturn_throw(int x) { throw x; }

NOINLINE int catching(int x) {
    Array<int, 4> array;
    try {
        array.at(1) = x;
        if (x & 1) t_noreturn_throw(x);
        return array.at(9);
    } catch (int caught) {
        return caught + array.at(1);
    }
}

NOINLINE int use(int x) {
    auto lambda = [x](int y) NOINLINE { return twice(x + y); };
    return comdat(x) + lambda(2) + twice(2.5) + global.value;
}

}
