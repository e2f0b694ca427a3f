//! Traced objects come and go.

use crate::arena::Arena;
use crate::lock::Lock;
use crate::process::{Process, state as process_state};
use crate::sites::Text;
use crate::slow::{Place, slow_path};
use crate::system::File;
use crate::{fork, hub, process, sites};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::arena::{MODULE_CAPACITY, ModuleEntry, PAGE, counter, module_flags, module_state};
use everycall_format::event::{ESCAPE_FIRST, EXIT, OFFSET_FIRST};
use everycall_format::site::RUNTIME_ABI;
use everycall_hooks::ModuleDescriptor;
use everycall_patch::Switch;

/// Descriptor index of a module that isn't in the table.
const NOT_REGISTERED: u32 = u32::MAX;

/// What a forked child has to know of its parent's modules: the parent goes on changing its table.
static KNOWN: AtomicU32 = AtomicU32::new(0);
static NEXT_CODE: AtomicU32 = AtomicU32::new(OFFSET_FIRST);
/// A bit for each module that was unloaded.
static UNLOADED: [AtomicU64; UNLOADED_WORDS] = [const { AtomicU64::new(0) }; UNLOADED_WORDS];
const UNLOADED_WORDS: usize = MODULE_CAPACITY as usize / 64;

/// Modules that were registered before this process was forked, or by itself.
pub(crate) fn known() -> u32 {
    KNOWN.load(Relaxed)
}

/// First code offset that none of them has.
pub(crate) fn next_code() -> u32 {
    NEXT_CODE.load(Relaxed)
}

fn unloaded(index: u32) -> Option<(&'static AtomicU64, u64)> {
    Some((UNLOADED.get(index as usize / 64)?, 1 << (index % 64)))
}

/// The first `count` modules in `arena` are those of the parent, and now a forked child's. What the parent unloaded after the
/// fork is still loaded in the child.
pub(crate) fn take_over(arena: &Arena, count: u32) {
    for index in 0..count {
        if let Some(entry) = arena.module(index) {
            arena.add_module_to_dumps(index, &entry);
        }
        if let (Some(ticks), Some((word, bit))) = (arena.module_unloaded(index), unloaded(index))
            && word.load(Relaxed) & bit == 0
        {
            ticks.store(0, Relaxed);
        }
    }
}

/// The process where it is traced, also a forked child's from now on.
fn traced() -> Option<&'static Process> {
    let process = process::process()?;
    let on = match process.state.load(Acquire) {
        process_state::ON => true,
        process_state::BLANK => fork::begin(process),
        _ => false,
    };
    on.then_some(process)
}

