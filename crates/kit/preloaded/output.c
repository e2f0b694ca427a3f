// libeverycall-output.so: what the program writes to its standard output and error, with its text.
//
// `record --with-output` preloads it. The streams stay what they are: nothing is redirected, and the bytes take
// no other way than without it. After a write to descriptor 1 or 2 has succeeded, its lines are noted in
// the trace, in the thread that wrote them.
//
//   write, writev          defined here, and call the C library's own
//   printf, puts, ...      the C library's streams call its `write` directly. glibc does so in one function,
//                          which its table of file operations names: the pointer there is exchanged for
//                          one to `file_write` below, if it is the one that is expected
//   perror                 writes through a copy of descriptor 2
//
// Not seen: system calls that the program makes itself, sendfile and splice, musl's streams.
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "everycall.h"

#define EXPORTED __attribute__((visibility("default")))
#define NEXT ((void*)-1l)

extern void* dlsym(void* handle, const char* name);

enum {
    TEXT = 96,         // bytes that a log line keeps of a text
    TEXTS = 7,         // texts of a log line, beside the three numbers
    PIECES_MAX = 512,  // lines of one write that are kept
    PAGE = 4096,
};

// Bits of a log line's types: numbers of 32 and 64 bits, a text, and that it is output.
enum { INT32 = 1, INT64 = 2, STRING = 5 };
#define OUTPUT (1u << 30)

// Lines that ended so far, of each stream.
static uint64_t lines_ended[3];
// While the thread is in perror, whatever it writes goes to standard error.
static __thread int in_perror __attribute__((tls_model("initial-exec")));

typedef ssize_t type_write(int, const void*, size_t);
typedef ssize_t type_writev(int, const struct iovec*, int);
typedef void type_perror(const char*);
typedef ssize_t type_file_write(FILE*, const void*, ssize_t);

static void* real[3];
static type_file_write* real_file_write;

static void* look_up(int number, const char* name) {
    void* function = __atomic_load_n(&real[number], __ATOMIC_RELAXED);
    if (!function) {
        function = dlsym(NEXT, name);
        __atomic_store_n(&real[number], function, __ATOMIC_RELAXED);
    }
    return function;
}

// Notes a piece of a line: `length` bytes, of which those that fit are kept.
static void note(int stream, uint64_t line, const char* bytes, size_t length) {
    char texts[TEXTS][TEXT + 1];
    uint64_t arguments[3 + TEXTS] = {(uint64_t)stream, line};
    uint32_t types = OUTPUT | INT32 | INT64 << 3 | INT64 << 6;
    size_t at = 0;
    int count = 0;
    for (; count < TEXTS && at < length; count++) {
        size_t kept = 0;
        for (; kept < TEXT && at < length; at++) {
            if (bytes[at]) {
                texts[count][kept++] = bytes[at];
            } else if (kept + 2 <= TEXT) {
                // A zero byte would end the text.
                texts[count][kept++] = '\\';
                texts[count][kept++] = '0';
            } else {
                break;
            }
        }
        texts[count][kept] = 0;
        arguments[3 + count] = (uint64_t)texts[count];
        types |= (uint32_t)STRING << (9 + 3 * count);
    }
    arguments[2] = length - at;
    everycall_log_("%d|%llu %llu|%s%s%s%s%s%s%s", types, arguments);
}

// Notes what was written. A line whose end isn't written yet is noted as far as it is.
static void written(int stream, const char* bytes, size_t length) {
    if (!EVERYCALL_IS_NEW_ || *everycall_runtime_v1.off) return;
    uint64_t ends = 0;
    for (size_t at = 0; at < length; at++) ends += bytes[at] == '\n';
    uint64_t line = __atomic_fetch_add(&lines_ended[stream], ends, __ATOMIC_RELAXED) + 1;
    for (int pieces = 1; length > 0; pieces++, line++) {
        size_t size = 0;
        while (size < length && (bytes[size] != '\n' || pieces == PIECES_MAX)) size++;
        note(stream, line, bytes, size);
        size += size < length;
        bytes += size;
        length -= size;
    }
}

static inline int is_noted(int descriptor) { return descriptor == 1 || descriptor == 2; }

EXPORTED ssize_t write(int descriptor, const void* bytes, size_t length) {
    type_write* function = look_up(0, "write");
    if (!function) {
        errno = ENOSYS;
        return -1;
    }
    ssize_t done = function(descriptor, bytes, length);
    if (is_noted(descriptor) && done > 0) {
        int error = errno;
        written(descriptor, bytes, (size_t)done);
        errno = error;
    }
    return done;
}

EXPORTED ssize_t writev(int descriptor, const struct iovec* parts, int count) {
    type_writev* function = look_up(1, "writev");
    if (!function) {
        errno = ENOSYS;
        return -1;
    }
    ssize_t done = function(descriptor, parts, count);
    if (is_noted(descriptor) && done > 0) {
        int error = errno;
        size_t left = (size_t)done;
        for (int index = 0; index < count && left > 0; index++) {
            size_t size = parts[index].iov_len < left ? parts[index].iov_len : left;
            if (size) written(descriptor, parts[index].iov_base, size);
            left -= size;
        }
        errno = error;
    }
    return done;
}

EXPORTED void perror(const char* text) {
    type_perror* function = look_up(2, "perror");
    in_perror++;
    if (function) function(text);
    in_perror--;
}

// In place of the function by which glibc's streams write.
static ssize_t file_write(FILE* file, const void* bytes, ssize_t length) {
    ssize_t done = real_file_write(file, bytes, length);
    int descriptor = in_perror ? 2 : file->_fileno;
    if (is_noted(descriptor) && done > 0) {
        int error = errno;
        written(descriptor, bytes, (size_t)done);
        errno = error;
    }
    return done;
}

// Whether the dynamic linker has made the page at `*data` read-only after it had filled it.
static int is_read_only(struct dl_phdr_info* object, size_t size, void* data) {
    (void)size;
    const uintptr_t page = *(uintptr_t*)data;
    for (int index = 0; index < object->dlpi_phnum; index++) {
        const ElfW(Phdr)* part = &object->dlpi_phdr[index];
        const uintptr_t begin = object->dlpi_addr + part->p_vaddr;
        const uintptr_t end = (begin + part->p_memsz) & ~(uintptr_t)(PAGE - 1);
        if (part->p_type == PT_GNU_RELRO && begin <= page && page + PAGE <= end) return 1;
    }
    return 0;
}

// Exchanges it in a table of file operations. The table can't be written to: its page can, for a moment.
static void exchange(void* table) {
    enum { WRITE = 15 };  // its place, since the table exists
    void** place = table ? (void**)table + WRITE : 0;
    if (!place || *place != (void*)real_file_write) return;
    uintptr_t page = (uintptr_t)place & ~(uintptr_t)(PAGE - 1);
    // Otherwise it isn't known how it must be protected afterwards.
    if (!dl_iterate_phdr(is_read_only, &page)) return;
    if (mprotect((void*)page, PAGE, PROT_READ | PROT_WRITE) != 0) return;
    __atomic_store_n(place, (void*)file_write, __ATOMIC_RELEASE);
    mprotect((void*)page, PAGE, PROT_READ);
}

__attribute__((constructor)) static void begin(void) {
    look_up(0, "write");
    look_up(1, "writev");
    look_up(2, "perror");
    real_file_write = (type_file_write*)dlsym(NEXT, "_IO_file_write");
    if (!real_file_write) return;
    exchange(dlsym(NEXT, "_IO_file_jumps"));
    exchange(dlsym(NEXT, "_IO_wfile_jumps"));
}
