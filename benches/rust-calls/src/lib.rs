//! As calls.c: an empty function that is called in a loop.
#![no_std]

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[inline(never)]
fn empty() {
    // Else calls of it have no effect.
    unsafe { core::arch::asm!("", options(nomem, nostack, preserves_flags)) }
}

#[cfg_attr(feature = "plain", export_name = "plain_loop")]
#[cfg_attr(not(feature = "plain"), export_name = "traced_loop")]
pub extern "C" fn calls(n: isize) {
    for _ in 0..n {
        empty();
    }
}
