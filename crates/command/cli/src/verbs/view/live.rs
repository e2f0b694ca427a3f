//! `everycall view PID` and `everycall view --live -- PROGRAM`: the page of a program that runs.
//!
//! One thread reads the rings, little by little, whether a page is open or not; what the page shows
//! is made of what that thread has (`everycall_view::States`).

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use everycall_control::{resolve, selection_now};
use everycall_io::say;
use everycall_live::{LiveArena, Picture, Recent};
use everycall_recorder::Launch;
use everycall_timeline::settled_words;
use everycall_units::{Count, Several};
use everycall_view::{Newest, Running, RunningFacts, States};

use super::serving::{announce, bind, cant_serve, fragment, names_of};
use crate::arguments::ViewArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{Destination, Output};
use crate::recording::observed::{Observed, observe};
use crate::running::{Program, default_output, not_attached};

/// Time between two checks whether the process lives.
const CHECK: Duration = Duration::from_millis(50);

/// The process that is to be viewed, if one is named instead of files.
pub fn process_of(arguments: &ViewArguments) -> Option<u32> {
    let [word] = arguments.traces.as_slice() else { return None };
    let pid = word.to_str()?.parse().ok()?;
    (arguments.live || !word.exists()).then_some(pid)
}

/// Serves the page of a program that runs.
pub fn run(arguments: &ViewArguments) -> Result<ExitCode, Failure> {
    if let Some((program, rest)) = arguments.command.split_first() {
        let launch = Launch {
            program: program.clone(),
            arguments: rest.to_vec(),
            preload: Vec::new(),
            first: None,
            recording: Vec::new(),
            environment: Vec::new(),
        };
        let view = move |observed: &Observed| match observed.program()? {
            Some(program) => serve(arguments, program),
            None => {
                say!("everycall: the program made no traced call, so there is nothing to view");
                Ok(())
            }
        };
        return observe(&launch, ("view", "viewing its calls"), |_| {}, view);
    }
    let Some(pid) = process_of(arguments) else {
        return Err(Failure::new(
            exit_code::USAGE,
            "--live needs a process id, as `everycall ps` lists it, or a program to start, as in: everycall view --live -- ./app",
        ));
    };
    let arena = everycall_live::attach(pid).map_err(|error| not_attached(pid, "view", &error))?;
    serve(arguments, Program::running(pid, arena))?;
    Ok(ExitCode::SUCCESS)
}

fn serve(arguments: &ViewArguments, program: Program) -> Result<(), Failure> {
    if program.arena.is_counting() || program.arena.counts_values() {
        return Err(program.failed(&format_args!(
            "it counts its calls and doesn't record them; `everycall count {}` reads the counts",
            program.pid()
        )));
    }
    let server = bind(arguments.port.unwrap_or(0))?;
    let path = program.to_string();
    let names = names_of(arguments);
    let reader = Reader::begin(program, arguments.keep)?;
    let states = States::begin(Box::new(reader), path, names).map_err(|error| cant_serve(&error))?;
    let opens_browser = !arguments.no_browser;
    let url = server.url();
    announce(&(url.clone() + &fragment(arguments)), opens_browser)?;
    if !opens_browser && let Some(port) = port_of(&url) {
        say!(
            "everycall: from another machine: ssh -N -L {port}:127.0.0.1:{port} HOST, then open the address there"
        );
    }
    server.serve_running(states, opens_browser).map_err(|error| cant_serve(&error))
}

fn port_of(url: &str) -> Option<&str> {
    url.strip_prefix("http://127.0.0.1:")?.split('/').next()
}

/// Reads a program's rings in a thread.
struct Reader {
    program: Arc<Program>,
    asks: Mutex<Sender<SyncSender<Picture>>>,
    /// Why the thread doesn't read any more, if that is so.
    over: Arc<OnceLock<String>>,
    /// Numbers of the newest picture.
    newest: Mutex<Numbers>,
    most: u64,
}

#[derive(Clone, Copy, Default)]
struct Numbers {
    lost: u64,
    missed: u64,
    bytes: usize,
}

impl Reader {
    fn begin(program: Program, most: u64) -> Result<Reader, Failure> {
        let program = Arc::new(program);
        let of_reader = Arc::clone(&program);
        let over = Arc::new(OnceLock::new());
        let (send, receive) = channel();
        let (ready, is_ready) = sync_channel(1);
        let of_thread = Arc::clone(&over);
        let run = move || {
            let arena = Arc::clone(&program.arena);
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            match Recent::begin(&arena, most, settled_words) {
                Ok(recent) => {
                    let _ = ready.send(Ok(()));
                    read(&program, recent, &receive, &of_thread);
                }
                Err(error) => drop(ready.send(Err(program.failed(&error)))),
            }
        };
        std::thread::Builder::new()
            .name("rings".to_owned())
            .spawn(run)
            .map_err(|error| Failure::new(exit_code::FAILED, format!("no thread to read calls: {error}")))?;
        let no_thread = || Failure::new(exit_code::FAILED, "the thread that reads calls has failed");
        is_ready.recv().map_err(|_| no_thread())??;
        Ok(Reader { program: of_reader, asks: Mutex::new(send), over, newest: Mutex::default(), most })
    }
}

