//! The interface to the script of a page, which writes into `input`, and reads from `output`.

// The functions have names that the script knows.
#![allow(unsafe_code)]

use std::cell::RefCell;

use super::data::Page;
use crate::Answered;

thread_local! {
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static OUTPUT: RefCell<String> = const { RefCell::new(String::new()) };
    static PAGE: RefCell<Option<Page>> = const { RefCell::new(None) };
}

/// Room for so many bytes, which the caller fills.
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        *input = vec![0; length];
        input.as_mut_ptr()
    })
}

/// Where the last answer is.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    OUTPUT.with_borrow(|output| output.as_ptr())
}

/// How many bytes it has.
#[unsafe(no_mangle)]
pub extern "C" fn output_length() -> usize {
    OUTPUT.with_borrow(String::len)
}

/// Reads the input as the data of the page. Returns 0, or 1 if the output says why that failed.
#[unsafe(no_mangle)]
pub extern "C" fn load() -> u32 {
    done(Page::read(INPUT.take()).map(|page| {
        PAGE.set(Some(page));
        String::new()
    }))
}

/// Answers the request in the input, `PATH?QUERY`, in JSON. Returns 0; 1 if the output says why
/// there is no answer.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> u32 {
    let request = String::from_utf8_lossy(&INPUT.take()).into_owned();
    let (path, query) = request.split_once('?').unwrap_or((&request, ""));
    done(PAGE.with_borrow(|page| {
        let page = page.as_ref().ok_or("the page has no data")?;
        page.answer(path, query).unwrap_or_else(|| Err("the page has no such answer".to_owned()))
    }))
}

fn done(answer: Answered<String>) -> u32 {
    let is_error = answer.is_err();
    OUTPUT.set(answer.unwrap_or_else(|error| error));
    is_error.into()
}
