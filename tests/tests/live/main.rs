//! Commands that look at programs while they run.

mod counts;
mod follow;
mod left_out;
mod live_table;
mod selection;
mod view;
