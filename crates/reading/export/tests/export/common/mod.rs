//! Hand-made recordings.

use std::borrow::Cow;
use std::collections::BTreeMap;

use everycall_export::{
    Begin, Details, EndKind, FunctionName, Gap, GapKind, Inlined, Instant, InstantKind, Location, Loss,
    LossKind, Mark, MarkKind, MarkName, Names, Process, Source, SpanEndKind, StateSpan, TailCall, Thread,
    ThreadState, ThreadStates, TimelineEvent, Wait,
};

/// A program whose calls are added one by one.
pub struct Program {
    pub processes: Vec<Process>,
    pub threads: Vec<Thread>,
    pub events: Vec<Vec<TimelineEvent>>,
    pub realtime_ns: Option<u64>,
    open: Vec<Begin>,
    mark_names: Vec<String>,
    /// Number, begin, name and value of open spans.
    spans: Vec<(u32, u64, String, Option<u64>, bool)>,
    next_span: u32,
    /// By thread id.
    states: BTreeMap<u32, ThreadStates>,
}

impl Default for Program {
    fn default() -> Program {
        Program {
            processes: vec![Process { pid: 100, name: "app".to_owned(), ..Process::default() }],
            threads: Vec::new(),
            events: Vec::new(),
            realtime_ns: None,
            open: Vec::new(),
            mark_names: Vec::new(),
            spans: Vec::new(),
            next_span: 0,
            states: BTreeMap::new(),
        }
    }
}

impl Program {
    /// Later threads belong to another process.
    #[allow(dead_code, reason = "not every test file has several processes")]
    pub fn process(&mut self, pid: u32, parent_pid: u32, command: &[&str]) -> &mut Self {
        let name = command[0].rsplit('/').next().unwrap().to_owned();
        let command = command.iter().map(ToString::to_string).collect();
        self.processes.push(Process { pid, parent_pid, name, command });
        self
    }

    pub fn thread(&mut self, tid: u32, name: &str) -> &mut Self {
        assert!(self.open.is_empty(), "the thread before has open calls");
        let process = self.processes.len() - 1;
        let pid = self.processes[process].pid;
        self.threads.push(Thread { process, pid, tid, name: name.to_owned(), dropped: 0, is_sampled: false });
        self.events.push(Vec::new());
        self
    }

    pub fn begin(&mut self, function: u64, start_ns: u64) -> &mut Self {
        self.begin_cut(function, start_ns, false)
    }

    pub fn begin_cut(&mut self, function: u64, start_ns: u64, cut: bool) -> &mut Self {
        self.begin_how(function, start_ns, cut, TailCall::No)
    }

    pub fn begin_tail(&mut self, function: u64, start_ns: u64, tail_call: TailCall) -> &mut Self {
        self.begin_how(function, start_ns, false, tail_call)
    }

    /// A call of unknown caller.
    #[allow(dead_code, reason = "not every test file has what is unsure")]
    pub fn begin_unsure(&mut self, function: u64, start_ns: u64) -> &mut Self {
        self.begin(function, start_ns);
        let Some(TimelineEvent::Begin(begin)) = self.events.last_mut().and_then(|events| events.last_mut())
        else {
            panic!("a begin")
        };
        begin.caller_unsure = true;
        self
    }

    fn begin_how(&mut self, function: u64, start_ns: u64, cut: bool, tail_call: TailCall) -> &mut Self {
        let location = Location { module: 0, image_address: function };
        let depth = self.open.len() as u32;
        let begin = Begin { depth, location, start_ns, cut, tail_call, ..Begin::default() };
        self.open.push(begin);
        self.push(TimelineEvent::Begin(begin))
    }

    pub fn end(&mut self, end_ns: u64) -> &mut Self {
        self.end_how(end_ns, EndKind::Returned)
    }

    pub fn end_how(&mut self, end_ns: u64, how: EndKind) -> &mut Self {
        let begin = self.open.pop().expect("an open call");
        self.push(TimelineEvent::End(begin.ended(end_ns, how)))
    }

