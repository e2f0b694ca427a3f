//! Overlapping address ranges, flattened so that a lookup is one binary search.

/// Which range contains an address. Of nested and overlapping ranges, it is the one that starts
/// last.
#[derive(Debug, Default)]
pub(crate) struct AddressRanges {
    /// Where the answer changes, ascending: from this address on it is that one.
    changes: Vec<(u64, Option<u32>)>,
}

impl AddressRanges {
    /// From `(start, end, index)`, sorted by start. Takes time and memory linear in their number.
    pub(crate) fn from_sorted(ranges: impl IntoIterator<Item = (u64, u64, u32)>) -> Self {
        let mut changes: Vec<(u64, Option<u32>)> = Vec::new();
        let mut open: Vec<(u64, u32)> = Vec::new();
        let mut change = |at: u64, to: Option<u32>| match changes.last_mut() {
            Some(last) if last.0 == at => last.1 = to,
            _ => changes.push((at, to)),
        };
        for (start, end, index) in ranges {
            close_until(&mut open, start, &mut change);
            if end > start {
                open.push((end, index));
                change(start, Some(index));
            }
        }
        close_until(&mut open, u64::MAX, &mut change);
        Self { changes }
    }

    /// The range that contains `address`.
    pub(crate) fn find(&self, address: u64) -> Option<u32> {
        let after = self.changes.partition_point(|(start, _)| *start <= address);
        self.changes.get(after.checked_sub(1)?)?.1
    }
}

/// Ends every open range that ends at or before `limit`, in the order of their ends.
fn close_until(open: &mut Vec<(u64, u32)>, limit: u64, change: &mut impl FnMut(u64, Option<u32>)) {
    while let Some(&(end, _)) = open.last() {
        if end > limit {
            break;
        }
        while open.last().is_some_and(|(outer, _)| *outer <= end) {
            open.pop();
        }
        change(end, open.last().map(|(_, index)| *index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_search_through_all_ranges() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..500 {
            let mut ranges: Vec<(u64, u64, u32)> = Vec::new();
            for index in 0..random(12) {
                let start = random(40);
                if ranges.iter().all(|range| range.0 != start) {
                    ranges.push((start, start + random(20), index as u32));
                }
            }
            ranges.sort_unstable();
            let flat = AddressRanges::from_sorted(ranges.iter().copied());
            for address in 0..70 {
                let want = ranges.iter().rev().find(|r| r.0 <= address && address < r.1).map(|r| r.2);
                assert_eq!(flat.find(address), want, "address {address} in {ranges:?}");
            }
        }
    }
}
