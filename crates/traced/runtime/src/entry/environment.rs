//! The program's environment, as the C library hands it to initialisers, or the settings that were
//! written into this library when it was loaded into a process that ran already.
#![allow(unsafe_code)] // A list of C strings, and the auxiliary vector behind it.

use crate::sys::{processes, system, text};

/// The arguments and environment of the program.
pub(crate) struct Environment {
    pub(crate) variables: *const *const u8,
}

/// Settings in a library's file.
#[cfg(feature = "shared")]
mod given {
    use everycall_format::env::{SETTINGS_MARK, SETTINGS_SIZE};

    #[repr(C)]
    struct Settings {
        mark: [u8; SETTINGS_MARK.len()],
        texts: [u8; SETTINGS_SIZE],
    }

    #[used]
    static SETTINGS: Settings = Settings { mark: SETTINGS_MARK, texts: [0; SETTINGS_SIZE] };

    /// What is in memory, which the compiler can't know.
    pub(super) fn texts() -> &'static [u8; SETTINGS_SIZE] {
        &core::hint::black_box(&SETTINGS).texts
    }
}

#[cfg(not(feature = "shared"))]
mod given {
    pub(super) fn texts() -> &'static [u8] {
        &[]
    }
}

fn value<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    text.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
}

impl Environment {
    /// The settings are those that were written into this library.
    pub(crate) fn is_given(&self) -> bool {
        given::texts().first().is_some_and(|first| *first != 0)
    }

    /// The value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<&'static [u8]> {
        if self.is_given() {
            return given::texts().split(|byte| *byte == 0).find_map(|text| value(text, name));
        }
        let mut place = self.variables;
        // SAFETY: the C library hands over an array of strings that ends with null.
        unsafe {
            while !place.is_null() && !(*place).is_null() {
                if let Some(value) = value(text::whole(*place), name) {
                    return Some(value);
                }
                place = place.add(1);
            }
        }
        None
    }

    /// Whether the program has more privileges than the user who started it.
    pub(crate) fn is_secure(&self) -> bool {
        const AT_NULL: u64 = 0;
        const AT_SECURE: u64 = 23;
        /// Limit on removed variables: the C library removes some from such a program's
        /// environment, and each leaves a null after the last variable.
        const REMOVED_MAX: usize = 256;
        if self.variables.is_null() || system::has_other_rights() {
            return true;
        }
        // A program that has changed its environment before it loaded the runtime has it elsewhere.
        if let Some(value) = processes::auxiliary(AT_SECURE) {
            return value != 0;
        }
        // SAFETY: the kernel puts the auxiliary vector after the environment.
        unsafe {
            let mut place = self.variables;
            while !(*place).is_null() {
                place = place.add(1);
            }
            let mut nulls = 0;
            while (*place).is_null() && nulls < REMOVED_MAX {
                place = place.add(1);
                nulls += 1;
            }
            let mut entry = place.cast::<[u64; 2]>();
            while (*entry)[0] != AT_NULL {
                if (*entry)[0] == AT_SECURE {
                    return (*entry)[1] != 0;
                }
                entry = entry.add(1);
            }
        }
        // The auxiliary vector always has this entry, so this isn't the vector: be careful.
        true
    }
}
