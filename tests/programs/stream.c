/* Makes a known number of calls, in threads, while something happens to the recorder or to the program.

   stream THREADS CALLS [STOP_MS | kill | die]

   Each thread calls `pair`, which calls `leaf`, CALLS times: 4 events each, and 2 for `work`. With STOP_MS the recorder, our
   parent, is stopped before that and goes on after so many milliseconds, or as soon as all is done; with `kill` it is killed; with `die`
   the program ends itself by SIGKILL afterwards. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long calls;
static volatile long sink;

__attribute__((noinline)) void leaf(long x) { sink = x; }

__attribute__((noinline)) void pair(long x)
{
    leaf(x);
    __asm__ volatile("");
}

void *work(void *unused)
{
    for (long call = 0; call < calls; call++)
        pair(call);
    return unused;
}

int main(int count, char **words)
{
    int threads = atoi(words[1]);
    const char *what = count > 3 ? words[3] : "";
    pid_t recorder = getppid();
    calls = atol(words[2]);
    if (!strcmp(what, "kill"))
        kill(recorder, SIGKILL);
    int stop_ms = atoi(what);
    pid_t helper = 0;
    if (stop_ms > 0) {
        kill(recorder, SIGSTOP);
        char time[32];
        snprintf(time, sizeof time, "%d.%03d", stop_ms / 1000, stop_ms % 1000);
        char command[96];
        snprintf(command, sizeof command, "sleep %s; kill -CONT %d", time, recorder);
        helper = fork();
        if (helper == 0) {
            /* Whoever reads what we print isn't to wait for it. */
            close(1);
            close(2);
            execl("/bin/sh", "sh", "-c", command, (char *)0);
            _exit(127);
        }
    }
    for (int done = 0; done < threads;) {
        pthread_t some[64];
        int now = threads - done < 64 ? threads - done : 64;
        int made = 0;
        /* Where memory is limited there may be fewer. */
        while (made < now && pthread_create(&some[made], 0, work, 0) == 0)
            made++;
        for (int i = 0; i < made; i++)
            pthread_join(some[i], 0);
        done += now;
    }
    if (helper > 0)
        kill(recorder, SIGCONT);
    printf("done\n");
    fflush(stdout);
    if (!strcmp(what, "die"))
        raise(SIGKILL);
    return 0;
}
