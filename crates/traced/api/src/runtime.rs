//! The runtime's table, if the process has one.
//!
//! `unsafe`: the table's functions are the runtime's. It is declared as in `everycall.h`.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::mem::offset_of;

use crate::{Error, arch};

type Reserved = Option<unsafe extern "C" fn()>;
type Sink = Option<unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> i32>;

/// Later versions add entries at its end; `size` is the size of the one that is there.
#[repr(C)]
struct Table {
    abi: u32,
    size: u32,
    reserved: [Reserved; 2],
    mark: Reserved,
    ticks_per_second: unsafe extern "C" fn() -> u64,
    record_thread: unsafe extern "C" fn(u32, u64) -> i32,
    record_process: unsafe extern "C" fn(u32, u64) -> i32,
    ring_size: Reserved,
    snapshot: unsafe extern "C" fn(u64, *mut u64) -> i32,
    snapshot_write: unsafe extern "C" fn(u64, i32, *const i8, Sink, *mut c_void) -> i32,
    snapshot_free: unsafe extern "C" fn(u64) -> i32,
    more: [Reserved; 6],
    off: *const u32,
    quick_mark: unsafe extern "C" fn(u32, *const u8, u64, u64) -> i32,
    log: unsafe extern "C" fn(*const u8, u32, *const u64, u64) -> i32,
}

/// Bytes of the whole table above.
const SIZE: usize = offset_of!(Table, log) + size_of::<usize>();
const _: () = assert!(SIZE == 8 + 19 * 8);

/// Classes of marks.
#[derive(Clone, Copy)]
pub(crate) enum Mark {
    TaskWake = 0,
    Label = 1,
    Instant = 2,
    SpanBegin = 3,
    SpanEnd = 4,
    Counter = 12,
    CounterReal = 13,
    TaskBegin = 14,
    TaskEnd = 15,
}

/// A mark has no value.
const NO_VALUE: u32 = 0x80;
/// Bytes of a name that are kept.
const NAME_MAX: usize = 64;

/// The table, if this process has one.
#[inline(always)]
fn table() -> Option<&'static Table> {
    // SAFETY: the runtime's table stays as long as the process.
    unsafe { arch::table().cast::<Table>().as_ref() }
}

/// The table, if it has all entries.
fn whole_table() -> Result<&'static Table, Error> {
    let table = table().ok_or(Error::NOT_TRACED)?;
    if table.size as usize >= SIZE { Ok(table) } else { Err(Error::OLD_RUNTIME) }
}

pub(crate) fn is_there() -> bool {
    whole_table().is_ok()
}

/// The table, if marks and lines reach a trace.
#[inline(always)]
fn table_that_is_on() -> Option<&'static Table> {
    // SAFETY: only read where the table has the entry; the runtime changes the number.
    table().filter(|table| table.size as usize >= SIZE && unsafe { table.off.read_volatile() } == 0)
}

#[inline]
pub(crate) fn is_on() -> bool {
    table_that_is_on().is_some()
}

/// Writes a mark; nothing happens where there is no runtime or tracing is off.
#[inline(always)]
pub(crate) fn mark(class: Mark, name: &str, value: Option<u64>) {
    let Some(table) = table_that_is_on() else { return };
    let length = name.len().min(NAME_MAX) as u32 + 1;
    let what = class as u32 | if value.is_none() { NO_VALUE } else { 0 } | length << 8;
    // SAFETY: the name has that length.
    unsafe { (table.quick_mark)(what, name.as_ptr(), value.unwrap_or(0), arch::stack_pointer()) };
}

/// Bytes of each text that a line keeps.
const TEXT_MAX: usize = 96;
/// Texts of a line: a precision goes with each, and a line has ten arguments at most.
const TEXTS_MAX: usize = 5;
/// Bytes of a line that are kept.
pub(crate) const LINE_MAX: usize = TEXTS_MAX * TEXT_MAX;
/// The types of `int` and of a text, among those of a line's arguments.
const TYPES: u32 = 1 | 5 << 3;

/// Writes a line; nothing happens where there is no runtime or tracing is off.
#[inline(never)]
pub(crate) fn line(text: &[u8]) {
    // By the number of texts. They are read when the trace is shown, from the program's file.
    const FORMATS: [&CStr; TEXTS_MAX + 1] =
        [c"", c"%.*s", c"%.*s%.*s", c"%.*s%.*s%.*s", c"%.*s%.*s%.*s%.*s", c"%.*s%.*s%.*s%.*s%.*s"];
    let Some(table) = table_that_is_on() else { return };
    let mut arguments = [0; 2 * TEXTS_MAX];
    let mut types = 0;
    let mut count = 0;
    for (pair, part) in arguments.chunks_exact_mut(2).zip(text.chunks(TEXT_MAX)) {
        pair.copy_from_slice(&[part.len() as u64, part.as_ptr() as u64]);
        types |= TYPES << (6 * count);
        count += 1;
    }
    let Some(format) = FORMATS.get(count) else { return };
    // SAFETY: the runtime reads as many arguments as there are types, and of each text as many
    // bytes as its precision says.
    unsafe { (table.log)(format.as_ptr().cast(), types, arguments.as_ptr(), arch::stack_pointer()) };
}

#[inline]
pub(crate) fn now() -> u64 {
    table().map_or(0, |_| arch::ticks())
}

pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: the runtime's function.
    whole_table().map_or(1_000_000_000, |table| unsafe { (table.ticks_per_second)() })
}

#[inline(never)]
pub(crate) fn record_thread(on: bool) -> Result<(), Error> {
    // SAFETY: the runtime's function, with a stack pointer of this thread.
    Error::of(unsafe { (whole_table()?.record_thread)(on.into(), arch::stack_pointer()) })
}

#[inline(never)]
pub(crate) fn record_process(on: bool) -> Result<(), Error> {
    // SAFETY: the runtime's function, with a stack pointer of this thread.
    Error::of(unsafe { (whole_table()?.record_process)(on.into(), arch::stack_pointer()) })
}

pub(crate) fn take_snapshot(since: u64) -> Result<u64, Error> {
    let mut number = 0;
    // SAFETY: the result is writable.
    Error::of(unsafe { (whole_table()?.snapshot)(since, &raw mut number) })?;
    Ok(number)
}

pub(crate) fn write_snapshot(number: u64, path: &CStr) -> Result<(), Error> {
    // SAFETY: the path is a C string; there is no function for the bytes.
    Error::of(unsafe {
        (whole_table()?.snapshot_write)(number, -1, path.as_ptr().cast(), None, std::ptr::null_mut())
    })
}

pub(crate) fn write_snapshot_to(number: u64, descriptor: i32) -> Result<(), Error> {
    // SAFETY: no path and no function.
    Error::of(unsafe {
        (whole_table()?.snapshot_write)(number, descriptor, std::ptr::null(), None, std::ptr::null_mut())
    })
}

pub(crate) fn free_snapshot(number: u64) {
    if let Ok(table) = whole_table() {
        // SAFETY: a number from `take_snapshot`, freed once.
        unsafe { (table.snapshot_free)(number) };
    }
}
