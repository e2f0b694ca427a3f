//! QEMU's interface for plugins, version 1, and what is registered with it.
//!
//! # Safety
//!
//! Instructions and blocks are only looked at while QEMU translates them. Memory of the program is
//! read where the program itself has just written it, or where its code lies.
#![allow(unsafe_code, reason = "QEMU's interface is C")]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use everycall_trace_device::{Branches, DeviceFile, Parameters};

use crate::machine::Machine;

/// The version of the interface, by which QEMU decides whether it loads the plugin.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU's name")]
pub static qemu_plugin_version: c_int = 1;

type Id = u64;
type Pointer = *mut c_void;

const NO_REGISTERS: c_int = 0;
/// Loads and stores: QEMU 7.2 calls back for the wrong ones if it is asked for some.
const ACCESSES: c_int = 3;
/// The inline operation that adds.
const ADD: c_int = 0;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: extern "C" fn(Id, Pointer));
    fn qemu_plugin_register_atexit_cb(id: Id, callback: extern "C" fn(Id, Pointer), data: Pointer);
    fn qemu_plugin_mem_is_store(access: u32) -> bool;
    fn qemu_plugin_tb_n_insns(block: Pointer) -> usize;
    fn qemu_plugin_tb_get_insn(block: Pointer, index: usize) -> Pointer;
    fn qemu_plugin_insn_data(instruction: Pointer) -> *const u8;
    fn qemu_plugin_insn_size(instruction: Pointer) -> usize;
    fn qemu_plugin_insn_vaddr(instruction: Pointer) -> u64;
    fn qemu_plugin_insn_haddr(instruction: Pointer) -> *const u8;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: Pointer,
        callback: extern "C" fn(c_uint, Pointer),
        flags: c_int,
        data: Pointer,
    );
    fn qemu_plugin_register_vcpu_insn_exec_inline(
        instruction: Pointer,
        operation: c_int,
        number: *const AtomicU64,
        value: u64,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: Pointer,
        callback: extern "C" fn(c_uint, u32, u64, Pointer),
        flags: c_int,
        access: c_int,
        data: Pointer,
    );
}

/// All of the run.
struct Device {
    begin: Instant,
    pid: u32,
    out: PathBuf,
    blocks: usize,
    counts_branches: bool,
    machines: Mutex<Vec<Arc<Mutex<Machine>>>>,
}

static DEVICE: OnceLock<Device> = OnceLock::new();
static CONDITIONAL: AtomicU64 = AtomicU64::new(0);
static RETURNS: AtomicU64 = AtomicU64::new(0);
static INDIRECT: AtomicU64 = AtomicU64::new(0);
/// From addresses of the program to those of this process.
static BASE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static MACHINE: RefCell<Option<Arc<Mutex<Machine>>>> = const { RefCell::new(None) };
}

/// Does something with the machine of this thread: QEMU runs each of the program's threads in one
/// of its own.
fn with(run: impl FnOnce(&mut Machine)) {
    let Some(device) = DEVICE.get() else { return };
    MACHINE.with_borrow_mut(|own| {
        let machine = own.get_or_insert_with(|| {
            let machine = Arc::new(Mutex::new(Machine::new(device.begin, device.blocks, thread_id())));
            device.machines.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&machine));
            machine
        });
        run(&mut machine.lock().unwrap_or_else(PoisonError::into_inner));
    });
}

fn thread_id() -> u32 {
    let path = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.parse().ok()).unwrap_or_default()
}

/// QEMU loads the plugin. Arguments are `NAME=VALUE`.
///
/// # Safety
///
/// QEMU calls it, with `count` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    _info: Pointer,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    let (mut out, mut blocks, mut counts_branches) = (PathBuf::from("everycall.device"), 1024, false);
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: there are `count` texts.
        let word = unsafe { CStr::from_ptr(*words.add(index)) }.to_string_lossy().into_owned();
        match word.split_once('=') {
            Some(("out", path)) => out = PathBuf::from(path),
            Some(("blocks", number)) if number.parse::<usize>().is_ok_and(|number| number > 0) => {
                blocks = number.parse().unwrap_or(blocks);
            }
            Some(("branches", value @ ("on" | "off"))) => counts_branches = value == "on",
            _ => {
                say(&format!(
                    "`{word}` is no argument of the plugin; it takes out=FILE, blocks=N and branches=on"
                ));
                return 1;
            }
        }
    }
    let (begin, pid) = (Instant::now(), std::process::id());
    let device = Device { begin, pid, out, blocks, counts_branches, machines: Mutex::default() };
    if DEVICE.set(device).is_err() {
        say("the plugin can be loaded once");
        return 1;
    }
    // SAFETY: both functions stay.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        qemu_plugin_register_atexit_cb(id, ended, std::ptr::null_mut());
    }
    0
}

fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "everycall: {what}");
}

/// The plugin's part at an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Call,
    Return,
    Conditional,
    Indirect,
    /// TRACE without a register: its number.
    Trace(u8),
    /// The store in front of a TRACE with a register: the number of that.
    Store(u8),
    Other,
}

/// By the bytes of an instruction, and of the code from there on.
fn kind_of(bytes: &[u8], with_next: &[u8]) -> Kind {
    let is_prefix =
        |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    let rest = &bytes[bytes.iter().take_while(|byte| is_prefix(byte)).count()..];
    match rest {
        [0xe8, ..] => Kind::Call,
        [0xc2 | 0xc3, ..] => Kind::Return,
        [0x70..=0x7f | 0xe0..=0xe3, ..] | [0x0f, 0x80..=0x8f, ..] => Kind::Conditional,
        [0xff, mode, ..] if mode >> 3 & 7 == 2 => Kind::Call,
        [0xff, mode, ..] if mode >> 3 & 7 == 4 => Kind::Indirect,
        [0x0f, 0x19, mode @ 0xc0..=0xff] if mode & 7 == 0 && mode >> 3 & 7 < 3 => Kind::Trace(mode >> 3 & 7),
        // mov %rax, into memory.
        [0x89, mode, ..] if bytes.first() == Some(&0x48) && *mode < 0xc0 && mode >> 3 & 7 == 0 => {
            match with_next.get(bytes.len()..) {
                Some([0x0f, 0x19, mode @ 0xc0..=0xff, ..]) if mode & 7 == 0 => Kind::Store(mode >> 3 & 7),
                _ => Kind::Other,
            }
        }
        _ => Kind::Other,
    }
}

extern "C" fn translated(_id: Id, block: Pointer) {
    let Some(device) = DEVICE.get() else { return };
    // SAFETY: QEMU translates this block now.
    let count = unsafe { qemu_plugin_tb_n_insns(block) };
    for index in 0..count {
        // SAFETY: as above; there are so many instructions.
        let instruction = unsafe { qemu_plugin_tb_get_insn(block, index) };
        // SAFETY: as above; the data are the instruction's bytes.
        let (bytes, address) = unsafe {
            let (data, size) = (qemu_plugin_insn_data(instruction), qemu_plugin_insn_size(instruction));
            (std::slice::from_raw_parts(data, size), qemu_plugin_insn_vaddr(instruction))
        };
        // SAFETY: as above.
        let code = unsafe { qemu_plugin_insn_haddr(instruction) };
        let mut with_next = bytes;
        if bytes.starts_with(&[0x48, 0x89]) && !code.is_null() {
            // SAFETY: the program goes on behind a store, so there is code.
            with_next = unsafe { std::slice::from_raw_parts(code, bytes.len() + 3) };
        }
        let base = (code as u64).wrapping_sub(address);
        BASE.store(base, Ordering::Relaxed);
        register(instruction, kind_of(bytes, with_next), address, base, device);
    }
}

