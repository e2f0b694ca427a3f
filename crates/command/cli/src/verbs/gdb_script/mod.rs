//! `everycall gdb-script`: a gdb command in Python. The layout of the arena is generated from the
//! format crate's declarations.

use std::fmt::Write;
use std::mem::offset_of;
use std::path::Path;
use std::process::ExitCode;

use everycall_format::Wire;
use everycall_format::arena::{
    ARENA_VERSION, ArenaHeader, ChildEntry, ModuleEntry, OpenCall, SegmentEntry, ThreadHeader, pinned_by,
};
use everycall_format::dropped::{DroppedFunction, DroppedHeader, FUNCTIONS, OTHERS};
use everycall_format::frame::FrameNames;
use everycall_format::sched::KEPT_SIZE;
use everycall_format::times::TimeSums;

use crate::failure::Failure;
use crate::output::print;
use crate::this_program::this_program;

const SCRIPT: &str = include_str!("snapshot.py");

/// Offsets and sizes of fields, as Python source.
macro_rules! fields {
    ($structure:ty, $($field:ident),+ $(,)?) => {{
        let all = <$structure>::default();
        [$((stringify!($field), offset_of!($structure, $field), size_of_val(&all.$field))),+]
    }};
}

/// Runs the verb.
pub fn print_script() -> Result<ExitCode, Failure> {
    print(&script(&this_program()?))?;
    Ok(ExitCode::SUCCESS)
}

fn script(program: &Path) -> String {
    let header = fields!(
        ArenaHeader,
        version,
        arena_size,
        segment_size,
        open_call_capacity,
        thread_capacity,
        module_capacity,
        child_capacity,
        modules_offset,
        children_offset,
        paths_offset,
        paths_size,
        threads_offset,
        open_calls_offset,
        open_call_stride,
        dropped_offset,
        all_calls_offset,
        times_offset,
        segment_table_offset,
        segments_offset,
        segment_capacity,
        segments_taken,
        target_pid,
        modules,
        children,
        threads,
        paths,
        states_offset,
        frames_offset,
        frames_size,
        functions,
    );
    let dropped = fields!(DroppedHeader, places, highest_ns, counting);
    let frames = fields!(FrameNames, used, is_used);
    let thread = fields!(ThreadHeader, open_calls);
    let segment = fields!(SegmentEntry, pins);
    // Python strings use the same escapes as JSON.
    let program = serde_json::Value::from(program.to_string_lossy()).to_string();
    [
        ("@EVERYCALL@", program),
        ("@VERSION@", ARENA_VERSION.to_string()),
        ("@HEADER@", dictionary(&header)),
        ("@DROPPED@", dictionary(&dropped)),
        ("@KEPT_STATES_SIZE@", KEPT_SIZE.to_string()),
        ("@DROPPED_FUNCTION_SIZE@", DroppedFunction::SIZE.to_string()),
        ("@DROPPED_FUNCTIONS@", FUNCTIONS.to_string()),
        ("@DROPPED_OTHERS@", OTHERS.to_string()),
        ("@TIME_SUMS_SIZE@", TimeSums::SIZE.to_string()),
        ("@FRAMES@", dictionary(&frames)),
        ("@FRAMES_SIZE@", FrameNames::SIZE.to_string()),
        ("@THREAD@", dictionary(&thread)),
        ("@SEGMENT@", dictionary(&segment)),
        ("@THREAD_SIZE@", ThreadHeader::SIZE.to_string()),
        ("@SEGMENT_SIZE@", SegmentEntry::SIZE.to_string()),
        ("@CLEARING@", pinned_by::CLEARING.to_string()),
        ("@MODULE_SIZE@", ModuleEntry::SIZE.to_string()),
        ("@CHILD_SIZE@", ChildEntry::SIZE.to_string()),
        ("@OPEN_CALL_SIZE@", OpenCall::SIZE.to_string()),
    ]
    .iter()
    .fold(SCRIPT.to_owned(), |script, (mark, text)| script.replace(mark, text))
}

fn dictionary(fields: &[(&str, usize, usize)]) -> String {
    let mut text = "{\n".to_owned();
    for (name, offset, size) in fields {
        // Writing to a string doesn't fail.
        let _ = writeln!(text, "    \"{name}\": ({offset}, {size}),");
    }
    text + "}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_filled_in() {
        let script = script(Path::new("/a \"b\"/everycall"));
        assert!(!script.contains('@'), "{script}");
        assert!(script.contains(r#"EVERYCALL = "/a \"b\"/everycall""#));
        assert!(script.contains("    \"arena_size\": (16, 8),"));
    }
}
