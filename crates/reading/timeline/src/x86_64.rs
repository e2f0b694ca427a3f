//! Names of system calls.

use syscalls::x86_64::Sysno;

/// The kernel's name of the x86-64 system call with this number, such as `futex`; `None` if none is
/// known.
#[must_use]
pub fn system_call_name(number: u32) -> Option<&'static str> {
    Some(Sysno::new(usize::try_from(number).ok()?)?.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_kernels() {
        let all = [0, 202, 230, 400, 451, 9999, u32::MAX].map(system_call_name);
        let expected =
            [Some("read"), Some("futex"), Some("clock_nanosleep"), None, Some("cachestat"), None, None];
        assert_eq!(all, expected);
    }
}