fn register(instruction: Pointer, kind: Kind, address: u64, base: u64, device: &Device) {
    let executed = |callback: extern "C" fn(c_uint, Pointer), data: u64| {
        // SAFETY: QEMU translates this instruction now; the data are a number.
        unsafe {
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, callback, NO_REGISTERS, data as Pointer);
        }
    };
    let accesses = |callback: extern "C" fn(c_uint, u32, u64, Pointer), data: u64| {
        // SAFETY: as above.
        unsafe {
            qemu_plugin_register_vcpu_mem_cb(instruction, callback, NO_REGISTERS, ACCESSES, data as Pointer);
        }
    };
    let counted = |number: &'static AtomicU64| {
        if device.counts_branches {
            // SAFETY: as above; the number stays.
            unsafe { qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD, number, 1) };
        }
    };
    match kind {
        Kind::Call => accesses(called, 0),
        Kind::Return => {
            accesses(returned, 0);
            counted(&RETURNS);
        }
        Kind::Conditional => counted(&CONDITIONAL),
        Kind::Indirect => counted(&INDIRECT),
        Kind::Trace(0) => executed(entered, address),
        Kind::Trace(1) => executed(left, 0),
        Kind::Trace(_) => executed(left_by_jump, 0),
        Kind::Store(3) => accesses(entered_id, base),
        Kind::Store(4) => accesses(left_id, base),
        Kind::Store(5) => accesses(said, base),
        Kind::Store(_) | Kind::Other => {}
    }
}

extern "C" fn called(_cpu: c_uint, what: u32, address: u64, _data: Pointer) {
    // SAFETY: it looks at the number.
    if unsafe { qemu_plugin_mem_is_store(what) } {
        with(|machine| machine.call(address));
    }
}

extern "C" fn returned(_cpu: c_uint, _what: u32, address: u64, _data: Pointer) {
    with(|machine| machine.ret(address));
}

extern "C" fn entered(_cpu: c_uint, address: Pointer) {
    with(|machine| machine.enter(address as u64));
}

extern "C" fn left(_cpu: c_uint, _data: Pointer) {
    with(Machine::leave);
}

extern "C" fn left_by_jump(_cpu: c_uint, _data: Pointer) {
    with(Machine::leave_by_jump);
}

/// The value that the program has just stored at an address of its own.
fn stored(address: u64, base: Pointer) -> u64 {
    let place = address.wrapping_add(base as u64) as *const u64;
    // SAFETY: the program's memory lies at a fixed distance in this process, and it was written.
    unsafe { place.read_unaligned() }
}

extern "C" fn entered_id(_cpu: c_uint, _what: u32, address: u64, base: Pointer) {
    with(|machine| machine.enter_id(stored(address, base)));
}

extern "C" fn left_id(_cpu: c_uint, _what: u32, _address: u64, _base: Pointer) {
    with(Machine::leave_id);
}

extern "C" fn said(_cpu: c_uint, _what: u32, address: u64, base: Pointer) {
    with(|machine| machine.word(stored(address, base)));
}

/// The mappings of this process, with addresses as the program has them.
fn maps(base: u64) -> Vec<u8> {
    let text = std::fs::read("/proc/self/maps").unwrap_or_default();
    let mut out = Vec::with_capacity(text.len());
    for line in String::from_utf8_lossy(&text).lines() {
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok()?.checked_sub(base);
        let range = line.split_once(' ').and_then(|(range, rest)| Some((range.split_once('-')?, rest)));
        let Some(((start, end), rest)) = range else { continue };
        if let (Some(start), Some(end)) = (number(start), number(end)) {
            out.extend(format!("{start:x}-{end:x} {rest}\n").into_bytes());
        }
    }
    out
}

extern "C" fn ended(_id: Id, _data: Pointer) {
    let Some(device) = DEVICE.get().filter(|device| device.pid == std::process::id()) else { return };
    let machines = device.machines.lock().unwrap_or_else(PoisonError::into_inner);
    let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let branches =
        Branches { conditional: count(&CONDITIONAL), returns: count(&RETURNS), indirect: count(&INDIRECT) };
    let file = DeviceFile {
        parameters: Parameters::DEVICE,
        pid: device.pid,
        command: std::fs::read("/proc/self/cmdline").unwrap_or_default(),
        maps: maps(BASE.load(Ordering::Relaxed)),
        threads: machines
            .iter()
            .map(|machine| machine.lock().unwrap_or_else(PoisonError::into_inner).thread())
            .collect(),
        branches: device.counts_branches.then_some(branches),
        is_cut: false,
    };
    let written = File::create(&device.out).and_then(|out| {
        let mut out = BufWriter::new(out);
        file.write(&mut out)?;
        out.flush()
    });
    if let Err(error) = written {
        say(&format!("{} can't be written: {error}", device.out.display()));
    }
}
