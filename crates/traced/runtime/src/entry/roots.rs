//! The three forms of the runtime, and how each starts.
//!
//! - `executable`: an entry in the program's `.preinit_array`, which runs before every initialiser
//!   of the program and its libraries. Where the C library doesn't run that (musl), an entry in
//!   `.init_array` starts it, or the first library's initialiser that registers its object.
//! - `module`: the first entry in a shared object's `.init_array`. It searches for the runtime of
//!   the process. If there is none, the object's sites stay off.
//! - `shared`: the first initialiser of a preloaded library.
//!
//! Modules find the runtime by the dynamic symbol `everycall_runtime_v1`.
#![allow(unsafe_code)] // Initialisers, symbols and sections by which the program finds the runtime.

/// Nothing in the runtime can panic. If that ever changes, the link fails because this symbol is
/// missing.
#[cfg(all(not(test), any(feature = "executable", feature = "module", feature = "shared")))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn everycall_runtime_must_not_panic() -> !;
    }
    // SAFETY: there is no such function.
    unsafe { everycall_runtime_must_not_panic() }
}

/// An ELF note that describes the form that an object contains.
#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
#[repr(C, align(4))]
struct Note {
    owner_size: u32,
    size: u32,
    kind: u32,
    owner: [u8; 12],
    abi: u32,
}

#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
#[used]
#[unsafe(link_section = ".note.everycall")]
static NOTE: Note = Note {
    owner_size: 10,
    size: 4,
    kind: if cfg!(feature = "module") {
        everycall_format::site::NOTE_MODULE
    } else {
        everycall_format::site::NOTE_RUNTIME
    },
    owner: *b"everycall\0\0\0",
    abi: everycall_format::site::RUNTIME_ABI,
};

#[cfg(any(feature = "executable", feature = "shared"))]
mod runtime {
    use crate::entry::{api, fibers, frames, log_lines, memory, modules, start, unwinding, xray};
    use crate::features::{address_space, crash, memory_lock};
    use crate::state::{memory as counted_memory, recording};
    use core::ffi::c_int;
    use everycall_hooks::{ModuleDescriptor, RuntimeTable};

    /// The process's runtime, for modules.
    #[unsafe(no_mangle)]
    #[used]
    pub static everycall_runtime_v1: RuntimeTable = RuntimeTable {
        abi: everycall_format::site::RUNTIME_ABI,
        size: size_of::<RuntimeTable>() as u32,
        register,
        unregister: modules::unregister,
        mark: api::mark,
        ticks_per_second: api::ticks_per_second,
        record_thread: api::record_thread,
        record_process: api::record_process,
        ring_size: api::ring_size,
        snapshot: api::snapshot,
        snapshot_write: api::snapshot_write,
        snapshot_free: api::snapshot_free,
        unwinding: unwinding::unwinding,
        landing: unwinding::landing,
        fiber: fibers::fiber,
        lock_memory: memory_lock::lock_memory,
        min_duration: api::set_min_duration,
        xray: xray::xray,
        off: &recording::DISABLED,
        quick_mark: api::quick_mark,
        log: log_lines::log,
        functions: api::functions,
        select: api::select,
        memory: memory::memory,
        memory_wanted: &counted_memory::WANTED,
        frame_enter: everycall_hooks::everycall_frame_enter,
        frame_leave: everycall_hooks::everycall_frame_leave,
        frame: frames::frame,
        address_space: address_space::address_space,
        adopt: modules::adopt,
        thrown: unwinding::thrown,
    };

    /// An initialiser. The C library passes the program's arguments and environment.
    type Initialiser = unsafe extern "C" fn(c_int, *const *const u8, *const *const u8);

    #[used]
    #[cfg_attr(feature = "executable", unsafe(link_section = ".preinit_array"))]
    #[cfg_attr(feature = "shared", unsafe(link_section = ".init_array.00000"))]
    static BEGIN: Initialiser = begin;

    /// Runs at `exit`, after all other finalisers of this object.
    #[used]
    #[unsafe(link_section = ".fini_array.00000")]
    static END: unsafe extern "C" fn() = end;

