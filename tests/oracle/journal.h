/* A program's own account of its calls, in a file that outlives it: which function was entered or left, per thread, in their order. It shares
   no code with everycall. For the one source of a program, which is compiled with -finstrument-functions beside whatever everycall
   puts into it: gcc then calls the two functions at the end of this file in each function, after everycall's entry and before its
   exit. Everycall has functions of these names too, so the linker is given --wrap=__cyg_profile_func_enter and
   --wrap=__cyg_profile_func_exit.

   The file is named by JOURNAL; without that variable nothing is kept. It is as large as JOURNAL_FILE says, with holes. */
#ifndef JOURNAL_H
#define JOURNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { JOURNAL_EVENTS = 1 << 18, JOURNAL_THREADS = 16, JOURNAL_HEADER = 4096 };

/* `count` events were ever kept; that of number n is in events[n % JOURNAL_EVENTS]: twice the address, and 1 where it is an exit. */
struct journal {
    uint64_t tid, count, reserved[6];
    uint64_t events[JOURNAL_EVENTS];
};

/* The beginning of the file. `base` is where the program was loaded. */
struct journal_header {
    uint64_t base, threads;
};

#define JOURNAL_FILE (JOURNAL_HEADER + JOURNAL_THREADS * sizeof(struct journal))
#define JOURNAL_OWN __attribute__((no_instrument_function))

extern char __executable_start;
static struct journal_header *journal_file;
static __thread struct journal *journal_own;

/* The first call is made while there is one thread. */
JOURNAL_OWN static struct journal *journal_begin(void)
{
    if (!journal_file) {
        const char *name = getenv("JOURNAL");
        int descriptor = name ? open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
        if (descriptor < 0 || ftruncate(descriptor, JOURNAL_FILE) != 0)
            return 0;
        void *memory = mmap(0, JOURNAL_FILE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        close(descriptor);
        if (memory == MAP_FAILED)
            return 0;
        journal_file = (struct journal_header *)memory;
        journal_file->base = (uint64_t)(uintptr_t)&__executable_start;
    }
    uint64_t number = __atomic_fetch_add(&journal_file->threads, 1, __ATOMIC_RELAXED);
    if (number >= JOURNAL_THREADS)
        abort();
    journal_own = (struct journal *)((char *)journal_file + JOURNAL_HEADER) + number;
    journal_own->tid = (uint64_t)syscall(SYS_gettid);
    return journal_own;
}

JOURNAL_OWN static inline void journal_keep(void *function, uint64_t is_exit)
{
    struct journal *own = journal_own ? journal_own : journal_begin();
    if (!own)
        return;
    uint64_t count = own->count;
    own->events[count % JOURNAL_EVENTS] = (uint64_t)(uintptr_t)function << 1 | is_exit;
    __atomic_store_n(&own->count, count + 1, __ATOMIC_RELEASE);
}

#ifdef __cplusplus
extern "C" {
#endif

JOURNAL_OWN void __wrap___cyg_profile_func_enter(void *function, void *site);
JOURNAL_OWN void __wrap___cyg_profile_func_exit(void *function, void *site);

JOURNAL_OWN void __wrap___cyg_profile_func_enter(void *function, void *site)
{
    (void)site;
    journal_keep(function, 0);
}

JOURNAL_OWN void __wrap___cyg_profile_func_exit(void *function, void *site)
{
    (void)site;
    journal_keep(function, 1);
}

#ifdef __cplusplus
}
#endif

#endif