    pub fn loss(&mut self, at_ns: u64, count: Option<u64>) -> &mut Self {
        self.push(TimelineEvent::Loss(Loss { at_ns, count, why: LossKind::Busy }))
    }

    pub fn orphan_exit(&mut self, function: u64, at_ns: u64) -> &mut Self {
        let location = Location { module: 0, image_address: function };
        self.push(TimelineEvent::Instant(Instant { at_ns, kind: InstantKind::OrphanExit(location) }))
    }

    pub fn mark(&mut self, at_ns: u64, name: &str, value: Option<u64>, kind: MarkKind) -> &mut Self {
        let number = self.mark_names.iter().position(|known| known == name).unwrap_or(self.mark_names.len());
        if number == self.mark_names.len() {
            self.mark_names.push(name.to_owned());
        }
        self.push(TimelineEvent::Mark(Mark { at_ns, name: MarkName(number as u32), value, kind }))
    }

    pub fn label(&mut self, at_ns: u64, name: &str, value: u64) -> &mut Self {
        self.mark(at_ns, name, Some(value), MarkKind::Label)
    }

    pub fn counter(&mut self, at_ns: u64, name: &str, value: i64) -> &mut Self {
        self.mark(at_ns, name, Some(value.cast_unsigned()), MarkKind::Counter)
    }

    pub fn span_begin(&mut self, at_ns: u64, name: &str, value: Option<u64>, cut: bool) -> &mut Self {
        let span = self.next_span;
        self.next_span += 1;
        self.spans.push((span, at_ns, name.to_owned(), value, cut));
        self.mark(at_ns, name, value, MarkKind::SpanBegin { span, cut })
    }

    /// Ends the first open span with this name.
    pub fn span_end(&mut self, at_ns: u64, name: &str, how: SpanEndKind) -> &mut Self {
        let at = self.spans.iter().position(|span| span.2 == name).expect("an open span");
        let (span, start_ns, name, value, start_cut) = self.spans.remove(at);
        self.mark(at_ns, &name, value, MarkKind::SpanEnd { span, start_ns, start_cut, how })
    }

    pub fn gap(&mut self, at_ns: u64, until_ns: u64, why: GapKind) -> &mut Self {
        self.push(TimelineEvent::Gap(Gap { at_ns, until_ns, why, resumed_by: None }))
    }

    /// A suspended stack that a thread resumes.
    #[allow(dead_code, reason = "not every test file has stacks that are suspended")]
    pub fn suspended(&mut self, at_ns: u64, until_ns: u64, thread: u32) -> &mut Self {
        let why = GapKind::Suspended;
        self.push(TimelineEvent::Gap(Gap { at_ns, until_ns, why, resumed_by: Some(thread) }))
    }

    fn push(&mut self, event: TimelineEvent) -> &mut Self {
        self.events.last_mut().expect("a thread").push(event);
        self
    }
}

impl Source for Program {
    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn threads(&self) -> &[Thread] {
        &self.threads
    }

    fn end_ns(&self) -> u64 {
        self.events.iter().flatten().map(TimelineEvent::at_ns).max().unwrap_or(0)
    }

    fn last_event_ns(&self) -> u64 {
        self.end_ns()
    }

    fn origin_realtime_ns(&self) -> Option<u64> {
        self.realtime_ns
    }

    fn mark_name(&self, name: MarkName) -> &str {
        &self.mark_names[name.0 as usize]
    }

    fn log_line(&self, line: MarkName) -> String {
        self.mark_name(line).to_owned()
    }

    fn states(&self, thread: usize) -> Option<&ThreadStates> {
        self.states.get(&self.threads[thread].tid)
    }

    fn events(&self, thread: usize) -> impl Iterator<Item = TimelineEvent> {
        self.events[thread].iter().copied()
    }
}

/// Functions by address: name, file, line. Other functions are named f and their number.
#[derive(Default)]
pub struct Book {
    pub functions: BTreeMap<u64, (String, Option<String>, Option<u32>)>,
    pub sources: BTreeMap<String, String>,
    pub details: BTreeMap<u64, Details>,
}

