/* A daemon that others start: it answers lines of its standard input, and some of them slowly. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) static void read_page(int id) {
    if (id % 10 == 7)
        usleep(30000);
}

__attribute__((noinline)) int answer(int id) {
    read_page(id);
    return id * 2;
}

int main(void) {
    int id;
    while (scanf("%d", &id) == 1) {
        printf("%d\n", answer(id));
        fflush(stdout);
    }
    return 0;
}
