//! Switches sites while all threads run. No thread is stopped, and only the thread that switches
//! takes a lock.
//!
//! [`everycall_patch`] returns what to write next at a site, given the bytes that are there. This
//! file writes it, and decides when other processors see it:
//!
//! - All sites of a set take one step.
//! - If the processor's manufacturer guarantees no more, a barrier in all threads follows.
//! - Then all sites take the next step.
//! - A final check finds every site in its intended form, or counts it.
//!
//! Each store expects the bytes that were read before, so bytes that others have put there, such as
//! a debugger's breakpoint, are left unchanged. Text is made writable for as long as that takes, a
//! run of pages at a time. A process that doesn't allow this (`PR_SET_MDWE`, a seccomp filter,
//! SELinux) is left alone. `docs/design/switching.md` has the reasons.
//!
//! One caller at a time may run this, with its signals blocked. Nothing here allocates, waits or
//! runs hooks.

#![allow(unsafe_code)] // Bytes of code, by their addresses.

use crate::sys::errors::errno;
use crate::sys::file::File;
use crate::sys::filter;
use crate::sys::image::Text;
use crate::sys::system::{self, MAP_ANONYMOUS, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE, membarrier};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use everycall_format::arch::SLED_SIZE;
use everycall_format::arena::PAGE;
use everycall_hooks::arch::code;
use everycall_patch::{Refusal, STEPS_MAX, Site, Step, Stores, Switch};

/// The result for a set of sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Switched.
    pub(crate) switched: u32,
    /// Already in the right form.
    pub(crate) already: u32,
    /// Unchanged, because they hold bytes that the runtime hasn't written.
    pub(crate) foreign: u32,
    /// Unchanged, off or on, because they can't be written.
    pub(crate) failed: u32,
}

impl Counts {
    /// The number of all sites.
    pub(crate) fn all(self) -> u32 {
        self.switched + self.already + self.foreign + self.failed
    }

    pub(crate) fn add(&mut self, more: Counts) {
        self.switched += more.switched;
        self.already += more.already;
        self.foreign += more.foreign;
        self.failed += more.failed;
    }

    /// The number of sites that aren't in their intended form.
    pub(crate) fn wrong(self) -> u32 {
        self.foreign + self.failed
    }
}

/// How text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// The text is made writable for a moment, and stays executable.
    Protection,
    /// Through the kernel, which guarantees only that single bytes are written whole.
    Kernel,
    /// Not at all.
    Never,
}

/// Which threads may run the sites meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// None: the module has just been loaded.
    Nobody,
    /// Any thread.
    Run,
}

/// The means by which sites are switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Means {
    pub(crate) stores: Stores,
    pub(crate) pages: Pages,
    pub(crate) others: Others,
}

impl Means {
    /// For a module that no thread runs yet.
    pub(crate) const BEFORE_ANYBODY: Means =
        Means { stores: Stores::Words, pages: Pages::Protection, others: Others::Nobody };

    /// For this process on this processor.
    pub(crate) fn live() -> Means {
        let pages = if filter::has_come() { Pages::Never } else { Pages::Protection };
        Means { stores: stores(), pages, others: Others::Run }
    }
}

/// The stores to code run by other processors that this processor's manufacturer guarantees.
fn stores() -> Stores {
    /// 0: not checked yet, 1: bytes, 2: words.
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

/// Sites by number.
pub(crate) trait SiteList {
    /// A site and the segment in which it lies. `None` if it has no hook of ours, or if there is no
    /// such number.
    fn get(&self, number: u32) -> Option<Result<(Site, Text), Refusal>>;
}

/// Switches the sites of a module whose numbers `which` returns. This is fastest in the order of
/// their addresses, which is also that of their numbers.
pub(crate) fn switch(
    sites: &impl SiteList,
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
        // The next run doesn't try what this run has found impossible.
        means = window.means;
        rest.nth(run.count - 1);
    }
}

/// Sites so close to each other that they are written while the same pages are writable.
struct Run {
    /// Number of sites.
    count: usize,
    /// The first page, and the end of the last one.
    first: u64,
    end: u64,
    text: Text,
}

/// The most bytes of text that are writable at a time.
const RUN: u64 = 64 * PAGE;

