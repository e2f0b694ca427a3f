//! Pages of the kernel's ring buffer, as `trace_pipe_raw` gives them.
//!
//! ```text
//! u64 time  u64 bytes of data, with flags  data: { u32 type:5 delta:27  [u32 more]  payload } ...
//! ```

/// Bytes of a page's header.
const HEADER: usize = 16;
/// Events before this page are missing.
const MISSED: u64 = 1 << 31;
/// How many is behind the data.
const MISSED_STORED: u64 = 1 << 30;
/// The bits of the size.
const SIZE: u64 = 0xf_ffff;
/// Bits of a time in an absolute stamp.
const STAMP_BITS: u32 = 59;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// An entry of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'p> {
    /// So many events are missing before this page; 0 if the kernel doesn't say how many.
    Missed(u64),
    /// An event, with its time.
    Event(u64, &'p [u8]),
}

/// Gives the entries of a page to `take`, up to the first that makes no sense.
pub fn read(page: &[u8], mut take: impl FnMut(Entry<'_>)) {
    let long = |at: usize| page.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let (Some(mut time), Some(commit)) = (long(0), long(8)) else { return };
    let size = usize::try_from(commit & SIZE).unwrap_or(usize::MAX);
    let Some(data) = page.get(HEADER..).and_then(|data| data.get(..size)) else { return };
    if commit & MISSED != 0 {
        let stored = if commit & MISSED_STORED != 0 { long(HEADER + size.next_multiple_of(8)) } else { None };
        take(Entry::Missed(stored.unwrap_or(0)));
    }
    let word = |at: usize| data.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes);
    let mut at = 0;
    while let Some(head) = word(at) {
        let (kind, delta) = (head & 31, u64::from(head >> 5));
        // The word behind the head has a length or the upper bits of a time, but not in short
        // events.
        let more = word(at + 4);
        let (payload, next) = match (kind, more) {
            (PADDING, _) if delta == 0 => return,
            (PADDING, Some(length)) => (None, (length as usize).saturating_add(4)),
            (TIME_EXTEND, Some(upper)) => {
                time = time.wrapping_add(u64::from(upper) << 27);
                (None, 8)
            }
            (TIME_STAMP, Some(upper)) => {
                let stamp = u64::from(upper) << 27 | delta;
                time = time >> STAMP_BITS << STAMP_BITS | stamp;
                at += 8;
                continue;
            }
            (0, Some(length)) => {
                let next = (length as usize).saturating_add(4);
                (Some(at + 8..at.saturating_add(next)), next)
            }
            (1..PADDING, _) => (Some(at + 4..at + 4 + 4 * kind as usize), 4 + 4 * kind as usize),
            _ => return,
        };
        time = time.wrapping_add(delta);
        if let Some(payload) = payload {
            let Some(payload) = data.get(payload) else { return };
            take(Entry::Event(time, payload));
        }
        at = at.saturating_add(next.next_multiple_of(4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(time: u64, flags: u64, data: &[u32]) -> Vec<u8> {
        let mut page = time.to_le_bytes().to_vec();
        let size = data.len() as u64 * 4;
        page.extend((flags | size).to_le_bytes());
        page.extend(data.iter().flat_map(|word| word.to_le_bytes()));
        page
    }

    fn head(kind: u32, delta: u32) -> u32 {
        kind | delta << 5
    }

    fn entries(page: &[u8]) -> Vec<String> {
        let mut all = Vec::new();
        read(page, |entry| {
            all.push(match entry {
                Entry::Missed(count) => format!("missed {count}"),
                Entry::Event(time, payload) => format!("{time} {}", payload.len()),
            });
        });
        all
    }

    #[test]
    fn events_of_each_form() {
        let long = [head(0, 7), 12, 0xaa, 0xbb];
        let data = [
            &[head(2, 5), 1, 2][..],
            &[head(TIME_EXTEND, 3), 1],
            &long,
            &[head(PADDING, 1), 8, 0],
            &[head(TIME_STAMP, 9), 2],
            &[head(1, 1), 4],
        ];
        let whole = page(1000, 0, &data.concat());
        let extended = 1000 + 5 + 3 + (1 << 27);
        let stamp = 9 + (2 << 27);
        let expected = [format!("{} 8", 1005), format!("{} 8", extended + 7), format!("{} 4", stamp + 1)];
        assert_eq!(entries(&whole), expected);
        // Cut anywhere: the size says more than there is.
        for end in 0..whole.len() {
            assert!(entries(&whole[..end]).is_empty());
        }
        assert_eq!(entries(&page(1, 0, &[head(PADDING, 0), 1, 2])), [""; 0]);
        assert_eq!(entries(&page(1, 0, &[head(28, 1), 1, 2])), [""; 0], "longer than the page");
    }

    #[test]
    fn missed_events() {
        let mut page = page(5, MISSED | MISSED_STORED, &[head(1, 1), 4]);
        assert_eq!(entries(&page), ["missed 0", "6 4"], "no room for the count");
        page.extend(33_u64.to_le_bytes());
        assert_eq!(entries(&page), ["missed 33", "6 4"]);
        page[11] ^= 0x40;
        assert_eq!(entries(&page), ["missed 0", "6 4"]);
    }

    #[test]
    fn random_pages_end() {
        let mut state = 88_172_645_463_325_252_u64;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..200)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 32) as u8
                })
                .collect();
            let mut page = bytes.clone();
            page[8..16].copy_from_slice(&184_u64.to_le_bytes());
            read(&page, |_| {});
            read(&bytes, |_| {});
        }
    }
}
