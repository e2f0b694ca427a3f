//! Where the bytes of a trace file go.
#![allow(unsafe_code)] // A function of the program's.

use crate::sys::errors::error;
use crate::sys::system;
use core::ffi::c_void;
use everycall_hooks::ByteSink;

/// A destination for bytes.
#[derive(Clone, Copy)]
pub(crate) enum Sink {
    /// An open descriptor, from its current position on.
    Descriptor(i32),
    /// Our own file, from its beginning on.
    File(i32),
    /// The program's callback, with its context.
    Callback(ByteSink, *mut c_void),
}

impl Sink {
    /// Writes all of `bytes`.
    pub(super) fn put(&self, mut bytes: &[u8]) -> Result<(), i32> {
        match *self {
            Sink::Descriptor(descriptor) | Sink::File(descriptor) => {
                while !bytes.is_empty() {
                    let count = system::write(descriptor, bytes)?;
                    bytes = bytes.get(count..).unwrap_or(&[]);
                }
                Ok(())
            }
            Sink::Callback(callback, context) => {
                // SAFETY: the program's own callback; it only reads the bytes.
                match unsafe { callback(context, bytes.as_ptr(), bytes.len()) } {
                    0 => Ok(()),
                    _ => Err(error::CALLBACK),
                }
            }
        }
    }
}