    unsafe extern "C" fn end() {
        crash::remove();
    }

    /// Registers a module, whose initialiser may run before the program's.
    ///
    /// # Safety
    /// As [`modules::register`].
    unsafe extern "C" fn register(module: *const ModuleDescriptor) {
        // SAFETY: in an initialiser, and by contract.
        unsafe {
            #[cfg(feature = "executable")]
            late::begin();
            modules::register(module);
        }
    }

    /// Starts the runtime in the first initialiser, unless it is started already.
    #[cfg(feature = "executable")]
    mod late {
        use core::hint::black_box;
        use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

        unsafe extern "C" {
            /// Of the C library; weak.
            static environ: *const *const u8;
        }

        pub(super) static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

        #[used]
        #[unsafe(link_section = ".init_array.00000")]
        static BEGIN: unsafe extern "C" fn() = begin;

        /// Initialisers of C libraries that don't run `.preinit_array` get no arguments.
        pub(super) unsafe extern "C" fn begin() {
            if HAS_BEGUN.load(Relaxed) {
                return;
            }
            // A weak symbol may have no address, which the compiler doesn't expect.
            let place = black_box(&raw const environ);
            // SAFETY: the C library's variable, if there is one, and the process's only thread.
            unsafe {
                let variables = if place.is_null() { core::ptr::null() } else { place.read() };
                super::begin(0, core::ptr::null(), variables);
            }
        }
    }

    unsafe extern "C" fn begin(_: c_int, _: *const *const u8, variables: *const *const u8) {
        #[cfg(feature = "executable")]
        late::HAS_BEGUN.store(true, core::sync::atomic::Ordering::Relaxed);
        // SAFETY: called by the C library, once.
        unsafe { start::start(variables, everycall_hooks::local_thread_slot()) };
        // This object has no code that is traced, only the hooks of frames by id.
        #[cfg(feature = "shared")]
        modules::prepare(everycall_hooks::own_descriptor());
        #[cfg(feature = "executable")]
        // SAFETY: this object's own descriptor.
        unsafe {
            modules::register(everycall_hooks::describe_object(everycall_format::site::RUNTIME_ABI));
        }
    }
}

#[cfg(feature = "module")]
mod module {
    use crate::entry::base_namespace;
    use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
    use everycall_hooks::{RuntimeTable, describe_object};

    /// The runtime, once it has been found.
    static RUNTIME: AtomicPtr<RuntimeTable> = AtomicPtr::new(core::ptr::null_mut());

    /// Returns the table of the process's runtime, if there is a runtime of this version. Call it
    /// only in an initialiser.
    unsafe fn runtime() -> Option<&'static RuntimeTable> {
        let mut table = everycall_hooks::arch::linked_runtime();
        // SAFETY: in an initialiser; a table of the process's runtime, which stays.
        unsafe {
            if table.is_null() {
                table = base_namespace::find(c"everycall_runtime_v1").cast();
            }
            table.as_ref().filter(|table| table.abi == everycall_format::site::RUNTIME_ABI)
        }
    }

    #[used]
    #[unsafe(link_section = ".init_array.00000")]
    static BEGIN: unsafe extern "C" fn() = begin;

    #[used]
    #[unsafe(link_section = ".fini_array.00000")]
    static END: unsafe extern "C" fn() = end;

    unsafe extern "C" fn begin() {
        // SAFETY: this is an initialiser.
        if let Some(runtime) = unsafe { runtime() } {
            RUNTIME.store(core::ptr::from_ref(runtime).cast_mut(), Relaxed);
            // SAFETY: this object's own descriptor.
            unsafe { (runtime.register)(describe_object(everycall_format::site::RUNTIME_ABI)) };
        }
    }

    unsafe extern "C" fn end() {
        // SAFETY: null or what the initialiser found; the process's runtime stays.
        if let Some(runtime) = unsafe { RUNTIME.load(Relaxed).as_ref() } {
            // SAFETY: this object's own descriptor.
            unsafe { (runtime.unregister)(describe_object(everycall_format::site::RUNTIME_ABI)) };
        }
    }
}
