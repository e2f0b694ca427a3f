//! Prototypes of the C library's and of POSIX's functions, for libraries without debugging
//! information. They count where the file is a C library and the function is one that others can
//! call: their names are reserved there.

use everycall_values::layout::Shape;

use crate::syntax::{Expression, Request};

/// A line for each function: parameters with their types, and the type of the result. Variadic
/// functions have their named parameters. `str[count]` is a text of `count` bytes. A number at the
/// end is the result by which the function says that it has failed, and has set `errno`.
const PROTOTYPES: &str = "
open(path str, flags open_flags) int -1
openat(dirfd at_fd, path str, flags open_flags) int -1
creat(path str, mode mode) int -1
close(fd int) int -1
dup(fd int) int -1
dup2(fd int, to int) int -1
dup3(fd int, to int, flags open_flags) int -1
pipe2(fds ptr, flags open_flags) int -1
read(fd int, buffer ptr, count size_t) long -1
write(fd int, buffer str[count], count size_t) long -1
pread(fd int, buffer ptr, count size_t, offset long) long -1
pwrite(fd int, buffer str[count], count size_t, offset long) long -1
readv(fd int, vectors ptr, count int) long -1
writev(fd int, vectors ptr, count int) long -1
lseek(fd int, offset long, whence whence) long -1
fsync(fd int) int -1
fdatasync(fd int) int -1
ftruncate(fd int, length long) int -1
truncate(path str, length long) int -1
sendfile(to int, from int, offset ptr, count size_t) long -1
fcntl(fd int, command int) int -1
ioctl(fd int, request hex) int -1
stat(path str, buffer ptr) int -1
lstat(path str, buffer ptr) int -1
fstat(fd int, buffer ptr) int -1
fstatat(dirfd at_fd, path str, buffer ptr, flags hex) int -1
access(path str, mode access_mode) int -1
faccessat(dirfd at_fd, path str, mode access_mode, flags hex) int -1
chmod(path str, mode mode) int -1
fchmod(fd int, mode mode) int -1
chown(path str, owner int, group int) int -1
mkdir(path str, mode mode) int -1
mkdirat(dirfd at_fd, path str, mode mode) int -1
rmdir(path str) int -1
unlink(path str) int -1
unlinkat(dirfd at_fd, path str, flags hex) int -1
remove(path str) int -1
rename(from str, to str) int -1
renameat(from_dirfd at_fd, from str, to_dirfd at_fd, to str) int -1
link(from str, to str) int -1
symlink(target str, path str) int -1
readlink(path str, buffer ptr, size size_t) long -1
realpath(path str, buffer ptr) str 0
chdir(path str) int -1
fchdir(fd int) int -1
opendir(path str) ptr 0
mkstemp(template str) int -1
fopen(path str, mode str) ptr 0
fdopen(fd int, mode str) ptr 0
freopen(path str, mode str, stream ptr) ptr 0
fclose(stream ptr) int
fflush(stream ptr) int -1
fputs(text str, stream ptr) int
puts(text str) int
fread(buffer ptr, size size_t, count size_t, stream ptr) size_t
fwrite(buffer ptr, size size_t, count size_t, stream ptr) size_t
fseek(stream ptr, offset long, whence whence) int -1
printf(format str) int
fprintf(stream ptr, format str) int
dprintf(fd int, format str) int
sprintf(buffer ptr, format str) int
snprintf(buffer ptr, size size_t, format str) int
perror(text str) void
strerror(error errno) str
getenv(name str) str
setenv(name str, value str, overwrite int) int -1
unsetenv(name str) int -1
putenv(text str) int
system(command str) int -1
popen(command str, mode str) ptr 0
execve(path str, arguments ptr, environment ptr) int -1
execv(path str, arguments ptr) int -1
execvp(file str, arguments ptr) int -1
fork() int -1
wait(status ptr) int -1
waitpid(pid int, status ptr, options hex) int -1
kill(pid int, signal signal) int -1
killpg(group int, signal signal) int -1
raise(signal signal) int
sigaction(signal signal, action ptr, old ptr) int -1
exit(status int) void
_exit(status int) void
abort() void
malloc(size size_t) ptr 0
calloc(count size_t, size size_t) ptr 0
realloc(memory ptr, size size_t) ptr
reallocarray(memory ptr, count size_t, size size_t) ptr
aligned_alloc(alignment size_t, size size_t) ptr 0
posix_memalign(result ptr, alignment size_t, size size_t) errno
free(memory ptr) void
mmap(address ptr, length size_t, protection protection, flags map_flags, fd int, offset long) ptr -1
munmap(address ptr, length size_t) int -1
mprotect(address ptr, length size_t, protection protection) int -1
madvise(address ptr, length size_t, advice int) int -1
memcpy(to ptr, from ptr, count size_t) ptr
memmove(to ptr, from ptr, count size_t) ptr
memset(to ptr, byte int, count size_t) ptr
memcmp(left ptr, right ptr, count size_t) int
strlen(text str) size_t
strcmp(left str, right str) int
strncmp(left str, right str, count size_t) int
strcasecmp(left str, right str) int
strcpy(to ptr, from str) ptr
strncpy(to ptr, from str, count size_t) ptr
strcat(to str, from str) ptr
strchr(text str, letter int) ptr
strrchr(text str, letter int) ptr
strstr(text str, part str) ptr
strdup(text str) ptr 0
strndup(text str, count size_t) ptr 0
strtol(text str, end ptr, base int) long
strtoul(text str, end ptr, base int) u64
strtod(text str, end ptr) f64
atoi(text str) int
atol(text str) long
atof(text str) f64
socket(domain socket_domain, type socket_type, protocol int) int -1
socketpair(domain socket_domain, type socket_type, protocol int, fds ptr) int -1
bind(fd int, address sockaddr[length], length u32) int -1
connect(fd int, address sockaddr[length], length u32) int -1
listen(fd int, backlog int) int -1
accept(fd int, address ptr, length ptr) int -1
accept4(fd int, address ptr, length ptr, flags open_flags) int -1
shutdown(fd int, how int) int -1
send(fd int, buffer str[count], count size_t, flags message_flags) long -1
sendto(fd int, buffer str[count], count size_t, flags message_flags, address sockaddr[length], length u32) long -1
sendmsg(fd int, message ptr, flags message_flags) long -1
recv(fd int, buffer ptr, count size_t, flags message_flags) long -1
recvfrom(fd int, buffer ptr, count size_t, flags message_flags, address ptr, length ptr) long -1
recvmsg(fd int, message ptr, flags message_flags) long -1
setsockopt(fd int, level int, option int, value ptr, length u32) int -1
getsockopt(fd int, level int, option int, value ptr, length ptr) int -1
getaddrinfo(node str, service str, hints ptr, result ptr) int
gethostbyname(name str) ptr
poll(fds ptr, count u64, timeout int) int -1
select(count int, read ptr, write ptr, except ptr, timeout ptr) int -1
epoll_create1(flags open_flags) int -1
epoll_ctl(epoll int, operation epoll_operation, fd int, event ptr) int -1
epoll_wait(epoll int, events ptr, count int, timeout int) int -1
eventfd(value u32, flags open_flags) int -1
clock_gettime(clock clock, time ptr) int -1
nanosleep(time ptr, rest ptr) int -1
usleep(microseconds u32) int -1
sleep(seconds u32) u32
time(result ptr) long
pthread_create(thread ptr, attributes ptr, start ptr, argument ptr) errno
pthread_join(thread u64, result ptr) errno
pthread_detach(thread u64) errno
pthread_kill(thread u64, signal signal) errno
pthread_setname_np(thread u64, name str) errno
pthread_mutex_lock(mutex ptr) errno
pthread_mutex_trylock(mutex ptr) errno
pthread_mutex_unlock(mutex ptr) errno
pthread_cond_wait(condition ptr, mutex ptr) errno
pthread_cond_signal(condition ptr) errno
pthread_cond_broadcast(condition ptr) errno
pthread_rwlock_rdlock(lock ptr) errno
pthread_rwlock_wrlock(lock ptr) errno
pthread_rwlock_unlock(lock ptr) errno
sem_wait(semaphore ptr) int -1
sem_post(semaphore ptr) int -1
sem_open(name str, flags open_flags) ptr 0
shm_open(name str, flags open_flags, mode mode) int -1
dlopen(path str, flags hex) ptr
dlsym(handle ptr, name str) ptr
dlclose(handle ptr) int
sqrt(x f64) f64
pow(x f64, y f64) f64
exp(x f64) f64
log(x f64) f64
sin(x f64) f64
cos(x f64) f64
floor(x f64) f64
ceil(x f64) f64
fmod(x f64, y f64) f64
";

