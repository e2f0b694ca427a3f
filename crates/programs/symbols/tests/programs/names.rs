//! Rust functions: generic, in a trait, a closure. A line that ends in `@ NAME` declares NAME.

mod inner {
    pub trait Area {
        fn area(&self) -> u32;
    }

    pub struct Square<T>(pub T);

    impl<T: Into<u32> + Copy> Area for Square<T> {
        #[inline(never)]
        fn area(&self) -> u32 { // @ <names::inner::Square<u8> as names::inner::Area>::area
            let side: u32 = self.0.into();
            side * side
        }
    }
}

#[inline(never)]
fn plain(x: u32) -> u32 { // @ names::plain
    std::hint::black_box(x) + 1
}

fn main() { // @ names::main
    use inner::Area;
    let count = std::env::args().count() as u32;
    let add = |x: u32| std::hint::black_box(x) + count;
    println!("{} {} {}", plain(count), inner::Square(count as u8).area(), add(3));
}
