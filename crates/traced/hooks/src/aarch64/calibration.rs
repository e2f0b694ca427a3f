//! Loops of calls with and without hooks, by which the runtime measures what hooks cost.
#![allow(unsafe_code)] // Assembly, and functions that are written in it.

use core::arch::global_asm;

/// Words of the memory that loops write: the state of their random numbers, then what their work
/// counts.
pub const LOOP_WORDS: usize = 1 + COUNTED;
/// Calls in each round of a loop: so many functions, each called once.
pub const LOOP_CALLS: u64 = 8;
const COUNTED: usize = 64;

global_asm!(
    "
    // A function NAME(rounds, words) that calls eight functions in turn. Each has an entry and an
    // exit of this kind, and a body that does nothing or `work`: it takes the next random number,
    // and a branch of it decides what it adds to. Random numbers go on from one loop to the next, so
    // that no branch predictor learns them. Functions with hooks in their bodies save x30.
    .macro everycall_loop name, hooks, body
    .globl  \\name
    .hidden \\name
    .type   \\name, %function
    .p2align 6
\\name:
    .cfi_startproc
        stp     x29, x30, [sp, #-64]!
        .cfi_def_cfa_offset 64
        .cfi_offset x29, -64
        .cfi_offset x30, -56
        stp     x19, x20, [sp, #16]
        .cfi_offset x19, -48
        .cfi_offset x20, -40
        stp     x21, x22, [sp, #32]
        .cfi_offset x21, -32
        .cfi_offset x22, -24
        str     x23, [sp, #48]
        .cfi_offset x23, -16
        mov     x19, x0
        mov     x20, x1
        ldr     x21, [x1]
        movz    x22, #0x7f2d
        movk    x22, #0x4c95, lsl #16
        movk    x22, #0xf42d, lsl #32
        movk    x22, #0x5851, lsl #48
        movz    x23, #0x814f
        movk    x23, #0xf767, lsl #16
        movk    x23, #0x7b7e, lsl #32
        movk    x23, #0x1405, lsl #48
    1:
        .irp number, 0, 1, 2, 3, 4, 5, 6, 7
        bl      .L\\name\\()_\\number
        .endr
        subs    x19, x19, #1
        b.ne    1b
        str     x21, [x20]
        ldr     x23, [sp, #48]
        ldp     x21, x22, [sp, #32]
        ldp     x19, x20, [sp, #16]
        ldp     x29, x30, [sp], #64
        .cfi_def_cfa_offset 0
        ret
    .cfi_endproc
        .irp number, 0, 1, 2, 3, 4, 5, 6, 7
        .p2align 4
    .L\\name\\()_\\number:
    .cfi_startproc
        .ifc \\hooks, none
        mov     x9, x30                             // a site that is off
        nop
        .endif
        .ifc \\hooks, sites
        mov     x9, x30
        bl      everycall_entry
        .endif
        .ifc \\hooks, bodies
        stp     x29, x30, [sp, #-16]!
        .cfi_def_cfa_offset 16
        .cfi_offset x29, -16
        .cfi_offset x30, -8
        adr     x0, .L\\name\\()_\\number
        mov     x1, x30
        bl      __cyg_profile_func_enter
        .endif
        .ifc \\hooks, frames
        stp     x29, x30, [sp, #-16]!
        .cfi_def_cfa_offset 16
        .cfi_offset x29, -16
        .cfi_offset x30, -8
        mov     x0, #\\number
        bl      everycall_frame_enter
        .endif

        .ifc \\body, work
        mul     x21, x21, x22
        adds    x21, x21, x23
        b.pl    2f
        lsr     x0, x21, #57
        sub     x1, x20, #64 * 8 - 8                // the sign is set, so x0 is 64 to 127
        ldr     x2, [x1, x0, lsl #3]
        add     x2, x2, #1
        str     x2, [x1, x0, lsl #3]
        b       3f
    2:  add     x21, x21, #3
    3:
        .endif

        .ifc \\hooks, sites
        mov     x9, x30
        bl      everycall_exit
        .endif
        .ifc \\hooks, bodies
        adr     x0, .L\\name\\()_\\number
        ldr     x1, [sp, #8]
        bl      __cyg_profile_func_exit
        ldp     x29, x30, [sp], #16
        .cfi_def_cfa_offset 0
        .cfi_restore x29
        .cfi_restore x30
        .endif
        .ifc \\hooks, frames
        mov     x0, #\\number
        bl      everycall_frame_leave
        ldp     x29, x30, [sp], #16
        .cfi_def_cfa_offset 0
        .cfi_restore x29
        .cfi_restore x30
        .endif
        ret
    .cfi_endproc
        .endr
    .size   \\name, . - \\name
    .endm

    .text
    .p2align 6
    .globl  everycall_loops
    .hidden everycall_loops
everycall_loops:
    everycall_loop everycall_loop_empty, none, empty
    everycall_loop everycall_loop_work, none, work
    everycall_loop everycall_loop_sites, sites, empty
    everycall_loop everycall_loop_sites_work, sites, work
    everycall_loop everycall_loop_bodies, bodies, empty
    everycall_loop everycall_loop_bodies_work, bodies, work
    everycall_loop everycall_loop_frames, frames, empty
    everycall_loop everycall_loop_frames_work, frames, work
    .globl  everycall_loops_end
    .hidden everycall_loops_end
everycall_loops_end:
    "
);

/// A loop: `(rounds, words)`.
pub type Loop = unsafe extern "C" fn(u64, *mut u64);

unsafe extern "C" {
    fn everycall_loop_empty(rounds: u64, words: *mut u64);
    fn everycall_loop_work(rounds: u64, words: *mut u64);
    fn everycall_loop_sites(rounds: u64, words: *mut u64);
    fn everycall_loop_sites_work(rounds: u64, words: *mut u64);
    fn everycall_loop_bodies(rounds: u64, words: *mut u64);
    fn everycall_loop_bodies_work(rounds: u64, words: *mut u64);
    fn everycall_loop_frames(rounds: u64, words: *mut u64);
    fn everycall_loop_frames_work(rounds: u64, words: *mut u64);
    static everycall_loops: u8;
    static everycall_loops_end: u8;
}

/// Loops without hooks: of calls that do nothing, and of calls that work.
pub const PLAIN_LOOPS: [Loop; 2] = [everycall_loop_empty, everycall_loop_work];
/// Loops with hooks at a function's first instruction and before its return: of calls that do
/// nothing, and of calls that work.
pub const SITE_LOOPS: [Loop; 2] = [everycall_loop_sites, everycall_loop_sites_work];
/// Loops with hooks in the functions' bodies: of calls that do nothing, and of calls that work.
pub const BODY_LOOPS: [Loop; 2] = [everycall_loop_bodies, everycall_loop_bodies_work];
/// Loops with hooks of frames by id: of calls that do nothing, and of calls that work.
pub const FRAME_LOOPS: [Loop; 2] = [everycall_loop_frames, everycall_loop_frames_work];

/// The addresses of the code of all loops, its end excluded.
#[must_use]
pub fn loop_code() -> core::ops::Range<u64> {
    (&raw const everycall_loops) as u64..(&raw const everycall_loops_end) as u64
}
