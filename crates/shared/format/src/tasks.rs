//! Tasks that are named by their code: the program doesn't know what they are called.
//!
//! In place of a task's name, its marks ([`crate::label::TASK_WAKE`], [`crate::label::TASK_BEGIN`])
//! then have [`CODE`] and the address, in the process, of a function whose instance is of the task's
//! type, as hexadecimal digits. The module's file has a section [`SECTION`] with a line for each
//! such function: its linker name, a tab, and what its tasks are called.

/// The first byte of a name that is an address.
pub const CODE: u8 = 1;
/// The section of names.
pub const SECTION: &str = "everycall_tasks";

/// The address in the name of a task; `None` if it is a name.
#[must_use]
pub fn code_in(name: &[u8]) -> Option<u64> {
    let [CODE, digits @ ..] = name else { return None };
    u64::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(code_in(b"\x0155d0c0ffee10"), Some(0x55d0_c0ff_ee10));
        for name in [&b""[..], b"\x01", b"app", b"\x01app", b"\x0111112222333344445", b"55d0"] {
            assert_eq!(code_in(name), None);
        }
    }
}
