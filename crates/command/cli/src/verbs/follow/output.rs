//! The program's standard output and error, with the time of arrival. Standard error is a pipe.
//! Standard output is a terminal of its own, so that the C library writes each line when it is
//! printed; into a pipe it would write all lines at the program's end.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use everycall_io::say;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use crate::exit_code;
use crate::failure::Failure;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// Number of chunks that may wait to be shown; then the program waits as for any pipe.
const WAITING: usize = 64;
/// How long output is awaited after the program's end if its children still have the pipes.
const LAST: Duration = Duration::from_millis(200);

/// Output of the program.
pub struct Said {
    /// When it arrived, in ticks: no earlier than it was written.
    pub at: u64,
    pub is_error: bool,
    pub bytes: Vec<u8>,
}

/// A new terminal that passes on what is written as it is: our end and the program's.
fn terminal() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(ptsname(&ours, Vec::new())?, theirs, Mode::empty())?;
    let mut modes = tcgetattr(&theirs)?;
    modes.make_raw();
    tcsetattr(&theirs, OptionalActions::Now, &modes)?;
    if let Ok(size) = tcgetwinsize(std::io::stdout()) {
        tcsetwinsize(&theirs, size)?;
    }
    Ok((ours, theirs))
}

/// Our ends of the pipes, until threads read them.
pub struct Pipes([OwnedFd; 2]);

/// Both of the program's outputs.
pub struct Outputs {
    said: Receiver<Said>,
    is_over: bool,
}

impl Pipes {
    /// Creates the pipes and returns both ends.
    pub fn new() -> Result<(Pipes, [OwnedFd; 2]), Failure> {
        let pipe = || {
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| {
                Failure::new(exit_code::NOT_RECORDED, format!("no pipe for its output: {error}"))
            })
        };
        let (out, program_out) = terminal().map_or_else(|_| pipe(), Ok)?;
        let (err, program_err) = pipe()?;
        Ok((Pipes([out, err]), [program_out, program_err]))
    }

    /// Starts the threads that read them.
    pub fn read(self) -> Outputs {
        let (send, said) = sync_channel(WAITING);
        for (pipe, is_error) in self.0.into_iter().zip([false, true]) {
            let send = send.clone();
            let reader = std::thread::Builder::new().name("output".to_owned());
            if reader.spawn(move || read(pipe, is_error, &send)).is_err() {
                say!("everycall: no thread for the program's output: it is not shown");
            }
        }
        Outputs { said, is_over: false }
    }
}

fn read(pipe: OwnedFd, is_error: bool, send: &SyncSender<Said>) {
    let mut pipe = std::fs::File::from(pipe);
    let mut buffer = vec![0; CHUNK];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                let at = everycall_live::now_ticks();
                // If output is no longer shown, the program must not wait.
                let _ = send.send(Said { at, is_error, bytes: buffer[..count].to_vec() });
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

impl Outputs {
    /// The next output that has arrived.
    pub fn next(&mut self) -> Option<Said> {
        match self.said.try_recv() {
            Ok(said) => Some(said),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.is_over = true;
                None
            }
        }
    }

    /// The next output after the program's end, when all of it is in the pipes already.
    pub fn last(&mut self) -> Option<Said> {
        if self.is_over {
            return None;
        }
        match self.said.recv_timeout(LAST) {
            Ok(said) => Some(said),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.is_over = true;
                None
            }
        }
    }
}
