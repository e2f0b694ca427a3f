//! Expressions over the arguments of one program, and what can't be copied.

use std::path::Path;

use everycall_arguments::syntax::Request;
use everycall_arguments::{CaptureOptions, FunctionPlace, Moment, compile};
use everycall_capture::{Outcome, Program};
use everycall_format::capture::OUTPUT_MAX;
use everycall_symbols::{ModuleDwarf, ModuleIdentity, SymbolOptions};
use everycall_values::layout::Layout;
use everycall_values::{decode, text};
use object::{Object, ObjectSymbol};

use crate::stopped::{Stop, Stopped};

const PROGRAM: &str = r#"
#include <string>
#include <sys/mman.h>
#include <vector>
enum Method { GET, POST = 5 };
struct Header { const char *name; int counts[4]; };
struct Address { unsigned port : 16; unsigned kind : 4; int id; };
struct Opaque;
struct Request {
    Method method; std::string path; Header *header; Header own; Address from; Request *next;
    const char *password; std::vector<int> sizes; Opaque *opaque; double ratio;
};
struct User { int id; char password[8]; };
struct Server {
    int port; std::string name;
    __attribute__((noinline)) int handle(Request *req, const Request &other, const char *edge, const char *bad,
        const char *none, std::vector<int> &huge, const char *auth_token, User user, int index, double part) {
        asm volatile("" : : "r"(this), "r"(req) : "memory");
        return index;
    }
};
int main() {
    static char *pages = (char *)mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *edge = pages + 4096 - 5;
    for (int i = 0; i < 5; i++) edge[i] = 'a' + i;
    mprotect(pages + 4096, 4096, PROT_NONE);
    Header header{"Host", {1, 2, 3, 4}};
    Request last{POST, "/a path that is longer than sixty-four bytes, so that it has to be cut somewhere", &header, {"own", {5, 6, 7, 8}}, {8080, 3, -4}, 0, "secret", {10, 20}, (Opaque *)4096, 0.5};
    Request first = last; first.path = "/index"; first.next = &last; first.method = GET; first.header = 0;
    std::vector<int> huge(1000000, 7);
    Server server{443, "main"};
    return server.handle(&first, last, edge, (const char *)0x123456, 0, huge, "abc", {9, "hidden"}, 2, 1.5) != 2;
}
"#;

/// A program that stands at the entry of its function.
struct At {
    stopped: Stopped,
    dwarf: ModuleDwarf,
    address: u64,
    linkage_name: String,
}

impl At {
    fn entry(dir: &Path) -> Self {
        std::fs::write(dir.join("it.cpp"), PROGRAM).unwrap();
        crate::run(&["g++", "-g", "-O0", "-no-pie", "it.cpp", "-o", "it"], dir);
        let path = dir.join("it");
        let data = std::fs::read(&path).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let build_id = file.build_id().unwrap().unwrap_or_default().to_vec();
        let dwarf = ModuleDwarf::open(&ModuleIdentity::new(&path, &build_id), &SymbolOptions::bare());
        let dwarf = dwarf.unwrap_or_else(|error| panic!("{error:?}"));
        let symbol = file
            .symbols()
            .find(|symbol| symbol.name().is_ok_and(|name| name.contains("Server6handle")))
            .unwrap();
        let address = symbol.address();
        let mut stopped = Stopped::start(&path, &dir.join("out"), &[address]);
        assert!(matches!(stopped.next(), Some(Stop::At(at)) if at == address));
        Self { stopped, dwarf, address, linkage_name: symbol.name().unwrap().to_owned() }
    }

    /// The arguments as text; `None` if the condition is false.
    fn captured(&mut self, request: &str) -> Result<Option<String>, String> {
        let parsed = Request::parse(request).map_err(|error| error.to_string())?;
        let place = FunctionPlace {
            address: self.address,
            first_site: 0,
            linkage_name: &self.linkage_name,
            is_local: Some(false),
        };
        let options = CaptureOptions::default();
        let made = compile(&parsed, request, Moment::Entry, Some(&mut self.dwarf), place, &options)
            .map_err(|error| error.to_string())?;
        let program = Program::check(&made.program).unwrap();
        let mut output = [0; OUTPUT_MAX];
        match program.run(&self.stopped, &mut output) {
            Outcome::Captured(length) => Ok(Some(text::arguments(&decode(
                &Layout::of_bytes(&made.layout).unwrap(),
                &output[..length],
            )))),
            Outcome::Rejected => Ok(None),
            Outcome::NoSpace => panic!("{request}: the output is as large as it may be"),
        }
    }

