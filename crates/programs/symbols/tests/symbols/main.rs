//! Names, lines and sites of built programs.

#[path = "../common/mod.rs"]
mod common;
mod identity;
mod inlines;
mod large;
mod oracles;
mod sites;
mod stripped;
mod twins;
mod variants;
