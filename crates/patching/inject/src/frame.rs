//! A signal frame by which a thread gets back to what it did, by itself.
//!
//! A thread that makes system calls for us has other registers than its own. If the tracer were
//! killed then, the thread would go on with them. So it executes `syscall; ret` in the process's
//! own code, with a stack on which `ret` finds the address of the C library's `__restore_rt`, and
//! behind it a frame as the kernel makes it for a signal handler: its own registers, vector
//! registers and signal mask.
//!
//! ```text
//! own rsp ------>
//!                 red zone
//!                 vector registers (xsave), 64-byte aligned
//!                 ucontext: registers, signal mask
//! rsp meanwhile-> address of __restore_rt
//! ```

use std::ops::Range;

use crate::sys::Registers;
use crate::thread::{SYSCALL_SIZE, is_restarted};

/// Of the System V ABI: below the stack pointer, and in use.
const RED_ZONE: u64 = 128;
/// From the frame's start to the vector registers.
const VECTORS: u64 = 504;

// Offsets in the frame; `struct rt_sigframe` of arch/x86/include/asm/sigframe.h.
const FLAGS: usize = 8;
const ALTSTACK_FLAGS: usize = 32;
const GENERAL: usize = 48;
const SELECTORS: usize = 192;
const FPSTATE: usize = 232;
const MASK: usize = 304;

/// A frame as the kernel makes it, found on a stack.
pub(crate) const RIP: usize = GENERAL + 16 * 8;
pub(crate) const RSP: usize = GENERAL + 15 * 8;
/// How much of a frame has to be looked at.
pub(crate) const SEEN: usize = SELECTORS + 8;

/// `UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`.
const UC_FLAGS: u64 = 7;
/// No mode of `sigaltstack`: the kernel then leaves the alternate stack as it is.
const NO_ALTSTACK_CHANGE: u32 = 4;

pub(crate) struct Frame {
    /// Where it has to be written, and the stack pointer meanwhile.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Frame {
    /// For a thread with these registers; `None` if they make no sense.
    pub(crate) fn new(own: &Registers, vectors: &[u8], mask: u64, restorer: u64) -> Option<Self> {
        let size = u64::try_from(vectors.len()).ok()?;
        let end = own.rsp.checked_sub(RED_ZONE + size + 64)? & !63;
        let at = end.checked_sub(VECTORS)?;
        let mut bytes = vec![0u8; VECTORS as usize];
        let mut put = |offset: usize, value: &[u8]| {
            bytes.get_mut(offset..offset + value.len()).map(|place| place.copy_from_slice(value))
        };
        put(0, &restorer.to_le_bytes())?;
        put(FLAGS, &UC_FLAGS.to_le_bytes())?;
        put(ALTSTACK_FLAGS, &NO_ALTSTACK_CHANGE.to_le_bytes())?;
        let (mut rax, mut rip) = (own.rax, own.rip);
        if is_restarted(own) {
            // As the kernel would do. `restart_syscall` isn't possible behind a signal frame, so
            // a timeout begins anew.
            (rax, rip) = (own.orig_rax, own.rip.wrapping_sub(SYSCALL_SIZE));
        }
        let general = [
            own.r8, own.r9, own.r10, own.r11, own.r12, own.r13, own.r14, own.r15, own.rdi, own.rsi, own.rbp,
            own.rbx, own.rdx, rax, own.rcx, own.rsp, rip, own.eflags,
        ];
        for (index, value) in general.iter().enumerate() {
            put(GENERAL + 8 * index, &value.to_le_bytes())?;
        }
        // cs, gs, fs, ss.
        let selectors = own.cs & 0xffff | (own.ss & 0xffff) << 48;
        put(SELECTORS, &selectors.to_le_bytes())?;
        put(FPSTATE, &end.to_le_bytes())?;
        put(MASK, &mask.to_le_bytes())?;
        bytes.extend(signal_vectors(vectors)?);
        Some(Self { at, bytes })
    }
}

/// Vector registers as `ptrace` gives them, marked as in a signal frame: `struct _fpx_sw_bytes`.
fn signal_vectors(vectors: &[u8]) -> Option<Vec<u8>> {
    const SOFTWARE: usize = 464;
    const MAGIC: [u32; 2] = [0x4650_5853, 0x4650_5845];
    let size = u32::try_from(vectors.len()).ok()?;
    let mut bytes = vectors.to_vec();
    // `ptrace` has the features that the process may use where the mark goes.
    let features: [u8; 8] = vectors.get(SOFTWARE..SOFTWARE + 8)?.try_into().ok()?;
    let mark = bytes.get_mut(SOFTWARE..SOFTWARE + 20)?;
    mark[..4].copy_from_slice(&MAGIC[0].to_le_bytes());
    mark[4..8].copy_from_slice(&size.checked_add(4)?.to_le_bytes());
    mark[8..16].copy_from_slice(&features);
    mark[16..20].copy_from_slice(&size.to_le_bytes());
    bytes.extend(MAGIC[1].to_le_bytes());
    Some(bytes)
}

/// Vector registers as a function expects them: x87 empty, rounding and exceptions by default. The
/// layout is that of `vectors`, as `ptrace` gives it.
pub(crate) fn clean_vectors(vectors: &[u8]) -> Option<Vec<u8>> {
    const X87_CONTROL: [u8; 2] = 0x37f_u16.to_le_bytes();
    const SSE_CONTROL: [u8; 4] = 0x1f80_u32.to_le_bytes();
    /// Of the legacy area: the mask of `SSE_CONTROL`; what `ptrace` puts behind the registers.
    const KEPT: [Range<usize>; 2] = [28..32, 464..512];
    /// The header: the features in use, here x87 and SSE. All others are in their initial state.
    const HEADER: Range<usize> = 512..520;
    let mut clean = vectors.to_vec();
    clean.get_mut(..HEADER.end)?.fill(0);
    for range in KEPT {
        clean.get_mut(range.clone())?.copy_from_slice(vectors.get(range)?);
    }
    clean.get_mut(..2)?.copy_from_slice(&X87_CONTROL);
    clean.get_mut(24..28)?.copy_from_slice(&SSE_CONTROL);
    clean.get_mut(HEADER)?.copy_from_slice(&3_u64.to_le_bytes());
    Some(clean)
}

/// The interrupted rip and rsp, if this may be the start of a frame that a signal left.
pub(crate) fn interrupted(bytes: &[u8]) -> Option<(u64, u64)> {
    let number = |offset: usize| {
        bytes.get(offset..offset + 8).and_then(|part| part.try_into().ok()).map(u64::from_le_bytes)
    };
    let is_frame = matches!(number(FLAGS)?, 6 | 7) && number(SELECTORS)? & 0xffff == USER_CODE;
    is_frame.then_some((number(RIP)?, number(RSP)?))
}

/// The code segment of 64-bit programs.
const USER_CODE: u64 = 0x33;
