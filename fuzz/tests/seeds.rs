//! Every target over its seeds; that needs no nightly compiler.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// As `README.md` says, and not longer than a loaded machine needs for one input.
const LIMITS: [&str; 6] = [
    "-runs=0",
    "-max_len=160000",
    "-malloc_limit_mb=80",
    "-rss_limit_mb=1024",
    "-timeout=20",
    "-verbosity=0",
];

#[test]
fn every_target_reads_its_seeds() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_BIN_EXE_ect_file")).parent().expect("a file's folder");
    let inputs = env::temp_dir().join(format!("everycall-seeds-{}", std::process::id()));
    fs::create_dir_all(&inputs).expect("a temporary folder");
    let mut targets = 0;
    for source in fs::read_dir(package.join("fuzz_targets")).expect("the targets") {
        let source = source.expect("a readable folder").path();
        if source.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let name = source.file_stem().expect("a file's name");
        let seeds = package.join("corpus").join(name);
        assert!(fs::read_dir(&seeds).is_ok_and(|mut seeds| seeds.next().is_some()), "no {}", seeds.display());
        let mut target = Command::new(folder.join(name));
        target.args(LIMITS).arg(format!("-artifact_prefix={}/", inputs.display())).arg(&seeds);
        let output = target.output().expect("the target runs");
        assert!(
            output.status.success(),
            "{target:?}: {}; the input is there\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        targets += 1;
    }
    assert!(targets > 10, "{targets} targets");
    fs::remove_dir_all(&inputs).expect("the temporary folder");
}
