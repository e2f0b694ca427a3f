//! Calls functions of several kinds, and prints how often each was entered and left by returning.
//!
//! `app [--no-panics] [PLUGIN]`

use std::ffi::{c_char, c_int, c_void, CString};
use std::hint::black_box;
use std::panic;

use counted::counted;

struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        cleans_up();
    }
}

#[counted]
fn cleans_up() {}

#[counted]
fn throws(number: u64) -> u64 {
    let kept = vec![number];
    if parts::twice(number) % 3 == 0 {
        panic!("{number}");
    }
    kept[0]
}

#[counted]
fn is_left(number: u64) -> u64 {
    let _guard = Guard;
    throws(number) + 1
}

#[counted]
fn catches(number: u64) -> bool {
    panic::catch_unwind(|| is_left(number)).is_ok()
}

#[counted]
fn throws_again(number: u64) -> u64 {
    match panic::catch_unwind(|| is_left(number)) {
        Ok(number) => number,
        Err(payload) => panic::resume_unwind(payload),
    }
}

#[counted]
fn debugged<T: std::fmt::Debug>(value: T) -> usize {
    format!("{value:?}").len()
}

// Identical code: a compiler may make one function of them.
#[counted]
fn same_code(number: u64) -> u64 {
    black_box(number) * 3
}

#[inline(never)]
fn first_of_two(number: u64) -> u64 {
    black_box(number) * 5
}

#[inline(never)]
fn second_of_two(number: u64) -> u64 {
    black_box(number) * 5
}

trait Shape {
    fn area(&self) -> u64;
}

struct Square(u64);

impl Shape for Square {
    #[inline(never)]
    fn area(&self) -> u64 {
        parts::entered("<app::Square as app::Shape>::area");
        parts::returned("<app::Square as app::Shape>::area");
        self.0 * self.0
    }
}

#[counted]
fn with_closures() -> u64 {
    let factor = black_box(3);
    let closure: Box<dyn Fn(u64) -> u64> = Box::new(move |number| {
        parts::entered("app::with_closures::{{closure}}");
        parts::returned("app::with_closures::{{closure}}");
        number * factor
    });
    let mut sum = 0;
    for number in 0..5 {
        sum += black_box(&closure)(number);
    }
    sum
}

#[counted]
fn in_thread(numbers: u64) -> u64 {
    (0..numbers).map(parts::twice).sum()
}

extern "C" {
    fn in_c(number: c_int) -> c_int;
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn use_plugin(path: &str) {
    let path = CString::new(path).unwrap();
    // SAFETY: the library is built from the package `plugin`.
    unsafe {
        let library = dlopen(path.as_ptr(), 2);
        assert!(!library.is_null(), "the plugin can't be loaded");
        let add: extern "C" fn(u64) -> u64 = std::mem::transmute(dlsym(library, c"plugin_add".as_ptr()));
        assert_eq!((0..6).map(|number| add(number)).sum::<u64>(), 21);
        let print: extern "C" fn() = std::mem::transmute(dlsym(library, c"plugin_print".as_ptr()));
        print();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    assert_eq!(env!("TWICE"), "42");
    panic::set_hook(Box::new(|_| ()));
    if !arguments.iter().any(|argument| argument == "--no-panics") {
        let caught = (0..9).filter(|number| catches(*number)).count();
        assert_eq!(caught, 6);
        assert!(std::thread::spawn(|| throws_again(3)).join().is_err());
    }
    debugged(1u8);
    debugged("text");
    debugged([Some(1.5)]);
    (0..4).for_each(|number| assert_eq!(same_code(number), number * 3));
    (0..4).for_each(|number| assert_eq!(first_of_two(number), number * 5));
    (0..7).for_each(|number| assert_eq!(second_of_two(number), number * 5));
    let shape: Box<dyn Shape> = Box::new(Square(4));
    assert_eq!(black_box(&shape).area(), 16);
    assert_eq!(with_closures(), 30);
    // SAFETY: it computes.
    (0..3).for_each(|number| assert_eq!(unsafe { in_c(number) }, (number + 1) * 2));
    let threads: Vec<_> = (0..4).map(|number| std::thread::spawn(move || in_thread(number * 100))).collect();
    let sums: Vec<u64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(sums[1], 9900);
    if let Some(plugin) = arguments.iter().find(|argument| argument.ends_with(".so")) {
        use_plugin(plugin);
    }
    speaks();
    parts::print();
}

/// Says something by the crate `everycall-api`.
#[counted]
fn speaks() {
    assert!(everycall::is_there());
    let _span = everycall::span("a span");
    everycall::label("answer", 42);
    everycall::counter("level", -3);
    everycall::instant("a moment");
    let path = std::env::temp_dir().join(format!("everycall-speaks-{}.ect", std::process::id()));
    everycall::Snapshot::take().unwrap().write(&path).unwrap();
    assert!(std::fs::remove_file(path).is_ok());
    std::thread::spawn(|| {
        // Until its end, so that no open call is interrupted.
        std::mem::forget(everycall::leave_thread_out().unwrap());
        leaves_nothing();
    })
    .join()
    .unwrap();
}

#[inline(never)]
fn leaves_nothing() {
    black_box(());
}

#[cfg(test)]
mod tests {
    #[test]
    fn adds() {
        assert_eq!(super::is_left(1), 2);
    }

    #[test]
    #[should_panic]
    fn throws() {
        super::is_left(3);
    }
}