impl Book {
    pub fn function(mut self, address: u64, name: &str, file: &str, line: u32) -> Self {
        self.functions.insert(address, (name.to_owned(), Some(file.to_owned()), Some(line)));
        self
    }

    pub fn source(mut self, file: &str, text: &str) -> Self {
        self.sources.insert(file.to_owned(), text.to_owned());
        self
    }
}

impl Names for Book {
    fn function(&self, location: Location) -> FunctionName<'_> {
        let module = Cow::Borrowed("app");
        match self.functions.get(&location.image_address) {
            Some((name, file, line)) => FunctionName {
                full_name: None,
                name: name.into(),
                module,
                file: file.as_deref().map(Cow::Borrowed),
                line: *line,
            },
            None => FunctionName {
                full_name: None,
                name: format!("f{}", location.image_address).into(),
                module,
                file: None,
                line: None,
            },
        }
    }

    fn details(&self, location: Location) -> Details {
        self.details.get(&location.image_address).cloned().unwrap_or_default()
    }

    fn source(&self, file: &str) -> Option<Cow<'_, str>> {
        self.sources.get(file).map(Cow::from)
    }
}

/// Threads with at least one of everything that outputs show.
pub fn everything() -> (Program, Book) {
    let mut program = Program { realtime_ns: Some(1_700_000_000_000_000_000), ..Program::default() };
    program
        .thread(100, "app")
        .begin_cut(1, 0, true)
        .begin(2, 1_203)
        .begin(3, 1_250)
        .end(1_370)
        .begin(3, 1_370)
        .end(1_370)
        .end(13_503)
        .begin(4, 20_000)
        .begin(5, 21_000)
        .begin(6, 22_000)
        .end_how(25_000, EndKind::Unwound)
        .end_how(25_000, EndKind::Unwound)
        .end(2_530_000)
        .loss(2_540_000, Some(1_234))
        .begin(6, 2_600_000)
        .end_how(2_601_000, EndKind::ExitLost)
        .orphan_exit(3, 2_700_000)
        .begin(7, 3_000_000)
        .end_how(45_000_000, EndKind::TruncatedAtEnd)
        .end_how(45_000_000, EndKind::TruncatedAtEnd)
        .thread(101, "worker-1")
        .loss(1_000, None)
        .begin(7, 5_000)
        .begin(99, 6_000)
        .end_how(7_000, EndKind::TruncatedAtLoss)
        .end(8_000)
        .thread(102, "marks")
        .span_begin(100, "phase \u{1b}[31m</script>", None, true)
        .mark(200, "réveil", None, MarkKind::Instant)
        .label(300, "of the thread", 1)
        .begin(2, 1_000)
        .label(1_000, "request", 4_711)
        .span_begin(1_100, "request", Some(4_711), false)
        .begin(3, 1_200)
        .label(1_300, "token", 1)
        .label(1_400, "token", u64::MAX)
        .label(1_400, "", 0)
        .end(1_500)
        .span_begin(1_600, "request", Some(4_712), false)
        .end(2_000)
        .span_end(2_100, "request", SpanEndKind::Ended)
        .mark(2_200, "request", Some(9), MarkKind::OrphanSpanEnd)
        .mark(2_300, "tick", Some(3), MarkKind::Instant)
        .span_begin(2_300, "empty", None, false)
        .span_end(2_300, "empty", SpanEndKind::Ended)
        .begin(4, 3_000)
        .begin(5, 3_100)
        .end_how(4_000, EndKind::TruncatedAtGap)
        .gap(4_000, 1_004_000, GapKind::Disabled)
        .begin(3, 1_005_000)
        .end(1_006_000)
        .gap(1_006_000, 1_006_000, GapKind::Thread)
        .end_how(1_007_000, EndKind::ReturnedAfterGap)
        .span_end(1_008_000, "request", SpanEndKind::TruncatedAtLoss)
        .span_end(1_009_000, "phase \u{1b}[31m</script>", SpanEndKind::TruncatedAtEnd);
    let book = Book::default()
        .function(1, "main", "/src/app.cpp", 30)
        .function(2, "parse(std::string const&)", "/src/parse.cpp", 4)
        .function(3, "(anonymous namespace)::next_token(char const*&)", "/src/parse.cpp", 1)
        .function(4, "try_it()", "/src/app.cpp", 12)
        .function(5, "std::map<int, std::vector<long> >::at(int const&)", "/usr/include/c++/12/map", 540)
        .function(6, "throw_it<\"</script>\">(int)", "/src/app.cpp", 3)
        .function(7, "wait", "/gone/wait.c", 9)
        .source("/src/app.cpp", "#include \"parse.h\"\n\nint x;\n")
        .source("/src/parse.cpp", "// </script> \u{2028} \t\"quoted\" \\ \u{1b}[31m\nno newline at the end")
        .source("/never/called.cpp", "unused");
    (program, book)
}

