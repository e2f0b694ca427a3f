//! Ends an instance of tracefs when its recorder is killed: a small process that waits for that.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

/// The shell continues in a process that isn't the recorder's child. Its `read` ends with the
/// recorder's end of the pipe, or with a line from it. An instance whose pipes are still open can't
/// be removed, so it tries again.
const SCRIPT: &str = r#"
cd /
exec 3<&0 0<&-
(
    read -r _ <&3 && exit
    instance=$1 size=$2
    shift 2
    echo 0 >"$instance/tracing_on"
    for event; do echo 0 >"$instance/events/$event/enable"; done
    if [ "$size" ]; then
        echo "$size" >"$instance/buffer_size_kb"
    else
        for _ in 1 2 3 4 5 6 7 8 9 10; do rmdir "$instance" && exit; sleep 0.1; done
    fi
) &
"#;

/// The recorder's end of the pipe.
#[derive(Debug)]
pub struct Watcher {
    pipe: ChildStdin,
}

impl Watcher {
    /// Starts it for the instance `folder` with these events. The instance is removed, unless it
    /// `stays`: with buffers of so many KiB, and then its lock is held meanwhile.
    ///
    /// # Errors
    ///
    /// There is no shell, or no process can be started.
    pub fn start(folder: &Path, events: &[&str], stays: Option<(&File, &str)>) -> io::Result<Watcher> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "everycall-watcher"]).arg(folder);
        command.arg(stays.map_or("", |(_, size)| size));
        command.args(events).env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        let output = match stays {
            Some((lock, _)) => lock.try_clone()?.into(),
            None => Stdio::null(),
        };
        // The terminal's signals must not reach it, and it must keep none of our outputs open.
        command.process_group(0).stdin(Stdio::piped()).stdout(output).stderr(Stdio::null());
        let mut shell = command.spawn()?;
        let pipe = shell.stdin.take();
        shell.wait()?;
        pipe.map(|pipe| Watcher { pipe }).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // There is nothing to do for it.
        let _ = self.pipe.write_all(b"ended\n");
    }
}
