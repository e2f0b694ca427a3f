//! Thread states, waits, counters and logs.

mod counters;
mod logs;
mod states;
mod waits;
