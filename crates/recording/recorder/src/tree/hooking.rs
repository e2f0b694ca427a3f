//! Has hooks written into processes that ask for them, on a separate thread: who writes them makes
//! the process call the runtime, which may wait for the recorder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

use crate::memory::hub::Hub;
use crate::memory::hub_page::HubPage;
use crate::tree::listener::Listener;
use crate::tree::silent;

/// Longest time between two checks without a request.
const PAUSE: Duration = Duration::from_secs(1);

/// The thread.
#[derive(Debug)]
pub(crate) struct Hooking {
    hub: Arc<Hub>,
    listener: Listener,
}

impl Hooking {
    /// Starts the thread. If that fails, no process asks. `write` gets the id of each process that
    /// does, and returns when its hooks are written.
    pub fn attend(hub: Arc<Hub>, mut write: impl FnMut(u32) + Send + 'static) -> Hooking {
        let asked = Arc::clone(&hub);
        let listener = Listener::on(HubPage::asked, Arc::clone(&hub), move |_| {
            for place in asked.page().asking() {
                answer(place, &asked, &mut write);
            }
            PAUSE
        });
        hub.page().hooks().store(listener.has_thread().into(), Ordering::Relaxed);
        Hooking { hub, listener }
    }

    /// Ends the thread, and no process asks any more.
    pub fn stop(self) {
        self.hub.page().hooks().store(0, Ordering::Relaxed);
        self.listener.stop();
    }
}

fn answer(place: &AtomicU32, hub: &Hub, write: &mut impl FnMut(u32)) {
    let pid = place.load(Ordering::Acquire);
    if pid == 0 {
        return;
    }
    // Any process of the recording can write there.
    if silent::maps_hub(pid, hub.inode()) && pid != std::process::id() {
        write(pid);
    }
    // The process may have given up, and another one may have the place.
    if place.compare_exchange(pid, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        let _ = futex::wake(place, futex::Flags::empty(), u32::MAX >> 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn only_processes_of_the_recording_are_written_to() {
        let hub = Arc::new(Hub::create(true).unwrap());
        // This process maps the hub, and so looks like a recorded one, but is the recorder.
        for (place, pid) in hub.page().asking().zip([std::process::id(), 1, u32::MAX]) {
            place.store(pid, Ordering::Release);
        }
        let (tell, told) = mpsc::channel();
        let hooking = Hooking::attend(Arc::clone(&hub), move |pid| tell.send(pid).unwrap());
        assert_eq!(hub.page().hooks().load(Ordering::Relaxed), 1);
        while hub.page().asking().any(|place| place.load(Ordering::Acquire) != 0) {
            std::thread::yield_now();
        }
        hooking.stop();
        assert_eq!(told.iter().count(), 0);
        assert_eq!(hub.page().hooks().load(Ordering::Relaxed), 0);
    }
}
