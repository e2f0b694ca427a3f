//! The terminal, the state and the answers together.

use std::io;
use std::time::{Duration, Instant};

use everycall_export::Filter;
use everycall_view::answers::window;
use everycall_view::{Input, Library};

use crate::draw::draw;
use crate::draw::palette::Palette;
use crate::lanes::Lanes;
use crate::screen::{Happening, Screen};
use crate::signals::{Signals, Told};
use crate::state::app::Choice;
use crate::state::{App, Flow};

/// How often it is asked how far the file was read.
const LOOK: Duration = Duration::from_millis(250);
/// How long keys are waited for while answers may come, and while none is expected.
const SHORT: Duration = Duration::from_millis(15);
const LONG: Duration = Duration::from_millis(200);

/// Shows a file until the user has seen enough. `only` says in words what the filter leaves out;
/// `kept` is the number of the kept call to begin at.
///
/// # Errors
///
/// Those of the terminal; no thread can be started.
pub fn run(input: Input, filter: Filter, only: String, kept: Option<usize>) -> io::Result<()> {
    // Before any other thread, so that none gets them.
    let signals = Signals::begin()?;
    let choice = Choice {
        path: input.path.clone(),
        pids: filter.pids.clone(),
        tids: filter.tids.clone(),
        function: filter.function.as_ref().map(|regex| regex.as_str().to_owned()),
        only,
        kept,
    };
    let library = Library::filtered(vec![input], filter)?;
    let lanes = Lanes::start(&library)?;
    let palette = Palette::of_environment(|name| std::env::var(name).ok());
    let mut app = App::new(choice);
    let mut screen = Screen::begin()?;
    let mut expected = 0_usize;
    let mut is_restricted = false;
    let mut looked = Instant::now();
    let mut is_changed = true;
    loop {
        while let Some(delivery) = lanes.next() {
            expected = 0;
            app.learn(delivery.first, delivery.functions);
            app.answer(&delivery.request, delivery.answer);
            is_changed = true;
        }
        if !app.trace.is_opening && !is_restricted {
            is_restricted = true;
            if let Ok(window) = window(&library) {
                app.restrict(window);
            }
        }
        if looked.elapsed() >= LOOK && !app.trace.is_complete {
            app.look_again();
            looked = Instant::now();
        }
        let (columns, lines) = screen.size();
        if (columns, lines) != (app.layout.columns, app.layout.lines) {
            app.resize(columns, lines);
            is_changed = true;
        }
        for request in app.requests() {
            lanes.ask(request);
            expected += 1;
        }
        if is_changed {
            screen.draw(|buffer| draw(&app, &palette, buffer))?;
            is_changed = false;
        }
        match signals.next() {
            None => {}
            Some(Told::End) => return Ok(()),
            Some(Told::Suspend) => {
                suspend(&mut screen, &signals)?;
                is_changed = true;
                continue;
            }
            Some(Told::Continued) => {
                screen.again()?;
                is_changed = true;
                continue;
            }
        }
        let is_waiting = expected > 0 || !app.waits.is_empty() || !app.trace.is_complete;
        match screen.wait(if is_waiting { SHORT } else { LONG })? {
            None => {}
            Some(Happening::Other) => is_changed = true,
            Some(Happening::Key(key)) => {
                is_changed = true;
                match app.key(key) {
                    Flow::Go => {}
                    Flow::Quit => return Ok(()),
                    Flow::Suspend => suspend(&mut screen, &signals)?,
                }
            }
        }
    }
}

/// Gives the terminal to the shell until it says `fg`.
fn suspend(screen: &mut Screen, signals: &Signals) -> io::Result<()> {
    screen.leave();
    signals.suspend()?;
    screen.again()
}
