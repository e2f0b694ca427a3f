// Loads libraries and unloads them again.
//   turns N A B     N times: A, B, each called and unloaded before the next one comes
//   each DIR N      DIR/0000.so to DIR/N-1.so, one after the other; their initialisers make the calls
//   hold DIR N      the same, and none is unloaded
//   spaces A        A in a namespace of its own, and A with its own symbols first
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((no_instrument_function)) static void *loaded(void *library) {
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

__attribute__((no_instrument_function)) static int used(void *library) {
    int (*use)(int) = (int (*)(int))dlsym(library, "use");
    return use ? use(1) : 0;
}

__attribute__((noinline)) int turn(const char *path) {
    void *library = loaded(dlopen(path, RTLD_NOW));
    int result = used(library);
    dlclose(library);
    return result;
}

__attribute__((noinline)) int space(const char *path, int how) {
    void *library = loaded(how ? dlopen(path, RTLD_NOW | RTLD_DEEPBIND) : dlmopen(LM_ID_NEWLM, path, RTLD_NOW));
    int result = used(library);
    dlclose(library);
    return result;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    const char *what = arguments[1];
    int sum = 0;
    if (!strcmp(what, "turns"))
        for (int i = 0; i < atoi(arguments[2]); i++)
            for (int which = 3; which < count; which++) sum += turn(arguments[which]);
    else if (!strcmp(what, "spaces"))
        sum = space(arguments[2], 0) + space(arguments[2], 1);
    else
        for (int i = 0; i < atoi(arguments[3]); i++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%04d.so", arguments[2], i);
            if (!strcmp(what, "each")) sum += turn(path);
            else loaded(dlopen(path, RTLD_NOW));
        }
    printf("%d\n", sum);
    return 0;
}
