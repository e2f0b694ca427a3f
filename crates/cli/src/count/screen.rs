//! The terminal while a live table is on it: keys come at once, and everything is as before at the end, also after a panic.

use std::io::{self, IsTerminal, Stdout, Write, stdin, stdout};
use std::sync::Once;
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate,
    EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use rustix::termios::tcgetwinsize;

/// Whether there is a terminal that can show a live table and has keys.
pub fn is_there() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    stdin().is_terminal() && stdout().is_terminal() && !is_dumb
}

/// The terminal, which is restored when this is dropped.
pub struct Screen {
    out: Stdout,
}

/// What happened at the terminal.
pub enum Happening {
    Key(KeyEvent),
    /// It has another size, or something else that needs another look.
    Other,
}

impl Screen {
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
        terminal::enable_raw_mode()?;
        let mut screen = Screen { out: stdout() };
        execute!(screen.out, EnterAlternateScreen, Hide, DisableLineWrap)?;
        Ok(screen)
    }

    /// Columns and lines.
    pub fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(&self.out).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
    }

    /// Shows these lines, one of them as a heading.
    pub fn draw(&mut self, lines: &[String], heading: usize) -> io::Result<()> {
        queue!(self.out, BeginSynchronizedUpdate)?;
        for (number, line) in lines.iter().enumerate() {
            let row = u16::try_from(number).unwrap_or(u16::MAX);
            let style = if number == heading { Attribute::Bold } else { Attribute::Reset };
            // Cleared first: behind a line of full width, the cursor is on its last character.
            queue!(self.out, MoveTo(0, row), Clear(ClearType::UntilNewLine))?;
            queue!(self.out, SetAttribute(style), Print(line), SetAttribute(Attribute::Reset))?;
        }
        let (_, height) = self.size();
        if lines.len() < height {
            let row = u16::try_from(lines.len()).unwrap_or(u16::MAX);
            queue!(self.out, MoveTo(0, row), Clear(ClearType::FromCursorDown))?;
        }
        queue!(self.out, EndSynchronizedUpdate)?;
        self.out.flush()
    }

    /// Waits for something to happen, for at most this time.
    pub fn wait(&self, time: Duration) -> io::Result<Option<Happening>> {
        if !event::poll(time)? {
            return Ok(None);
        }
        Ok(Some(match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => Happening::Key(key),
            _ => Happening::Other,
        }))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
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
            .args(["count::screen::tests::panics", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("it starts");
        let reader = std::thread::Builder::new().spawn(move || {
            let (mut text, mut some) = (Vec::new(), [0; 4096]);
            let mut ours = File::from(ours);
            // Where nobody has the other end any more, reading fails.
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