impl Run {
    /// The first run of these sites.
    fn of(sites: &impl SiteList, numbers: impl Iterator<Item = u32>) -> Run {
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

/// Switches the sites of one run.
fn switch_run(
    sites: &impl SiteList,
    which: impl Iterator<Item = u32> + Clone,
    to: Switch,
    window: &mut Window,
) -> Counts {
    let mut already = 0;
    let mut counts = Counts::default();
    // One more pass to check, and one more if the way of writing text has to change after the
    // start.
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

/// The result for one site in one pass.
enum Moved {
    /// It is in its intended form.
    There,
    /// Something was written: the next pass checks again.
    Wrote,
    Foreign,
    Failed,
}

/// Takes one step. Takes all steps if other processors see stores in order, or if no thread runs
/// the code.
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

/// The pages of a run, writable from the first write on.
struct Window {
    means: Means,
    first: u64,
    end: u64,
    /// Their normal protection.
    protection: usize,
    is_open: bool,
    /// For writing through the kernel.
    memory: Option<File>,
}

/// The range that is writable now, for a child that is forked meanwhile: first address, bytes,
/// normal protection.
static OPEN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

impl Window {
    fn new(means: Means, run: &Run) -> Window {
        let protection = run.text.protection();
        Window { means, first: run.first, end: run.end, protection, is_open: false, memory: None }
    }

    /// Takes a step at a site that held these bytes. Returns whether that was possible.
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

    /// Makes the pages writable.
    fn open(&mut self) -> bool {
        if self.is_open || self.memory.is_some() {
            return true;
        }
        if self.means.pages == Pages::Protection {
            let size = self.end - self.first;
            remember([self.first, size, self.protection as u64]);
            // They stay executable, because other threads may run other code on the same pages.
            match system::protect(self.first, size, PROT_READ | PROT_WRITE | PROT_EXEC) {
                Ok(()) => {
                    self.is_open = true;
                    return true;
                }
                // There are too many mappings.
                Err(errno::ENOMEM) => {
                    self.means = Means { stores: Stores::Bytes, pages: Pages::Kernel, ..self.means };
                }
                // The process must not have pages that are both writable and executable.
                Err(_) => self.means.pages = Pages::Never,
            }
            // A part of the range may have become writable.
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

/// In a forked child, resets the protection of pages that its parent was just writing.
pub(crate) fn begin_child() {
    let [first, size, protection] = OPEN.each_ref().map(|part| part.load(SeqCst));
    if size != 0 && protection != 0 {
        let _ = system::protect(first, size, protection as usize);
    }
    remember([0; 3]);
}

/// Pretends that a parent had been writing this.
#[cfg(test)]
pub(crate) fn pretend_open(first: u64, size: u64, protection: usize) {
    remember([first, size, protection as u64]);
}

/// Writes `new` in place of `old`, in whole aligned words. Returns false if other bytes are there.
/// Neighbouring bytes don't change.
fn write_words(address: u64, old: &[u8], new: &[u8]) -> bool {
    let mut done = 0;
    while let (Some(old), Some(new)) = (old.get(done..), new.get(done..))
        && !new.is_empty()
    {
        let at = address + done as u64;
        let offset = (at % 8) as usize;
        let count = new.len().min(8 - offset);
        // SAFETY: an aligned word of a page that is writable now; other threads only run it, or
        // write it in the same way.
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
    // SAFETY: just written.
    unsafe { code::publish(address, address + done as u64) };
    true
}

/// Pretends that the system has no `membarrier`.
#[cfg(test)]
pub(crate) static IS_MEMBARRIER_REFUSED: AtomicU32 = AtomicU32::new(0);

/// When this returns, every thread of the process has executed a serializing instruction, so its
/// processor has discarded the code that it had fetched. From now on, threads run what was written
/// before.
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
        // Not registered yet. Only a thread that switches sites pays for registering.
        Err(errno::EPERM) => {
            if membarrier(REGISTER_PRIVATE_EXPEDITED_SYNC_CORE).is_ok()
                && membarrier(PRIVATE_EXPEDITED_SYNC_CORE).is_ok()
            {
                return;
            }
        }
        // The kernel is older than Linux 4.16, or a seccomp filter refuses the call.
        Err(_) => {}
    }
    interrupt_all();
}

/// Has the same effect by other means. It unmaps a page that was touched. The kernel must notify
/// every processor that runs a thread of this process, by an interrupt, and returning from an
/// interrupt serializes. Threads that don't run do so when they are scheduled.
fn interrupt_all() {
    if let Some(page) = system::map(PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1) {
        // SAFETY: just mapped.
        unsafe { page.write_volatile(1) };
        system::unmap(page, PAGE);
    }
}