/// Takes a module in. See [`everycall_hooks::RuntimeTable::register`].
///
/// # Safety
/// `module` is the descriptor of a loaded object, filled in by its initialiser.
pub(crate) unsafe extern "C" fn register(module: *const ModuleDescriptor) {
    // SAFETY: by contract.
    let module = unsafe { &*module };
    module.index.store(NOT_REGISTERED, Relaxed);
    let Some(process) = traced() else { return };
    let arena = process.arena();
    if module.abi.load(Relaxed) != RUNTIME_ABI {
        arena.count(counter::MODULES_OF_OTHER_VERSION, 1);
        return;
    }
    let _lock = Lock::take(&process.module_lock);
    let Some(image) = Image::of(module.elf_header.load(Relaxed)) else {
        arena.count(counter::MODULES_UNTRACED, 1);
        return;
    };
    let index = arena.module_count().load(Relaxed);
    let code_start = process.next_code.load(Relaxed);
    let size = image.end - image.start;
    let fits = size < u64::from(ESCAPE_FIRST - code_start) && index < arena.layout().module_capacity;
    if !fits {
        arena.count(counter::MODULES_UNTRACED, 1);
        return;
    }
    process.next_code.store(code_start + size as u32, Relaxed);
    NEXT_CODE.store(code_start + size as u32, Relaxed);

    let bias = (image.start as u32).wrapping_sub(code_start);
    module.thread_slot.store(process::thread_slot_offset(), Relaxed);
    module.bias_entry.store(bias, Relaxed);
    module.bias_exit.store(bias.wrapping_sub(EXIT), Relaxed);
    module.start.store(image.start, Relaxed);
    module.size.store(size, Relaxed);
    module.slow_stacks.store(process::slow_stacks(), Relaxed);
    module.slow.store(slow_path as *const () as u64, Relaxed);
    module.index.store(index, Relaxed);

    let file = MappedFile::at(image.start, process);
    let path = file.path_length.filter(|length| *length > 0).and_then(|length| {
        // SAFETY: the scratch buffer is ours while we hold the lock.
        let scratch = unsafe { &*process.scratch() };
        arena.put_path(scratch.get(file.path_begin..file.path_begin + length)?)
    });
    if path.is_none() {
        arena.count(counter::PATHS_MISSING, 1);
    }
    let on = process.sites_on.load(Relaxed) != 0;
    let to = if on { Switch::On } else { Switch::Off };
    // The table first: its entry is there before the first event of the module.
    let mut entry = ModuleEntry {
        state: module_state::EMPTY,
        flags: flags(module, &image),
        path_offset: path.map_or(0, |path| path.0),
        path_length: path.map_or(0, |path| path.1),
        base: image.base,
        start: image.start,
        end: image.end,
        code_start,
        build_id_length: image.build_id_length,
        build_id: image.build_id,
        loaded_ticks: everycall_hooks::ticks(),
        device: file.device,
        inode: file.inode,
        ..ModuleEntry::default()
    };
    let outcome = sites::switch(module, &image.text, to);
    (entry.sites, entry.sites_unpatched) = (outcome.sites, outcome.unpatched);
    arena.count(counter::SITES_UNPATCHED, outcome.unpatched.into());
    arena.put_module(index, &entry);
    arena.add_module_to_dumps(index, &entry);
    if let Some(state) = arena.module_state(index) {
        state.store(module_state::COMPLETE, Release);
    }
    arena.module_count().store(index + 1, Release);
    KNOWN.store(index + 1, Relaxed);
    tell_recorder(&arena);
    module.on.store(on.into(), Release);
}

/// The module is about to be unloaded. See [`everycall_hooks::RuntimeTable::unregister`].
///
/// # Safety
/// As [`register`].
pub(crate) unsafe extern "C" fn unregister(module: *const ModuleDescriptor) {
    // SAFETY: by contract.
    let module = unsafe { &*module };
    let index = module.index.load(Relaxed);
    let Some(process) = traced() else { return };
    if index != NOT_REGISTERED
        && let Some(unloaded_ticks) = process.arena().module_unloaded(index)
    {
        unloaded_ticks.store(everycall_hooks::ticks(), Relaxed);
        if let Some((word, bit)) = unloaded(index) {
            word.fetch_or(bit, Relaxed);
        }
    }
}

/// Where an address that a hook of `module` reports lies. `anywhere`: it may lie in another module.
pub(crate) fn place(process: &Process, module: &ModuleDescriptor, address: u64, anywhere: bool) -> Place {
    let within = |start: u64, size: u64| address.wrapping_sub(start) < size;
    if !anywhere || within(module.start.load(Relaxed), module.size.load(Relaxed)) {
        return Place::Offset((address as u32).wrapping_sub(module.bias_entry.load(Relaxed)));
    }
    let arena = process.arena();
    let count = arena.module_count().load(Acquire);
    let found = (0..count)
        .rev()
        .filter_map(|index| arena.module(index))
        .find(|entry| entry.unloaded_ticks == 0 && within(entry.start, entry.end.wrapping_sub(entry.start)));
    found.map_or(Place::Unknown(address), |entry| {
        Place::Offset((address - entry.start) as u32 + entry.code_start)
    })
}

fn flags(module: &ModuleDescriptor, image: &Image) -> u32 {
    let present = |list: &[core::sync::atomic::AtomicU64; 2]| list[0].load(Relaxed) != list[1].load(Relaxed);
    let mut flags = 0;
    if image.executable {
        flags |= module_flags::EXECUTABLE;
    }
    if present(&module.sites) {
        flags |= module_flags::NOPS;
    }
    if present(&module.sleds) {
        flags |= module_flags::XRAY;
    }
    flags
}

