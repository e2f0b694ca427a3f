//! Writes perf's own file of a program made at random, with a trace of Intel PT, for decoders to be
//! compared: `pt_sample FOLDER SEED STEPS`.

use std::path::Path;

use everycall_synth::{PerfData, PerfWhose, PtEncoder, PtProgram, PtRun, Rng};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, seed, steps] = &arguments[..] else { panic!("pt_sample FOLDER SEED STEPS") };
    let (seed, steps) = (seed.parse().unwrap(), steps.parse().unwrap());
    let base = 0x5555_5555_1000;
    let mut rng = Rng::new(seed);
    let program = PtProgram::new(&mut rng, base, 40);
    let mut encoder = PtEncoder::default();
    let how = PtRun { steps, psb_period: 4096, signals: 0, interrupts: 500, overflows: 0 };
    let mut tsc = 1 << 40;
    let made = program.run(&mut rng, how, &mut tsc, &mut encoder);
    let id = [seed as u8; 20];
    let file = Path::new(folder).join("program");
    std::fs::write(&file, program.elf(&id)).unwrap();
    let mut data = PerfData::default();
    let whose = PerfWhose { pid: 1000, tid: 1000, ns: PerfData::ns(10), cpu: 0 };
    data.info(1);
    data.name(whose, "program", true);
    let size = (program.code.len() as u64).next_multiple_of(4096);
    data.map(whose, (base, size, 0x1000), file.to_str().unwrap(), None);
    data.start(PerfWhose { ns: PerfData::ns(1000), ..whose });
    data.aux(PerfWhose { ns: PerfData::ns(tsc), ..whose }, 0, encoder.bytes.len() as u64, false);
    data.part(0, Some(0), 1000, 0, &encoder.bytes);
    std::fs::write(Path::new(folder).join("perf.data"), data.file()).unwrap();
    std::fs::write(Path::new(folder).join("raw.pt"), &encoder.bytes).unwrap();
    std::fs::write(Path::new(folder).join("code.bin"), &program.code).unwrap();
    println!("{} calls and returns, {} bytes", made.len(), encoder.bytes.len());
}
