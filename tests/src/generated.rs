//! Programs made by chance, in which exceptions go through functions and destructors that are
//! inlined and that aren't, and the calls that each of them makes, as the generator itself runs it.

use std::fmt::Write;

use everycall_synth::Rng;

/// Calls that one program makes at most.
const CALLS_MAX: usize = 400;
/// Calls that exceptions leave at least.
const LEFT_MIN: usize = 4;
/// Limit on the statements of one function, with those of all calls inlined into it.
const SIZE_MAX: usize = 150;
/// Times that functions call themselves or one around them, in all.
const RECURSIONS: u32 = 4;
/// Rounds in which the outermost function is called.
const ROUNDS: usize = 3;

/// The beginning of every source.
const HEAD: &str = r#"
#if defined(__clang__)
#define OWN __attribute__((noinline))
#define HIDDEN __attribute__((no_instrument_function, xray_never_instrument, always_inline))
#else
#define OWN __attribute__((noipa))
#define HIDDEN __attribute__((no_instrument_function, always_inline))
#endif
#define INLINED __attribute__((always_inline))
#define HERE __asm__ volatile("" ::: "memory")
struct E0 {};
struct E1 : E0 {};
OWN void leaf() { HERE; }
OWN void throws0() { throw E0(); }
OWN void throws1() { throw E1(); }
static inline HIDDEN bool is_turn(volatile int& count, int of, int at) {
    count = count + 1;
    return count % of == at;
}
static inline HIDDEN bool goes_on(volatile int& count) {
    count = count - 1;
    return count >= 0;
}
"#;

/// When something happens that doesn't each time.
#[derive(Clone, Copy)]
struct Turn {
    counter: usize,
    of: u32,
    at: u32,
}

enum Statement {
    Leaf,
    /// A function behind this one.
    Call(usize),
    /// One that may be around.
    Recurse(usize),
    /// An exception of a type, by a function of its own or not.
    Throw(Turn, usize, bool),
    Rethrow(Turn),
    Return(Turn),
    /// An object of a class, until the end of the block.
    Object(usize),
    Block(Vec<Statement>),
    Loop(usize, Vec<Statement>),
    /// With handlers of types; the last one may be of all.
    Try(Vec<Statement>, Vec<(Option<usize>, Vec<Statement>)>),
}

/// A function or a destructor.
struct Function {
    is_inlined: bool,
    body: Vec<Statement>,
}

/// A call, and what it makes.
struct Node {
    name: String,
    is_inlined: bool,
    is_left: bool,
    inside: Vec<Node>,
}

/// How a statement ends.
#[derive(Clone, Copy, PartialEq)]
enum Flow {
    GoesOn,
    Returns,
    Throws(usize),
}

/// A program in a namespace of its own.
pub struct Program {
    prefix: String,
    functions: Vec<Function>,
    /// Destructors of classes.
    classes: Vec<Function>,
    counters: usize,
    calls: Vec<Node>,
}

impl Program {
    /// The program of a number.
    #[must_use]
    pub fn new(number: u64) -> Program {
        let mut rng = Rng::new(number);
        loop {
            let mut program = Maker::make(&mut rng, format!("p{number}"));
            if program
                .functions
                .iter()
                .chain(&program.classes)
                .all(|made| program.size(&made.body) <= SIZE_MAX)
                && let Some(calls) = Run::of(&program)
            {
                program.calls = calls;
                return program;
            }
        }
    }

    /// Statements, with those that are inlined.
    fn size(&self, body: &[Statement]) -> usize {
        let inlined = |function: &Function| if function.is_inlined { self.size(&function.body) } else { 1 };
        let of = |statement: &Statement| match statement {
            Statement::Call(function) => inlined(&self.functions[*function]),
            // On the way out, and by exceptions.
            Statement::Object(class) => 2 * inlined(&self.classes[*class]),
            Statement::Block(body) | Statement::Loop(_, body) => self.size(body),
            Statement::Try(body, handlers) => {
                self.size(body) + handlers.iter().map(|(_, body)| self.size(body)).sum::<usize>()
            }
            _ => 1,
        };
        body.iter().map(|statement| 1 + of(statement)).sum()
    }

