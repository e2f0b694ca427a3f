//! Values over time: counters of a process.

use serde::{Serialize, Serializer};

/// Points of a series that are kept; if there are more, neighbours are merged.
const KEPT_MAX: usize = 1 << 17;

/// The values of a counter between two moments; as JSON, an array of these fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The first moment, in nanoseconds since the trace's begin.
    pub at: u64,
    /// The smallest of them.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The last.
    pub last: f64,
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.at, self.min, self.max, self.last).serialize(to)
    }
}

/// A series.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    points: Vec<Point>,
    width: u64,
}

impl Series {
    /// Adds a value; times don't decrease within a thread.
    pub fn add(&mut self, at: u64, value: f64) {
        self.points.push(Point { at, min: value, max: value, last: value });
        if self.points.len() >= KEPT_MAX {
            self.points.sort_by_key(|point| point.at);
            while self.points.len() >= KEPT_MAX / 2 && self.width < u64::MAX / 8 {
                self.width = (self.width * 4).max(64);
                self.points = merged(&self.points, self.width);
            }
        }
    }

    /// The values in a window, with the one before it.
    pub fn within(&self, from: u64, to: u64, pixels: u64) -> Vec<Point> {
        let mut points = self.points.clone();
        points.sort_by_key(|point| point.at);
        let first = points.partition_point(|point| point.at < from).saturating_sub(1);
        let last = points.partition_point(|point| point.at <= to);
        let width = to.saturating_sub(from) / pixels.max(1);
        merged(points.get(first..last).unwrap_or_default(), width)
    }
}

fn merged(points: &[Point], width: u64) -> Vec<Point> {
    let mut out: Vec<Point> = Vec::new();
    for point in points {
        match out.last_mut() {
            Some(last) if point.at.saturating_sub(last.at) < width => {
                last.min = last.min.min(point.min);
                last.max = last.max.max(point.max);
                last.last = point.last;
            }
            _ => out.push(*point),
        }
    }
    out
}
