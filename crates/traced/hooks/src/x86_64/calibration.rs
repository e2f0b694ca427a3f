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
    # A function NAME(rounds, words) that calls eight functions in turn. Each has an entry and an
    # exit of this kind, and a body that does nothing or `work`: it takes the next random number,
    # and a branch of it decides what it adds to. Random numbers go on from one loop to the next, so
    # that no branch predictor learns them.
    .macro everycall_loop name, hooks, body
    .globl  \\name
    .hidden \\name
    .type   \\name, @function
    .p2align 6
\\name:
    .cfi_startproc
        pushq   %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbx, 0
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
        pushq   %r12
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r12, 0
        pushq   %r13
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r13, 0
        pushq   %r14
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r14, 0
        movq    %rdi, %rbx
        movq    %rsi, %r13
        movq    (%rsi), %r12
        movabsq $6364136223846793005, %r14
        movabsq $1442695040888963407, %rbp
    1:
        .irp number, 0, 1, 2, 3, 4, 5, 6, 7
        call    .L\\name\\()_\\number
        .endr
        decq    %rbx
        jnz     1b
        movq    %r12, (%r13)
        popq    %r14
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r14
        popq    %r13
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r13
        popq    %r12
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r12
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
        popq    %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret
        .irp number, 0, 1, 2, 3, 4, 5, 6, 7
        .p2align 4
    .L\\name\\()_\\number:
        .cfi_def_cfa_offset 8
        .ifc \\hooks, none
        .byte   0x0f, 0x1f, 0x44, 0, 0              # a site that is off
        .endif
        .ifc \\hooks, sites
        call    everycall_entry
        .endif
        .ifc \\hooks, bodies
        leaq    .L\\name\\()_\\number(%rip), %rdi
        movq    (%rsp), %rsi
        leaq    __cyg_profile_func_enter(%rip), %rax    # tools find functions by direct calls
        call    *%rax
        .endif
        .ifc \\hooks, frames
        movl    $\\number, %edi
        call    everycall_frame_enter
        .endif

        .ifc \\body, work
        imulq   %r14, %r12
        addq    %rbp, %r12
        jns     2f
        movq    %r12, %rax
        shrq    $57, %rax
        addq    $1, 8 - 64 * 8(%r13, %rax, 8)     # the sign is set, so rax is 64 to 127
        jmp     3f
    2:  addq    $3, %r12
    3:
        .endif

        .ifc \\hooks, sites
        call    everycall_exit
        .endif
        .ifc \\hooks, bodies
        leaq    .L\\name\\()_\\number(%rip), %rdi
        movq    (%rsp), %rsi
        leaq    __cyg_profile_func_exit(%rip), %rax    # tools find functions by direct calls
        call    *%rax
        .endif
        .ifc \\hooks, frames
        movl    $\\number, %edi
        call    everycall_frame_leave
        .endif
        ret
        .endr
    .cfi_endproc
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
    ",
    options(att_syntax)
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
