//! Real programs as traced programs: SQLite, Lua, zstd and LevelDB, each with a small driver of
//! ours whose output and whose calls per thread are the same in every run.
//!
//! ```text
//! sources   third-party sources, by cargo into the target folder (nothing of them is in the repository)
//! objects   compiled through the prefix once per mode and level, kept in the target folder
//! linked    untraced, traced, or with the oracle: the same objects each time
//! counts    calls per thread and function, of a trace and of the oracle
//! ```

mod build;
mod compact;
mod counts;
mod functions;
mod sources;

pub use build::{Build, Linkage};
pub use counts::{FunctionCounts, ThreadCounts, TraceCounts, of_oracle, of_trace};
pub use functions::FunctionTable;
pub(crate) use sources::lock;
pub use sources::target_folder;

/// A program with its driver.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Name of the program and of its driver.
    pub name: &'static str,
    /// Whether it is C++.
    pub is_cxx: bool,
    /// Its sources, relative to the folder of sources; `*` stands for any name.
    sources: &'static [&'static str],
    /// File names of sources don't contain these.
    except: &'static [&'static str],
    /// Whether its sources are compiled as one.
    is_unity: bool,
    /// Folders of headers, likewise relative.
    includes: &'static [&'static str],
    /// Options for its compilation.
    options: &'static [&'static str],
    /// Arguments of a run that fits into a ring.
    pub small: &'static [&'static str],
    /// Arguments of a run that overwrites a ring of default size.
    pub large: &'static [&'static str],
    /// Threads that make calls, the main thread included.
    pub threads: usize,
}

impl Workload {
    /// C, large functions, two threads.
    pub const SQLITE: Workload = Workload {
        name: "sqlite",
        is_cxx: false,
        sources: &["libsqlite3-sys/sqlite3/sqlite3.c"],
        except: &[],
        is_unity: false,
        includes: &["libsqlite3-sys/sqlite3"],
        options: &["-DSQLITE_THREADSAFE=2", "-DSQLITE_DEFAULT_MEMSTATUS=0", "-DSQLITE_OMIT_LOAD_EXTENSION"],
        small: &["200", "2"],
        large: &["1500", "2"],
        threads: 3,
    };
    /// SQLite with write-ahead logs in files, without an end, and with a journal of its own calls.
    pub const SQLITE_FOREVER: Workload = Workload {
        name: "sqlite_forever",
        // Functions that are always inlined would be in the journal alone.
        options: &["-DSQLITE_THREADSAFE=2", "-DSQLITE_OMIT_LOAD_EXTENSION", "-Dalways_inline=unused"],
        small: &[],
        large: &[],
        ..Workload::SQLITE
    };
    /// C, an interpreter, frames left by `longjmp`.
    pub const LUA: Workload = Workload {
        name: "lua",
        is_cxx: false,
        sources: &["lua-src/lua-5.4.7/*.c"],
        except: &[],
        is_unity: false,
        includes: &["lua-src/lua-5.4.7"],
        // Hashes, pivots and places in the cache of strings are taken from addresses and the time
        // otherwise.
        options: &[
            "-DLUA_USE_POSIX",
            "-Dluai_makeseed(L)=42u",
            "-Dl_randomizePivot()=7u",
            "-DSTRCACHE_N=1",
            "-DSTRCACHE_M=2",
        ],
        small: &["3"],
        large: &["20"],
        threads: 1,
    };
    /// Lua with its functions as frames by id. The functions that run its debug hook aren't traced:
    /// the hook returns before the function that it reports begins.
    pub const LUA_FRAMES: Workload = Workload {
        name: "lua_frames",
        options: &[
            "-DLUA_USE_POSIX",
            "--everycall-not=luaD_hook*",
            "--everycall-not=rethook",
            "--everycall-not=luaD_p*call",
            "--everycall-not=pre*",
            "--everycall-not=luaG_trace*",
        ],
        ..Workload::LUA
    };
    /// C, many functions that are always inlined, one thread.
    pub const ZSTD: Workload = Workload {
        name: "zstd",
        is_cxx: false,
        sources: &[
            "zstd-sys/zstd/lib/common/*.c",
            "zstd-sys/zstd/lib/compress/*.c",
            "zstd-sys/zstd/lib/decompress/*.c",
        ],
        except: &[],
        is_unity: false,
        includes: &["zstd-sys/zstd/lib"],
        options: &["-DZSTD_DISABLE_ASM=1", "-DZSTD_LEGACY_SUPPORT=0"],
        small: &["2"],
        large: &["192"],
        threads: 1,
    };
    /// C++, virtual calls, six threads one after the other.
    pub const LEVELDB: Workload = Workload {
        name: "leveldb",
        is_cxx: true,
        sources: &[
            "leveldb-sys/deps/leveldb-1.22/db/*.cc",
            "leveldb-sys/deps/leveldb-1.22/table/*.cc",
            "leveldb-sys/deps/leveldb-1.22/util/*.cc",
            "leveldb-sys/deps/leveldb-1.22/helpers/memenv/memenv.cc",
        ],
        except: &["_test", "bench", "windows", "leveldbutil", "testharness", "testutil", "_helper"],
        is_unity: true,
        includes: &["leveldb-sys/deps/leveldb-1.22", "leveldb-sys/deps/leveldb-1.22/include"],
        options: &[
            "-std=c++17",
            "-DLEVELDB_PLATFORM_POSIX=1",
            "-DLEVELDB_IS_BIG_ENDIAN=0",
            "-DHAVE_FDATASYNC=1",
        ],
        small: &["100", "2"],
        large: &["2000", "2"],
        threads: 6,
    };
}
