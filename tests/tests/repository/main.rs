//! The repository's documents and its own structure.

mod architectures;
mod contributing;
mod documented;
mod examples;
mod facts;
mod layers;
mod rooms;
