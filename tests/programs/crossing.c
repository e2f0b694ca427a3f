/* Calls its functions at each line of its input: directly, and through the C library's qsort. Waits
   for a line in the middle of `rounds`, so that what follows is called by a call that was open. With
   an argument, a thread calls functions meanwhile. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

static int sum;

APART int leaf(int n) { __asm__ volatile(""); return n + 1; }

APART int step(int n) {
    int leaves = leaf(n) + leaf(n);
    __asm__ volatile("");
    return leaves;
}

APART int compared(const void *one, const void *other) {
    __asm__ volatile("");
    return *(const int *)one - *(const int *)other;
}

APART void sorts(void) {
    int numbers[2] = { 2, 1 };
    qsort(numbers, 2, sizeof numbers[0], compared);
    __asm__ volatile("");
    sum += numbers[0];
}

APART int rounds(void) {
    char line[64];
    for (int n = 0; n < 5; n++)
        sum += step(n);
    sorts();
    puts("ready");
    fflush(stdout);
    char *more = fgets(line, sizeof line, stdin);
    for (int n = 0; n < 5; n++)
        sum += step(n);
    sorts();
    return more != NULL;
}

static void *calls(void *unused) {
    for (;;) {
        leaf(1);
        usleep(1000);
    }
    return unused;
}

int main(int words, char **unused) {
    int count = 0;
    pthread_t thread;
    if (words > 1)
        pthread_create(&thread, NULL, calls, unused);
    while (rounds())
        count++;
    printf("%d rounds, sum %d\n", count, sum);
    return 0;
}
