//! Marks that switch single functions of a module that is pretended to be loaded.

use crate::features::marks::{Change, HANDLED, Marks, UNWANTED, is_on};

#[test]
fn a_site_is_on_when_nobody_wants_it_off_or_a_handler_wants_it() {
    for (marks, on, off) in [
        (0, true, false),
        (UNWANTED, false, false),
        (2, false, false),
        (UNWANTED | 2, false, false),
        (HANDLED, true, true),
        (HANDLED | UNWANTED, true, true),
    ] {
        assert_eq!((is_on(marks, true), is_on(marks, false)), (on, off), "{marks:#x}");
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
    marks.change(9_999, Change { set: HANDLED, clear: UNWANTED });
    assert_eq!(marks.of(9_999), HANDLED | 2);
    marks.change(10_000, Change { set: UNWANTED, clear: 0 });
    assert_eq!(marks.of(10_000), 0, "no such site");
    marks.forget();
    assert!(!marks.are_there());
    assert_eq!(marks.of(9_999), 0);
    marks.forget();
}