    /// The calls that it makes, as [`Call::text`](crate::Call::text) has them: of functions that
    /// are inlined, too, or not.
    #[must_use]
    pub fn calls(&self, reports_inlined: bool) -> String {
        texts(&self.calls, reports_inlined).join(" ")
    }
}

fn texts(calls: &[Node], reports_inlined: bool) -> Vec<String> {
    let mut all = Vec::new();
    for Node { name, is_inlined, is_left, inside } in calls {
        let inside = texts(inside, reports_inlined);
        if *is_inlined && !reports_inlined {
            all.extend(inside);
            continue;
        }
        let mark = if *is_left { "!" } else { "" };
        all.push(match inside.is_empty() {
            true => format!("{name}{mark}"),
            false => format!("{name}{mark}({})", inside.join(" ")),
        });
    }
    all
}

/// The source of several programs, whose `main` runs one after the other.
#[must_use]
pub fn source(programs: &[Program]) -> String {
    let mut text = HEAD.to_owned();
    for program in programs {
        program.write(&mut text);
    }
    text += "int main() {\n";
    for program in programs {
        let _ = writeln!(text, "    {}::run();", program.prefix);
    }
    text + "    return 0;\n}\n"
}

impl Program {
    fn write(&self, text: &mut String) {
        let kind = |function: &Function| if function.is_inlined { "INLINED" } else { "OWN" };
        let _ = writeln!(text, "namespace {} {{", self.prefix);
        let _ = writeln!(text, "volatile int turns[{}], recursions = {RECURSIONS};", self.counters.max(1));
        for (number, function) in self.functions.iter().enumerate() {
            let inline = if function.is_inlined { "static inline " } else { "" };
            let _ = writeln!(text, "{inline}{} void f{number}();", kind(function));
        }
        for (number, class) in self.classes.iter().enumerate().rev() {
            let _ = writeln!(text, "struct C{number} {{\n{} ~C{number}() {{", kind(class));
            write_all(&class.body, text);
            *text += "HERE;\n}\n};\n";
        }
        for (number, function) in self.functions.iter().enumerate().rev() {
            let inline = if function.is_inlined { "static inline " } else { "" };
            let _ = writeln!(text, "{inline}{} void f{number}() {{", kind(function));
            write_all(&function.body, text);
            *text += "HERE;\n}\n";
        }
        let _ = writeln!(
            text,
            "OWN void run() {{\nfor (volatile int i = 0; i < {ROUNDS}; i = i + 1) try {{ f0(); }} catch (...) {{ HERE; }}\nHERE;\n}}\n}}"
        );
    }
}

fn write_all(body: &[Statement], text: &mut String) {
    for (place, statement) in body.iter().enumerate() {
        let turn = |turn: &Turn| format!("if (is_turn(turns[{}], {}, {}))", turn.counter, turn.of, turn.at);
        let _ = match statement {
            Statement::Leaf => writeln!(text, "leaf(); HERE;"),
            Statement::Call(function) => writeln!(text, "f{function}(); HERE;"),
            Statement::Recurse(function) => {
                writeln!(text, "if (goes_on(recursions)) {{ f{function}(); HERE; }}")
            }
            Statement::Throw(when, kind, true) => writeln!(text, "{} throws{kind}();", turn(when)),
            Statement::Throw(when, kind, false) => writeln!(text, "{} throw E{kind}();", turn(when)),
            Statement::Rethrow(when) => writeln!(text, "{} throw;", turn(when)),
            Statement::Return(when) => writeln!(text, "{} return;", turn(when)),
            Statement::Object(class) => writeln!(text, "C{class} object{place};"),
            Statement::Block(body) => {
                *text += "{\n";
                write_all(body, text);
                writeln!(text, "}}")
            }
            Statement::Loop(count, body) => {
                let _ = writeln!(text, "for (volatile int i = 0; i < {count}; i = i + 1) {{");
                write_all(body, text);
                writeln!(text, "}}")
            }
            Statement::Try(body, handlers) => {
                *text += "try {\n";
                write_all(body, text);
                for (kind, body) in handlers {
                    let _ = match kind {
                        Some(kind) => writeln!(text, "}} catch (E{kind}&) {{\nHERE;"),
                        None => writeln!(text, "}} catch (...) {{\nHERE;"),
                    };
                    write_all(body, text);
                }
                writeln!(text, "}}")
            }
        };
    }
}

