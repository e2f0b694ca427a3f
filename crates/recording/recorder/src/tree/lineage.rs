//! Descent of processes, by the kernel's parent ids.

use std::iter::successors;

use everycall_machine::proc_files;

use crate::tree::silent;

/// Largest number of generations that are followed.
const GENERATIONS: usize = 16;

/// Process `pid` and its ancestors.
pub(super) fn ancestry(pid: u32) -> impl Iterator<Item = u32> {
    let parent = |pid: &u32| proc_files::stat(*pid).ok().map(|stat| stat.parent);
    successors(Some(pid), parent).take_while(|pid| *pid > 0).take(GENERATIONS)
}

/// Whether the living process `pid` can't be the one that has claimed the arena in memory file
/// `inode`.
pub(super) fn is_stranger(pid: u32, inode: u64) -> bool {
    let own = std::process::id();
    let began = |pid| proc_files::stat(pid).map(|stat| stat.started);
    let is_older = matches!((began(pid), began(own)), (Ok(its), Ok(ours)) if its < ours);
    let is_ours = || ancestry(pid).any(|ancestor| ancestor == own);
    pid == own || is_older || !is_ours() && silent::maps_arena(pid, inode) == Some(false)
}
