//! Facts from the modules' code about events, looked up once for each pair of places.

use everycall_calls::Location;
use everycall_calls::TailCall;

/// Facts from the modules' code. Answers are cached, so finding them may be slow, and they must not
/// change.
///
/// A closure can implement [`Code::same_function`]; the other questions are then answered with
/// "unknown".
pub trait Code {
    /// Whether an entry and an exit belong to the same function; `None` where that isn't known.
    fn same_function(&self, entry: Location, exit: Location) -> Option<bool>;

    /// Where a call was made that returns to this place: file and line, or else the function.
    fn call_site(&self, behind: Location) -> Option<String> {
        let _ = behind;
        None
    }

    /// The function that begins at this place.
    fn function_named(&self, place: Location) -> Option<String> {
        let _ = place;
        None
    }

    /// The variable at this place, with the distance from its beginning if that isn't 0.
    fn variable_named(&self, place: Location) -> Option<String> {
        let _ = place;
        None
    }

    /// Whether at this exit the function jumps into another one, rather than returning; false where
    /// that isn't known.
    fn jumps(&self, exit: Location) -> bool {
        let _ = exit;
        false
    }

    /// Whether code at this place was inlined there, from the function that is entered at `entry`;
    /// `None` if that isn't known. `is_callees`: ignore the innermost function that was inlined
    /// there, because it is the one being called.
    fn is_inlined(&self, code: Location, entry: Location, is_callees: bool) -> Option<bool> {
        let _ = (code, entry, is_callees);
        None
    }

    /// Whether the function at this place reports exits of calls that were inlined into it also
    /// where an exception leaves them; `None` where that isn't known.
    fn reports_exits_in_cleanups(&self, code: Location) -> Option<bool> {
        let _ = code;
        None
    }

    /// Whether this exit is one of a thunk that has no entry; false where that isn't known.
    fn is_bare_thunks(&self, exit: Location) -> bool {
        let _ = exit;
        false
    }

    /// Whether the jump at this exit leads into the function of this entry; `None` where that isn't
    /// known.
    fn jumps_to(&self, exit: Location, entry: Location) -> Option<bool> {
        let _ = (exit, entry);
        None
    }

    /// Whether the function at `caller` may itself call the one that is entered at `callee`, in the
    /// same module: false where it has no instruction that could; `None` where that isn't known.
    fn may_call(&self, caller: Location, callee: Location) -> Option<bool> {
        let _ = (caller, callee);
        None
    }
}

impl<F: Fn(Location, Location) -> Option<bool>> Code for F {
    fn same_function(&self, entry: Location, exit: Location) -> Option<bool> {
        self(entry, exit)
    }
}

/// Where a call was made, or a handler began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caller {
    /// `None` if no module has it.
    pub code: Option<Location>,
    /// The code is the called function's own, which was inlined.
    pub is_callees: bool,
}

/// Whether a call is around code that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Around {
    Is,
    Isnt,
    Unknown,
}

/// An exit, compared with the call that it may end.
#[derive(Clone, Copy)]
pub(crate) struct Exit {
    /// Whether they are of the same function.
    pub same: Option<bool>,
    /// Whether the function jumps away there.
    pub jumps: bool,
}

/// Pairs of locations that were looked up.
pub(crate) struct Answers<'a> {
    code: Option<&'a dyn Code>,
    exits: Kept<Exit>,
    /// Exit, then entry.
    tail_calls: Kept<TailCall>,
    /// Caller, then the inlined call's entry; with the rest of the question.
    around: Kept<((bool, Option<Location>), Around)>,
}

/// Answers by pairs of locations, one for each place in the table.
type Kept<T> = Vec<Option<(Location, Location, T)>>;

/// Places for answers of one kind; a power of two.
const PLACES: usize = 1 << 12;

impl<'a> Answers<'a> {
    pub fn new(code: Option<&'a dyn Code>) -> Answers<'a> {
        let places = if code.is_some() { PLACES } else { 0 };
        Answers { code, exits: vec![None; places], tail_calls: Vec::new(), around: Vec::new() }
    }

    /// Compares an exit with a call that was entered at `entry`.
    #[inline]
    pub fn exit(&mut self, entry: Location, exit: Location) -> Exit {
        if entry.module != exit.module && entry.module_index().is_some() && exit.module_index().is_some() {
            return Exit { same: Some(false), jumps: false };
        }
        let Some(code) = self.code else {
            return Exit { same: (entry == exit).then_some(true), jumps: false };
        };
        // An exit that is only known by its function doesn't show how it leaves, unless all of the
        // function is one jump.
        kept(&mut self.exits, entry, exit, || {
            let same = code.same_function(entry, exit);
            Exit { same, jumps: same != Some(false) && code.jumps(exit) }
        })
    }

    /// Whether a call inlined into the function that is entered at `outer`, if that is known, is
    /// still open after an exception has reached its frame, which continues at `caller`.
    #[cold]
    pub fn is_around(&mut self, caller: Caller, inlined: Location, outer: Option<Location>) -> Around {
        let (Some(known), Some(code)) = (self.code, caller.code) else { return Around::Unknown };
        if self.around.is_empty() {
            self.around.resize(PLACES, None);
        }
        let is_others = outer.is_some_and(|outer| self.exit(outer, code).same == Some(false));
        let find = || {
            if known.reports_exits_in_cleanups(outer.unwrap_or(code)) == Some(true) {
                // It would have ended.
                return Around::Is;
            }
            if is_others && outer.and_then(|outer| known.is_inlined(code, outer, false)) != Some(true) {
                // Of a function that isn't reported, and was called in the frame.
                return Around::Unknown;
            }
            match known.is_inlined(code, inlined, caller.is_callees) {
                Some(true) => Around::Is,
                Some(false) => Around::Isnt,
                None => Around::Unknown,
            }
        };
        let asked = (caller.is_callees, outer);
        let (answered, answer) = kept(&mut self.around, code, inlined, || (asked, find()));
        // Almost always the same: code is of one function.
        if answered == asked { answer } else { find() }
    }

    /// Whether this exit is one of a thunk that has no entry.
    #[cold]
    pub fn is_bare_thunks(&self, exit: Location) -> bool {
        self.code.is_some_and(|known| known.is_bare_thunks(exit))
    }

    /// Whether code is certainly one of the function that is entered at `entry`.
    pub fn is_same_function(&mut self, entry: Location, code: Location) -> bool {
        self.exit(entry, code).same == Some(true)
    }

    /// Whether the call that is entered at `entry` was made by the jump at `exit`.
    #[cold]
    pub fn tail_call(&mut self, exit: Location, entry: Location) -> TailCall {
        let Some(code) = self.code else { return TailCall::No };
        if self.tail_calls.is_empty() {
            self.tail_calls.resize(PLACES, None);
        }
        kept(&mut self.tail_calls, exit, entry, || match code.jumps_to(exit, entry) {
            Some(true) => TailCall::Yes,
            Some(false) => TailCall::No,
            None => TailCall::Perhaps,
        })
    }
}

#[inline]
fn kept<T: Copy>(table: &mut Kept<T>, first: Location, second: Location, find: impl FnOnce() -> T) -> T {
    let hash = (first.image_address.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ second.image_address.wrapping_mul(0xc2b2_ae3d_27d4_eb4f))
        >> 40;
    let place = &mut table[hash as usize & (PLACES - 1)];
    match place {
        Some((kept_first, kept_second, answer)) if *kept_first == first && *kept_second == second => *answer,
        _ => {
            let answer = find();
            *place = Some((first, second, answer));
            answer
        }
    }
}
