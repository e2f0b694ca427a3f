//! The registers of the floating-point unit, which are read and never changed.
#![allow(unsafe_code)] // Assembly.

use core::arch::asm;

/// The memory that `fxsave` writes.
#[repr(C, align(16))]
struct Area([u64; 64]);

/// Where it has st0, and the words from one register to the next.
const FIRST: usize = 4;
const STEP: usize = 2;

/// st0 and st1: for each the low eight bytes, then the upper two.
#[must_use]
pub fn top_two() -> [u64; 4] {
    let mut area = Area([0; 64]);
    // SAFETY: writes 512 bytes there, and changes nothing else.
    unsafe {
        asm!("fxsave64 [{}]", in(reg) &raw mut area, options(nostack, preserves_flags));
    }
    let at = |index: usize| area.0.get(index).copied().unwrap_or(0);
    [at(FIRST), at(FIRST + 1) & 0xffff, at(FIRST + STEP), at(FIRST + STEP + 1) & 0xffff]
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_top_is_read_and_left_there() {
        let mut low = 0.0_f64;
        let read;
        // SAFETY: pushes two numbers and pops them again.
        unsafe {
            core::arch::asm!("fld1", "fldpi", options(nostack));
            read = super::top_two();
            core::arch::asm!("fstp qword ptr [{}]", "fstp st(0)", in(reg) &raw mut low, options(nostack));
        }
        assert_eq!(low, core::f64::consts::PI);
        assert_eq!(read, [0xc90f_daa2_2168_c235, 0x4000, 1 << 63, 0x3fff]);
    }
}
