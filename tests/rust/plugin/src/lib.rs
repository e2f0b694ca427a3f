//! A shared object that the program loads.

use counted::counted;

#[counted]
fn plus_one(number: u64) -> u64 {
    number + 1
}

#[no_mangle]
extern "C" fn plugin_add(number: u64) -> u64 {
    parts::entered("plugin_add");
    let sum = plus_one(number);
    parts::returned("plugin_add");
    sum
}

#[no_mangle]
extern "C" fn plugin_print() {
    parts::print();
}