    fn text(&mut self, values: &str) -> String {
        self.captured(&format!("handle({values})")).unwrap_or_else(|error| panic!("{error}")).unwrap()
    }

    fn is_kept(&mut self, condition: &str) -> bool {
        let all = format!("handle() if {condition}");
        self.captured(&all).unwrap_or_else(|error| panic!("{error}")).is_some()
    }

    fn error(&mut self, values: &str) -> String {
        self.captured(&format!("handle({values})")).unwrap_err()
    }
}

#[test]
fn expressions_are_those_of_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let mut at = At::entry(&dir.path().canonicalize().unwrap());
    for (values, expected) in [
        ("req->path, req.method", "req->path=\"/index\", req.method=GET"),
        ("req->next->header->name", "req->next->header->name=\"Host\""),
        ("other.own.counts[2], other.own.counts[index]", "other.own.counts[2]=7, other.own.counts[index]=7"),
        ("this->port, port, name", "this->port=443, port=443, name=\"main\""),
        ("other.from.port, other.from.kind", "other.from.port=8080, other.from.kind=3"),
        ("other.from", "other.from={port=8080, kind=3, id=-4}"),
        ("other.own", "other.own={name=\"own\", counts=[5, 6, 7, 8]}"),
        ("other.sizes, other.sizes[1]", "other.sizes=[10, 20], other.sizes[1]=20"),
        ("*req->next->header", "*req->next->header={name=\"Host\", counts=[1, 2, 3, 4]}"),
        ("part, index + 1, -index * 3", "part=1.5, index + 1=3, -index * 3=-6"),
        // Cut, without an end, unreadable, null on the way, a million elements.
        ("other.path", "other.path=\"/a path that is longer than sixty-four bytes, so that it has to \"..."),
        ("edge, bad, none", "edge=\"abcde\"<unreadable>, bad=<unreadable>, none=null"),
        ("req->header, req->header->name", "req->header=null, req->header->name=<unreadable>"),
        ("huge[999999]", "huge[999999]=7"),
        ("req->opaque", "req->opaque=0x1000"),
        // Never copied.
        (
            "auth_token, req->password, user",
            "auth_token=<hidden>, req->password=<hidden>, user={id=9, password=<hidden>}",
        ),
        ("*auth_token, user.password[0]", "*auth_token=<hidden>, user.password[0]=<hidden>"),
    ] {
        assert_eq!(at.text(values), expected);
    }
    let huge = at.text("huge");
    assert!(huge.starts_with("huge=[7, 7,") && huge.ends_with(", ...]"), "{huge}");
    let all = at.captured("handle").unwrap().unwrap();
    assert!(all.contains("edge=\"abcde\"<unreadable>") && all.contains("index=2, part=1.5"), "{all}");
    assert!(!all.contains("secret") && !all.contains("hidden\""), "{all}");
    for (condition, expected) in [
        ("req->method == GET and index > 1", true),
        ("req->method == Method::POST", false),
        ("other.method == POST", true),
        ("req->path == \"/index\"", true),
        ("req->path starts with \"/in\" and other.path contains \"sixty\"", true),
        ("other.path == \"/a\"", false),
        ("edge starts with \"abc\"", true),
        ("edge == \"abcde\"", false),
        ("none == null and bad != null and req->header == null", true),
        ("req->header->name == \"Host\"", false),
        ("not req->header->name == \"Host\"", false),
        ("other.ratio < 0.75 and part == 1.5", true),
        ("other.from.port == 8080 or bad == \"x\"", true),
    ] {
        assert_eq!(at.is_kept(condition), expected, "{condition}");
    }
    for (values, parts) in [
        (
            "rek",
            &["there is no parameter `rek`", "  handle(rek)\n         ^^^\n", "there are: req: Request *"][..],
        ),
        ("req->meth", &["`Request` has no member `meth`", "it has: method: Method"]),
        ("&other.from.port", &["a bit field has no address"]),
        ("req->opaque->x", &["`Opaque` is only declared"]),
        ("index.x", &["`int` has no members"]),
        ("*index", &["`int` isn't a pointer"]),
        ("part[1]", &["`double` has no elements"]),
    ] {
        let error = at.error(values);
        assert!(parts.iter().all(|part| error.contains(part)), "{values}: {error}");
    }
    let error = at.captured("handle() if req->method == PUT").unwrap_err();
    assert!(error.contains("`Method` has no value `PUT`") && error.contains("GET"), "{error}");
}
