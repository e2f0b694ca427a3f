//! Libraries that a process loads later: the loader calls a function that does nothing,
//! `_dl_debug_state`, for debuggers. It leads to the runtime, which asks its recorder for hooks.
//!
//! ```text
//! area     | stub
//! pointers | push its number; jump to runtime
//! ```
//!
//! The function is a `ret`, too small for a plan. What follows it, up to the next function, is
//! padding, which takes the rest of the jump.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use everycall_inject::{Access, InjectError, Mapping, Patch, PatchSet, Process, mappings};

use crate::changes::{Lead, lead};
use crate::modules::{first_page, range_of};
use crate::own::marked;
use crate::recording::Runtime;

/// An area begins with it.
const MARK: [u8; 16] = *b"everycall loads.";
/// The loader's function, and what it tells of.
const FUNCTION: &str = "_dl_debug_state";
const LIST: &str = "_r_debug";
/// As `kit/wrappers/leaving.c` numbers it.
const NUMBER: u8 = 7;
/// Behind mark, runtime and list.
const STUB_AT: usize = 32;
const RUNTIME_AT: usize = 16;
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const RET: u8 = 0xc3;
const JUMP: u8 = 0xe9;
/// Bytes of that jump.
pub(crate) const SIZE: usize = 5;
/// Functions begin at multiples of it.
const ALIGN: u64 = 16;

/// Leads the loader of a process to the runtime, if that isn't done yet. Or says why libraries that
/// are loaded later get no hooks.
///
/// # Errors
///
/// The process can't be read or changed.
pub fn watch_loading(
    process: &mut Process,
    runtime: &Runtime,
    patience: Duration,
) -> Result<Result<(), String>, InjectError> {
    let Some(leaving) = runtime.leaving else { return Ok(Ok(())) };
    let maps = mappings(process.pid())?;
    if !marked(process, &maps, &MARK, MARK.len()).is_empty() {
        return Ok(Ok(()));
    }
    let loader = match Loader::of(process, &maps) {
        Ok(loader) => loader,
        Err(why) => return Ok(Err(why)),
    };
    let mut region = MARK.to_vec();
    region.extend(leaving.to_le_bytes());
    region.extend(loader.list.to_le_bytes());
    // push number; lea area(%rip), %r11; jmp *runtime(%rip)
    let [a, b, c, d] = (-(STUB_AT as i32 + 9)).to_le_bytes();
    let [e, f, g, h] = (RUNTIME_AT as i32 - (STUB_AT as i32 + 15)).to_le_bytes();
    region.extend([0x6a, NUMBER, 0x4c, 0x8d, 0x1d, a, b, c, d, 0xff, 0x25, e, f, g, h]);
    let module = loader.module.clone();
    let region = process.with_thread(patience, |thread| thread.map_near(module, &region, Access::Execute))?;
    let patch = loader.jump_to(region + STUB_AT as u64);
    Ok(if lead_one(process, patch, Lead::ToTrampolines, patience)? {
        Ok(())
    } else {
        Err(format!("{FUNCTION} can't be changed"))
    })
}

/// Changes one place; whether that was possible.
pub(crate) fn lead_one(
    process: &mut Process,
    patch: Patch,
    to: Lead,
    patience: Duration,
) -> Result<bool, InjectError> {
    let set = PatchSet { patches: vec![patch], moves: Vec::new() };
    Ok(lead(process, vec![set], to, patience)? == 1)
}

/// The dynamic loader of a process.
pub(crate) struct Loader {
    /// From its first page to its last one.
    pub(crate) module: Range<u64>,
    /// Its list of what is loaded.
    pub(crate) list: u64,
    /// Where the jump comes.
    at: u64,
    /// The bytes that are there.
    old: Vec<u8>,
}

