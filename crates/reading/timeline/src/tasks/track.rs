//! One track of a divided thread: which words it gets, and which calls are open on it.

use everycall_format::event::{EXIT, OFFSET_MASK, Word, call_word, gap, kind, payload_word, record_word};
use everycall_reader::OpenCall;

/// Less time between two steps isn't shown: an exception passes through coroutines in several.
pub(super) const SHORT_TICKS: u64 = 2000;

/// A task's track, or the track of events outside tasks.
#[derive(Debug, Default)]
pub(super) struct Track {
    /// Of the thread that runs the steps.
    tid: u32,
    /// Of the one that the last gap was said to be ended by.
    shown_tid: u32,
    /// Calls that are open here, as far as their entries were seen, and those before them.
    open: Vec<OpenCall>,
    unseen: u32,
    /// Those that ended last, one directly after the other.
    ended: Vec<OpenCall>,
    /// Offsets of the entries of calls that are suspended, outermost first; so many of them go on
    /// again.
    suspended: Vec<u32>,
    resumed: usize,
    /// Calls that are open in the innermost suspended one, that one included, after an exception
    /// was thrown into it: those around it still wait.
    inside: u32,
    /// When the last step ended.
    left_ticks: Option<u64>,
}

impl Track {
    pub fn new(tid: u32) -> Track {
        Track { tid, shown_tid: tid, ..Track::default() }
    }

    /// The thread that runs the next step.
    pub fn runs_on(&mut self, tid: u32) {
        self.tid = tid;
    }

    /// The calls that are open, also those that are suspended.
    pub fn into_open(self) -> Vec<OpenCall> {
        self.open
    }

    fn depth(&self) -> u32 {
        self.unseen.saturating_add(self.open.len() as u32)
    }

    /// So many calls are open, whatever was seen.
    pub fn is_at_depth(&mut self, depth: u32) {
        self.open.truncate(depth as usize);
        self.unseen = depth.saturating_sub(self.open.len() as u32);
    }

    /// The first record of segment `number`.
    pub fn segment(&self, high: u64, number: u64, out: &mut Vec<u64>) {
        out.push(record_word(0, kind::SEGMENT, 3, 0));
        let values = [(high >> 32) as u32, self.depth(), number as u32];
        out.extend(values.iter().zip(1..).map(|(value, index)| payload_word(*value, kind::SEGMENT, index)));
    }

    /// A step begins at `ticks`, and a gap before it ends.
    pub fn begin(&mut self, ticks: u64, out: &mut Vec<u64>) {
        // Whose states the next step has is among what the gap says.
        let is_other = std::mem::replace(&mut self.shown_tid, self.tid) != self.tid;
        let is_long = |left: &u64| ticks.saturating_sub(*left) >= SHORT_TICKS;
        let Some(left) = self.left_ticks.filter(|left| is_other || is_long(left)) else {
            return;
        };
        out.push(record_word(ticks, kind::GAP, 6, gap::SUSPENDED));
        let values = [left as u32, (left >> 32) as u32, self.depth(), 0, self.tid, 0];
        out.extend(values.iter().zip(1..).map(|(value, index)| payload_word(*value, kind::GAP, index)));
    }

    /// A step ends. The exits of its suspended calls, which are the last words, are taken back.
    pub fn end(&mut self, suspended: u32, ticks: u64, out: &mut Vec<u64>) {
        self.left_ticks = Some(ticks);
        if self.resumed > 0 {
            self.leave_those_left(ticks as u32, out);
        }
        self.inside = 0;
        for _ in 0..suspended {
            let Some(Word::Exit { offset, .. }) = out.last().map(|word| Word::decode(*word)) else { break };
            out.pop();
            // Of machine code, entries and exits have different places in the function.
            let ended = self.ended.pop();
            self.suspended.push(ended.and_then(|call| call.offset).unwrap_or(offset & OFFSET_MASK));
            match ended {
                Some(call) => self.open.push(call),
                None => self.unseen = self.unseen.saturating_add(1),
            }
        }
    }

    /// An entry, `word`, at `high | ticks_low`.
    pub fn enter(&mut self, word: u64, offset: u32, ticks: u64, out: &mut Vec<u64>) {
        if !self.suspended.is_empty() && self.goes_on(offset, ticks as u32, out) {
            return;
        }
        self.opens(offset, ticks);
        out.push(word);
    }

    /// An exit, `word`.
    pub fn exit(&mut self, word: u64, offset: u32, ticks_low: u32, out: &mut Vec<u64>) {
        if !self.suspended.is_empty() {
            self.leaves(Some(offset), ticks_low, out);
        }
        self.close();
        out.push(word);
    }

    /// An entry or exit whose record isn't a word.
    pub fn late(&mut self, low: u32, ticks: u64, record: &[u64], out: &mut Vec<u64>) {
        if low & EXIT == 0 {
            self.opens(low, ticks)
        } else {
            self.close()
        }
        out.extend(record);
    }

    /// So many calls were unwound.
    pub fn unwound(&mut self, count: u32, how: u8, ticks_low: u32, out: &mut Vec<u64>) {
        for _ in 0..count {
            if !self.suspended.is_empty() {
                self.leaves(None, ticks_low, out);
            }
            if self.depth() == 0 {
                break;
            }
            self.close();
        }
        self.ended.clear();
        out.push(record_word(ticks_low.into(), kind::UNWOUND, 2, how));
        out.push(payload_word(self.depth(), kind::UNWOUND, 1));
        out.push(payload_word(count, kind::UNWOUND, 2));
    }

    fn opens(&mut self, offset: u32, ticks: u64) {
        self.ended.clear();
        self.open.push(OpenCall { ticks, offset: Some(offset & OFFSET_MASK) });
    }

    fn close(&mut self) {
        match self.open.pop() {
            Some(call) => self.ended.push(call),
            None => self.unseen = self.unseen.saturating_sub(1),
        }
    }

    /// Whether the entry of a function continues a suspended call.
    fn goes_on(&mut self, offset: u32, ticks_low: u32, out: &mut Vec<u64>) -> bool {
        let Some(next) = self.suspended.get(self.resumed) else { return false };
        if self.inside > 0 {
            self.inside += 1;
            return false;
        }
        if *next == offset {
            self.resumed += 1;
            if self.resumed == self.suspended.len() {
                self.suspended.clear();
                self.resumed = 0;
            }
            return true;
        }
        if self.resumed == 0 && self.suspended.last() == Some(&offset) {
            // An exception is thrown into the innermost one.
            self.suspended.pop();
            self.inside = 1;
            return true;
        }
        self.leave_those_left(ticks_low, out);
        false
    }

    /// A call ends, of the function with this offset as far as it is known.
    fn leaves(&mut self, offset: Option<u32>, ticks_low: u32, out: &mut Vec<u64>) {
        if self.inside > 0 {
            self.inside -= 1;
        } else if self.resumed > 0 && offset.is_none_or(|offset| self.suspended.last() == Some(&offset)) {
            // The innermost one went on alone, and its function is that of an outer one, too.
            self.suspended.pop();
            self.resumed = 0;
        } else {
            self.leave_those_left(ticks_low, out);
        }
    }

    /// Those suspended calls have ended that didn't go on with the ones around them.
    fn leave_those_left(&mut self, ticks_low: u32, out: &mut Vec<u64>) {
        while self.suspended.len() > self.resumed
            && let Some(offset) = self.suspended.pop()
        {
            out.push(call_word(ticks_low.into(), offset | EXIT));
            self.close();
        }
        self.suspended.clear();
        self.resumed = 0;
        self.inside = 0;
    }
}
