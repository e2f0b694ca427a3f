//! Sites that are switched while threads run them. The functions are written here, byte by byte,
//! with each kind of site. Their hooks count.
//!
//! `EVERYCALL_TOGGLES` sets how many sites are switched in each way of writing (a million takes a
//! minute).
#![allow(unsafe_code)] // Code that is written and run.

extern crate std;

use crate::features::sites::Sites;
use crate::features::switch::SiteList;
use crate::features::switch::{
    self as switching, Counts, IS_MEMBARRIER_REFUSED, Means, Others, Pages, switch,
};
use crate::sys::image::Text;
use crate::sys::system::{self, PROT_EXEC, PROT_READ, PROT_WRITE};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use everycall_format::arena::PAGE;
use everycall_hooks::ModuleDescriptor;
use everycall_patch::{Stores, Switch};
use std::sync::Mutex;
use std::time::Instant;
use std::vec::Vec;
use std::{eprintln, thread};

const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
const RETURN: [u8; 6] = [0xc3, 0x0f, 0x1f, 0x40, 0x00, 0xc3];
const SLED_JUMP: [u8; 11] = [0xeb, 0x09, 0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x02, 0x00, 0x00];
const SLED_RET: [u8; 11] = [0xc3, 0x2e, 0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x02, 0x00, 0x00];
/// Bytes of a function and of the space after it.
const FUNCTION: usize = 64;
/// The number that each function adds to its argument.
const ADDED: u64 = 0x1234_5678;
const READ_EXECUTE: usize = PROT_READ | PROT_EXEC;

/// An object in memory: a page with counter, hook and lists, then functions.
struct Object {
    base: *mut u8,
    module: ModuleDescriptor,
    text: [Text; 1],
    functions: Vec<unsafe extern "C" fn(u64) -> u64>,
}

// SAFETY: the memory is mapped for as long as the object exists.
unsafe impl Sync for Object {}

