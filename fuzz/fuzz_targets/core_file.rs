//! Core dumps, also as packed ones come in: from their beginning to their end; and crash files.
#![no_main]

use everycall_coredump::{Core, Snapshot, unpack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(Core::of_elf(bytes, None));
    check(Core::of_arena(bytes, None));
    if let Ok(unpacked) = unpack(bytes, "core") {
        check(Core::of_elf(unpacked, None));
    }
});

fn check(core: Result<Core<'_>, everycall_coredump::CoreError>) {
    let Ok(core) = core else { return };
    let (Ok(image), Ok(_)) = (core.arena(), core.cut()) else { return };
    if let Ok(mut snapshot) = Snapshot::read(&image, core.process()) {
        if let Some(crash) = core.crash() {
            snapshot.set_crash(crash);
            let _ = snapshot.reached_realtime_ns();
        }
        snapshot.write(std::io::sink(), "fuzz").expect("a sink takes everything");
    }
}
