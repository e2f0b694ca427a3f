//! Switches sites while all threads run: nobody stops, nobody takes a lock but who switches.
//!
//! [`everycall_patch`] says what to write next at a site, given what is there. Here is where that
//! is written, and when others see it. All sites of a set take one step; then, where the
//! processor's maker promises no more, a barrier in all threads; then the next step. A last look
//! finds every site in the form that it was to have, or counts it.
//!
//! Each store expects the bytes that were read: what somebody else put there, such as a debugger's
//! breakpoint, stays. Text is writable, a run of pages at a time, for as long as that takes. A
//! process that doesn't allow this (`PR_SET_MDWE`, a filter of system calls, SELinux) is left
//! alone. `docs/design/switching.md` has the reasons.
//!
//! For one caller at a time, whose signals are blocked. Nothing here allocates, waits or runs
//! hooks.

#![allow(unsafe_code)] // Bytes of code, by their addresses.

use crate::features::sites::Sites;
use crate::sys::errors::errno;
use crate::sys::file::File;
use crate::sys::image::Text;
use crate::sys::system::{self, MAP_ANONYMOUS, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE, membarrier};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use everycall_format::arena::PAGE;
use everycall_hooks::arch::code;
use everycall_patch::{SLED_SIZE, STEPS_MAX, Site, Step, Stores, Switch};

/// What became of a set of sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Switched.
    pub(crate) switched: u32,
    /// In the right form before.
    pub(crate) already: u32,
    /// Left as they were, as they hold bytes that nobody of us has put there.
    pub(crate) foreign: u32,
    /// Left as they were, off or on, as they can't be written.
    pub(crate) failed: u32,
}

impl Counts {
    /// All of them.
    pub(crate) fn all(self) -> u32 {
        self.switched + self.already + self.foreign + self.failed
    }

    fn add(&mut self, more: Counts) {
        self.switched += more.switched;
        self.already += more.already;
        self.foreign += more.foreign;
        self.failed += more.failed;
    }

    /// Those that aren't as they were to be.
    pub(crate) fn wrong(self) -> u32 {
        self.foreign + self.failed
    }
}

/// How text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// It is made writable, and stays executable, for a moment.
    Protection,
    /// Through the kernel, which promises no more than that single bytes are whole.
    Kernel,
    /// Not at all.
    Never,
}

/// Who may run the sites meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// Nobody: the module has just been loaded.
    Nobody,
    /// Any thread.
    Run,
}

/// The means to switch sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Means {
    pub(crate) stores: Stores,
    pub(crate) pages: Pages,
    pub(crate) others: Others,
}

impl Means {
    /// For a module that nobody runs yet.
    pub(crate) const BEFORE_ANYBODY: Means =
        Means { stores: Stores::Words, pages: Pages::Protection, others: Others::Nobody };

    /// For this process on this processor.
    pub(crate) fn live() -> Means {
        // A program that has put itself under a filter since: nobody knows whether that answers or
        // kills.
        let is_filtered = FILTERED_AT_START.load(Relaxed) == 0 && system::is_filtered();
        let pages = if is_filtered { Pages::Never } else { Pages::Protection };
        Means { stores: stores(), pages, others: Others::Run }
    }
}

/// Whether the process was under a filter of system calls when it began; it has been lived with
/// since.
static FILTERED_AT_START: AtomicU32 = AtomicU32::new(0);

/// At the process's start.
pub(crate) fn begin() {
    FILTERED_AT_START.store(system::is_filtered().into(), Relaxed);
}

/// What this processor's maker promises of stores to code that others run.
fn stores() -> Stores {
    /// 0 not looked yet, 1 bytes, 2 words.
    static KNOWN: AtomicU32 = AtomicU32::new(0);
    match KNOWN.load(Relaxed) {
        1 => Stores::Bytes,
        2 => Stores::Words,
        _ => {
            let (number, stores) =
                if code::are_stored_words_whole() { (2, Stores::Words) } else { (1, Stores::Bytes) };
            KNOWN.store(number, Relaxed);
            stores
        }
    }
}

/// Switches those of a module's sites whose numbers `which` gives: the fastest in the order of
/// their addresses, which is that of their numbers.
pub(crate) fn switch(
    sites: &Sites<'_>,
    which: impl Iterator<Item = u32> + Clone,
    to: Switch,
    mut means: Means,
) -> Counts {
    let mut counts = Counts::default();
    let mut rest = which;
    loop {
        let run = Run::of(sites, rest.clone());
        if run.count == 0 {
            return counts;
        }
        let mut window = Window::new(means, &run);
        counts.add(switch_run(sites, rest.clone().take(run.count), to, &mut window));
        window.close();
        // What a run has shown not to be possible, the next one doesn't try.
        means = window.means;
        rest.nth(run.count - 1);
    }
}

