fn main() {
    let view = everycall_tests::TraceView::open(std::env::args().nth(1).unwrap().as_ref());
    println!("{:?} {:?}", view.warnings, &view.counters[..11]);
    for t in &view.threads {
        println!("{:?}", t.info);
        for (n, c) in t.tallies.iter().take(40) {
            println!("  {n} {c:?}");
        }
        for c in t.calls.iter().take(10) {
            let s = c.text();
            println!("  {}", &s[..s.len().min(600)]);
        }
    }
}
