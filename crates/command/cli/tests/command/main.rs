//! The command as users call it.

mod bad_input;
mod common;
mod cores;
mod end_to_end;
mod inlines;
mod library;
mod messages;
mod outputs;
mod pages;
mod sources;
mod stripped;
mod tail_calls;
mod thunks;
mod twins;
mod untouched;
mod why;
