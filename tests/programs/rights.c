// Shows which of everycall's memory it has mapped, as the user that it is told to be.
//   rights wait           says its process id, and waits for the end of its input
//   rights show           shows its mappings
//   rights fork           the same in a forked child
//   rights drop UID       ... in a forked child that gives up its rights before its first traced call
//   rights act UID        ... in one that was forked while its parent acted as somebody else
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static void traced(void) { __asm__ volatile(""); }

__attribute__((noinline)) static void show(void)
{
    char line[4096];
    FILE* maps = fopen("/proc/self/maps", "r");
    if (!maps)
        _exit(3);
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "/memfd:everycall") || strstr(line, "/SYSV") || strstr(line, "/dev/zero"))
            fputs(line, stdout);
    fflush(stdout);
}

__attribute__((no_instrument_function)) static void be(uid_t user)
{
    if (setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0)
        _exit(4);
}

int main(int count, char** arguments)
{
    const char* what = count > 1 ? arguments[1] : "";
    uid_t user = count > 2 ? (uid_t)atoi(arguments[2]) : 0;
    traced();
    if (strcmp(what, "wait") == 0) {
        printf("%d\n", getpid());
        fflush(stdout);
        while (getchar() != EOF)
            traced();
        return 0;
    }
    if (strcmp(what, "show") == 0) {
        show();
        return 0;
    }
    if (strcmp(what, "act") == 0 && seteuid(user) != 0)
        return 5;
    pid_t child = fork();
    if (child == 0) {
        if (strcmp(what, "drop") == 0)
            be(user);
        traced();
        show();
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    traced();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 6;
}
