/* Two threads that start threads at each line of the input: each starts one, which starts another one. It writes the two threads'
   numbers to the file that is named. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

static sem_t begin[2], done;
static volatile int is_over;
static volatile int tids[2];

APART void child_of_one(void) { __asm__ volatile(""); }
APART void child_of_two(void) { __asm__ volatile(""); }
APART void grandchild_of_one(void) { __asm__ volatile(""); }
APART void grandchild_of_two(void) { __asm__ volatile(""); }
APART void parent_one(void) { __asm__ volatile(""); }
APART void parent_two(void) { __asm__ volatile(""); }

static void *grandchild(void *number) {
    number ? grandchild_of_two() : grandchild_of_one();
    return NULL;
}

static void run(void *(*function)(void *), void *number) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, number) == 0)
        pthread_join(thread, NULL);
}

static void *child(void *number) {
    number ? child_of_two() : child_of_one();
    run(grandchild, number);
    return NULL;
}

static void *parent(void *number) {
    int index = number != NULL;
    tids[index] = (int)syscall(SYS_gettid);
    sem_post(&done);
    for (;;) {
        sem_wait(&begin[index]);
        if (is_over)
            return NULL;
        number ? parent_two() : parent_one();
        run(child, number);
        sem_post(&done);
    }
}

int main(int count, char **arguments) {
    pthread_t threads[2];
    char line[64];
    sem_init(&done, 0, 0);
    for (int i = 0; i < 2; i++) {
        sem_init(&begin[i], 0, 0);
        pthread_create(&threads[i], NULL, parent, i ? &threads : NULL);
        sem_wait(&done);
    }
    FILE *file = count > 1 ? fopen(arguments[1], "w") : NULL;
    if (file) {
        fprintf(file, "%d %d\n", tids[0], tids[1]);
        fclose(file);
    }
    do {
        puts("ready");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            break;
        for (int i = 0; i < 2; i++)
            sem_post(&begin[i]);
        for (int i = 0; i < 2; i++)
            sem_wait(&done);
    } while (1);
    is_over = 1;
    for (int i = 0; i < 2; i++) {
        sem_post(&begin[i]);
        pthread_join(threads[i], NULL);
    }
    return 0;
}
