// Writes lines between its calls, to standard output and error, and ends at once.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

APART int leaf(int n) {
    __asm__ volatile("");
    return n + 1;
}

APART int before(int n) { return leaf(n) + 1; }
APART int after(int n) { return leaf(n) + 2; }

int main(int count, char **arguments) {
    int sum = 0, quick = count > 1 && strcmp(arguments[1], "quick") == 0;
    for (int n = 0; n < (quick ? 1 : 5); n++) {
        sum += before(n);
        if (!quick) {
            printf("line %d\n", n);
            fprintf(stderr, n == 4 ? "no end" : "error %d\n", n);
            // Without fflush: standard output is a terminal. Whoever reads it has woken up then.
            usleep(300000);
        }
        sum += after(n);
    }
    return sum > 0 ? 7 : 0;
}