/// Rings for the recorder and gives it a moment to take hold of the module's file.
fn tell_recorder(arena: &Arena) {
    if let Some(hub) = hub::hub()
        && !hub.wait_for(hub.ring(), hub::FILE_WAIT_NS)
    {
        arena.count(counter::RECORDER_LATE, 1);
    }
}

/// What an object's program headers in memory say.
struct Image {
    base: u64,
    start: u64,
    end: u64,
    executable: bool,
    build_id: [u8; 32],
    build_id_length: u32,
    text: [Text; TEXT_SEGMENTS],
}

/// Executable segments that are looked at; objects have one.
const TEXT_SEGMENTS: usize = 4;

impl Image {
    fn of(elf_header: u64) -> Option<Image> {
        const PT_LOAD: u32 = 1;
        const PT_DYNAMIC: u32 = 2;
        const PT_INTERP: u32 = 3;
        const PT_NOTE: u32 = 4;
        const ET_EXEC: u16 = 2;
        const DT_FLAGS_1: u64 = 0x6fff_fffb;
        const DF_1_PIE: u64 = 0x0800_0000;
        if elf_header == 0 {
            return None;
        }
        let at = |offset: u64| elf_header.wrapping_add(offset);
        // SAFETY: the linker's address of the ELF header, which is loaded; so are the program headers
        // that it points to (they lie in the same page or segment), and the notes and the dynamic section that
        // those point to.
        unsafe {
            if *(elf_header as *const [u8; 4]) != *b"\x7fELF" {
                return None;
            }
            let kind = *(at(16) as *const u16);
            let headers = at(*(at(32) as *const u64));
            let size = u64::from(*(at(54) as *const u16));
            let count = u64::from(*(at(56) as *const u16));
            let header = |index: u64| {
                let address = headers + index * size;
                let word = |offset: u64| *((address + offset) as *const u64);
                // kind, offset, address, file size, size in memory
                (*(address as *const u32), word(8), word(16), word(32), word(40))
            };
            let protection = |index: u64| *((headers + index * size + 4) as *const u32);
            let loads = || (0..count).map(header).filter(|(kind, ..)| *kind == PT_LOAD);
            let first = loads().map(|(_, _, address, ..)| address).min()?;
            let last = loads().map(|(_, _, address, _, size)| address + size).max()?;
            let base = elf_header.wrapping_sub(loads().find(|(_, offset, ..)| *offset == 0)?.2);
            let start = base.wrapping_add(first) & !(PAGE - 1);
            let end = base.wrapping_add(last).next_multiple_of(PAGE);

            let mut image = Image {
                base,
                start,
                end,
                executable: kind == ET_EXEC,
                build_id: [0; 32],
                build_id_length: 0,
                text: [Text::default(); TEXT_SEGMENTS],
            };
            let segments = (0..count).map(|index| (header(index), protection(index)));
            let executable =
                segments.filter(|((kind, ..), flags)| *kind == PT_LOAD && flags & Text::EXECUTABLE != 0);
            for (place, ((_, _, address, _, size), flags)) in image.text.iter_mut().zip(executable) {
                let start = base.wrapping_add(address);
                *place = Text { start, end: start.wrapping_add(size), flags };
            }
            for (kind, _, address, size, _) in (0..count).map(header) {
                match kind {
                    PT_INTERP => image.executable = true,
                    PT_NOTE => image.find_build_id(base.wrapping_add(address), size),
                    PT_DYNAMIC => {
                        let mut entry = base.wrapping_add(address) as *const [u64; 2];
                        while (*entry)[0] != 0 {
                            if (*entry)[0] == DT_FLAGS_1 && (*entry)[1] & DF_1_PIE != 0 {
                                image.executable = true;
                            }
                            entry = entry.add(1);
                        }
                    }
                    _ => {}
                }
            }
            Some(image)
        }
    }