/// Counters of two threads of one process and of another one, and log lines.
#[allow(dead_code, reason = "not every test file has counters")]
pub fn counters() -> Program {
    let mut program = Program::default();
    let real = |value: f64| Some(value.to_bits());
    program
        .thread(100, "app")
        .counter(500, "queue", 3)
        .begin(1, 1_000)
        .counter(1_100, "queue", -4)
        .mark(1_200, "worker 7 \"says\" <hi>", None, MarkKind::Log)
        .mark(1_300, "share", real(0.1), MarkKind::CounterReal)
        .mark(1_400, "share", real(f64::INFINITY), MarkKind::CounterReal)
        .mark(1_500, "share", real(-2e30), MarkKind::CounterReal)
        .end(2_000)
        .counter(2_100, "queue", i64::MIN);
    program.thread(101, "worker").counter(1_050, "queue", 17).mark(1_060, "", None, MarkKind::Log);
    program.process(102, 100, &["./app", "--work"]).thread(102, "app").counter(3_000, "queue", 1);
    program
}

/// Thread states: a call that waits and is preempted, one that is woken by the other thread, and one whose state
/// isn't known.
#[allow(dead_code, reason = "not every test file has thread states")]
pub fn states() -> Program {
    let mut program = Program::default();
    program
        .thread(100, "app")
        .begin(0, 1_000)
        .begin(1, 2_000)
        .end(60_000)
        .begin(2, 61_000)
        .end(80_000)
        .end(90_000)
        .begin(3, 95_000)
        .end(99_000);
    program.thread(101, "worker 1").begin(4, 10_000).end(50_000);
    let span = |start, end, state, cpu, woken_by| StateSpan {
        start,
        end,
        state,
        cpu: Some(cpu),
        woken_by,
        blocked_in: (start == 5_000).then_some(202),
    };
    let main = vec![
        span(500, 5_000, ThreadState::Running, 0, None),
        span(5_000, 40_000, ThreadState::Blocked(Wait::Interruptible), 0, None),
        span(40_000, 42_500, ThreadState::Runnable, 1, Some(101)),
        span(42_500, 70_000, ThreadState::Running, 1, None),
        span(70_000, 71_000, ThreadState::Runnable, 1, None),
        span(71_000, 92_000, ThreadState::Running, 1, None),
        span(92_000, 94_000, ThreadState::Blocked(Wait::Uninterruptible), 1, None),
        span(94_000, u64::MAX, ThreadState::Running, 0, None),
    ];
    let worker = vec![
        span(9_000, 20_000, ThreadState::Running, 1, None),
        span(20_000, 30_000, ThreadState::Unknown, 1, None),
        span(30_000, 42_000, ThreadState::Running, 1, None),
        span(42_000, 48_000, ThreadState::Blocked(Wait::Any), 1, None),
        span(48_000, 51_000, ThreadState::Running, 0, None),
    ];
    program.states.insert(100, ThreadStates::new(main));
    program.states.insert(101, ThreadStates::new(worker));
    program
}

/// A process, its forked child, and another program that the child executes.
#[allow(dead_code, reason = "not every test file has several processes")]
pub fn process_tree() -> Program {
    let mut program = Program::default();
    program.thread(100, "app").begin(0, 1_000).begin(1, 2_000).end(3_000).end(90_000);
    program.process(101, 100, &["./app", "--work"]).thread(101, "app").begin(1, 20_000).end(40_000);
    program.process(101, 100, &["/bin/other", "a b"]).thread(101, "other").begin(2, 50_000).end(60_000);
    program
}

