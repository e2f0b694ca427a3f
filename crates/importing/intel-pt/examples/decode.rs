//! Decodes packets of a program whose code is in a file, as it lies in memory: prints calls and
//! returns, or how fast that went: `decode PACKETS CODE BASE [print]`.

use std::time::Instant;

use everycall_intel_pt::{Block, Code, Flow, Gap, Image, PacketError, Packets, Rates, Sink, Time, find_psb};

struct Memory {
    base: u64,
    code: Vec<u8>,
}

impl Image for Memory {
    fn bytes(&self, address: u64) -> &[u8] {
        let at = address.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.code.get(at..)).unwrap_or_default()
    }

    fn function(&self, _address: u64) -> u64 {
        0
    }
}

struct Lines {
    prints: bool,
    calls: u64,
}

impl Sink for Lines {
    fn call(&mut self, _at: Time, to: &Block, _return_to: u64) {
        self.calls += 1;
        if self.prints {
            println!("call {:x}", to.start);
        }
    }
    fn ret(&mut self, _at: Time, _from: &Block, to: &Block) {
        self.calls += 1;
        if self.prints {
            println!("ret {:x}", to.start);
        }
    }
    fn jump(&mut self, _at: Time, _from: &Block, _to: &Block) {}
    fn leave(&mut self, _at: Time, _from: u64, _next: u64) {}
    fn enter(&mut self, _at: Time, _to: &Block) {}
    fn gap(&mut self, _at: Time, why: Gap) {
        println!("gap {why:?}");
    }
    fn missing(&mut self, _at: Time, _address: u64) {}
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let bytes = std::fs::read(&arguments[0]).unwrap();
    let base = u64::from_str_radix(&arguments[2], 16).unwrap();
    let memory = Memory { base, code: std::fs::read(&arguments[1]).unwrap() };
    let mut lines = Lines { prints: arguments.len() > 3, calls: 0 };
    let (mut flow, mut code, mut packets) =
        (Flow::new(Rates::default()), Code::default(), Packets::default());
    let begin = Instant::now();
    let mut rest = find_psb(&bytes).map_or(&[][..], |at| &bytes[at..]);
    loop {
        match packets.next(rest) {
            Ok((packet, length)) => {
                flow.packet(packet, &mut code, &memory, &mut lines);
                rest = &rest[length..];
            }
            Err(PacketError::Truncated) => break,
            Err(PacketError::Unknown) => panic!("an unknown packet, {} bytes before the end", rest.len()),
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    if !lines.prints {
        let rate = flow.branches() as f64 / seconds / 1e6;
        println!(
            "{} branches, {} calls and returns, {rate:.1} million branches/s",
            flow.branches(),
            lines.calls
        );
    }
}
