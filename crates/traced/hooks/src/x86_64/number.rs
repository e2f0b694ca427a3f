//! Numbers of the system calls that the runtime makes.

/// `read`
pub const READ: usize = 0;
/// `write`
pub const WRITE: usize = 1;
/// `close`
pub const CLOSE: usize = 3;
/// `fstat`
pub const FSTAT: usize = 5;
/// `poll`
pub const POLL: usize = 7;
/// `mmap`
pub const MMAP: usize = 9;
/// `mprotect`
pub const MPROTECT: usize = 10;
/// `munmap`
pub const MUNMAP: usize = 11;
/// `rt_sigaction`
pub const RT_SIGACTION: usize = 13;
/// `rt_sigprocmask`
pub const RT_SIGPROCMASK: usize = 14;
/// `ioctl`
pub const IOCTL: usize = 16;
/// `pread64`
pub const PREAD64: usize = 17;
/// `pwrite64`
pub const PWRITE64: usize = 18;
/// `sched_yield`
pub const SCHED_YIELD: usize = 24;
/// `mremap`
pub const MREMAP: usize = 25;
/// `madvise`
pub const MADVISE: usize = 28;
/// `shmget`
pub const SHMGET: usize = 29;
/// `shmat`
pub const SHMAT: usize = 30;
/// `shmctl`
pub const SHMCTL: usize = 31;
/// `getpid`
pub const GETPID: usize = 39;
/// `socket`
pub const SOCKET: usize = 41;
/// `sendto`
pub const SENDTO: usize = 44;
/// `bind`
pub const BIND: usize = 49;
/// `listen`
pub const LISTEN: usize = 50;
/// `getsockname`
pub const GETSOCKNAME: usize = 51;
/// `setsockopt`
pub const SETSOCKOPT: usize = 54;
/// `getsockopt`
pub const GETSOCKOPT: usize = 55;
/// `kill`
pub const KILL: usize = 62;
/// `fcntl`
pub const FCNTL: usize = 72;
/// `ftruncate`
pub const FTRUNCATE: usize = 77;
/// `getcwd`
pub const GETCWD: usize = 79;
/// `getuid`
pub const GETUID: usize = 102;
/// `getgid`
pub const GETGID: usize = 104;
/// `geteuid`
pub const GETEUID: usize = 107;
/// `getegid`
pub const GETEGID: usize = 108;
/// `getppid`
pub const GETPPID: usize = 110;
/// `capget`
pub const CAPGET: usize = 125;
/// `sigaltstack`
pub const SIGALTSTACK: usize = 131;
/// `fstatfs`
pub const FSTATFS: usize = 138;
/// `sched_setscheduler`
pub const SCHED_SETSCHEDULER: usize = 144;
/// `mlockall`
pub const MLOCKALL: usize = 151;
/// `prctl`
pub const PRCTL: usize = 157;
/// `gettid`
pub const GETTID: usize = 186;
/// `futex`
pub const FUTEX: usize = 202;
/// `newfstatat`
pub const NEWFSTATAT: usize = 262;
/// `clock_gettime`
pub const CLOCK_GETTIME: usize = 228;
/// `tgkill`
pub const TGKILL: usize = 234;
/// `openat`
pub const OPENAT: usize = 257;
/// `unlinkat`
pub const UNLINKAT: usize = 263;
/// `renameat`
pub const RENAMEAT: usize = 264;
/// `linkat`
pub const LINKAT: usize = 265;
/// `fallocate`
pub const FALLOCATE: usize = 285;
/// `accept4`
pub const ACCEPT4: usize = 288;
/// `prlimit64`
pub const PRLIMIT64: usize = 302;
/// `process_vm_readv`
pub const PROCESS_VM_READV: usize = 310;
/// `membarrier`
pub const MEMBARRIER: usize = 324;
/// `mlock2`
pub const MLOCK2: usize = 325;
/// `pidfd_open`
pub const PIDFD_OPEN: usize = 434;
/// `close_range`
pub const CLOSE_RANGE: usize = 436;
