//! Symbols that a trace holds: refused, or the same when they are written and read again; and every
//! question has an answer.
#![no_main]

use std::path::Path;

use everycall_symbols::{KeptSymbols, Symbols};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(kept) = KeptSymbols::read(bytes) else { return };
    let again = KeptSymbols::read(&kept.write());
    assert_eq!(again.as_ref(), Ok(&kept));
    let mut symbols = Symbols::of_kept(kept, Path::new("/bin/app"));
    for address in (0..4096).chain([u64::MAX]) {
        let id = symbols.function_at(address);
        let function = symbols.function(id);
        assert!(symbols.is_known(id) || !function.name.is_empty());
        let _ = (symbols.twins(id), symbols.inlined(id), symbols.is_ambiguous(id), symbols.leave(address));
        let _ = (symbols.is_same_function(address, 0), symbols.is_inlined_at(address, id, true));
        let _ = (symbols.is_called(id, "f"), symbols.constant_text(address), symbols.variable_at(address));
        let _ = (symbols.is_bare_thunk(address), symbols.is_by_gcc(address));
        let _ = (symbols.line_at(address), symbols.distance_in_function(address));
    }
});