/// Makes a program.
struct Maker<'r> {
    rng: &'r mut Rng,
    program: Program,
    /// The current function or class; only later ones can be used.
    function: usize,
    class: usize,
}

impl Maker<'_> {
    fn make(rng: &mut Rng, prefix: String) -> Program {
        let functions = 4 + rng.below(6) as usize;
        let classes = 2 + rng.below(3) as usize;
        let mut new = |_| Function { is_inlined: !rng.one_in(3), body: Vec::new() };
        let program = Program {
            prefix,
            functions: (0..functions).map(&mut new).collect(),
            classes: (0..classes).map(new).collect(),
            counters: 0,
            calls: Vec::new(),
        };
        let mut maker = Maker { rng, program, function: functions, class: 0 };
        maker.program.functions[0].is_inlined = false;
        for class in 0..classes {
            maker.class = class + 1;
            maker.program.classes[class].body = maker.careful();
        }
        maker.class = 0;
        for function in 0..functions {
            maker.function = function + 1;
            maker.program.functions[function].body = maker.block(2, false);
        }
        maker.program
    }

    fn turn(&mut self) -> Turn {
        let of = 1 + self.rng.below(3) as u32;
        let counter = self.program.counters;
        self.program.counters += 1;
        Turn { counter, of, at: self.rng.below(of.into()) as u32 }
    }

    /// The body of a destructor: no exception leaves it.
    fn careful(&mut self) -> Vec<Statement> {
        let mut body = vec![Statement::Leaf];
        if self.rng.one_in(2) {
            let inside = self.block(1, false);
            let handler = if self.rng.one_in(2) { vec![Statement::Leaf] } else { Vec::new() };
            body.push(Statement::Try(inside, vec![(None, handler)]));
        }
        body
    }

    fn block(&mut self, depth: usize, in_handler: bool) -> Vec<Statement> {
        (0..=self.rng.below(3)).map(|_| self.statement(depth, in_handler)).collect()
    }

    fn statement(&mut self, depth: usize, in_handler: bool) -> Statement {
        let behind = |from: usize, end: usize, rng: &mut Rng| {
            (from < end).then(|| from + rng.below((end - from) as u64) as usize)
        };
        match self.rng.below(if depth > 0 { 16 } else { 9 }) {
            0..=2 => match behind(self.function, self.program.functions.len(), self.rng) {
                Some(function) => Statement::Call(function),
                None => Statement::Leaf,
            },
            3 | 4 => match behind(self.class, self.program.classes.len(), self.rng) {
                Some(class) => Statement::Object(class),
                None => Statement::Leaf,
            },
            5 | 6 => {
                let (kind, by_function) = (self.rng.below(2) as usize, self.rng.one_in(2));
                Statement::Throw(self.turn(), kind, by_function)
            }
            7 if in_handler => Statement::Rethrow(self.turn()),
            7 => {
                // Within functions alone: destructors are made while there is none.
                let around = (0..self.function.min(self.program.functions.len()))
                    .filter(|function| self.class == 0 && !self.program.functions[*function].is_inlined);
                let around: Vec<usize> = around.collect();
                match around.is_empty() {
                    true => Statement::Leaf,
                    false => Statement::Recurse(around[self.rng.below(around.len() as u64) as usize]),
                }
            }
            8 => Statement::Leaf,
            9 => Statement::Return(self.turn()),
            10 => Statement::Block(self.block(depth - 1, in_handler)),
            11 => Statement::Loop(2, self.block(depth - 1, in_handler)),
            _ => {
                let body = self.block(depth - 1, in_handler);
                let mut handlers = Vec::new();
                // The derived type first.
                for kind in [1, 0] {
                    if self.rng.one_in(2) {
                        handlers.push((Some(kind), self.block(depth - 1, true)));
                    }
                }
                if handlers.is_empty() || self.rng.one_in(2) {
                    handlers.push((None, self.block(depth - 1, true)));
                }
                Statement::Try(body, handlers)
            }
        }
    }
}

/// A run of a program.
struct Run<'p> {
    program: &'p Program,
    turns: Vec<u32>,
    recursions: u32,
    calls: usize,
    /// Exceptions that are being handled.
    handled: Vec<usize>,
    /// Calls that exceptions have left.
    left: usize,
}

