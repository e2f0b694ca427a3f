//! Decodes a piece of a trace: packets and code to branches. What comes out depends on the piece
//! alone, so several are decoded at once, on any number of threads.

use everycall_intel_pt::{Block, Flow, Gap, Packet, PacketError, Packets, Place, Sink, Time, find_psb};
use rustc_hash::FxHashMap;

use super::pieces::Piece;
use super::space::Space;
use super::world::World;

/// The most packets of a synchronization point.
const POINT_PACKETS: u32 = 64;
/// Processes whose blocks a worker keeps.
const SPACES_MAX: usize = 64;

/// A branch, or what else a trace tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub at: Time,
    pub what: What,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// A process, by its index, and a thread run.
    Runs(u32, u32),
    /// The piece begins; the program is here, if it is traced.
    Begin(Option<Place>),
    Call {
        to: Place,
        return_to: u64,
    },
    Ret {
        from: Place,
        to: Place,
    },
    Jump {
        from: Place,
        to: Place,
    },
    Leave {
        from: u64,
        next: u64,
    },
    Enter(Place),
    Gap(Gap),
    Missing,
    /// The piece ends; the program is here, if it goes on.
    End(Option<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The piece's synchronization point.
    Begin,
    Body,
    /// The next piece's synchronization point.
    Tail,
    Done,
}

/// A piece, and how far it is decoded.
#[derive(Debug)]
pub(crate) struct Task {
    pub queue: usize,
    /// Which piece of its queue it is.
    pub number: u64,
    /// The events that aren't fetched yet.
    pub events: Vec<Event>,
    /// Packets that are none.
    pub bad: u64,
    piece: Piece,
    /// The thread whose trace it is, if it isn't that of a CPU.
    cpu: Option<u32>,
    tid: u32,
    flow: Flow,
    packets: Packets,
    at: usize,
    phase: Phase,
    runs: Option<(u32, u32)>,
    /// The place at the synchronization point.
    start: Option<Place>,
    /// When code was mapped last.
    reached: u64,
    worker: usize,
}

impl Task {
    pub fn new(queue: usize, number: u64, piece: Piece, whose: (Option<u32>, u32), world: &World) -> Task {
        let mut events = Vec::new();
        if let Some(why) = piece.lost {
            events.push(Event { at: Time::default(), what: What::Gap(why) });
        }
        Task {
            queue,
            number,
            events,
            bad: 0,
            piece,
            cpu: whose.0,
            tid: whose.1,
            flow: Flow::new(world.rates),
            packets: Packets::default(),
            at: 0,
            phase: Phase::Begin,
            runs: None,
            start: None,
            reached: 0,
            worker: usize::MAX,
        }
    }

    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Whether a packet has told the time; how often times went back.
    pub fn times(&self) -> (bool, u64) {
        (self.flow.clock.has_time(), self.flow.clock.jumps())
    }
}

/// Code of the processes that one thread decodes.
pub(crate) struct Worker<'w> {
    id: usize,
    world: &'w World,
    current: Option<u32>,
    space: Space,
    others: FxHashMap<u32, Space>,
}

