//! Thread states, waits, counters and logs.

mod counters;
mod logs;
mod samples;
mod states;
mod waits;