/// Prefixes and suffixes of the names that C libraries give their functions inside.
const BEFORE: [&str; 4] = ["__libc_", "__GI_", "__new_", "__"];
const BEHIND: [&str; 4] = ["64", "_nocancel", "_internal", "_time64"];

/// A function's parameters as expressions, and the type of its result.
#[derive(Clone, Debug)]
pub(crate) struct Prototype {
    /// With their names.
    pub parameters: Vec<Expression>,
    /// `None` for `void`.
    pub result: Option<String>,
    /// With this result, the function has failed and set `errno`.
    pub failure: Option<i64>,
}

impl Prototype {
    /// That of a function with this linker name.
    pub(crate) fn of(linkage_name: &str) -> Option<Prototype> {
        let name = linkage_name.split('@').next()?;
        let named = |name: &str| {
            PROTOTYPES.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('(')))
        };
        let bare = BEFORE.iter().find_map(|before| name.strip_prefix(before)).unwrap_or(name);
        let cut = |name| BEHIND.iter().find_map(|behind| str::strip_suffix(name, behind));
        let line = named(name)
            .or_else(|| named(bare))
            .or_else(|| named(cut(name)?))
            .or_else(|| named(cut(bare)?))?;
        Prototype::parse(line)
    }

    fn parse(line: &str) -> Option<Prototype> {
        let (head, result) = line.rsplit_once(") ")?;
        let (result, failure) = match result.split_once(' ') {
            Some((result, failure)) => (result, Some(failure.parse().ok()?)),
            None => (result, None),
        };
        let (name, parameters) = head.split_once('(')?;
        let (mut integers, mut floats) = (0, 0);
        let mut places: Vec<(&str, &str, String)> = Vec::new();
        for parameter in parameters.split(", ").filter(|parameter| !parameter.is_empty()) {
            let (name, type_name) = parameter.split_once(' ')?;
            let is_float = matches!(type_name, "f64" | "f32");
            let number = if is_float { &mut floats } else { &mut integers };
            *number += 1;
            let place = if is_float { format!("fparg{number}") } else { format!("arg{number}") };
            places.push((name, type_name, place));
        }
        let place_of = |name: &str| {
            let (_, type_name, place) = places.iter().find(|(known, ..)| *known == name)?;
            Some(format!("{place}:{type_name}"))
        };
        let mut values = Vec::new();
        for (name, type_name, place) in &places {
            values.push(match type_name.split_once('[') {
                None => format!("{name} = {place}:{type_name}"),
                Some((plain, length)) => {
                    let length = place_of(length.strip_suffix(']')?)?;
                    format!("{name} = {place}:ptr:{plain}[{length}]")
                }
            });
        }
        let request = Request::parse(&format!("{name}({})", values.join(", "))).ok()?;
        let parameters = request.values.unwrap_or_default();
        let result = Some(result.to_owned()).filter(|result| result != "void");
        Some(Prototype { parameters, result, failure })
    }
}