    /// # Safety
    /// `size` bytes of notes are loaded at `notes`.
    unsafe fn find_build_id(&mut self, notes: u64, size: u64) {
        const NT_GNU_BUILD_ID: u32 = 3;
        let mut position = 0;
        while position + 12 <= size {
            let address = notes + position;
            // SAFETY: within the notes, which are aligned to 4.
            let [name_size, length, kind] = unsafe { *(address as *const [u32; 3]) };
            let description = address + 12 + u64::from(name_size).next_multiple_of(4);
            let end = position
                + 12
                + u64::from(name_size).next_multiple_of(4)
                + u64::from(length).next_multiple_of(4);
            if end > size {
                return;
            }
            // SAFETY: as above.
            let is_gnu = name_size == 4 && unsafe { *((address + 12) as *const [u8; 4]) } == *b"GNU\0";
            if is_gnu && kind == NT_GNU_BUILD_ID && length as usize <= self.build_id.len() {
                // SAFETY: as above.
                let bytes = unsafe { core::slice::from_raw_parts(description as *const u8, length as usize) };
                for (place, byte) in self.build_id.iter_mut().zip(bytes) {
                    *place = *byte;
                }
                self.build_id_length = length;
                return;
            }
            position = end;
        }
    }
}

/// The file that is mapped somewhere, by `/proc/self/maps`.
#[derive(Default)]
struct MappedFile {
    device: u64,
    inode: u64,
    /// Where the path begins in the scratch buffer.
    path_begin: usize,
    path_length: Option<usize>,
}

impl MappedFile {
    /// The file mapped at `address`. Its path is left in the process's scratch buffer.
    fn at(address: u64, process: &Process) -> MappedFile {
        // SAFETY: the scratch buffer is ours while we hold the lock.
        let buffer = unsafe { &mut *process.scratch() };
        let Some(maps) = File::open(b"/proc/self/maps\0", false) else { return MappedFile::default() };
        let mut filled = 0;
        loop {
            let free = buffer.get_mut(filled..).unwrap_or(&mut []);
            let count = maps.read(free);
            filled += count;
            let mut begin = 0;
            while let Some(length) =
                buffer.get(begin..filled).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
            {
                let line = buffer.get(begin..begin + length).unwrap_or(&[]);
                if let Some(mut file) = Self::of_line(line, address) {
                    file.path_begin += begin;
                    return file;
                }
                begin += length + 1;
            }
            if count == 0 || begin == 0 && filled == buffer.len() {
                return MappedFile::default();
            }
            // The rest of a line goes to the front.
            for place in begin..filled {
                if let Some(byte) = buffer.get(place).copied()
                    && let Some(front) = buffer.get_mut(place - begin)
                {
                    *front = byte;
                }
            }
            filled -= begin;
        }
    }

    /// `start-end perms offset major:minor inode   path`, where it covers the address.
    fn of_line(line: &[u8], address: u64) -> Option<MappedFile> {
        let (start, rest) = number(line, 16)?;
        let (end, mut rest) = number(rest.strip_prefix(b"-")?, 16)?;
        if !(start..end).contains(&address) {
            return None;
        }
        for _ in 0..2 {
            rest = skip_field(rest)?;
        }
        let (major, rest) = number(rest.strip_prefix(b" ")?, 16)?;
        let (minor, rest) = number(rest.strip_prefix(b":")?, 16)?;
        let (inode, rest) = number(rest.strip_prefix(b" ")?, 10)?;
        let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
        // As makedev(3) puts the two numbers together.
        let device = (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32;
        let path_length = rest.len() - blanks;
        Some(MappedFile {
            device,
            inode,
            path_begin: line.len() - path_length,
            path_length: Some(path_length),
        })
    }
}

/// Skips a blank and the field behind it.
fn skip_field(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b" ")?;
    text.get(text.iter().position(|byte| *byte == b' ')?..)
}

/// A number at the front of a text, and what follows it.
fn number(text: &[u8], radix: u32) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut count = 0;
    for byte in text {
        let Some(digit) = (*byte as char).to_digit(radix) else { break };
        value = value.wrapping_mul(radix.into()).wrapping_add(digit.into());
        count += 1;
    }
    (count > 0).then(|| (value, text.get(count..).unwrap_or(&[])))
}