/// Reads until nobody asks any more.
fn read(
    program: &Program,
    mut recent: Recent<'_>,
    asks: &Receiver<SyncSender<Picture>>,
    over: &OnceLock<String>,
) {
    let mut checked = Instant::now();
    let mut has_ended = program.has_ended();
    loop {
        let pause = recent.look();
        if has_ended {
            // This look was the last.
            let _ = over.set(format!("{program} has ended"));
        }
        let asked = match over.get() {
            Some(_) => asks.recv().map_err(|_| RecvTimeoutError::Disconnected),
            None => asks.recv_timeout(pause),
        };
        match asked {
            Ok(ask) => drop(ask.send(recent.picture())),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if checked.elapsed() >= CHECK {
            checked = Instant::now();
            has_ended = program.has_ended();
        }
    }
}

/// Writes what was marked to a file beside others of the program. Returns its name.
fn keep(picture: &Picture, arena: &LiveArena, has_ended: bool) -> Result<String, String> {
    let written = default_output(arena.process());
    let name = written.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let file = |number: u32| PathBuf::from(format!("{name}-kept-{number}.ect"));
    let free = (1..).map(file).find(|file| !file.exists()).unwrap_or(written);
    let destination = Destination::by_default(free);
    let shown = destination.path.display().to_string();
    let output = Output::create(&destination).map_err(|failure| failure.sentence().to_string())?;
    let written = output.write(|file| {
        let version = env!("CARGO_PKG_VERSION");
        picture.write(arena, file, version, true, has_ended).map(|(summary, _)| summary)
    });
    written.map_err(|failure| failure.sentence().to_string())?;
    Ok(shown)
}

impl Running for Reader {
    fn newest(&self) -> Result<Newest, String> {
        let gone = "the program's calls can't be read any more";
        let (send, receive) = sync_channel(1);
        let asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        asks.send(send).map_err(|_| gone)?;
        drop(asks);
        let picture = receive.recv().map_err(|_| gone)?;
        let Picture { lost, missed, bytes, .. } = picture;
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Numbers { lost, missed, bytes };
        let has_ended = self.over.get().is_some();
        let version = env!("CARGO_PKG_VERSION");
        let output = Vec::with_capacity(bytes + (1 << 20));
        let written = picture.write(&self.program.arena, output, version, false, has_ended);
        let (_, file) = written.map_err(|error| error.to_string())?;
        let (since_ticks, arena) = (picture.since, Arc::clone(&self.program.arena));
        let keep = move |range: Option<(u64, u64)>| {
            let part = range.map(|(from, to)| picture.between(from, to));
            keep(part.as_ref().unwrap_or(&picture), &arena, has_ended)
        };
        Ok(Newest { file, since_ticks, keep: Box::new(keep) })
    }

    fn switch(&self, name: &str, is_on: bool) -> Result<String, String> {
        let failed = |failure: Failure| failure.sentence().to_owned();
        let mut control = self.program.connect().map_err(failed)?;
        let (now, base) = control.now().map_err(|error| error.to_string())?;
        let mut selection = selection_now(now.on != 0, &base);
        // The program's names are anybody's: none of them names a list of patterns.
        let pattern =
            Some(name).filter(|name| !name.starts_with('@')).ok_or("such a name can't be chosen")?;
        selection.add(pattern, is_on).map_err(|error| error.to_string())?;
        let (set, outcome) = resolve(&selection, &mut self.program.tables().map_err(failed)?);
        let bytes = set.bytes().map_err(|error| error.to_string())?;
        control.set(true, None, &bytes).map_err(|error| error.to_string())?;
        let all = Several(outcome.all.functions, "function", "functions");
        Ok(format!("recording {} of {all}", Count(outcome.on.functions)))
    }

    fn facts(&self) -> RunningFacts {
        let Numbers { lost, missed, bytes } = *self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = Several(missed, "thread had ended", "threads had ended");
        let note = (missed > 0).then(|| format!("{ended} before anything of them was read"));
        RunningFacts {
            over: self.over.get().cloned(),
            notes: note.into_iter().collect(),
            lost,
            kept_bytes: bytes as u64,
            most_bytes: self.most,
        }
    }
}
