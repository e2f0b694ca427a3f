//! Plans for files twice, and prints what the first and the second plan took:
//! `XDG_CACHE_HOME=FOLDER cargo run --release -p everycall-plans --example kept -- FILE...`

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    for path in std::env::args().skip(1) {
        let mut times = Vec::new();
        let mut bytes = 0;
        for _ in 0..2 {
            let begin = Instant::now();
            let plan = everycall_plans::of_file(Path::new(&path))?;
            times.push(begin.elapsed());
            bytes = plan.to_bytes().len();
        }
        writeln!(out, "{path}: {times:.2?}, {bytes} bytes")?;
    }
    Ok(())
}
