//! An ELF file: every function is resolved, every warning is a sentence.

#![no_main]

use std::path::Path;
use std::sync::Arc;

use everycall_symbols::{
    FunctionId, Leave, ModuleIdentity, ModuleSymbols, SymbolOptions, site_report_of_image,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let path = Path::new("/fuzz/module");
    let identity = ModuleIdentity { image: Some(Arc::from(data)), ..ModuleIdentity::new(path, &[]) };
    let mut symbols = ModuleSymbols::open(&identity, &SymbolOptions::bare());
    let rows: Vec<(FunctionId, u64, u64)> =
        symbols.functions().map(|entry| (entry.id, entry.start, entry.size)).collect();
    assert!(rows.windows(2).all(|pair| pair[0].1 < pair[1].1), "sorted, one row for a start");
    for (id, start, size) in rows.iter().copied() {
        let function = symbols.function(id);
        assert!(!function.name.is_empty());
        assert_eq!((function.start, function.size), (start, size));
        assert_eq!(symbols.function_at(start), id);
        let (calls, _) = symbols.inlined(id);
        assert!(calls.iter().all(|call| !call.name.is_empty()));
        assert!(calls.first().is_none_or(|call| call.level == 0));
    }
    for (id, start, size) in rows.iter().copied().take(1000) {
        for address in (start..start.saturating_add(size)).take(64) {
            if let Some(Leave::JumpByName(name)) = symbols.leave(address) {
                let _ = symbols.is_called(id, &name);
            }
        }
    }
    let unnamed = symbols.function_at(u64::MAX);
    assert_eq!(symbols.function_at(u64::MAX), unnamed);
    for warning in symbols.take_warnings() {
        assert!(!warning.to_string().is_empty());
    }
    let _ = site_report_of_image(data, path);
});
