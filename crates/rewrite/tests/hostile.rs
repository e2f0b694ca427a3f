//! Damaged files lead to errors, not to panics, and to no plan that breaks a rule.

use std::path::Path;
use std::process::Command;

use everycall_rewrite::{Analysis, HookLayout, RewriteError};

/// A generator of numbers: the same for each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn built(source: &str, compiler: &str) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("program");
    let status =
        Command::new(compiler).args(["-O2", "-Wl,--build-id"]).arg(source).arg("-o").arg(&output).status();
    assert!(status.expect(compiler).success());
    std::fs::read(output).expect("a file")
}

fn plan(file: &[u8]) -> Result<usize, RewriteError> {
    let analysis = Analysis::of(file, Some(file))?;
    let coverage = analysis.coverage();
    let all: u64 = coverage.by_tactic.values().chain(coverage.left_out.values()).sum();
    assert_eq!(all, coverage.functions);
    analysis.plan(HookLayout::default(), &|_, _| true).map(|plan| plan.functions.len())
}

#[test]
fn damaged_files_dont_panic() {
    for (source, compiler) in [("calls.c", "gcc"), ("throws.cpp", "g++")] {
        let file = built(source, compiler);
        assert!(plan(&file).expect("a plan") > 10);
        let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().expect("8 bytes")) as usize;
        let headers = [0..64, number(0x20)..number(0x20) + 13 * 56, number(0x28)..file.len()];
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut planned = 0;
        for round in 0..250 {
            let mut damaged = file.clone();
            for _ in 0..=random.below(6) {
                let part = headers.get(random.below(6)).cloned().unwrap_or(0..file.len());
                let at = part.start + random.below(part.len());
                damaged[at] = match random.below(3) {
                    0 => 0xff,
                    1 => 0,
                    _ => random.next() as u8,
                };
            }
            if round % 10 == 0 {
                damaged.truncate(random.below(file.len()));
            }
            planned += usize::from(plan(&damaged).is_ok());
        }
        assert!(planned > 25, "{planned}");
    }
}

#[test]
fn other_files_are_refused() {
    assert_eq!(plan(b"").err(), Some(RewriteError::NotElf));
    assert_eq!(plan(b"#!/bin/sh\necho no\n").err(), Some(RewriteError::NotElf));
    let mut other = built("calls.c", "gcc");
    other[18] = 183;
    assert_eq!(plan(&other).err(), Some(RewriteError::OtherMachine));
    other[18] = 62;
    other[16] = 1;
    assert_eq!(plan(&other).err(), Some(RewriteError::NotLinked));
}