/// Sites that lie close enough together to be written while the same pages are writable.
struct Run {
    /// How many numbers.
    count: usize,
    /// The first page, and where the last one ends.
    first: u64,
    end: u64,
    text: Text,
}

/// Bytes of text that are writable at a time, at most.
const RUN: u64 = 64 * PAGE;

impl Run {
    /// The first ones of these.
    fn of(sites: &Sites<'_>, numbers: impl Iterator<Item = u32>) -> Run {
        let mut run = Run { count: 0, first: 0, end: 0, text: Text::default() };
        for number in numbers {
            if let Some(Ok((site, text))) = sites.get(number) {
                let first = site.address() & !(PAGE - 1);
                let end = (site.address() + site.size() as u64).next_multiple_of(PAGE);
                if run.end == 0 {
                    (run.first, run.text) = (first, text);
                } else if text.start != run.text.start || first < run.first || end - run.first > RUN {
                    break;
                }
                run.end = run.end.max(end);
            }
            run.count += 1;
        }
        run
    }
}

/// The same of a run.
fn switch_run(
    sites: &Sites<'_>,
    which: impl Iterator<Item = u32> + Clone,
    to: Switch,
    window: &mut Window,
) -> Counts {
    let mut already = 0;
    let mut counts = Counts::default();
    // One more to look, and one where text has to be written in another way than it began.
    for pass in 0..STEPS_MAX + 2 {
        let means = window.means;
        let mut wrote = false;
        let mut done = 0;
        counts = Counts::default();
        for number in which.clone() {
            match sites.get(number) {
                None => {}
                Some(Err(_)) => counts.foreign += 1,
                Some(Ok((site, _))) => match advance(&site, to, means, window) {
                    Moved::There => done += 1,
                    Moved::Wrote => wrote = true,
                    Moved::Foreign => counts.foreign += 1,
                    Moved::Failed => counts.failed += 1,
                },
            }
        }
        if pass == 0 {
            already = done;
        }
        counts.already = already.min(done);
        counts.switched = done - counts.already;
        if !wrote && means == window.means {
            break;
        }
        if means.others == Others::Run && means.stores == Stores::Bytes {
            barrier();
        }
    }
    counts
}

/// What became of a site in one pass.
enum Moved {
    /// It was as it has to be.
    There,
    /// Something was written: the next pass looks again.
    Wrote,
    Foreign,
    Failed,
}

/// One step, or all where stores are seen in their order, or by nobody.
fn advance(site: &Site, to: Switch, means: Means, window: &mut Window) -> Moved {
    let mut moved = Moved::There;
    for _ in 0..=STEPS_MAX {
        let now = bytes_of(site);
        let step = match site.step(now.get(..site.size()).unwrap_or(&[]), to, means.stores) {
            Err(_) => return Moved::Foreign,
            Ok(None) => return moved,
            Ok(Some(step)) => step,
        };
        if !window.write(site.address(), &now, &step) {
            return Moved::Failed;
        }
        moved = Moved::Wrote;
        if means.others == Others::Run && means.stores == Stores::Bytes {
            break;
        }
    }
    moved
}

/// The bytes of a site.
fn bytes_of(site: &Site) -> [u8; SLED_SIZE] {
    let mut bytes = [0; SLED_SIZE];
    for (index, byte) in bytes.iter_mut().enumerate().take(site.size()) {
        // SAFETY: [`Sites::get`] has found the site in a loaded segment; volatile, as others may
        // write.
        *byte = unsafe { ((site.address() + index as u64) as *const u8).read_volatile() };
    }
    bytes
}

/// A run's pages, writable from the first write on.
struct Window {
    means: Means,
    first: u64,
    end: u64,
    /// What they are otherwise.
    protection: usize,
    is_open: bool,
    /// Writes through the kernel.
    memory: Option<File>,
}

/// What is writable, for a child that is forked meanwhile: first address, bytes, what they are
/// otherwise.
static OPEN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

impl Window {
    fn new(means: Means, run: &Run) -> Window {
        let protection = run.text.protection();
        Window { means, first: run.first, end: run.end, protection, is_open: false, memory: None }
    }

    /// Takes a step at a site that held these bytes: whether it could.
    fn write(&mut self, site: u64, was: &[u8; SLED_SIZE], step: &Step) -> bool {
        let address = site + step.at as u64;
        let was = was.get(step.at..step.at + step.length).unwrap_or(&[]);
        if !self.open() {
            return false;
        }
        match &self.memory {
            None => write_words(address, was, step.text()),
            Some(memory) => {
                let is_whole = !step.is_run || step.length == 1 || self.means.others == Others::Nobody;
                is_whole && memory.write_at(step.text(), address)
            }
        }
    }

