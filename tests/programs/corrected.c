// Calls that do nothing, in calls that do nothing else; then a child that calls one of them.
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void leaf(void) { __asm__ volatile(""); }

__attribute__((noinline)) void middle(void) {
    for (int call = 0; call < 10; call++) leaf();
}

int main(void) {
    for (int call = 0; call < 1000; call++) middle();
    pid_t child = fork();
    if (child == 0) {
        leaf();
        _exit(0);
    }
    return child < 0 || waitpid(child, 0, 0) != child;
}
