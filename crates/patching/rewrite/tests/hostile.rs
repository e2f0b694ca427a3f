//! Damaged files lead to errors, not to panics, and to no plan that breaks a rule.

use std::path::Path;
use std::process::Command;

use everycall_rewrite::check::check;
use everycall_rewrite::{Analysis, CountingPlan, HookLayout, Plan, RewriteError};

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

#[test]
fn damaged_plans_dont_panic() {
    for (source, compiler) in [("calls.c", "gcc"), ("throws.cpp", "g++")] {
        let file = built(source, compiler);
        let analysis = Analysis::of(&file, None).expect("an analysis");
        let mut plan = analysis.plan(HookLayout::default(), &|_, _| true).expect("a plan");
        let bytes = plan.to_bytes();
        let kept = Plan::from_bytes(&bytes).expect("whole bytes");
        check(&file, &kept).expect("a plan that is right");
        plan.functions.iter_mut().for_each(|function| function.name.clear());
        plan.left_out.iter_mut().for_each(|function| function.name.clear());
        assert_eq!(kept, plan);
        assert_eq!(kept.to_bytes(), bytes);
        for length in 0..bytes.len() {
            assert!(Plan::from_bytes(&bytes[..length]).is_none(), "{length} of {}", bytes.len());
        }
        assert!(Plan::from_bytes(&[&bytes[..], &[0]].concat()).is_none());
        let mut random = Random(0x0123_4567_89ab_cdef);
        let mut read = 0;
        for _ in 0..4000 {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(damaged.len());
                damaged[at] = if random.below(2) == 0 { 0xff } else { random.next() as u8 };
            }
            let Some(mut plan) = Plan::from_bytes(&damaged) else { continue };
            read += 1;
            let (low, high) = (*plan.reach().start(), *plan.reach().end());
            for region in [low & -4096, high & -4096, plan.module.end as i64, i64::MIN, i64::MAX & -4096] {
                let _ = plan.move_region(region);
            }
            let _ = plan.set_hooks(HookLayout { reserved: 1 << 20, ..HookLayout::default() });
            let _ = plan.call_at(plan.hooks.reserved + 17);
            if let Ok(mut counting) = CountingPlan::of(plan) {
                let _ = counting.move_to(low & -4096);
            }
        }
        assert!(read > 100, "{read}");
    }
}