    /// Sees to it that the pages can be written.
    fn open(&mut self) -> bool {
        if self.is_open || self.memory.is_some() {
            return true;
        }
        if self.means.pages == Pages::Protection {
            let size = self.end - self.first;
            remember([self.first, size, self.protection as u64]);
            // Executable all the while: other threads may run neighbours on the same pages.
            match system::protect(self.first, size, PROT_READ | PROT_WRITE | PROT_EXEC) {
                Ok(()) => {
                    self.is_open = true;
                    return true;
                }
                // Too many mappings.
                Err(errno::ENOMEM) => {
                    self.means = Means { stores: Stores::Bytes, pages: Pages::Kernel, ..self.means };
                }
                // The process must not have pages that are both.
                Err(_) => self.means.pages = Pages::Never,
            }
            // A part of it may be.
            let _ = system::protect(self.first, size, self.protection);
            remember([0; 3]);
        }
        if self.means.pages == Pages::Kernel {
            self.memory = File::open(b"/proc/thread-self/mem\0", true);
        }
        self.memory.is_some()
    }

    fn close(&mut self) {
        if self.is_open {
            let _ = system::protect(self.first, self.end - self.first, self.protection);
            remember([0; 3]);
        }
        self.is_open = false;
    }
}

fn remember(open: [u64; 3]) {
    for (place, value) in OPEN.iter().zip(open) {
        place.store(value, SeqCst);
    }
}

/// In a forked child: pages that its parent was just writing become what they were.
pub(crate) fn begin_child() {
    let [first, size, protection] = OPEN.each_ref().map(|part| part.load(SeqCst));
    if size != 0 && protection != 0 {
        let _ = system::protect(first, size, protection as usize);
    }
    remember([0; 3]);
}

/// As if a parent had been writing this.
#[cfg(test)]
pub(crate) fn pretend_open(first: u64, size: u64, protection: usize) {
    remember([first, size, protection as u64]);
}

/// Writes `new` where `old` is, in whole aligned words: false where something else is there. What
/// lies beside it stays.
fn write_words(address: u64, old: &[u8], new: &[u8]) -> bool {
    let mut done = 0;
    while let (Some(old), Some(new)) = (old.get(done..), new.get(done..))
        && !new.is_empty()
    {
        let at = address + done as u64;
        let offset = (at % 8) as usize;
        let count = new.len().min(8 - offset);
        // SAFETY: an aligned word of a page that is writable now; others only run it, or write it
        // as we do.
        let word = unsafe { AtomicU64::from_ptr((at - offset as u64) as *mut u64) };
        let mut now = word.load(Relaxed);
        loop {
            let mut bytes = now.to_le_bytes();
            let Some(place) = bytes.get_mut(offset..offset + count) else { return false };
            if Some(&*place) != old.get(..count) {
                return false;
            }
            place.iter_mut().zip(new).for_each(|(to, from)| *to = *from);
            match word.compare_exchange(now, u64::from_le_bytes(bytes), SeqCst, Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        done += count;
    }
    true
}

/// As if the system had no `membarrier`.
#[cfg(test)]
pub(crate) static IS_MEMBARRIER_REFUSED: AtomicU32 = AtomicU32::new(0);

/// When it returns, every thread of the process has done something that makes its processor forget
/// what it has fetched: what it runs from now on is what was written before.
fn barrier() {
    const PRIVATE_EXPEDITED_SYNC_CORE: usize = 1 << 5;
    const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: usize = 1 << 6;
    fence(SeqCst);
    #[cfg(test)]
    if IS_MEMBARRIER_REFUSED.load(Relaxed) != 0 {
        return interrupt_all();
    }
    match membarrier(PRIVATE_EXPEDITED_SYNC_CORE) {
        Ok(()) => return,
        // Not registered yet. Only who switches pays for that.
        Err(errno::EPERM) => {
            if membarrier(REGISTER_PRIVATE_EXPEDITED_SYNC_CORE).is_ok()
                && membarrier(PRIVATE_EXPEDITED_SYNC_CORE).is_ok()
            {
                return;
            }
        }
        // Before Linux 4.16, or where a filter refuses it.
        Err(_) => {}
    }
    interrupt_all();
}

/// The same by other means: a page that was touched is unmapped, of which the kernel has to tell
/// every processor that runs a thread of this process, by an interrupt, and returning from one is
/// such a thing. Threads that don't run do it when they are switched to.
fn interrupt_all() {
    if let Some(page) = system::map(PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1) {
        // SAFETY: just mapped.
        unsafe { page.write_volatile(1) };
        system::unmap(page, PAGE);
    }
}
