/* A server that forks at its first line of input: from its first thread, from another one, and once more in
   a child. Each process that it forked then serves every line by 20 calls of red. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 3, CALLS = 20 };
static int lines[CHILDREN][2], answers[2];

__attribute__((noinline)) int red(int x) { __asm__ volatile(""); return x + 1; }

static void serve(int number) {
    char byte;
    for (int i = 0; i < CHILDREN; i++) close(lines[i][1]);
    while (read(lines[number][0], &byte, 1) == 1) {
        for (int i = 0; i < CALLS; i++) red(i);
        if (write(answers[1], &byte, 1) != 1) break;
    }
    _exit(0);
}

static void *fork_in_a_thread(void *nothing) {
    (void)nothing;
    if (fork() == 0) serve(2);
    return NULL;
}

static void fork_all(void) {
    pthread_t thread;
    if (fork() == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) serve(1);
        serve(0);
    }
    pthread_create(&thread, NULL, fork_in_a_thread, NULL);
    pthread_join(thread, NULL);
}

int main(void) {
    char line[100];
    int is_forked = 0;
    for (int i = 0; i < CHILDREN; i++) if (pipe(lines[i])) return 1;
    if (pipe(answers)) return 1;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        char byte = 0;
        if (!is_forked++) fork_all();
        for (int i = 0; i < CHILDREN; i++) if (write(lines[i][1], &byte, 1) != 1) return 1;
        for (int i = 0; i < CHILDREN; i++) if (read(answers[0], &byte, 1) != 1) return 1;
        puts("ready");
        fflush(stdout);
    }
    for (int i = 0; i < CHILDREN; i++) close(lines[i][1]);
    while (wait(NULL) > 0) {}
    return 0;
}