/// The names of a type's values.
type Names = &'static [(&'static str, i128)];

/// Types of integers of four bytes whose values have names.
const NAMED: &[(&str, Names)] = &[
    (
        "open_flags",
        &[
            ("O_RDONLY", 0),
            ("O_WRONLY", 1),
            ("O_RDWR", 2),
            ("O_CREAT", 0x40),
            ("O_EXCL", 0x80),
            ("O_NOCTTY", 0x100),
            ("O_TRUNC", 0x200),
            ("O_APPEND", 0x400),
            ("O_NONBLOCK", 0x800),
            ("O_DSYNC", 0x1000),
            ("O_ASYNC", 0x2000),
            ("O_DIRECT", 0x4000),
            ("O_LARGEFILE", 0x8000),
            ("O_DIRECTORY", 0x1_0000),
            ("O_NOFOLLOW", 0x2_0000),
            ("O_NOATIME", 0x4_0000),
            ("O_CLOEXEC", 0x8_0000),
            ("O_SYNC", 0x10_0000),
            ("O_PATH", 0x20_0000),
            ("O_TMPFILE", 0x40_0000),
        ],
    ),
    ("at_fd", &[("AT_FDCWD", -100)]),
    ("whence", &[("SEEK_SET", 0), ("SEEK_CUR", 1), ("SEEK_END", 2), ("SEEK_DATA", 3), ("SEEK_HOLE", 4)]),
    ("access_mode", &[("F_OK", 0), ("X_OK", 1), ("W_OK", 2), ("R_OK", 4)]),
    ("protection", &[("PROT_NONE", 0), ("PROT_READ", 1), ("PROT_WRITE", 2), ("PROT_EXEC", 4)]),
    (
        "map_flags",
        &[
            ("MAP_SHARED", 1),
            ("MAP_PRIVATE", 2),
            ("MAP_FIXED", 0x10),
            ("MAP_ANONYMOUS", 0x20),
            ("MAP_GROWSDOWN", 0x100),
            ("MAP_LOCKED", 0x2000),
            ("MAP_NORESERVE", 0x4000),
            ("MAP_POPULATE", 0x8000),
            ("MAP_NONBLOCK", 0x1_0000),
            ("MAP_STACK", 0x2_0000),
            ("MAP_HUGETLB", 0x4_0000),
            ("MAP_FIXED_NOREPLACE", 0x10_0000),
        ],
    ),
    (
        "message_flags",
        &[
            ("0", 0),
            ("MSG_OOB", 1),
            ("MSG_PEEK", 2),
            ("MSG_DONTROUTE", 4),
            ("MSG_TRUNC", 0x20),
            ("MSG_DONTWAIT", 0x40),
            ("MSG_EOR", 0x80),
            ("MSG_WAITALL", 0x100),
            ("MSG_NOSIGNAL", 0x4000),
            ("MSG_MORE", 0x8000),
            ("MSG_CMSG_CLOEXEC", 0x4000_0000),
        ],
    ),
    (
        "socket_domain",
        &[
            ("AF_UNSPEC", 0),
            ("AF_UNIX", 1),
            ("AF_INET", 2),
            ("AF_INET6", 10),
            ("AF_NETLINK", 16),
            ("AF_PACKET", 17),
            ("AF_VSOCK", 40),
        ],
    ),
    // The type with its flags: not each bit of the type is a value of its own.
    (
        "socket_type",
        &[
            ("SOCK_STREAM", 1),
            ("SOCK_DGRAM", 2),
            ("SOCK_RAW", 3),
            ("SOCK_SEQPACKET", 5),
            ("SOCK_STREAM | SOCK_NONBLOCK", 0x801),
            ("SOCK_DGRAM | SOCK_NONBLOCK", 0x802),
            ("SOCK_SEQPACKET | SOCK_NONBLOCK", 0x805),
            ("SOCK_STREAM | SOCK_CLOEXEC", 0x8_0001),
            ("SOCK_DGRAM | SOCK_CLOEXEC", 0x8_0002),
            ("SOCK_RAW | SOCK_CLOEXEC", 0x8_0003),
            ("SOCK_SEQPACKET | SOCK_CLOEXEC", 0x8_0005),
            ("SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC", 0x8_0801),
            ("SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC", 0x8_0802),
        ],
    ),
    ("epoll_operation", &[("EPOLL_CTL_ADD", 1), ("EPOLL_CTL_DEL", 2), ("EPOLL_CTL_MOD", 3)]),
    (
        "clock",
        &[
            ("CLOCK_REALTIME", 0),
            ("CLOCK_MONOTONIC", 1),
            ("CLOCK_PROCESS_CPUTIME_ID", 2),
            ("CLOCK_THREAD_CPUTIME_ID", 3),
            ("CLOCK_MONOTONIC_RAW", 4),
            ("CLOCK_REALTIME_COARSE", 5),
            ("CLOCK_MONOTONIC_COARSE", 6),
            ("CLOCK_BOOTTIME", 7),
        ],
    ),
    (
        "signal",
        &[
            ("SIGHUP", 1),
            ("SIGINT", 2),
            ("SIGQUIT", 3),
            ("SIGILL", 4),
            ("SIGTRAP", 5),
            ("SIGABRT", 6),
            ("SIGBUS", 7),
            ("SIGFPE", 8),
            ("SIGKILL", 9),
            ("SIGUSR1", 10),
            ("SIGSEGV", 11),
            ("SIGUSR2", 12),
            ("SIGPIPE", 13),
            ("SIGALRM", 14),
            ("SIGTERM", 15),
            ("SIGSTKFLT", 16),
            ("SIGCHLD", 17),
            ("SIGCONT", 18),
            ("SIGSTOP", 19),
            ("SIGTSTP", 20),
            ("SIGTTIN", 21),
            ("SIGTTOU", 22),
            ("SIGURG", 23),
            ("SIGXCPU", 24),
            ("SIGXFSZ", 25),
            ("SIGVTALRM", 26),
            ("SIGPROF", 27),
            ("SIGWINCH", 28),
            ("SIGIO", 29),
            ("SIGPWR", 30),
            ("SIGSYS", 31),
        ],
    ),
    (
        "errno",
        &[
            ("EPERM", 1),
            ("ENOENT", 2),
            ("ESRCH", 3),
            ("EINTR", 4),
            ("EIO", 5),
            ("ENXIO", 6),
            ("E2BIG", 7),
            ("ENOEXEC", 8),
            ("EBADF", 9),
            ("ECHILD", 10),
            ("EAGAIN", 11),
            ("ENOMEM", 12),
            ("EACCES", 13),
            ("EFAULT", 14),
            ("ENOTBLK", 15),
            ("EBUSY", 16),
            ("EEXIST", 17),
            ("EXDEV", 18),
            ("ENODEV", 19),
            ("ENOTDIR", 20),
            ("EISDIR", 21),
            ("EINVAL", 22),
            ("ENFILE", 23),
            ("EMFILE", 24),
            ("ENOTTY", 25),
            ("ETXTBSY", 26),
            ("EFBIG", 27),
            ("ENOSPC", 28),
            ("ESPIPE", 29),
            ("EROFS", 30),
            ("EMLINK", 31),
            ("EPIPE", 32),
            ("EDOM", 33),
            ("ERANGE", 34),
            ("EDEADLK", 35),
            ("ENAMETOOLONG", 36),
            ("ENOLCK", 37),
            ("ENOSYS", 38),
            ("ENOTEMPTY", 39),
            ("ELOOP", 40),
            ("ENOMSG", 42),
            ("EIDRM", 43),
            ("ECHRNG", 44),
            ("EL2NSYNC", 45),
            ("EL3HLT", 46),
            ("EL3RST", 47),
            ("ELNRNG", 48),
            ("EUNATCH", 49),
            ("ENOCSI", 50),
            ("EL2HLT", 51),
            ("EBADE", 52),
            ("EBADR", 53),
            ("EXFULL", 54),
            ("ENOANO", 55),
            ("EBADRQC", 56),
            ("EBADSLT", 57),
            ("EBFONT", 59),
            ("ENOSTR", 60),
            ("ENODATA", 61),
            ("ETIME", 62),
            ("ENOSR", 63),
            ("ENONET", 64),
            ("ENOPKG", 65),
            ("EREMOTE", 66),
            ("ENOLINK", 67),
            ("EADV", 68),
            ("ESRMNT", 69),
            ("ECOMM", 70),
            ("EPROTO", 71),
            ("EMULTIHOP", 72),
            ("EDOTDOT", 73),
            ("EBADMSG", 74),
            ("EOVERFLOW", 75),
            ("ENOTUNIQ", 76),
            ("EBADFD", 77),
            ("EREMCHG", 78),
            ("ELIBACC", 79),
            ("ELIBBAD", 80),
            ("ELIBSCN", 81),
            ("ELIBMAX", 82),
            ("ELIBEXEC", 83),
            ("EILSEQ", 84),
            ("ERESTART", 85),
            ("ESTRPIPE", 86),
            ("EUSERS", 87),
            ("ENOTSOCK", 88),
            ("EDESTADDRREQ", 89),
            ("EMSGSIZE", 90),
            ("EPROTOTYPE", 91),
            ("ENOPROTOOPT", 92),
            ("EPROTONOSUPPORT", 93),
            ("ESOCKTNOSUPPORT", 94),
            ("ENOTSUP", 95),
            ("EPFNOSUPPORT", 96),
            ("EAFNOSUPPORT", 97),
            ("EADDRINUSE", 98),
            ("EADDRNOTAVAIL", 99),
            ("ENETDOWN", 100),
            ("ENETUNREACH", 101),
            ("ENETRESET", 102),
            ("ECONNABORTED", 103),
            ("ECONNRESET", 104),
            ("ENOBUFS", 105),
            ("EISCONN", 106),
            ("ENOTCONN", 107),
            ("ESHUTDOWN", 108),
            ("ETOOMANYREFS", 109),
            ("ETIMEDOUT", 110),
            ("ECONNREFUSED", 111),
            ("EHOSTDOWN", 112),
            ("EHOSTUNREACH", 113),
            ("EALREADY", 114),
            ("EINPROGRESS", 115),
            ("ESTALE", 116),
            ("EUCLEAN", 117),
            ("ENOTNAM", 118),
            ("ENAVAIL", 119),
            ("EISNAM", 120),
            ("EREMOTEIO", 121),
            ("EDQUOT", 122),
            ("ENOMEDIUM", 123),
            ("EMEDIUMTYPE", 124),
            ("ECANCELED", 125),
            ("ENOKEY", 126),
            ("EKEYEXPIRED", 127),
            ("EKEYREVOKED", 128),
            ("EKEYREJECTED", 129),
            ("EOWNERDEAD", 130),
            ("ENOTRECOVERABLE", 131),
            ("ERFKILL", 132),
            ("EHWPOISON", 133),
        ],
    ),
];

