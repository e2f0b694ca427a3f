//! Ends of processes, as the kernel signals them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

/// Replaces a member's number for announcements.
const NEWS: u64 = u64::MAX;
/// Largest number of ends that are received at once.
const AT_ONCE: usize = 64;

/// Receives ends. Each part is missing if the kernel doesn't support it.
pub(super) struct Ends {
    /// Readable when a process has ended or is new.
    all: Option<Arc<OwnedFd>>,
    news: Option<OwnedFd>,
}

impl Ends {
    pub fn new() -> Ends {
        let all = epoll::create(CreateFlags::CLOEXEC).ok().map(Arc::new);
        let news = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        if let (Some(all), Some(news)) = (&all, &news) {
            let _ = epoll::add(all, news, EventData::new_u64(NEWS), EventFlags::IN | EventFlags::ET);
        }
        Ends { all, news }
    }

    /// The descriptor that is readable when a process has ended or is new.
    pub fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.all.clone()
    }

    /// Announces a new process.
    pub fn announce(&self) {
        if let Some(news) = &self.news {
            let _ = rustix::io::write(news, &1_u64.to_ne_bytes());
        }
    }

    /// Registers the end of member `number` while `pidfd` is open. Returns the descriptor if that
    /// succeeded.
    pub fn add(&self, pidfd: OwnedFd, number: u32) -> Option<OwnedFd> {
        let number = EventData::new_u64(number.into());
        epoll::add(self.all.as_ref()?, &pidfd, number, EventFlags::IN).ok().map(|()| pidfd)
    }

    /// Numbers of members that have ended, a few at a time.
    pub fn next(&self) -> Vec<u64> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = Vec::with_capacity(AT_ONCE);
        if let Some(all) = &self.all {
            let _ = epoll::wait(all, spare_capacity(&mut events), Some(&at_once));
        }
        events.iter().map(|event| event.data.u64()).collect()
    }
}
