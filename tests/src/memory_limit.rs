//! A control group with little memory: the kernel's OOM killer comes for who takes more.

use std::fs;
use std::path::{Path, PathBuf};

/// A group inside the one that the test runs in, or beside it; removed when dropped, once it
/// contains no process.
#[derive(Debug)]
pub struct MemoryLimit(PathBuf);

impl MemoryLimit {
    /// One of so many bytes; `None`, and a line that says why, where groups can't be made here.
    #[must_use]
    pub fn new(name: &str, bytes: u64) -> Option<MemoryLimit> {
        let made = parent().and_then(|(parent, version)| {
            let path = parent.join(format!("everycall-{name}-{}", std::process::id()));
            let failed = |error: std::io::Error| {
                format!("no control group can be made at {}: {error}", path.display())
            };
            fs::create_dir(&path).map_err(failed)?;
            let group = MemoryLimit(path);
            group.limit(version, bytes)?;
            Ok(group)
        });
        made.inspect_err(|why| eprintln!("not run: {why}; it needs root and a memory controller")).ok()
    }

    fn limit(&self, version: Version, bytes: u64) -> Result<(), String> {
        let (limit, swap, of_swap) = match version {
            Version::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes),
            Version::Two => ("memory.max", "memory.swap.max", 0),
        };
        let file = self.0.join(limit);
        fs::write(&file, bytes.to_string()).map_err(|error| format!("{}: {error}", file.display()))?;
        // Not there without swap.
        let _ = fs::write(self.0.join(swap), of_swap.to_string());
        Ok(())
    }

    /// How many the kernel has ended here.
    #[must_use]
    pub fn kills(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"];
        let text: String =
            files.iter().filter_map(|file| fs::read_to_string(self.0.join(file)).ok()).collect();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// `program`, to be run in the group: its arguments follow.
    #[must_use]
    pub fn inside(&self, program: &Path) -> Vec<PathBuf> {
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        vec!["sh".into(), "-c".into(), script.into(), self.0.clone(), program.to_owned()]
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A killed process may take a moment to end.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Version {
    One,
    Two,
}

/// The group in which groups with limited memory can be made: the one of this process, or one of
/// its parents.
fn parent() -> Result<(PathBuf, Version), String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let (groups, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mounts")?);
    // 4:memory:/some/group, and 0::/some/group for version 2.
    let of = |controller: &str| {
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers
                .split(',')
                .any(|one| one == controller)
                .then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let mounted = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (at, is, options) = (words.next()?, words.next()?, words.next()?);
            let is_it = is == kind && (option.is_empty() || options.split(',').any(|one| one == option));
            is_it.then(|| PathBuf::from(at))
        })
    };
    if let (Some(at), Some(path)) = (mounted("cgroup", "memory"), of("memory")) {
        return Ok((at.join(path), Version::One));
    }
    let (Some(at), Some(path)) = (mounted("cgroup2", ""), of("")) else {
        return Err("there are no control groups".to_owned());
    };
    // One with processes can't have limited groups inside; those around it can.
    let group = at.join(path);
    let limits = |group: &&Path| {
        let controls = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
        controls.split_whitespace().any(|one| one == "memory")
    };
    let around = group.ancestors().take_while(|group| group.starts_with(&at)).find(limits);
    let around = around.ok_or_else(|| format!("no group from {} up limits memory", group.display()))?;
    Ok((around.to_owned(), Version::Two))
}
