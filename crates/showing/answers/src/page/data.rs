//! The data of a page.

use std::cell::OnceCell;

use everycall_calls::Thread;
use everycall_profile::{Function, FunctionIdentity, Profile};

use super::head::{self, Head};
use super::slices::Track;
use crate::Answered;

/// The data of a page.
pub struct Page {
    pub(super) bytes: Vec<u8>,
    pub(super) head: Head,
    pub(super) tracks: Vec<Track>,
    /// By index of the track.
    pub(super) threads: Vec<Thread>,
    pub(super) functions: Vec<Function>,
    /// The sums of all calls by function, once they were asked for.
    pub(super) whole: OnceCell<Profile>,
}

impl Page {
    /// Reads the data, unpacked.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn read(bytes: Vec<u8>) -> Answered<Page> {
        let (head, pieces) = head::read(&bytes)?;
        let tracks = Track::all(&head, &pieces)?;
        let functions = head.functions.iter().zip(0..).map(|(of, id)| {
            let identity = FunctionIdentity {
                name: of.full.clone(),
                module: of.module.clone(),
                file: of.file.clone(),
                line: of.line,
                // Those of a page are different functions.
                part: Some(id),
            };
            Function { name: of.name.clone(), ..Function::of(identity) }
        });
        let functions = functions.collect();
        let threads = tracks.iter().map(|track| track.thread.clone()).collect();
        Ok(Page { functions, threads, bytes, tracks, head, whole: OnceCell::new() })
    }
}
