//! Core dumps of traced programs: finds everycall's memory in them and writes a trace, like a
//! snapshot at the moment of the crash.
//!
//! ```text
//! core, core.zst, core.lz4 --\                           /-- ArenaImage (everycall-reader) --> Snapshot --> .ect
//! image written in gdb, ------+-- Core: notes, memory --<
//!  crash file
//! ```
//!
//! It needs neither gdb nor debugging information nor the program: the arena describes itself. No
//! number in the input is trusted. Memory that a core omits, because it was never written, reads as
//! zeros.
//!
//! Not here: what records mean, symbols.
//!
//! Checked by: synthetic cores split, cut and damaged; fuzzing; real crashes end to end.

// Messages go through `everycall_io::messages`: these macros panic if the output is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Invalid input leads to an error, never to a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod arena;
mod crash;
mod elf;
mod error;
mod input;
mod memory;
mod snapshot;
mod unpack;

use std::fs::File;

use everycall_reader::{ArenaImage, ReadAt};

pub use crash::CrashFacts;
pub use elf::ProcessFacts;
pub use error::CoreError;
pub use snapshot::{Reached, Snapshot};
pub use unpack::unpack;

use crate::input::Input;
use crate::memory::Window;

/// A file with everycall's memory in it.
pub struct Core<'a> {
    bytes: Box<dyn ReadAt + 'a>,
    /// `None` for an arena alone.
    found: Option<(elf::Elf, arena::Place)>,
}

impl<'a> Core<'a> {
    /// Opens a core, packed or not, or an arena, and finds the memory of the core's process, or of
    /// process `pid`.
    ///
    /// # Errors
    ///
    /// It is another kind of file, can't be read, or doesn't contain the arena.
    pub fn open(file: File, pid: Option<u32>) -> Result<Core<'a>, CoreError> {
        match Input::open(file)? {
            Input::Core(file) => Core::of_elf(file, pid),
            Input::Arena(file) => Core::of_arena(file, pid),
        }
    }

    /// Opens an ELF core that isn't packed.
    ///
    /// # Errors
    ///
    /// As [`Core::open`].
    pub fn of_elf(bytes: impl ReadAt + 'a, pid: Option<u32>) -> Result<Core<'a>, CoreError> {
        let bytes: Box<dyn ReadAt + 'a> = Box::new(bytes);
        let elf = elf::Elf::read(bytes.as_ref())?;
        let place = arena::find(bytes.as_ref(), &elf, pid)?;
        Ok(Core { bytes, found: Some((elf, place)) })
    }

    /// Opens an arena alone.
    ///
    /// # Errors
    ///
    /// As [`Core::open`].
    pub fn of_arena(bytes: impl ReadAt + 'a, pid: Option<u32>) -> Result<Core<'a>, CoreError> {
        let mut head = [0; 4096];
        let count = bytes.read_full_at(0, &mut head)?;
        let Some(header) = arena::header(&head[..count]).map_err(CoreError::Arena)? else {
            return Err(CoreError::NotACore("something else than an arena"));
        };
        if let Some(pid) = pid.filter(|pid| *pid != header.target_pid) {
            let process = format!("process {pid}");
            return Err(CoreError::OtherProcess { process, found: vec![header.target_pid] });
        }
        Ok(Core { bytes: Box::new(bytes), found: None })
    }

    /// Facts about the process, from the core; `None` for an arena alone.
    #[must_use]
    pub fn process(&self) -> Option<&ProcessFacts> {
        self.found.as_ref().map(|(elf, _)| &elf.process)
    }

    /// Facts about the process, from a crash file; `None` if this is none.
    #[must_use]
    pub fn crash(&self) -> Option<CrashFacts> {
        if self.found.is_some() { None } else { crash::read(self.bytes.as_ref()) }
    }

    /// The arena in it.
    ///
    /// # Errors
    ///
    /// It can't be read.
    pub fn arena(&self) -> Result<ArenaImage<'_>, CoreError> {
        match &self.found {
            Some((elf, place)) => ArenaImage::open(self.window(elf, place)),
            None => ArenaImage::open(self.bytes.as_ref()),
        }
        .map_err(CoreError::Arena)
    }

    /// Bytes of the arena that are missing because the core's file is truncated.
    ///
    /// # Errors
    ///
    /// The device's.
    pub fn cut(&self) -> Result<u64, CoreError> {
        match &self.found {
            Some((elf, place)) => Ok(self.window(elf, place).cut()?),
            None => Ok(0),
        }
    }

    fn window<'c>(&'c self, elf: &'c elf::Elf, place: &arena::Place) -> Window<'c> {
        Window::new(self.bytes.as_ref(), &elf.loads, place.base, place.size)
    }
}

impl std::fmt::Debug for Core<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Core").field("found", &self.found).finish_non_exhaustive()
    }
}
