// Functions of many shapes. A line that ends in `@ NAME` declares the function NAME.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#define KEEP __attribute__((noinline, used))

namespace shapes {

template <class T>
struct Box {
    T value;
    KEEP T sum(T other) const { // @ shapes::Box<int>::sum(int) const
        return value + other;
    }
};

template struct Box<int>;

struct Base {
    virtual ~Base() = default;
    virtual int area(int side) = 0;
};

struct Square : Base {
    KEEP int area(int side) override;
};

int Square::area(int side) { // @ shapes::Square::area(int)
    return side * side;
}

namespace {
KEEP int hidden(int x) { // @ shapes::(anonymous namespace)::hidden(int)
    if (x > 1000)
        throw std::runtime_error("too large");
    return x * 3;
}
} // namespace

inline int inlined(int x) {
    return hidden(x) + 1;
}

KEEP
int
declared_over_lines( // @ shapes::declared_over_lines(int)
    int x)
{
    return inlined(x) + Box<int>{4}.sum(x);
}

} // namespace shapes

KEEP static int same_name(int x) { // @ same_name(int)
    return shapes::declared_over_lines(x) + 1;
}

extern "C" KEEP int plain_c(int x) { // @ plain_c
    return same_name(x) * 2;
}

int main(int count, char**) { // @ main
    shapes::Square square;
    shapes::Base* base = &square;
    std::vector<std::string> words(static_cast<std::size_t>(count), "word");
    try {
        std::printf("%d %d\n", plain_c(count), base->area(static_cast<int>(words.size())));
    } catch (const std::exception& error) {
        std::puts(error.what());
    }
}