/// A thread with tail calls: a chain of three, one of unknown target, one into untraced code.
#[allow(dead_code, reason = "not every test file has tail calls")]
pub fn jumps() -> (Program, Book) {
    let mut program = Program::default();
    program
        .thread(100, "jumps")
        .begin(1, 0)
        .begin(2, 100)
        .begin(3, 200)
        .end(300)
        .end_how(400, EndKind::Jumped)
        .begin_tail(4, 400, TailCall::Yes)
        .end_how(500, EndKind::Jumped)
        .begin_tail(2, 510, TailCall::Yes)
        .begin(3, 520)
        .end(530)
        .end(600)
        .begin(5, 700)
        .end_how(800, EndKind::Jumped)
        .begin_tail(3, 850, TailCall::Perhaps)
        .end(900)
        .begin(5, 1_000)
        .end_how(1_100, EndKind::Jumped)
        .begin(3, 1_200)
        .end(1_300)
        .end(2_000);
    (program, everything().1)
}

/// A thread's own stack and a fiber's, with calls about which facts are unknown.
#[allow(dead_code, reason = "not every test file has what is unsure")]
pub fn unsure() -> (Program, Book) {
    let mut program = Program::default();
    program
        .thread(100, "app")
        .begin(1, 0)
        .begin(4, 100)
        .begin(5, 200)
        .end_how(900, EndKind::UnwoundLate)
        .end_how(950, EndKind::UnwoundLate)
        .suspended(1_000, 5_000, 100)
        .begin(3, 5_100)
        .end(5_200)
        .end(9_000)
        .thread(1_000_000_001, "fiber 1")
        .begin(2, 1_100)
        .suspended(1_500, 2_001_500, 4_711)
        .begin_unsure(4, 2_001_600)
        .begin(3, 2_001_700)
        .end(2_001_800)
        .end(2_001_900)
        .suspended(2_002_000, 2_003_000, 100)
        .begin_unsure(3, 2_003_100)
        .end_how(2_003_200, EndKind::Unwound)
        .end(2_004_000);
    (program, everything().1)
}

/// Calls in two threads, of functions with further facts besides their names.
#[allow(dead_code, reason = "not every test file has details")]
pub fn details() -> (Program, Book) {
    let mut program = Program::default();
    program.thread(100, "app").begin(1, 0).begin(2, 100).begin(3, 200).end(300).end(400).begin(4, 500);
    program.end_how(600, EndKind::Jumped).begin_tail(2, 600, TailCall::Yes).label(610, "request", 1).end(700);
    program.begin(2, 800).end(900).end(1_000);
    program.thread(101, "worker").begin(2, 100).end(200).begin(2, 300).end(400);
    let inlined = |level, name: &str, place: Option<&str>| Inlined {
        level,
        name: name.to_owned(),
        place: place.map(str::to_owned),
    };
    let mut book = everything().1;
    book.details.insert(
        2,
        Details {
            symbol: Some("_Z5parseRKSs.part.0".to_owned()),
            inlined: vec![
                inlined(0, "std::string::begin() const", Some("parse.cpp:5")),
                inlined(1, "iterator::iterator(char const*)", Some("string.h:77")),
                inlined(2, "\"quoted\" \u{1b}[31m", None),
                inlined(0, "skip(char const*&)", Some("parse.cpp:7")),
                inlined(1, "is_space(int)", Some("ctype.h:3")),
            ],
            more_inlined: 1_234,
            ..Details::default()
        },
    );
    book.details.insert(
        3,
        Details {
            symbol: Some("_ZN12_GLOBAL__N_110next_tokenERPKc".to_owned()),
            same_code_as: vec!["f(char const*&)".to_owned(), "g<int>(char const*&)".to_owned()],
            inlined: vec![inlined(0, "peek()", Some("parse.cpp:2"))],
            more_inlined: 0,
            full_name: Some("next_token[abi:cxx11](char const*&)".to_owned()),
        },
    );
    (program, book)
}
