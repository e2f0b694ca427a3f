//! What the program writes to its standard output and error: read from pipes, with the time of its arrival.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use everycall_io::say;

use crate::exit_code;
use crate::failure::Failure;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// Chunks that may wait to be shown; then the program waits as it does for any pipe.
const WAITING: usize = 64;
/// How long output is waited for when the program has ended, and its children still have the pipes.
const LAST: Duration = Duration::from_millis(200);

/// Something that the program wrote.
pub struct Said {
    /// When it came, in ticks: no earlier than it was written.
    pub at: u64,
    pub is_error: bool,
    pub bytes: Vec<u8>,
}

/// The ends of the pipes that we read, until there are threads for them.
pub struct Pipes([OwnedFd; 2]);

/// Both of the program's outputs.
pub struct Outputs {
    said: Receiver<Said>,
    is_over: bool,
}

impl Pipes {
    /// Makes the pipes; also their other ends, for the program.
    pub fn new() -> Result<(Pipes, [OwnedFd; 2]), Failure> {
        let pipe = || {
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| {
                Failure::new(exit_code::NOT_RECORDED, format!("no pipe for its output: {error}"))
            })
        };
        let ((out, program_out), (err, program_err)) = (pipe()?, pipe()?);
        Ok((Pipes([out, err]), [program_out, program_err]))
    }

    /// Reads them.
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
                // Where nobody looks any more, the program must not wait.
                let _ = send.send(Said { at, is_error, bytes: buffer[..count].to_vec() });
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

impl Outputs {
    /// What has come since the last look.
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

    /// The same when the program has ended: what it wrote is in the pipes already.
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