impl Object {
    /// Makes functions. With `anywhere`, their sites don't all lie in aligned words: none of ours
    /// do, but one of the ways handles such sites.
    fn new(functions: usize, anywhere: bool) -> Object {
        let lists = (functions * 2 * (12 + 32) + 4096).next_multiple_of(4096);
        let code = (functions * FUNCTION + 4096).next_multiple_of(4096);
        let size = (lists + code) as u64;
        let file = std::env::temp_dir().join(std::format!("everycall-switch-{}", std::process::id()));
        std::fs::write(&file, std::vec![0; size as usize]).unwrap();
        let opened = std::fs::OpenOptions::new().read(true).open(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&opened);
        // A private mapping of a file, as text is: the first write to a page copies it.
        let base = system::map(size, PROT_READ | PROT_WRITE, system::MAP_PRIVATE, descriptor as isize);
        let base = base.unwrap();
        // SAFETY: all zero is a blank descriptor; the memory is ours.
        let (mut object, memory) = unsafe {
            let module: ModuleDescriptor = core::mem::zeroed();
            let text = [Text { start: base as u64 + lists as u64, end: base as u64 + size, flags: 5 }];
            let functions = Vec::new();
            (Object { base, module, text, functions }, core::slice::from_raw_parts_mut(base, size as usize))
        };
        // At the beginning of the text: lock inc qword ptr [counter]; ret. Like real hooks, it
        // changes nothing but flags.
        let counter = -(lists as i32) - 8;
        memory[lists..lists + 4].copy_from_slice(&[0xf0, 0x48, 0xff, 0x05]);
        memory[lists + 4..lists + 8].copy_from_slice(&counter.to_le_bytes());
        memory[lists + 8] = 0xc3;
        let hook = object.text[0].start;
        let module = &object.module;
        let [sled_entry, sled_exit] = &module.sled_hooks;
        for field in [&module.entry_hook, &module.exit_hook, &module.tail_exit_hook, sled_entry, sled_exit] {
            field.store(hook, Relaxed);
        }
        let (mut nops, mut sleds) = (Vec::new(), Vec::new());
        let end = lists + FUNCTION - 16;
        memory[end] = 0xc3;
        for index in 0..functions {
            let start = lists + (index + 1) * FUNCTION;
            let shift = if anywhere { index / 4 % 8 } else { 0 };
            let mut place = start + shift;
            object.functions.push(
                // SAFETY: that code is written below.
                unsafe {
                    core::mem::transmute::<u64, unsafe extern "C" fn(u64) -> u64>(base as u64 + place as u64)
                },
            );
            let mut put = |place: &mut usize, bytes: &[u8]| {
                memory[*place..*place + bytes.len()].copy_from_slice(bytes);
                *place += bytes.len();
            };
            // lea rax, [rdi + ADDED]
            let body = [0x48, 0x8d, 0x87, 0x78, 0x56, 0x34, 0x12];
            let align = |place: &mut usize, to: usize, put: &mut dyn FnMut(&mut usize, &[u8])| {
                while !anywhere && !place.is_multiple_of(to) {
                    put(place, &[0x90]);
                }
            };
            let jump = |place: usize| {
                let distance = (end as i32 - place as i32 - 5).to_le_bytes();
                [0xe9, distance[0], distance[1], distance[2], distance[3]]
            };
            match index % 4 {
                0 => {
                    nops.push((place, 0));
                    put(&mut place, &NOP5);
                    put(&mut place, &body);
                    nops.push((place, 3));
                    put(&mut place, &RETURN);
                }
                1 => {
                    nops.push((place, 0));
                    put(&mut place, &NOP5);
                    put(&mut place, &body);
                    align(&mut place, 8, &mut put);
                    nops.push((place, 2));
                    put(&mut place, &NOP5);
                    put(&mut place.clone(), &jump(place));
                }
                2 => {
                    place += place % 2;
                    sleds.push((place, 0));
                    put(&mut place, &SLED_JUMP);
                    put(&mut place, &body);
                    sleds.push((place, 1));
                    put(&mut place, &SLED_RET);
                }
                _ => {
                    place += place % 2;
                    sleds.push((place, 0));
                    put(&mut place, &SLED_JUMP);
                    put(&mut place, &body);
                    sleds.push((place, 2));
                    put(&mut place, &SLED_JUMP);
                    put(&mut place.clone(), &jump(place));
                }
            }
            if anywhere && index % 4 > 1 {
                // A sled at an odd address isn't one of clang's: the function begins at its own
                // place.
                let (place, _) = sleds[sleds.len() - 2];
                // SAFETY: as above.
                *object.functions.last_mut().unwrap() = unsafe {
                    core::mem::transmute::<u64, unsafe extern "C" fn(u64) -> u64>(base as u64 + place as u64)
                };
            }
        }
        let mut at = 64;
        let first = base as u64 + at as u64;
        for (place, kind) in nops {
            memory[at..at + 4].copy_from_slice(&(place as i32 - at as i32).to_le_bytes());
            memory[at + 8..at + 12].copy_from_slice(&(kind as u32).to_le_bytes());
            at += 12;
        }
        object.module.sites[0].store(first, Relaxed);
        object.module.sites[1].store(base as u64 + at as u64, Relaxed);
        at = at.next_multiple_of(8);
        object.module.sleds[0].store(base as u64 + at as u64, Relaxed);
        for (place, kind) in sleds {
            memory[at..at + 8].copy_from_slice(&(place as i64 - at as i64).to_le_bytes());
            (memory[at + 16], memory[at + 18]) = (kind, 2);
            at += 32;
        }
        object.module.sleds[1].store(base as u64 + at as u64, Relaxed);
        system::protect(object.text[0].start, code as u64, READ_EXECUTE).unwrap();
        object
    }

    fn sites(&self) -> Sites<'_> {
        // SAFETY: made above.
        unsafe { Sites::of(&self.module, &self.text) }
    }

    fn counter(&self) -> &AtomicU64 {
        // SAFETY: the page's first word, which only the hook writes.
        unsafe { AtomicU64::from_ptr(self.base.cast()) }
    }

    /// Calls every function. Returns how many hooks ran in the process meanwhile.
    fn run(&self, argument: u64) -> u64 {
        let before = self.counter().load(Relaxed);
        for (index, function) in self.functions.iter().enumerate() {
            // SAFETY: written above.
            let result = unsafe { function(argument) };
            assert_eq!(result, argument + ADDED, "function {index}");
        }
        self.counter().load(Relaxed) - before
    }

    fn switch_all(&self, to: Switch, means: Means) -> Counts {
        let sites = self.sites();
        switch(&sites, sites.numbers(), to, means)
    }

    fn bytes(&self, number: u32) -> Vec<u8> {
        let (site, _) = self.sites().get(number).unwrap().unwrap();
        // SAFETY: within the text.
        unsafe { core::slice::from_raw_parts(site.address() as *const u8, site.size()) }.to_vec()
    }

    /// Writes a byte of a site, as a debugger does.
    fn poke(&self, number: u32, place: usize, byte: u8) -> u8 {
        use std::os::unix::fs::FileExt;
        let (site, _) = self.sites().get(number).unwrap().unwrap();
        let memory = std::fs::OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
        let was = self.bytes(number)[place];
        memory.write_all_at(&[byte], site.address() + place as u64).unwrap();
        was
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        system::unmap(self.base, self.text[0].end - self.base as u64);
    }
}