impl<'w> Worker<'w> {
    pub fn new(id: usize, world: &'w World) -> Worker<'w> {
        Worker { id, world, current: None, space: Space::default(), others: FxHashMap::default() }
    }

    /// Decodes until the piece ends, or there are `most` events.
    pub fn run(&mut self, task: &mut Task, most: usize) {
        if task.worker != self.id {
            task.worker = self.id;
            task.flow.forget_blocks();
        }
        if let Some((image, _)) = task.runs {
            self.select(image);
            self.space.reach(task.reached);
        }
        while task.events.len() < most {
            match task.phase {
                Phase::Begin => {
                    self.point(task);
                    let at = task.flow.clock.here();
                    task.events.push(Event { at, what: What::Begin(task.start.take()) });
                    task.phase = Phase::Body;
                }
                Phase::Body => self.body(task, most),
                Phase::Tail => {
                    self.tail(task);
                    task.phase = Phase::Done;
                }
                Phase::Done => return,
            }
        }
    }

    fn select(&mut self, image: u32) {
        if self.current == Some(image) {
            return;
        }
        if let Some(before) = self.current.replace(image) {
            if self.others.len() >= SPACES_MAX {
                self.others.clear();
            }
            self.others.insert(before, std::mem::take(&mut self.space));
        }
        let known = self.others.remove(&image);
        self.space = known.unwrap_or_else(|| Space::new(self.world.code(image as usize)));
    }

    /// Takes the packets of a synchronization point.
    fn point(&mut self, task: &mut Task) {
        for _ in 0..POINT_PACKETS {
            let rest = task.piece.bytes.get(task.at..).unwrap_or_default();
            let Ok((packet, length)) = task.packets.next(rest) else { return };
            task.at += length;
            self.packet(task, packet);
            if packet == Packet::PsbEnd || !task.flow.is_lost() && packet == Packet::Ovf {
                return;
            }
        }
    }

    fn body(&mut self, task: &mut Task, most: usize) {
        while task.events.len() < most {
            if task.at >= task.piece.own {
                task.phase = Phase::Tail;
                return;
            }
            if task.flow.is_lost() {
                let own = task.piece.bytes.get(task.at..task.piece.own).unwrap_or_default();
                let Some(at) = find_psb(own) else {
                    task.at = task.piece.own;
                    continue;
                };
                task.at += at;
                task.packets = Packets::default();
                self.point(task);
                if task.flow.is_lost() {
                    // Damaged, too.
                    task.at += 1;
                }
                continue;
            }
            let rest = task.piece.bytes.get(task.at..).unwrap_or_default();
            match task.packets.next(rest) {
                Ok((Packet::Pad, _)) => {
                    task.at += rest.iter().take_while(|byte| **byte == 0).count().max(1);
                }
                Ok((packet, length)) => {
                    task.at += length;
                    self.packet(task, packet);
                }
                Err(PacketError::Truncated) => task.at = task.piece.bytes.len(),
                Err(PacketError::Unknown) => {
                    task.bad += 1;
                    self.lose(task, Gap::Packets);
                    task.at += 1;
                }
            }
        }
    }

    /// The packets of the next piece's synchronization point say whether the program is where it
    /// is by this one.
    fn tail(&mut self, task: &mut Task) {
        let is_last = task.piece.own == task.piece.bytes.len();
        if !is_last && task.at != task.piece.own {
            // A packet that goes on into the point is none.
            self.lose(task, Gap::Packets);
        }
        let was_inside = task.flow.is_inside();
        if !is_last && was_inside {
            self.point(task);
        }
        let is_joined = was_inside && task.flow.is_inside() && task.phase == Phase::Tail;
        let at = task.flow.clock.here();
        let here = is_joined.then(|| task.flow.address());
        task.events.push(Event { at, what: What::End(here) });
    }

    #[inline]
    fn packet(&mut self, task: &mut Task, packet: Packet) {
        let leads = matches!(packet, Packet::TipPge(_) | Packet::Tip(_) | Packet::Fup(_));
        if leads {
            let now = task.flow.clock.now();
            if !task.flow.is_inside() || task.runs.is_none() {
                self.find_thread(task, now);
            }
            task.reached = task.reached.max(now);
            self.space.reach(task.reached);
        }
        let mut sink = Out { events: &mut task.events, start: &mut task.start, phase: &mut task.phase };
        let Space { maps, blocks, .. } = &mut self.space;
        task.flow.packet(packet, blocks, &**maps, &mut sink);
    }

    fn lose(&mut self, task: &mut Task, why: Gap) {
        let mut sink = Out { events: &mut task.events, start: &mut task.start, phase: &mut task.phase };
        task.flow.lose(why, &mut sink);
    }

    /// Who runs at this time.
    fn find_thread(&mut self, task: &mut Task, now: u64) {
        let Some((image, tid)) = self.world.who(task.cpu, task.tid, now) else { return };
        self.select(image);
        if task.runs != Some((image, tid)) {
            task.runs = Some((image, tid));
            task.events
                .push(Event { at: Time { ticks: now, is_exact: false }, what: What::Runs(image, tid) });
        }
    }
}

/// Where branches go.
struct Out<'e> {
    events: &'e mut Vec<Event>,
    start: &'e mut Option<Place>,
    phase: &'e mut Phase,
}

impl Out<'_> {
    #[inline]
    fn add(&mut self, at: Time, what: What) {
        self.events.push(Event { at, what });
    }
}

impl Sink for Out<'_> {
    #[inline]
    fn call(&mut self, at: Time, to: &Block, return_to: u64) {
        self.add(at, What::Call { to: to.place(), return_to });
    }

    #[inline]
    fn ret(&mut self, at: Time, from: &Block, to: &Block) {
        self.add(at, What::Ret { from: from.place(), to: to.place() });
    }

    fn jump(&mut self, at: Time, from: &Block, to: &Block) {
        self.add(at, What::Jump { from: from.place(), to: to.place() });
    }

    fn leave(&mut self, at: Time, from: u64, next: u64) {
        self.add(at, What::Leave { from, next });
    }

    fn enter(&mut self, at: Time, to: &Block) {
        match self.phase {
            Phase::Begin => *self.start = Some(to.place()),
            // The next piece says it.
            Phase::Tail | Phase::Done => *self.phase = Phase::Done,
            Phase::Body => self.add(at, What::Enter(to.place())),
        }
    }

    fn gap(&mut self, at: Time, why: Gap) {
        self.add(at, What::Gap(why));
    }

    fn missing(&mut self, at: Time, _address: u64) {
        self.add(at, What::Missing);
    }
}
