//! The terminal while something is drawn on it: keys come at once, and everything is as before at
//! the end, also after a panic.

use std::io::{self, IsTerminal, Stdout, stdin, stdout};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::thread;
use std::time::Duration;

use crossterm::cursor::{Hide, Show};
use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use crossterm::execute;
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate,
    EnterAlternateScreen, LeaveAlternateScreen,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
pub use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
pub use ratatui::style::{Modifier, Style};
use ratatui::{TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::tcgetwinsize;

/// Whether there is a terminal that can be drawn on and has keys.
#[must_use]
pub fn is_there() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    stdin().is_terminal() && stdout().is_terminal() && !is_dumb
}

/// The terminal, which is restored when this is dropped.
pub struct Screen {
    /// Not dropped: it would complain on standard error where the terminal is gone.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    size: (u16, u16),
    asks: Asks,
}

/// An event of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A key was pressed.
    Key(KeyEvent),
    /// It has another size, or something else that needs another look.
    Other,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    ///
    /// Those of the terminal.
    pub fn begin() -> io::Result<Screen> {
        // A message on the other screen would be gone with it.
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        enter()?;
        let size = size();
        Ok(Screen { terminal: of_size(size)?, size, asks: Asks::watched()? })
    }

    /// Columns and lines.
    #[must_use]
    pub fn size(&self) -> (u16, u16) {
        size()
    }

    /// Draws everything into a buffer of the terminal's size; changes are sent.
    ///
    /// # Errors
    ///
    /// Those of the terminal.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        let size = size();
        if size != self.size {
            self.size = size;
            self.anew()?;
        }
        execute!(stdout(), BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| draw(frame.buffer_mut()))?;
        execute!(stdout(), EndSynchronizedUpdate)
    }

    /// Waits for something to happen, for at most this time.
    ///
    /// # Errors
    ///
    /// Those of the terminal, such as that it is gone.
    pub fn wait(&self, time: Duration) -> io::Result<Option<Happening>> {
        // Events that were read before are handed out first.
        wait_for_input(Duration::ZERO)?;
        if !self.asks.has_event()? {
            // crossterm never returns where the terminal goes while it waits.
            wait_for_input(time)?;
            if !self.asks.has_event()? {
                return Ok(None);
            }
        }
        Ok(Some(match self.asks.crossterm(event::read)? {
            Event::Key(key) if key.kind != KeyEventKind::Release => Happening::Key(key),
            _ => Happening::Other,
        }))
    }

    /// Gives the terminal back for a while.
    pub fn leave(&mut self) {
        restore();
    }

    /// Takes it again, whatever happened to it meanwhile.
    ///
    /// # Errors
    ///
    /// Those of the terminal.
    pub fn again(&mut self) -> io::Result<()> {
        // The shell has set its own modes, of which crossterm doesn't know.
        restore();
        enter()?;
        self.anew()
    }

    /// Draws everything the next time. ratatui's own way asks the terminal where its cursor is, and
    /// not every terminal says.
    fn anew(&mut self) -> io::Result<()> {
        self.terminal = of_size(self.size)?;
        execute!(stdout(), Clear(ClearType::All))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// How long crossterm may take when the terminal is gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// Questions to crossterm. It reads for ever if the terminal goes at the moment in which it is
/// asked, so another thread ends the process then: there is nothing left to restore.
struct Asks {
    /// How many began and ended: an odd number while crossterm is asked.
    count: Arc<AtomicU64>,
}

impl Asks {
    fn watched() -> io::Result<Asks> {
        let count = Arc::new(AtomicU64::new(0));
        let asked = Arc::clone(&count);
        let watch = move || {
            let input = stdin();
            // Without events to wait for, only the end of the terminal is one.
            while !matches!(poll(&mut [PollFd::new(&input, PollFlags::empty())], None), Ok(1..)) {}
            loop {
                let before = asked.load(Ordering::Relaxed);
                thread::sleep(PATIENCE);
                if before % 2 == 1 && asked.load(Ordering::Relaxed) == before {
                    std::process::exit(1);
                }
            }
        };
        thread::Builder::new().name("terminal".to_owned()).spawn(watch)?;
        Ok(Asks { count })
    }

    fn has_event(&self) -> io::Result<bool> {
        self.crossterm(|| event::poll(Duration::ZERO))
    }

    fn crossterm<T>(&self, ask: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.count.fetch_add(1, Ordering::Relaxed);
        let answer = ask();
        self.count.fetch_add(1, Ordering::Relaxed);
        answer
    }
}

/// Waits for input; an error if none can come any more.
fn wait_for_input(time: Duration) -> io::Result<()> {
    let input = stdin();
    let mut fds = [PollFd::new(&input, PollFlags::IN)];
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut fds, Some(&time)) {
        Ok(_) if fds.iter().any(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR)) => {
            Err(io::Error::new(io::ErrorKind::BrokenPipe, "it is gone"))
        }
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Some terminals don't know their size.
fn size() -> (u16, u16) {
    let size = tcgetwinsize(stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or((80, 24), |size| (size.ws_col, size.ws_row))
}

fn of_size((columns, lines): (u16, u16)) -> io::Result<ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>> {
    let viewport = Viewport::Fixed(Rect::new(0, 0, columns, lines));
    let terminal = Terminal::with_options(CrosstermBackend::new(stdout()), TerminalOptions { viewport })?;
    Ok(ManuallyDrop::new(terminal))
}

fn enter() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide, DisableLineWrap)
}

/// Everything as it was, which does no harm when it is so already.
fn restore() {
    if matches!(terminal::is_raw_mode_enabled(), Ok(true)) {
        let _ = execute!(stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    use rustix::fs::{Mode, OFlags, open};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::tcgetattr;

    #[test]
    #[ignore = "ends the process that runs it; the next test starts it on a terminal"]
    fn panics() {
        let _screen = Screen::begin().expect("a terminal");
        panic!("on purpose");
    }

    #[test]
    fn a_panic_is_told_on_a_restored_terminal() {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("a pseudo-terminal");
        let name = ptsname(&ours, Vec::new()).expect("its name");
        let theirs = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("its other end");
        let before = tcgetattr(&theirs).expect("its modes");
        let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["screen::tests::panics", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("it starts");
        let reader = std::thread::Builder::new().spawn(move || {
            let (mut text, mut some) = (Vec::new(), [0; 4096]);
            let mut ours = File::from(ours);
            // Reading fails once the other end is closed.
            while let Ok(count @ 1..) = ours.read(&mut some) {
                text.extend_from_slice(&some[..count]);
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        let reader = reader.expect("a thread");
        assert!(!child.wait().expect("it ends").success());
        let after = tcgetattr(&theirs).expect("its modes");
        assert_eq!((before.local_modes, before.input_modes), (after.local_modes, after.input_modes));
        drop(theirs);
        let text = reader.join().expect("its output");
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what:?} in {text:?}"));
        assert!(at("\x1b[?1049h") < at("\x1b[?1049l") && at("\x1b[?1049l") < at("on purpose"), "{text:?}");
    }
}
