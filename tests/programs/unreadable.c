// Hands memory that can't be read to functions of the C library, and memory that another thread
// unmaps meanwhile.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, ROUNDS = 300 };
static char *shared;
static volatile int ended;

static char *pages(int count, int protection) {
    return mmap(0, count * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void *unmaps(void *unused) {
    while (!ended) {
        mprotect(shared, PAGE, PROT_NONE);
        mprotect(shared, PAGE, PROT_READ | PROT_WRITE);
    }
    return unused;
}
static const char *outcome(int result) {
    return result >= 0 ? "fine" : errno == EFAULT ? "bad address" : "other";
}

int main(void) {
    char *nothing = pages(1, PROT_NONE), *half = pages(2, PROT_READ | PROT_WRITE);
    mprotect(half + PAGE, PAGE, PROT_NONE);
    memcpy(half + PAGE - 18, "readable and then ", 18);
    struct iovec parts[2] = {{nothing, 10}, {half, 10}};
    long one = write(1, nothing, 10), two = writev(1, parts, 1), three = write(1, half + PAGE - 16, 20);
    write(1, half + PAGE - 18, 22);
    int to = socket(AF_INET, SOCK_STREAM, 0);
    const char *connected = outcome(connect(to, (struct sockaddr *)nothing, 16));
    const char *polled = outcome(poll((struct pollfd *)nothing, 1, 0));
    shared = pages(1, PROT_READ | PROT_WRITE);
    pthread_t thread;
    pthread_create(&thread, 0, unmaps, 0);
    for (int round = 0; round < ROUNDS; round++) write(1, shared, PAGE);
    ended = 1;
    pthread_join(thread, 0);
    fprintf(stderr, "%ld %ld %ld %s %s\n", one, two, three, connected, polled);
    return 0;
}