const fn means(stores: Stores, pages: Pages, others: Others) -> Means {
    Means { stores, pages, others }
}

/// Every way of writing text.
const WAYS: [(&str, Means); 3] = [
    ("words", means(Stores::Words, Pages::Protection, Others::Run)),
    ("bytes", means(Stores::Bytes, Pages::Protection, Others::Run)),
    ("bytes, through the kernel", means(Stores::Bytes, Pages::Kernel, Others::Run)),
];

/// Tests run one at a time, because there is one record of writable pages, for forked children.
static ONE: Mutex<()> = Mutex::new(());

fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn all_sites_go_on_and_off_in_every_way() {
    let _one = one_at_a_time();
    for (name, means) in WAYS {
        for anywhere in [false, true] {
            let object = Object::new(64, anywhere);
            // Before any thread runs them, all leave their compiled form.
            let counts = object.switch_all(Switch::Off, Means::BEFORE_ANYBODY);
            assert_eq!((counts.all(), counts.wrong()), (128, 0), "{name}");
            assert_eq!(object.run(1), 0, "{name}");
            let off: Vec<_> = object.sites().numbers().map(|number| object.bytes(number)).collect();
            for _ in 0..3 {
                let all = |switched, already| Counts { switched, already, ..Counts::default() };
                assert_eq!(object.switch_all(Switch::On, means), all(128, 0), "{name}");
                assert_eq!(object.run(2), 128, "{name}");
                assert_eq!(object.switch_all(Switch::On, means), all(0, 128), "{name}");
                // Every third of them.
                let sites = object.sites();
                let some = (0..128).step_by(3);
                assert_eq!(switch(&sites, some, Switch::Off, means), all(43, 0), "{name}");
                assert_eq!(object.run(3), 128 - 43, "{name}");
                assert_eq!(object.switch_all(Switch::Off, means), all(128 - 43, 43), "{name}");
                assert_eq!(object.run(4), 0, "{name}");
            }
            let now: Vec<_> = object.sites().numbers().map(|number| object.bytes(number)).collect();
            let nops = off.iter().zip(&now).filter(|(off, _)| off[..] == NOP5);
            assert!(nops.clone().count() > 0 && nops.clone().all(|(off, now)| off == now), "{name}");
            let sites = object.sites();
            assert_eq!(switch(&sites, 128..200, Switch::On, means), Counts::default(), "no such numbers");
        }
    }
}

#[test]
fn threads_run_through_sites_while_they_are_switched() {
    let _one = one_at_a_time();
    let toggles =
        std::env::var("EVERYCALL_TOGGLES").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000_u64);
    let refused = ("bytes, without membarrier", means(Stores::Bytes, Pages::Protection, Others::Run));
    for (name, means) in WAYS.into_iter().chain([refused]) {
        IS_MEMBARRIER_REFUSED.store((name == refused.0).into(), Relaxed);
        for anywhere in [false, true] {
            let object = Object::new(32, anywhere);
            object.switch_all(Switch::Off, Means::BEFORE_ANYBODY);
            let done = AtomicBool::new(false);
            let (mut switched, begin) = (0, Instant::now());
            thread::scope(|scope| {
                let work = || {
                    let mut calls = 0_u64;
                    while !done.load(Relaxed) {
                        object.run(calls);
                        calls += 1;
                    }
                    calls * 32
                };
                let workers = [(); 2].map(|()| thread::Builder::new().spawn_scoped(scope, work).unwrap());
                let mut state = 1_u64;
                while switched < toggles && !workers.iter().any(|worker| worker.is_finished()) {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let to = if state >> 63 == 0 { Switch::On } else { Switch::Off };
                    let (first, step) = ((state >> 32) as u32 % 64, (state >> 40) as usize % 7 + 1);
                    let sites = object.sites();
                    let counts = switch(&sites, (first..64).step_by(step), to, means);
                    assert_eq!(counts.wrong(), 0, "{name}");
                    switched += u64::from(counts.switched);
                }
                done.store(true, Relaxed);
                let calls: u64 = workers.map(|worker| worker.join().unwrap()).iter().sum();
                let hooks = object.counter().load(Relaxed);
                assert!(hooks > 0, "{name}");
                let each = begin.elapsed().as_nanos() as u64 / switched.max(1);
                eprintln!(
                    "{name}, anywhere {anywhere}: {switched} switched at {each} ns, {calls} calls, {hooks} hooks"
                );
            });
            assert_eq!(object.switch_all(Switch::Off, means).wrong(), 0, "{name}");
            assert_eq!(object.run(5), 0, "{name}");
        }
    }
    IS_MEMBARRIER_REFUSED.store(0, Relaxed);
}

