#include <cstdio>

double area(double width, double height);

int main() {
    double sum = 0;
    for (int side = 1; side <= 1000; side++)
        sum += area(side, side + 1);
    std::printf("%.0f\n", sum);
}
