// Exceptions, cleanups and virtual calls: frames that exceptions leave have no exits.
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#define APART __attribute__((noinline))

static volatile long sink;
struct Guard {
    long value;
    APART explicit Guard(long v) : value(v) { sink = sink + v; }
    APART ~Guard() { sink = sink - value; }
};
struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
};
struct Square : Shape {
    double side;
    explicit Square(double s) : side(s) {}
    double area() const override { return side * side; }
};
struct Circle : Shape {
    double radius;
    explicit Circle(double r) : radius(r) {}
    double area() const override { return 3.0 * radius * radius; }
};

APART long inner(long x) {
    Guard guard(x);
    if (x % 7 == 3) throw std::runtime_error("seven " + std::to_string(x));
    return x * 2;
}
APART long middle(long x) {
    Guard guard(x + 1);
    return inner(x) + 1;
}
APART long outer(long x) {
    try {
        return middle(x);
    } catch (const std::runtime_error &error) {
        return static_cast<long>(std::string(error.what()).size());
    }
}
APART long rethrows(long x) {
    try {
        return middle(x);
    } catch (...) {
        throw;
    }
}

int main() {
    long sum = 0;
    for (long x = 0; x < 700; x++) sum += outer(x);
    for (long x = 0; x < 70; x++) {
        try {
            sum += rethrows(x);
        } catch (const std::exception &) {
            sum += 1000;
        }
    }
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int k = 0; k < 50; k++) {
        if (k % 2) shapes.push_back(std::make_unique<Square>(k));
        else shapes.push_back(std::make_unique<Circle>(k));
    }
    double area = 0;
    for (const auto &shape : shapes) area += shape->area();
    std::printf("%ld %.1f %ld\n", sum, area, sink);
}
