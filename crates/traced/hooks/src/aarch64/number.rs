//! Numbers of the system calls that the runtime makes.

/// `read`
pub const READ: usize = 63;
/// `write`
pub const WRITE: usize = 64;
/// `close`
pub const CLOSE: usize = 57;
/// `fstat`
pub const FSTAT: usize = 80;
/// `ppoll`: there is no `poll`.
pub const PPOLL: usize = 73;
/// `mmap`
pub const MMAP: usize = 222;
/// `mprotect`
pub const MPROTECT: usize = 226;
/// `munmap`
pub const MUNMAP: usize = 215;
/// `rt_sigaction`
pub const RT_SIGACTION: usize = 134;
/// `rt_sigprocmask`
pub const RT_SIGPROCMASK: usize = 135;
/// `ioctl`
pub const IOCTL: usize = 29;
/// `pread64`
pub const PREAD64: usize = 67;
/// `pwrite64`
pub const PWRITE64: usize = 68;
/// `sched_yield`
pub const SCHED_YIELD: usize = 124;
/// `mremap`
pub const MREMAP: usize = 216;
/// `madvise`
pub const MADVISE: usize = 233;
/// `shmget`
pub const SHMGET: usize = 194;
/// `shmat`
pub const SHMAT: usize = 196;
/// `shmctl`
pub const SHMCTL: usize = 195;
/// `getpid`
pub const GETPID: usize = 172;
/// `socket`
pub const SOCKET: usize = 198;
/// `sendto`
pub const SENDTO: usize = 206;
/// `bind`
pub const BIND: usize = 200;
/// `listen`
pub const LISTEN: usize = 201;
/// `getsockname`
pub const GETSOCKNAME: usize = 204;
/// `setsockopt`
pub const SETSOCKOPT: usize = 208;
/// `getsockopt`
pub const GETSOCKOPT: usize = 209;
/// `kill`
pub const KILL: usize = 129;
/// `fcntl`
pub const FCNTL: usize = 25;
/// `ftruncate`
pub const FTRUNCATE: usize = 46;
/// `getcwd`
pub const GETCWD: usize = 17;
/// `getuid`
pub const GETUID: usize = 174;
/// `getgid`
pub const GETGID: usize = 176;
/// `geteuid`
pub const GETEUID: usize = 175;
/// `getegid`
pub const GETEGID: usize = 177;
/// `getppid`
pub const GETPPID: usize = 173;
/// `capget`
pub const CAPGET: usize = 90;
/// `sigaltstack`
pub const SIGALTSTACK: usize = 132;
/// `fstatfs`
pub const FSTATFS: usize = 44;
/// `sched_setscheduler`
pub const SCHED_SETSCHEDULER: usize = 119;
/// `mlockall`
pub const MLOCKALL: usize = 230;
/// `prctl`
pub const PRCTL: usize = 167;
/// `gettid`
pub const GETTID: usize = 178;
/// `futex`
pub const FUTEX: usize = 98;
/// `newfstatat`
pub const NEWFSTATAT: usize = 79;
/// `clock_gettime`
pub const CLOCK_GETTIME: usize = 113;
/// `tgkill`
pub const TGKILL: usize = 131;
/// `openat`
pub const OPENAT: usize = 56;
/// `unlinkat`
pub const UNLINKAT: usize = 35;
/// `renameat`
pub const RENAMEAT: usize = 38;
/// `linkat`
pub const LINKAT: usize = 37;
/// `fallocate`
pub const FALLOCATE: usize = 47;
/// `accept4`
pub const ACCEPT4: usize = 242;
/// `prlimit64`
pub const PRLIMIT64: usize = 261;
/// `process_vm_readv`
pub const PROCESS_VM_READV: usize = 270;
/// `membarrier`
pub const MEMBARRIER: usize = 283;
/// `mlock2`
pub const MLOCK2: usize = 284;
/// `pidfd_open`
pub const PIDFD_OPEN: usize = 434;
/// `close_range`
pub const CLOSE_RANGE: usize = 436;
/// `exit`
pub const EXIT: usize = 93;
/// `clone`
pub const CLONE: usize = 220;
