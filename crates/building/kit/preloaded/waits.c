// libeverycall-waits.so: calls that wait are recorded, with what they wait for.
//
// `record --waits` preloads it. It defines the C library's functions that may wait, and calls the C
// library's own: calls of other libraries are seen, too, and a program without it isn't touched. It
// is a traced library whose functions call the hooks themselves, so its calls are in the trace like
// all others, under their own names:
//
//   locks and semaphores      where the first attempt fails, that is, where somebody else has them
//   all other functions       always: they are system calls
//
// What a call waits for is in labels: a lock's address, the thread that holds it, a descriptor.
//
// The table of real functions is filled when the library is loaded. Calls before that (an
// allocator's, in another library's initialiser) look their function up themselves.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "copied.h"
#include "processor.h"
#include "everycall.h"

#define EXPORTED __attribute__((visibility("default")))
#define RARE(condition) __builtin_expect(!!(condition), 0)

// Of the linked module.
extern void __cyg_profile_func_enter(void* function, void* caller);
extern void __cyg_profile_func_exit(void* function, void* caller);
// Weak: musl has no versions.
extern void* dlsym(void* handle, const char* name);
extern void* dlvsym(void* handle, const char* name, const char* version) __attribute__((weak));
extern const char* gnu_get_libc_version(void) __attribute__((weak));
#define NEXT ((void*)-1l)

// Every function: its result, its name, its parameters, its arguments.
#define FUNCTIONS(F)                                                                                                   \
    F(int, pthread_mutex_lock, (pthread_mutex_t*))                                                                     \
    F(int, pthread_mutex_trylock, (pthread_mutex_t*))                                                                  \
    F(int, pthread_mutex_timedlock, (pthread_mutex_t*, const struct timespec*))                                        \
    F(int, pthread_mutex_clocklock, (pthread_mutex_t*, clockid_t, const struct timespec*))                             \
    F(int, pthread_cond_wait, (pthread_cond_t*, pthread_mutex_t*))                                                     \
    F(int, pthread_cond_timedwait, (pthread_cond_t*, pthread_mutex_t*, const struct timespec*))                        \
    F(int, pthread_cond_clockwait, (pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*))             \
    F(int, pthread_rwlock_rdlock, (pthread_rwlock_t*))                                                                 \
    F(int, pthread_rwlock_tryrdlock, (pthread_rwlock_t*))                                                              \
    F(int, pthread_rwlock_timedrdlock, (pthread_rwlock_t*, const struct timespec*))                                    \
    F(int, pthread_rwlock_wrlock, (pthread_rwlock_t*))                                                                 \
    F(int, pthread_rwlock_trywrlock, (pthread_rwlock_t*))                                                              \
    F(int, pthread_rwlock_timedwrlock, (pthread_rwlock_t*, const struct timespec*))                                    \
    F(int, pthread_barrier_wait, (pthread_barrier_t*))                                                                 \
    F(int, sem_wait, (sem_t*))                                                                                         \
    F(int, sem_trywait, (sem_t*))                                                                                      \
    F(int, sem_timedwait, (sem_t*, const struct timespec*))                                                            \
    F(int, sem_clockwait, (sem_t*, clockid_t, const struct timespec*))                                                 \
    F(int, pthread_join, (pthread_t, void**))                                                                          \
    F(ssize_t, read, (int, void*, size_t))                                                                             \
    F(ssize_t, __read_chk, (int, void*, size_t, size_t))                                                               \
    F(ssize_t, readv, (int, const struct iovec*, int))                                                                 \
    F(ssize_t, write, (int, const void*, size_t))                                                                      \
    F(ssize_t, writev, (int, const struct iovec*, int))                                                                \
    F(ssize_t, recv, (int, void*, size_t, int))                                                                        \
    F(ssize_t, __recv_chk, (int, void*, size_t, size_t, int))                                                          \
    F(ssize_t, recvfrom, (int, void*, size_t, int, struct sockaddr*, socklen_t*))                                      \
    F(ssize_t, __recvfrom_chk, (int, void*, size_t, size_t, int, struct sockaddr*, socklen_t*))                        \
    F(ssize_t, recvmsg, (int, struct msghdr*, int))                                                                    \
    F(ssize_t, send, (int, const void*, size_t, int))                                                                  \
    F(ssize_t, sendto, (int, const void*, size_t, int, const struct sockaddr*, socklen_t))                             \
    F(ssize_t, sendmsg, (int, const struct msghdr*, int))                                                              \
    F(int, accept, (int, struct sockaddr*, socklen_t*))                                                                \
    F(int, accept4, (int, struct sockaddr*, socklen_t*, int))                                                          \
    F(int, connect, (int, const struct sockaddr*, socklen_t))                                                          \
    F(int, poll, (struct pollfd*, nfds_t, int))                                                                        \
    F(int, __poll_chk, (struct pollfd*, nfds_t, int, size_t))                                                          \
    F(int, ppoll, (struct pollfd*, nfds_t, const struct timespec*, const sigset_t*))                                   \
    F(int, select, (int, fd_set*, fd_set*, fd_set*, struct timeval*))                                                  \
    F(int, pselect, (int, fd_set*, fd_set*, fd_set*, const struct timespec*, const sigset_t*))                         \
    F(int, epoll_wait, (int, struct epoll_event*, int, int))                                                           \
    F(int, epoll_pwait, (int, struct epoll_event*, int, int, const sigset_t*))                                         \
    F(int, fsync, (int))                                                                                               \
    F(int, fdatasync, (int))                                                                                           \
    F(int, flock, (int, int))                                                                                          \
    F(int, nanosleep, (const struct timespec*, struct timespec*))                                                      \
    F(int, clock_nanosleep, (clockid_t, int, const struct timespec*, struct timespec*))                                \
    F(int, usleep, (unsigned))                                                                                         \
    F(unsigned, sleep, (unsigned))                                                                                     \
    F(pid_t, wait, (int*))                                                                                             \
    F(pid_t, waitpid, (pid_t, int*, int))                                                                              \
    F(int, waitid, (idtype_t, id_t, siginfo_t*, int))                                                                  \
    F(long, syscall, (long, ...))