impl Loader {
    /// Finds it, or says why its function can't lead elsewhere.
    pub(crate) fn of(process: &Process, maps: &[Mapping]) -> Result<Loader, String> {
        let loader = maps.iter().filter(|mapping| mapping.is_executable).find(|mapping| {
            let name = Path::new(&mapping.name).file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("ld-")
        });
        let Some(loader) = loader.map(|mapping| Path::new(&mapping.name)) else {
            return Err("it has no dynamic loader".to_owned());
        };
        let start = first_page(maps, loader).unwrap_or(0);
        let (Some(function), Some(list)) = (process.symbol(start, FUNCTION), process.symbol(start, LIST))
        else {
            return Err(format!("{} has no {FUNCTION}", loader.display()));
        };
        let size = (ALIGN + ALIGN - function % ALIGN) as usize;
        let code = process.read(function, size).map_err(|error| error.to_string())?;
        let Some(offset) = place_of_jump(&code, function) else {
            return Err(format!("{FUNCTION} of {} isn't a plain return", loader.display()));
        };
        let module = range_of(maps, loader).unwrap_or(start..start);
        let old = code.get(offset..offset + SIZE).unwrap_or_default().to_vec();
        Ok(Loader { module, list, at: function + offset as u64, old })
    }

    /// The function, leading to `target`.
    pub(crate) fn jump_to(&self, target: u64) -> Patch {
        jump(self.at, &self.old, target)
    }
}

/// A jump to `target` where the bytes `old` are.
pub(crate) fn jump(at: u64, old: &[u8], target: u64) -> Patch {
    let distance = target.wrapping_sub(at + SIZE as u64) as i32;
    let mut new = vec![JUMP];
    new.extend(distance.to_le_bytes());
    Patch { at, old: old.to_vec(), new }
}

/// Where in the function its `ret` is, if that and padding are all of it, and have room for a jump.
/// `code`: up to where the next function may begin.
fn place_of_jump(code: &[u8], function: u64) -> Option<usize> {
    let offset = if code.starts_with(&ENDBR) { ENDBR.len() } else { 0 };
    let mut rest = code.get(offset..)?.strip_prefix(&[RET])?;
    let behind = function + offset as u64 + 1;
    // Up to the next multiple, where a function may begin, or code that is no padding does.
    rest = rest.get(..(behind.next_multiple_of(ALIGN) - behind) as usize)?;
    let room = rest.len();
    while let Some(size) = padding(rest) {
        rest = rest.get(size..).unwrap_or_default();
    }
    (room - rest.len() >= SIZE - 1).then_some(offset)
}

/// The size of an instruction that assemblers fill gaps with.
fn padding(code: &[u8]) -> Option<usize> {
    let prefixes = code.iter().take_while(|byte| matches!(byte, 0x66 | 0x2e)).count();
    let size = match code.get(prefixes..)? {
        [0x90 | 0xcc, ..] => 1,
        [0x0f, 0x1f, 0x00, ..] => 3,
        [0x0f, 0x1f, 0x40, ..] => 4,
        [0x0f, 0x1f, 0x44, ..] => 5,
        [0x0f, 0x1f, 0x80, ..] => 7,
        [0x0f, 0x1f, 0x84, ..] => 8,
        _ => return None,
    };
    // An instruction may go on behind the gap's end; then the gap isn't one.
    (prefixes + size <= code.len()).then_some(prefixes + size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_return_with_padding_is_replaced() {
        let nop11 = [0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        let debian: Vec<u8> = [&[RET][..], &nop11, &[0x0f, 0x1f, 0x40, 0], &[0x48; 16]].concat();
        assert_eq!(place_of_jump(&debian, 0x2060), Some(0));
        let ibt: Vec<u8> = [&ENDBR[..], &[RET], &nop11, &[0x48; 16]].concat();
        assert_eq!(place_of_jump(&ibt, 0x2060), Some(4));
        // Another function begins at once, or there is no room before it.
        let full: Vec<u8> = [&[RET, 0x90, 0x90, 0x55][..], &[0x48; 28]].concat();
        assert_eq!(place_of_jump(&full, 0x2060), None);
        assert_eq!(place_of_jump(&[&[RET][..], &[0xcc; 31]].concat(), 0x206d), None);
        assert_eq!(place_of_jump(&[0x31, 0xc0, RET, 0x90, 0x90, 0x90, 0x90, 0x90], 0x2060), None);
        assert_eq!(place_of_jump(&[RET], 0x2060), None);
    }
}
