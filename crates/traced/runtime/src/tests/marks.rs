//! Marks that switch single functions of a module that is pretended to be loaded.

use crate::features::marks::{Change, Marks, PATCHED, UNWANTED, Whole, is_on};

#[test]
fn a_site_is_on_unless_switched_off_or_if_a_handler_needs_it() {
    let on_in = |marks, all_on, is_handled| is_on(marks, Whole { is_on: all_on, is_handled });
    for (marks, on, off, handled_while_off) in [
        (0, true, false, false),
        (UNWANTED, false, false, false),
        (2, false, false, false),
        (UNWANTED | 2, false, false, false),
        (PATCHED, true, false, true),
        (PATCHED | UNWANTED, false, false, true),
    ] {
        assert_eq!((on_in(marks, true, false), on_in(marks, false, false)), (on, off), "{marks:#x}");
        assert_eq!(on_in(marks, false, true), handled_while_off, "{marks:#x}");
        assert_eq!(on_in(marks, true, true), on || handled_while_off, "{marks:#x}");
    }
}

#[test]
fn each_reason_is_taken_back_by_itself() {
    let marks = Marks::none();
    assert!(!marks.are_there());
    marks.change(1, Change { set: UNWANTED, clear: 0 });
    assert_eq!(marks.of(1), 0, "no room yet");
    assert!(marks.make_room(10_000) && marks.are_there());
    marks.change(9_999, Change { set: UNWANTED | 2, clear: 0 });
    assert_eq!((marks.of(9_998), marks.of(9_999), marks.of(10_000)), (0, 3, 0));
    assert!(marks.make_room(10_000));
    marks.change(9_999, Change { set: PATCHED, clear: UNWANTED });
    assert_eq!(marks.of(9_999), PATCHED | 2);
    marks.change(10_000, Change { set: UNWANTED, clear: 0 });
    assert_eq!(marks.of(10_000), 0, "no such site");
    marks.forget();
    assert!(!marks.are_there());
    assert_eq!(marks.of(9_999), 0);
    marks.forget();
}