#include "functions.h"

// The C library's functions. everycall_waits_syscall jumps through its place.
__attribute__((visibility("hidden"))) void* everycall_waits_real[COUNT];

static void* look_up(enum number number) {
    void* found = 0;
    // glibc has older ones, which dlsym may find. The others don't have this version, and what
    // isn't found is said in allocated memory: an allocator that locks a mutex would come here
    // again.
    int has_older = number == NUMBER_pthread_cond_wait || number == NUMBER_pthread_cond_timedwait;
    if (dlvsym && has_older) found = dlvsym(NEXT, NAMES[number], "GLIBC_2.3.2");
    if (!found) found = dlsym(NEXT, NAMES[number]);
    __atomic_store_n(&everycall_waits_real[number], found, __ATOMIC_RELAXED);
    return found;
}

static inline void* real(enum number number) {
    void* function = __atomic_load_n(&everycall_waits_real[number], __ATOMIC_RELAXED);
    return RARE(!function) ? look_up(number) : function;
}

#define REAL(name) ((type_##name*)real(NUMBER_##name))
// A function that this C library doesn't have.
#define NEED(name, failure) \
    if (RARE(!REAL(name))) return failure

static int fails(void) {
    errno = ENOSYS;
    return -1;
}

// glibc: where the thread's id is behind its pthread_t. 0 if it isn't there.
static long tid_offset;
// Whether a mutex contains its owner's thread id.
static int has_owners;

static int own_tid(void) { return (int)system_call(SYS_gettid, 0, 0, 0, 0, 0, 0); }

__attribute__((constructor)) static void begin(void) {
    is_filtered();
    enum { IN_GLIBC = 720 };
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    const int tid = own_tid();
    for (int number = 0; number < COUNT; number++) real(number);
    if (REAL(pthread_mutex_trylock) && REAL(pthread_mutex_trylock)(&mutex) == 0) {
        has_owners = mutex.__data.__owner == tid;
        pthread_mutex_unlock(&mutex);
    }
    if (gnu_get_libc_version && *(volatile int*)((char*)pthread_self() + IN_GLIBC) == tid) tid_offset = IN_GLIBC;
}