impl Run<'_> {
    /// Its calls, where they aren't too many or too few.
    fn of(program: &Program) -> Option<Vec<Node>> {
        let turns = vec![0; program.counters];
        let mut run = Run { program, turns, recursions: RECURSIONS, calls: 0, handled: Vec::new(), left: 0 };
        let mut inside = Vec::new();
        for _ in 0..ROUNDS {
            run.call(format!("{}::f0()", program.prefix), &program.functions[0], &mut inside);
        }
        let name = format!("{}::run()", program.prefix);
        ((20..CALLS_MAX).contains(&run.calls) && run.left >= LEFT_MIN)
            .then(|| vec![Node { name, is_inlined: false, is_left: false, inside }])
    }

    fn call(&mut self, name: String, function: &Function, calls: &mut Vec<Node>) -> Flow {
        self.calls += 1;
        if self.calls > CALLS_MAX {
            return Flow::Returns;
        }
        let mut inside = Vec::new();
        let flow = self.block(&function.body, &mut inside);
        let is_left = matches!(flow, Flow::Throws(_));
        self.left += usize::from(is_left);
        calls.push(Node { name, is_inlined: function.is_inlined, is_left, inside });
        if is_left { flow } else { Flow::GoesOn }
    }

    fn own(name: &str, is_left: bool) -> Node {
        Node { name: name.to_owned(), is_inlined: false, is_left, inside: Vec::new() }
    }

    fn is_turn(&mut self, turn: Turn) -> bool {
        self.turns[turn.counter] += 1;
        self.turns[turn.counter] % turn.of == turn.at
    }

    fn block(&mut self, body: &[Statement], calls: &mut Vec<Node>) -> Flow {
        let mut objects = Vec::new();
        let mut flow = Flow::GoesOn;
        for statement in body {
            flow = self.statement(statement, &mut objects, calls);
            if flow != Flow::GoesOn {
                break;
            }
        }
        let program = self.program;
        for class in objects.into_iter().rev() {
            let name = format!("{}::C{class}::~C{class}()", program.prefix);
            self.call(name, &program.classes[class], calls);
        }
        flow
    }

    fn statement(&mut self, statement: &Statement, objects: &mut Vec<usize>, calls: &mut Vec<Node>) -> Flow {
        let program = self.program;
        let name = |function: usize| format!("{}::f{function}()", program.prefix);
        match statement {
            Statement::Leaf => calls.push(Self::own("leaf()", false)),
            Statement::Call(function) => {
                return self.call(name(*function), &program.functions[*function], calls);
            }
            Statement::Recurse(function) => {
                if self.recursions > 0 {
                    self.recursions -= 1;
                    return self.call(name(*function), &program.functions[*function], calls);
                }
            }
            Statement::Throw(when, kind, by_function) => {
                if self.is_turn(*when) {
                    if *by_function {
                        calls.push(Self::own(&format!("throws{kind}()"), true));
                    }
                    return Flow::Throws(*kind);
                }
            }
            Statement::Rethrow(when) => {
                if self.is_turn(*when) {
                    return self.handled.last().map_or(Flow::GoesOn, |kind| Flow::Throws(*kind));
                }
            }
            Statement::Return(when) => {
                if self.is_turn(*when) {
                    return Flow::Returns;
                }
            }
            Statement::Object(class) => objects.push(*class),
            Statement::Block(body) => return self.block(body, calls),
            Statement::Loop(count, body) => {
                for _ in 0..*count {
                    let flow = self.block(body, calls);
                    if flow != Flow::GoesOn {
                        return flow;
                    }
                }
            }
            Statement::Try(body, handlers) => {
                let flow = self.block(body, calls);
                let Flow::Throws(thrown) = flow else { return flow };
                // E1 is an E0.
                let takes = |kind: Option<usize>| kind.is_none_or(|kind| kind <= thrown);
                let Some((_, handler)) = handlers.iter().find(|(kind, _)| takes(*kind)) else { return flow };
                self.handled.push(thrown);
                let flow = self.block(handler, calls);
                self.handled.pop();
                return flow;
            }
        }
        Flow::GoesOn
    }
}
