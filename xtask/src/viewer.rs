//! `everycall view` as a child.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// It runs until this is dropped.
pub struct Viewer {
    pub child: Child,
    /// Of its page: `http://HOST/SECRET/`.
    pub address: String,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Viewer {
    /// Starts `everycall` with these words behind its verb, and waits for the address.
    ///
    /// # Errors
    /// Where it can't start, as a sentence.
    pub fn start(mut everycall: Command, words: &[impl AsRef<OsStr>]) -> Result<Viewer, String> {
        everycall.args(["view", "--no-browser"]).args(words).stdout(Stdio::piped());
        let mut child =
            everycall.spawn().map_err(|error| format!("`everycall view` can't start: {error}"))?;
        let mut address = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut address).map_err(|error| error.to_string())?;
        }
        Ok(Viewer { child, address: address.trim().to_owned() })
    }
}
