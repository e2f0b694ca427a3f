//! What the kernel tells of a process.

use std::fs::File;
use std::io::Read;

/// Bytes of a command line that are kept.
const COMMAND_MAX: u64 = 4096;

/// The words of its command line, each ended by a zero byte. `None` where the process is gone or tells nothing.
pub fn command_line(pid: u32) -> Option<Vec<u8>> {
    let mut command = read(pid, "cmdline", COMMAND_MAX)?;
    if command.is_empty() {
        return None;
    }
    if command.last() != Some(&0) {
        command.push(0);
    }
    Some(command)
}

/// Its name, padded with zeros.
pub fn name(pid: u32) -> Option<[u8; 16]> {
    let text = read(pid, "comm", 16)?;
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    let mut name = [0; 16];
    let length = text.len().min(name.len() - 1);
    name[..length].copy_from_slice(&text[..length]);
    Some(name)
}

/// Its parent.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = read(pid, "stat", 512)?;
    // The name in parentheses may hold anything; state and parent follow.
    let behind = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat.get(behind + 1..)?.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    str::from_utf8(fields.nth(1)?).ok()?.parse().ok()
}

/// All processes that there are.
pub fn all_processes() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn read(pid: u32, file: &str, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/{file}")).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known() {
        let own = std::process::id();
        let command = command_line(own).unwrap();
        assert_eq!(command.iter().filter(|byte| **byte == 0).count(), std::env::args_os().count());
        assert!(name(own).unwrap()[0] != 0);
        assert_eq!(parent(own), Some(std::os::unix::process::parent_id()));
        assert_eq!(command_line(u32::MAX), None);
    }
}