/// The shape of a type whose values have names.
pub(crate) fn named_shape(type_name: &str) -> Option<Shape> {
    let (_, names) = NAMED.iter().find(|(name, _)| *name == type_name)?;
    let values = names.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Some(Shape::Enum { size: 4, is_signed: true, values })
}

/// The names of these types.
pub(crate) fn named_types() -> impl Iterator<Item = &'static str> {
    NAMED.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{CaptureOptions, Compiler, Moment};

    #[test]
    fn all_prototypes_make_programs() {
        let lines: Vec<&str> = PROTOTYPES.lines().filter(|line| !line.is_empty()).collect();
        for line in &lines {
            let name = line.split('(').next().unwrap();
            assert_eq!(
                lines.iter().filter(|other| other.starts_with(&format!("{name}("))).count(),
                1,
                "{line}"
            );
            let known = Prototype::of(name).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(
                known.parameters.len(),
                line.matches(", ").count() + usize::from(!line.contains("()"))
            );
            assert_eq!(known.failure.is_some(), line.ends_with(" -1") || line.ends_with(" 0"), "{line}");
            for moment in [Moment::Entry, Moment::Exit] {
                let options = CaptureOptions::default();
                let compiler =
                    Compiler::new(None, None, moment, &options, line).with_prototype(Prototype::of(name));
                compiler.compile(None, None, &[]).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }

    #[test]
    fn names_inside_of_the_library_are_known() {
        for name in ["open", "open64", "__open64", "__libc_open64", "__open_nocancel", "open@@GLIBC_2.2.5"] {
            assert_eq!(Prototype::of(name).map(|known| known.parameters.len()), Some(2), "{name}");
        }
        for name in ["opened", "reopen", "my_open", "open_memstream", ""] {
            assert!(Prototype::of(name).is_none(), "{name}");
        }
    }
}
