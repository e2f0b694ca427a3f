// Children change their user, then execute a program in each way that the C library has. With an
// argument, they execute it with an environment of its own instead.
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *words[] = {"sh", "-c", "echo one >&2; /bin/true; exit 0", 0};

static char *own[] = {"PATH=/usr/bin:/bin", 0};

__attribute__((noinline)) static void execute(int way, char **environ) {
    pid_t child = 0;
    switch (way) {
    case 0: execve("/bin/sh", words, environ); break;
    case 1: execv("/bin/sh", words); break;
    case 2: execvp("sh", words); break;
    case 3: execvpe("sh", words, environ); break;
    case 4: execl("/bin/sh", words[0], words[1], words[2], (char *)0); break;
    case 5: execlp("sh", words[0], words[1], words[2], (char *)0); break;
    case 6: execle("/bin/sh", words[0], words[1], words[2], (char *)0, environ); break;
    case 7: posix_spawn(&child, "/bin/sh", 0, 0, words, environ); break;
    case 8: system(words[2]); break;
    case 9: fexecve(open("/bin/sh", O_RDONLY | O_CLOEXEC), words, environ); break;
    }
    if (child) waitpid(child, 0, 0);
}

int main(int count, char **arguments) {
    (void)arguments;
    for (int way = 0; way < 10; way++) {
        if (fork() == 0) {
            if (count > 1) {
                execute(way, own);
                return 0;
            }
            if (setgid(65533) != 0 || setuid(65533) != 0 || chdir("/") != 0) return 1;
            execute(way, environ);
            return 0;
        }
        wait(0);
    }
    return 0;
}
