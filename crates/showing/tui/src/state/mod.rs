//! The state that is shown, and how keys and answers change it. Knows nothing of the terminal, and
//! of threads.
//!
//! ```text
//! app        all of it: which view, prompts, search; keys and answers go in, requests come out
//! timeline   the window of time, what lies in it, what is selected
//! tree       call paths, folded and unfolded
//! table      rows by column and filter, and the slowest calls of one of them
//! list       a cursor in rows that are scrolled
//! pattern    what a search means
//! ```

pub mod app;
pub mod list;
pub mod pattern;
pub mod table;
pub mod timeline;
pub mod tree;

pub use app::{App, Flow, Input, View};
