// Writes to its streams in every way, and into a log file. One argument: the log file.
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>
#include <sys/uio.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#define SEEN __attribute__((noinline))

SEEN void flush() { std::fflush(stdout); }
SEEN void buffered() {
    std::printf("buffered %d\n", 1);
    std::puts("buffered 2");
    flush();
}
SEEN void errors() {
    std::fprintf(stderr, "red: %s\n", "\x1b[31mtext\x1b[0m");
    errno = ENOENT;
    std::perror("perror");
}
SEEN void direct() {
    struct iovec parts[2] = {{const_cast<char*>(" of it\n"), 7}, {const_cast<char*>("vector\n"), 7}};
    if (write(1, "first\nhalf", 10) != 10 || writev(1, parts, 2) != 14) _exit(9);
    if (write(1, "zero\0byte\n", 10) != 10) _exit(9);
}
SEEN void streams() {
    std::cout << "cout" << std::endl;
    std::cerr << "cerr\n";
}
SEEN void longest() {
    std::string text(3000, 'x');
    std::puts(text.c_str());
    flush();
}
SEEN void logs(const char* path, int line) {
    FILE* file = std::fopen(path, "a");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    char text[64];
    struct tm parts;
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", gmtime_r(&now.tv_sec, &parts));
    std::fprintf(file, "[%s.%09ld+0000] entry %d\n", text, now.tv_nsec, line);
    if (line == 1) std::fputs("  continued \x1b[2J\n", file);
    std::fclose(file);
}

int main(int count, char** arguments) {
    std::printf("terminal %d\n", isatty(1));
    buffered();
    errors();
    direct();
    streams();
    longest();
    std::thread([] {
        std::puts("thread");
        flush();
    }).join();
    if (fork() == 0) {
        std::puts("child");
        flush();
        _exit(0);
    }
    wait(nullptr);
    for (int line = 0; count > 1 && line < 3; line++) logs(arguments[1], line);
}
