//! The hub: processes find their arenas in it, and list processes that aren't followed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use everycall_format::Wire;
use everycall_format::arena::ChildEntry;
use everycall_format::hub::{HubHeader, OWNER_MODE};

use crate::memory::hub_page::HubPage;
use crate::memory::memory_file;

/// The hub of one recording.
#[derive(Debug)]
pub struct Hub {
    file: OwnedFd,
    /// The header as we wrote it; the traced processes may change the hub's copy.
    layout: HubHeader,
    page: HubPage,
}

impl Hub {
    /// Makes a hub without arenas. `follow`: children of the traced program are to be followed.
    ///
    /// # Errors
    ///
    /// The system has no memory for it.
    pub fn create(follow: bool) -> io::Result<Hub> {
        let layout = HubHeader::new(std::process::id(), follow);
        let file = memory_file::create(memory_file::HUB, layout.hub_size, OWNER_MODE)?;
        memory_file::write_at(&file, &layout, 0)?;
        let page = HubPage::map(file.as_fd())?;
        Ok(Hub { file, layout, page })
    }

    /// The path at which traced processes open it while this process lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// The inode of its memory file, by which processes that map it are found; 0, which no file
    /// has, if the kernel doesn't provide it.
    pub(crate) fn inode(&self) -> u64 {
        memory_file::inode(&self.file)
    }

    pub(crate) fn page(&self) -> &HubPage {
        &self.page
    }

    /// The present header: its counts come from the traced processes and are untrusted.
    #[must_use]
    pub fn header(&self) -> HubHeader {
        let mut bytes = vec![0; HubHeader::SIZE];
        memory_file::read_at(&self.file, 0, &mut bytes);
        HubHeader::read(&bytes).unwrap_or_default()
    }

    /// The processes that aren't followed.
    #[must_use]
    pub fn children(&self) -> Vec<ChildEntry> {
        let count = self.header().children.min(self.layout.child_capacity);
        let mut bytes = vec![0; count as usize * ChildEntry::SIZE];
        memory_file::read_at(&self.file, self.layout.children_offset, &mut bytes);
        let entries = bytes.chunks_exact(ChildEntry::SIZE).filter_map(ChildEntry::read);
        entries.filter(|child| child.pid != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_hub_is_empty_and_consistent() {
        let hub = Hub::create(true).unwrap();
        let header = hub.header();
        assert!(header.is_consistent(std::fs::metadata(hub.path()).unwrap().len()));
        assert_eq!((header.follow, header.recorder_pid), (1, std::process::id()));
        assert!(hub.children().is_empty());
    }

    /// The traced programs may write anything anywhere.
    #[test]
    fn overwritten_memory_is_read_without_panic() {
        let hub = Hub::create(false).unwrap();
        let noise = vec![0x5a; hub.layout.hub_size as usize];
        rustix::io::pwrite(&hub.file, &noise, 0).unwrap();
        assert_eq!(hub.children().len(), hub.layout.child_capacity as usize);
    }
}
