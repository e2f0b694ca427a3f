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

#include "copied.h"
#include "everycall.h"

#define EXPORTED __attribute__((visibility("default")))
#define NEXT ((void*)-1l)

extern void* dlsym(void* handle, const char* name);

enum {
    TEXT = 96,         // bytes that a log line keeps of a text
    TEXTS = 7,         // texts of a log line, beside the three numbers
    PIECES_MAX = 512,  // lines of one write that are kept
    PAGE = 4096,
    COPIED = 1024,     // bytes that are copied at a time: handlers of signals write on small stacks
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

// Bytes that were written, read through copies: they may not be readable, or no longer.
struct text {
    const char* bytes;
    size_t length;
    // The part that is copied.
    size_t begin, end;
    char copy[COPIED];
};

// The bytes from `at` on, as far as they are in one copy; how many they are. 0: at the end, or
// where they can't be read.
static size_t look_at(struct text* text, size_t at, const char** bytes) {
    if (at < text->begin || at >= text->end) {
        const size_t left = text->length - at;
        text->begin = at;
        text->end = at + copy_of_program(text->copy, text->bytes + at, left < COPIED ? left : COPIED);
    }
    *bytes = text->copy + (at - text->begin);
    return text->end - at;
}

// Where the line that begins at `at` ends: at a line feed, or where nothing more can be read.
static size_t end_of_line(struct text* text, size_t at) {
    const char* bytes;
    for (size_t size; (size = look_at(text, at, &bytes)) > 0; at += size) {
        for (size_t index = 0; index < size; index++) {
            if (bytes[index] == '\n') return at + index;
        }
    }
    return at;
}

// Notes the piece of a line from `at` to `end`, of which the bytes that fit and can be read are
// kept.
static void note(int stream, uint64_t line, struct text* text, size_t at, size_t end) {
    char texts[TEXTS][TEXT + 1];
    uint64_t arguments[3 + TEXTS] = {(uint64_t)stream, line};
    uint32_t types = OUTPUT | INT32 | INT64 << 3 | INT64 << 6;
    const char* bytes;
    for (int count = 0; count < TEXTS && at < end && look_at(text, at, &bytes) > 0; count++) {
        size_t kept = 0;
        for (; kept < TEXT && at < end && look_at(text, at, &bytes) > 0; at++) {
            if (*bytes) {
                texts[count][kept++] = *bytes;
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
    arguments[2] = end - at;
    everycall_log_("%d|%llu %llu|%s%s%s%s%s%s%s", types, arguments);
}

// Notes what was written. A line whose end isn't written yet is noted as far as it is. Bytes that
// can't be read are noted as bytes that weren't kept.
static void written(int stream, const char* bytes, size_t length) {
    if (!EVERYCALL_IS_NEW_ || *everycall_runtime_v1.off) return;
    struct text text;
    text.bytes = bytes;
    text.length = length;
    text.begin = text.end = 0;
    uint64_t ends = 0;
    size_t readable = 0;
    for (size_t end; (end = end_of_line(&text, readable)) < length && look_at(&text, end, &bytes) > 0; ends++) {
        readable = end + 1;
    }
    uint64_t line = __atomic_fetch_add(&lines_ended[stream], ends, __ATOMIC_RELAXED) + 1;
    size_t at = 0;
    for (int pieces = 1; at < length; pieces++, line++) {
        size_t end = pieces == PIECES_MAX ? length : end_of_line(&text, at);
        if (end < length && look_at(&text, end, &bytes) == 0) end = length;
        note(stream, line, &text, at, end);
        at = end + 1;
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
        struct iovec part;
        for (int index = 0; index < count && left > 0; index++) {
            if (copy_of_program(&part, &parts[index], sizeof part) < sizeof part) break;
            size_t size = part.iov_len < left ? part.iov_len : left;
            if (size) written(descriptor, part.iov_base, size);
            left -= size;
        }
        if (left > 0) written(descriptor, 0, left);
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
    is_filtered();
    look_up(0, "write");
    look_up(1, "writev");
    look_up(2, "perror");
    real_file_write = (type_file_write*)dlsym(NEXT, "_IO_file_write");
    if (!real_file_write) return;
    exchange(dlsym(NEXT, "_IO_file_jumps"));
    exchange(dlsym(NEXT, "_IO_wfile_jumps"));
}
