//! Requests for arguments, results and conditions, as users write them. Each is refused with a
//! place in the text, or it makes programs that
//! the traced side accepts, and whose captures their layouts describe.
#![no_main]

mod machine;

use everycall_arguments::syntax::Request;
use everycall_arguments::{CaptureOptions, FunctionPlace, Moment, RecordedCondition, Wanted, compile};
use everycall_capture::{Outcome, Program};
use everycall_format::capture::OUTPUT_MAX;
use everycall_values::layout::Layout;
use everycall_values::{decode, text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(request_text) = std::str::from_utf8(bytes) else { return };
    let condition = RecordedCondition::parse(request_text);
    let _ = Wanted::parse(request_text, Moment::Exit);
    let Ok(request) = Request::parse(request_text) else { return };
    for (moment, is_c_library) in [(Moment::Entry, false), (Moment::Entry, true), (Moment::Exit, true)] {
        let options = CaptureOptions { is_c_library, ..CaptureOptions::default() };
        let place = FunctionPlace {
            address: 0x1000,
            first_site: 0,
            linkage_name: &request.function,
            is_local: Some(false),
        };
        let compiled = match compile(&request, request_text, moment, None, place, &options) {
            Ok(compiled) => compiled,
            Err(error) => {
                assert!(!error.message.is_empty());
                continue;
            }
        };
        let program = Program::check(&compiled.program).expect("the traced side accepts it");
        let layout = Layout::of_bytes(&compiled.layout).expect("a layout");
        let mut output = [0; OUTPUT_MAX];
        if let Outcome::Captured(length) = program.run(&machine::Bytes(bytes), &mut output) {
            let values = decode(&layout, &output[..length]);
            let shown = text::json(&values);
            assert!(!shown.contains("damaged"), "{request_text}: {shown}");
            let _ = condition.as_ref().map(|condition| condition.holds(&values));
        }
    }
});
