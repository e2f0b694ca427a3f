//! Thunks, to which gcc's `fentry` gives an exit and no entry.

use crate::common::Workplace;
use serde_json::Value;

const PROGRAM: &str = r#"
#define N __attribute__((noinline))
extern "C" N void probe(int x) { __asm__ volatile("" :: "r"(x) : "memory"); }
struct V { virtual ~V() {} virtual int v(int) = 0; };
struct W { virtual ~W() {} virtual int w(W*, int) = 0; virtual W* self() = 0; };
struct D : V, W {
  N int v(int n) override { probe(n); return n; }
  N int w(W* same, int n) override { probe(n); int r = n ? same->w(same, n - 1) : 0; probe(n); return r + 1; }
  N D* self() override { probe(0); return this; }
};
N int outer(W* w, int n) { int r = w->w(w, n); w = w->self(); probe(9); __asm__ volatile("" ::: "memory"); return r + (w != nullptr); }
int main() { D d; return outer(&d, 3) != 5; }
"#;

#[test]
fn exits_of_thunks_without_an_entry_are_neither_shown_nor_counted() {
    for flags in ["-O0", "-O1", "-O2", "-Os", "-O2 -fPIC -fcf-protection"] {
        let here = Workplace::new();
        here.write("thunks.cpp", PROGRAM);
        let tree = |mode: &str| {
            here.succeed(&format!("cc --mode {mode} -- g++ {flags} thunks.cpp -o thunks"));
            here.succeed("record -q -o thunks.ect -- ./thunks");
            let info = here.succeed("info -f json thunks.ect").stdout;
            let info: Value = serde_json::from_str(&info).unwrap();
            assert_eq!(info["orphan_exits"], 0, "{mode} {flags}");
            assert_eq!(info["threads"][0]["orphan_exits"], 0, "{mode} {flags}");
            let text = here.succeed("replay thunks.ect").stdout;
            assert!(!text.contains("without its entry"), "{mode} {flags}: {text}");
            let lines = here.succeed("replay -f json thunks.ect").stdout;
            let call = |line: &str| {
                let call: Value = serde_json::from_str(line).unwrap();
                (call["depth"].as_u64().unwrap(), call["name"].as_str().unwrap().to_owned())
            };
            lines.lines().map(call).collect::<Vec<_>>()
        };
        assert_eq!(tree("fentry"), tree("nops"), "{flags}");
    }
}