// Names of locks and other objects.

enum { NAMES_MAX = 4096 };
static struct {
    const void* object;
    const char* name;
} names[NAMES_MAX];

static unsigned place_of(const void* object) { return (unsigned)(((uintptr_t)object >> 3) * 0x9e3779b97f4a7c15ull >> 52); }

// everycall.h: everycall_name_object.
EXPORTED int everycall_waits_name(const void* object, const char* name) {
    unsigned at = place_of(object);
    if (!object || !name) return EVERYCALL_ERROR_ARGUMENT;
    for (unsigned step = 0; step < NAMES_MAX; step++, at = (at + 1) % NAMES_MAX) {
        const void* there = 0;
        if (__atomic_compare_exchange_n(&names[at].object, &there, object, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
            there == object) {
            __atomic_store_n(&names[at].name, name, __ATOMIC_RELEASE);
            return 0;
        }
    }
    return EVERYCALL_ERROR_NO_ROOM;
}

static void label_object(const char* kind, const void* object) {
    everycall_label(kind, (uint64_t)object);
    unsigned at = place_of(object);
    for (unsigned step = 0; step < NAMES_MAX; step++, at = (at + 1) % NAMES_MAX) {
        const void* there = __atomic_load_n(&names[at].object, __ATOMIC_RELAXED);
        if (!there) return;
        const char* name = __atomic_load_n(&names[at].name, __ATOMIC_ACQUIRE);
        if (there == object) {
            if (name) everycall_label_name(name);
            return;
        }
    }
}

#define ENTER(name) __cyg_profile_func_enter((void*)name, __builtin_return_address(0))
#define LEAVE(name) __cyg_profile_func_exit((void*)name, __builtin_return_address(0))

// Attempts until it is known who holds a lock: between two holders, nobody does.
enum { ATTEMPTS = 100 };

// A lock: if an attempt fails, somebody has it.
#define LOCK(name, attempt_name, parameters, arguments, kind, holder_of)                  \
    EXPORTED int name parameters {                                                        \
        int error = EBUSY, holder = 0;                                                    \
        NEED(name, ENOSYS);                                                               \
        if (!REAL(attempt_name)) return REAL(name) arguments;                             \
        for (int attempt = 0; attempt < ATTEMPTS && !holder; attempt++) {                 \
            error = REAL(attempt_name)(object);                                           \
            if (__builtin_expect(error != EBUSY, 1)) return error;                        \
            holder = holder_of(object);                                                   \
            if (!holder) pause_a_little();                                                \
        }                                                                                 \
        ENTER(name);                                                                      \
        label_object(kind, object);                                                       \
        if (holder > 0) everycall_label("held by", (uint64_t)holder);                     \
        error = REAL(name) arguments;                                                     \
        LEAVE(name);                                                                      \
        return error;                                                                     \
    }

// -1: it can't be known.
static int owner_of(const pthread_mutex_t* mutex) {
    return has_owners ? __atomic_load_n(&mutex->__data.__owner, __ATOMIC_RELAXED) : -1;
}
static int writer_of(const pthread_rwlock_t* lock) {
    // Readers aren't known.
    if (!has_owners || __atomic_load_n(&lock->__data.__readers, __ATOMIC_RELAXED) >> 3) return -1;
    return __atomic_load_n(&lock->__data.__cur_writer, __ATOMIC_RELAXED);
}

LOCK(pthread_mutex_lock, pthread_mutex_trylock, (pthread_mutex_t * object), (object), "lock", owner_of)
LOCK(pthread_mutex_timedlock, pthread_mutex_trylock, (pthread_mutex_t * object, const struct timespec* time),
     (object, time), "lock", owner_of)
LOCK(pthread_mutex_clocklock, pthread_mutex_trylock,
     (pthread_mutex_t * object, clockid_t clock, const struct timespec* time), (object, clock, time), "lock", owner_of)
LOCK(pthread_rwlock_rdlock, pthread_rwlock_tryrdlock, (pthread_rwlock_t * object), (object), "lock", writer_of)
LOCK(pthread_rwlock_timedrdlock, pthread_rwlock_tryrdlock, (pthread_rwlock_t * object, const struct timespec* time),
     (object, time), "lock", writer_of)
LOCK(pthread_rwlock_wrlock, pthread_rwlock_trywrlock, (pthread_rwlock_t * object), (object), "lock", writer_of)
LOCK(pthread_rwlock_timedwrlock, pthread_rwlock_trywrlock, (pthread_rwlock_t * object, const struct timespec* time),
     (object, time), "lock", writer_of)

// A semaphore: attempts set errno, and change nothing if they fail.
#define SEMAPHORE(name, parameters, arguments)                       \
    EXPORTED int name parameters {                                   \
        const int before = errno;                                    \
        NEED(name, fails());                                         \
        if (REAL(sem_trywait)) {                                     \
            const int result = REAL(sem_trywait)(object);            \
            if (result == 0 || errno != EAGAIN) return result;       \
            errno = before;                                          \
        }                                                            \
        ENTER(name);                                                 \
        label_object("semaphore", object);                           \
        const int result = REAL(name) arguments;                     \
        LEAVE(name);                                                 \
        return result;                                               \
    }

SEMAPHORE(sem_wait, (sem_t * object), (object))
SEMAPHORE(sem_timedwait, (sem_t * object, const struct timespec* time), (object, time))
SEMAPHORE(sem_clockwait, (sem_t * object, clockid_t clock, const struct timespec* time), (object, clock, time))

// Other functions: `before` and `behind` are labels.
#define WAITS(result_type, name, parameters, arguments, failure, before, behind) \
    EXPORTED result_type name parameters {                                       \
        NEED(name, failure);                                                     \
        ENTER(name);                                                             \
        before;                                                                  \
        const result_type result = REAL(name) arguments;                         \
        behind;                                                                  \
        LEAVE(name);                                                             \
        return result;                                                           \
    }

WAITS(int, pthread_cond_wait, (pthread_cond_t * condition, pthread_mutex_t* mutex), (condition, mutex), ENOSYS,
      label_object("condition", condition), )
WAITS(int, pthread_cond_timedwait, (pthread_cond_t * condition, pthread_mutex_t* mutex, const struct timespec* time),
      (condition, mutex, time), ENOSYS, label_object("condition", condition), )
WAITS(int, pthread_cond_clockwait,
      (pthread_cond_t * condition, pthread_mutex_t* mutex, clockid_t clock, const struct timespec* time),
      (condition, mutex, clock, time), ENOSYS, label_object("condition", condition), )
WAITS(int, pthread_barrier_wait, (pthread_barrier_t * barrier), (barrier), ENOSYS, label_object("barrier", barrier), )

static void label_thread(pthread_t thread) {
    const int tid = tid_offset ? __atomic_load_n((int*)((char*)thread + tid_offset), __ATOMIC_RELAXED) : 0;
    if (tid > 0) everycall_label("thread", (uint64_t)tid);
}
WAITS(int, pthread_join, (pthread_t thread, void** value), (thread, value), ENOSYS, label_thread(thread), )

// Descriptors. What they are is looked up only if a call has waited: that takes some microseconds.

enum { LONG_TICKS = 200 * 1000 };

static void label_file(int descriptor, uint64_t since) {
    enum { PREFIX = 14, DIGITS = 10, MOST = 64 };
    char path[PREFIX + DIGITS + 1] = "/proc/self/fd/", text[MOST + 1];
    char digits[DIGITS];
    int count = 0;
    if (ticks() - since < LONG_TICKS || descriptor < 0) return;
    do digits[count++] = (char)('0' + descriptor % 10);
    while ((descriptor /= 10) > 0);
    for (int at = 0; at < count; at++) path[PREFIX + at] = digits[count - 1 - at];
    path[PREFIX + count] = 0;
    // (Not by readlink, which sets errno.)
    const long length = system_call(SYS_readlink, (long)path, (long)text, MOST, 0, 0, 0);
    if (length <= 0) return;
    text[length] = 0;
    everycall_label_name(text);
}

static inline void label_descriptor(int fd) {
    if (fd >= 0) everycall_label("fd", (uint64_t)fd);
}

#define OF_FILE(result_type, name, parameters, arguments)                                                              \
    WAITS(result_type, name, parameters, arguments, fails(), uint64_t since = ticks();                                 \
          label_descriptor(fd), label_file(fd, since))

OF_FILE(ssize_t, read, (int fd, void* to, size_t size), (fd, to, size))
OF_FILE(ssize_t, __read_chk, (int fd, void* to, size_t size, size_t room), (fd, to, size, room))
OF_FILE(ssize_t, readv, (int fd, const struct iovec* parts, int count), (fd, parts, count))
OF_FILE(ssize_t, write, (int fd, const void* from, size_t size), (fd, from, size))
OF_FILE(ssize_t, writev, (int fd, const struct iovec* parts, int count), (fd, parts, count))
OF_FILE(ssize_t, recv, (int fd, void* to, size_t size, int flags), (fd, to, size, flags))
OF_FILE(ssize_t, __recv_chk, (int fd, void* to, size_t size, size_t room, int flags), (fd, to, size, room, flags))
OF_FILE(ssize_t, recvfrom, (int fd, void* to, size_t size, int flags, struct sockaddr* address, socklen_t* length),
        (fd, to, size, flags, address, length))
OF_FILE(ssize_t, __recvfrom_chk,
        (int fd, void* to, size_t size, size_t room, int flags, struct sockaddr* address, socklen_t* length),
        (fd, to, size, room, flags, address, length))
OF_FILE(ssize_t, recvmsg, (int fd, struct msghdr* message, int flags), (fd, message, flags))
OF_FILE(ssize_t, send, (int fd, const void* from, size_t size, int flags), (fd, from, size, flags))
OF_FILE(ssize_t, sendto,
        (int fd, const void* from, size_t size, int flags, const struct sockaddr* address, socklen_t length),
        (fd, from, size, flags, address, length))
OF_FILE(ssize_t, sendmsg, (int fd, const struct msghdr* message, int flags), (fd, message, flags))
OF_FILE(int, accept, (int fd, struct sockaddr* address, socklen_t* length), (fd, address, length))
OF_FILE(int, accept4, (int fd, struct sockaddr* address, socklen_t* length, int flags), (fd, address, length, flags))
OF_FILE(int, epoll_wait, (int fd, struct epoll_event* events, int most, int time), (fd, events, most, time))
OF_FILE(int, epoll_pwait, (int fd, struct epoll_event* events, int most, int time, const sigset_t* mask),
        (fd, events, most, time, mask))
OF_FILE(int, fsync, (int fd), (fd))
OF_FILE(int, fdatasync, (int fd), (fd))
OF_FILE(int, flock, (int fd, int what), (fd, what))

static char* decimal(char* to, unsigned value) {
    char digits[10];
    int count = 0;
    do digits[count++] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    while (count > 0) *to++ = digits[--count];
    return to;
}

// Whom a call connects to: 127.0.0.1:6379, or a path.
static void label_peer(const struct sockaddr* given, socklen_t length) {
    char text[32], *end = text;
    struct sockaddr_storage copy;
    if (length > sizeof copy) length = sizeof copy;
    if (!given || copy_of_program(&copy, given, length) < length || length < sizeof copy.ss_family) return;
    const struct sockaddr* address = (const struct sockaddr*)&copy;
    if (address->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        const struct sockaddr_in* peer = (const struct sockaddr_in*)address;
        const unsigned char* bytes = (const unsigned char*)&peer->sin_addr;
        for (int at = 0; at < 4; at++) {
            end = decimal(end, bytes[at]);
            *end++ = at < 3 ? '.' : ':';
        }
        end = decimal(end, (unsigned)(peer->sin_port >> 8 | (peer->sin_port & 255) << 8));
        *end = 0;
        everycall_label_name(text);
    } else if (address->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        const struct sockaddr_in6* peer = (const struct sockaddr_in6*)address;
        everycall_label("port", (uint64_t)(peer->sin6_port >> 8 | (peer->sin6_port & 255) << 8));
    } else if (address->sa_family == AF_UNIX) {
        const struct sockaddr_un* peer = (const struct sockaddr_un*)address;
        const size_t at = offsetof(struct sockaddr_un, sun_path);
        char path[65];
        size_t count = 0;
        while (count < sizeof path - 1 && at + count < length && (peer->sun_path[count] || count == 0)) {
            path[count] = peer->sun_path[count] ? peer->sun_path[count] : '@';
            count++;
        }
        path[count] = 0;
        if (count) everycall_label_name(path);
    }
}
WAITS(int, connect, (int fd, const struct sockaddr* address, socklen_t length), (fd, address, length), fails(),
      label_descriptor(fd);
      label_peer(address, length), )

// Sets of descriptors: how many, and the one that is waited for if it is alone.
static void label_descriptors(const struct pollfd* all, nfds_t count) {
    everycall_label("descriptors", count);
    struct pollfd only;
    if (count == 1 && all && copy_of_program(&only, all, sizeof only) == sizeof only) label_descriptor(only.fd);
}
WAITS(int, poll, (struct pollfd * all, nfds_t count, int time), (all, count, time), fails(),
      label_descriptors(all, count), )
WAITS(int, __poll_chk, (struct pollfd * all, nfds_t count, int time, size_t room), (all, count, time, room), fails(),
      label_descriptors(all, count), )
WAITS(int, ppoll, (struct pollfd * all, nfds_t count, const struct timespec* time, const sigset_t* mask),
      (all, count, time, mask), fails(), label_descriptors(all, count), )
WAITS(int, select, (int count, fd_set* in, fd_set* out, fd_set* errors, struct timeval* time),
      (count, in, out, errors, time), fails(), , )
WAITS(int, pselect,
      (int count, fd_set* in, fd_set* out, fd_set* errors, const struct timespec* time, const sigset_t* mask),
      (count, in, out, errors, time, mask), fails(), , )

WAITS(int, nanosleep, (const struct timespec* time, struct timespec* rest), (time, rest), fails(), , )
WAITS(int, clock_nanosleep, (clockid_t clock, int flags, const struct timespec* time, struct timespec* rest),
      (clock, flags, time, rest), ENOSYS, , )
WAITS(int, usleep, (unsigned time), (time), fails(), , )
WAITS(unsigned, sleep, (unsigned time), (time), time, , )

static void label_child(pid_t child) {
    if (child > 0) everycall_label("child", (uint64_t)child);
}
WAITS(pid_t, wait, (int* status), (status), fails(), , label_child(result))
WAITS(pid_t, waitpid, (pid_t child, int* status, int options), (child, status, options), fails(), ,
      label_child(result))
WAITS(int, waitid, (idtype_t kind, id_t id, siginfo_t* info, int options), (kind, id, info, options), fails(), , )

// Rust's locks, and others' own, wait by syscall(SYS_futex, ...). Every other system call jumps on
// to the C library's function: clone may return twice, on another stack.

__attribute__((visibility("hidden"), used)) long everycall_waits_futex(
    long number, long word, long operation, long value, long time, long other, long third) {
    enum { FUTEX_WAIT_ = 0, FUTEX_LOCK_PI_ = 6, FUTEX_WAIT_BITSET_ = 9, FUTEX_LOCK_PI2_ = 13, COMMAND = 127 };
    NEED(syscall, fails());
    const long command = operation & COMMAND;
    const int waits = command == FUTEX_WAIT_ || command == FUTEX_WAIT_BITSET_ || command == FUTEX_LOCK_PI_ ||
                      command == FUTEX_LOCK_PI2_;
    if (!waits) return REAL(syscall)(number, word, operation, value, time, other, third);
    ENTER(syscall);
    label_object("futex", (const void*)word);
    const long result = REAL(syscall)(number, word, operation, value, time, other, third);
    LEAVE(syscall);
    return result;
}

__attribute__((visibility("hidden"), used)) void* everycall_waits_look_up_syscall(void) { return real(NUMBER_syscall); }

#include "entry_of_syscall.h"
__attribute__((visibility("hidden"))) void** const everycall_waits_syscall_place = &everycall_waits_real[NUMBER_syscall];