#[test]
fn breakpoints_stay_where_they_are() {
    let _one = one_at_a_time();
    for (name, means) in WAYS {
        let object = Object::new(16, false);
        object.switch_all(Switch::Off, Means::BEFORE_ANYBODY);
        for from in [Switch::Off, Switch::On] {
            let to = if from == Switch::On { Switch::Off } else { Switch::On };
            for number in object.sites().numbers() {
                let whole = object.bytes(number).len();
                for place in 0..whole {
                    object.switch_all(from, means);
                    let was = object.poke(number, place, 0xcc);
                    if was == 0xcc {
                        continue;
                    }
                    let broken = object.bytes(number);
                    let sites = object.sites();
                    let counts = switch(&sites, [number].into_iter(), to, means);
                    assert_eq!(
                        counts,
                        Counts { foreign: 1, ..Counts::default() },
                        "{name}, {number}, {place}"
                    );
                    assert_eq!(object.bytes(number), broken, "{name}, {number}, {place}");
                    object.poke(number, place, was);
                    let counts = switch(&sites, [number].into_iter(), to, means);
                    assert_eq!(
                        counts,
                        Counts { switched: 1, ..Counts::default() },
                        "{name}, {number}, {place}"
                    );
                }
            }
        }
    }
}

/// A process that must not write its text is asked only once, and its sites stay unchanged.
#[test]
fn where_text_must_not_be_written_it_is_left_alone() {
    let _one = one_at_a_time();
    for stores in [Stores::Words, Stores::Bytes] {
        let object = Object::new(16, false);
        object.switch_all(Switch::Off, Means::BEFORE_ANYBODY);
        let before: Vec<_> = object.sites().numbers().map(|number| object.bytes(number)).collect();
        let counts = object.switch_all(Switch::On, means(stores, Pages::Never, Others::Run));
        assert_eq!(counts, Counts { failed: 32, ..Counts::default() });
        let after: Vec<_> = object.sites().numbers().map(|number| object.bytes(number)).collect();
        assert_eq!(before, after);
        assert_eq!(object.run(1), 0);
        let counts = object.switch_all(Switch::Off, means(stores, Pages::Never, Others::Run));
        assert_eq!(counts, Counts { already: 32, ..Counts::default() });
    }
}

/// A process that was forked in the middle of a switch.
#[test]
fn text_is_not_left_writable() {
    let _one = one_at_a_time();
    let object = Object::new(4096, false);
    let protections = || -> Vec<std::string::String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let range = |line: &str| {
            let (low, high) = line.split_once(' ')?.0.split_once('-')?;
            Some((u64::from_str_radix(low, 16).ok()?, u64::from_str_radix(high, 16).ok()?))
        };
        let within = |line: &&str| {
            range(line).is_some_and(|(low, high)| low < object.text[0].end && high > object.text[0].start)
        };
        maps.lines().filter(within).map(|line| line.split(' ').nth(1).unwrap().into()).collect()
    };
    for (_, means) in WAYS {
        for to in [Switch::Off, Switch::On] {
            object.switch_all(to, means);
            let shown = protections();
            assert!(!shown.is_empty() && shown.iter().all(|text| text == "r-xp"), "{shown:?}");
        }
    }
    // Pages that a parent was writing at the fork.
    system::protect(object.text[0].start, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC).unwrap();
    switching::pretend_open(object.text[0].start, PAGE, READ_EXECUTE);
    switching::begin_child();
    assert!(protections().iter().all(|text| text == "r-xp"));
}

/// CPU time of the thread.
fn cpu_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().and_then(|number| number.parse::<f64>().ok()).unwrap() / 1e6
}

/// Measures the time for 100,000 sites.
#[test]
fn many_sites() {
    let _one = one_at_a_time();
    for (name, means) in WAYS {
        let object = Object::new(50_000, false);
        let timed = |what: &str, to, means| {
            let (begin, on_cpu) = (Instant::now(), cpu_ms());
            let counts = object.switch_all(to, means);
            let (wall, cpu) = (begin.elapsed().as_secs_f64() * 1e3, cpu_ms() - on_cpu);
            eprintln!("{name}: 100,000 sites {what}: {wall:.1} ms, {cpu:.1} ms of CPU");
            assert_eq!((counts.all(), counts.wrong()), (100_000, 0));
        };
        timed("at the start, off", Switch::Off, Means::BEFORE_ANYBODY);
        timed("on, first", Switch::On, means);
        timed("off", Switch::Off, means);
        timed("on", Switch::On, means);
    }
}
