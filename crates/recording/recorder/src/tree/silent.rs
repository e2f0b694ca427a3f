//! Silent forked children: they have made no traced call so far, so only the kernel knows them.
//! Each has its parent's mapping of the hub, and no arena.

use everycall_format::arena::{ChildEntry, child_kind};
use everycall_machine::clock::ticks;
use everycall_machine::proc_files;

use crate::memory::memory_file;

/// The processes that map the hub in memory file `inode`, without those that are `known`.
pub fn children(inode: u64, known: impl Fn(u32) -> bool) -> Vec<ChildEntry> {
    let own = std::process::id();
    // Listing a process's mappings is slow if it has many, and a machine has many processes: only
    // possible descendants of the started processes are checked.
    let began = proc_files::stat(own).map_or(0, |stat| stat.started);
    let entry = |pid| {
        let stat = proc_files::stat(pid).ok().filter(|stat| stat.started >= began)?;
        if pid == own || known(pid) || !maps_hub(pid, inode) {
            return None;
        }
        let mut name = [0; 40];
        if let Some(known) = proc_files::name(pid) {
            name[..known.len()].copy_from_slice(&known);
        }
        Some(ChildEntry {
            pid,
            parent: stat.parent,
            kind: child_kind::FORK,
            ticks: ticks(),
            name,
            ..ChildEntry::default()
        })
    };
    proc_files::all_processes().into_iter().filter_map(entry).collect()
}

/// Whether process `pid` maps the hub in memory file `inode`.
///
/// Processes of other users can't be checked, and don't belong to the program unless it changed its
/// user.
pub fn maps_hub(pid: u32, inode: u64) -> bool {
    maps(pid, memory_file::HUB, inode).unwrap_or(false)
}

/// Whether process `pid` maps the arena in memory file `inode`; `None` if it can't be checked.
pub fn maps_arena(pid: u32, inode: u64) -> Option<bool> {
    maps(pid, memory_file::ARENA, inode)
}

fn maps(pid: u32, name: &str, inode: u64) -> Option<bool> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
    // The kernel's notation of a memory file.
    let name = format!("/memfd:{name} (deleted)");
    let inode = inode.to_string();
    Some(String::from_utf8_lossy(&maps).lines().any(|line| {
        // Addresses, protection, offset, device, inode, path.
        line.ends_with(&name) && line.split_ascii_whitespace().nth(4) == Some(&inode)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::hub::Hub;

    #[test]
    fn this_process_alone_maps_its_hub() {
        let hub = Hub::create(true).unwrap();
        assert!(maps_hub(std::process::id(), hub.inode()));
        assert!(!maps_hub(std::process::id(), hub.inode() + 1));
        assert_eq!(children(hub.inode(), |_| false), []);
    }
}
