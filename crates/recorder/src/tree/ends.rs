//! Ends of processes, as the kernel tells them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

/// In the place of a member's number, for news.
const NEWS: u64 = u64::MAX;
/// Ends that are heard of together.
const AT_ONCE: usize = 64;

/// Hears of ends. Each part is missing where the kernel has none to give.
pub(super) struct Ends {
    /// Readable when somebody has ended, or is new.
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

    /// What is readable when somebody has ended, or is new.
    pub fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.all.clone()
    }

    /// Somebody is new.
    pub fn announce(&self) {
        if let Some(news) = &self.news {
            let _ = rustix::io::write(news, &1_u64.to_ne_bytes());
        }
    }

    /// Hears of the end of member `number`, for as long as `pidfd` is open; gives it back where that is so.
    pub fn add(&self, pidfd: OwnedFd, number: u32) -> Option<OwnedFd> {
        let number = EventData::new_u64(number.into());
        epoll::add(self.all.as_ref()?, &pidfd, number, EventFlags::IN).ok().map(|()| pidfd)
    }

    /// Numbers of members that have ended, some at a time.
    pub fn next(&self) -> Vec<u64> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = Vec::with_capacity(AT_ONCE);
        if let Some(all) = &self.all {
            let _ = epoll::wait(all, spare_capacity(&mut events), Some(&at_once));
        }
        events.iter().map(|event| event.data.u64()).collect()
    }
}
