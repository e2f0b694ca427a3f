/* At each line of its input, calls its functions ten times, and those of a library, once the line "load" has loaded it.
   Compiled twice: as program and, with LIBRARY, as the library. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define APART __attribute__((noinline, noclone, visibility("default")))

#ifdef LIBRARY
APART int chosen_early(int n) { __asm__ volatile(""); return n; }
APART int other_early(int n) { __asm__ volatile(""); return n; }
__attribute__((constructor)) static void on_load(void) { chosen_early(other_early(1)); }
APART int chosen_later(int n) { __asm__ volatile(""); return n + 1; }
APART int other_later(int n) { __asm__ volatile(""); return n + 2; }
#else
APART int chosen(int n) { __asm__ volatile(""); return n + 1; }
APART int other(int n) { __asm__ volatile(""); return n + 2; }

int main(int count, char **arguments)
{
    typedef int function(int);
    function *late[2] = {0, 0};
    char line[64] = "";
    if (count < 2)
        return 2;
    do {
        if (!strcmp(line, "load\n")) {
            void *library = dlopen(arguments[1], RTLD_NOW);
            if (!library)
                return 3;
            late[0] = (function *)dlsym(library, "chosen_later");
            late[1] = (function *)dlsym(library, "other_later");
        } else if (line[0]) {
            for (int n = 0; n < 10; n++)
                if (chosen(n) + other(n) + (late[0] ? late[0](n) + late[1](n) : 0) < 0)
                    return 4;
        }
        puts("ready");
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin));
    return 0;
}
#endif
