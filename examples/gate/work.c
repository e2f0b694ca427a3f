/* Requests, each with a parser of its own: built with -DSLOW, the parser does its work twice. */
#include <stdio.h>
#include <string.h>

static char text[4096];

__attribute__((noinline)) static int checksum(int round) {
    int sum = 0;
    for (size_t at = 0; at < sizeof text; at++)
        sum = sum * 31 + text[at] + round;
    return sum;
}

__attribute__((noinline)) int parse(int id) {
    int sum = checksum(id);
#ifdef SLOW
    sum ^= checksum(id + 1);
#endif
    return sum;
}

int main(void) {
    int sum = 0;
    memset(text, 'x', sizeof text);
    for (int id = 0; id < 2000; id++)
        sum ^= parse(id);
    printf("%d\n", sum);
    return 0;
}
