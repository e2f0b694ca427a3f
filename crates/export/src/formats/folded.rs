//! Folded stacks: a line for each call path, with the nanoseconds spent on it and not on longer
//! ones. Flame graphs are drawn from it.
//!
//! ```text
//! main;main;parse(char const*);skip 1234
//! ```
//!
//! The first frame is the thread's name, or the program's if the thread has none. `;` in names is
//! replaced by `:`, as nothing that reads the format knows an escape.

use std::io::{self, Write};

use crate::driver::{Export, Sink};
use crate::filtered::Event;
use crate::frames::{Frame, in_a_line};
use crate::json::put_number;
use crate::paths::Paths;
use crate::portions::Portions;
use crate::source::{Source, Thread};

/// The output.
pub(crate) struct Folded<'o> {
    portions: Portions<'o>,
    paths: Paths,
}

impl<'o> Folded<'o> {
    pub(crate) fn new(out: &'o mut dyn Write) -> Self {
        Folded { portions: Portions::new(out), paths: Paths::default() }
    }
}

impl<'o, S: Source> Sink<'o, S> for Folded<'o> {
    fn portions(&mut self) -> &mut Portions<'o> {
        &mut self.portions
    }

    fn thread(&mut self, export: &mut Export<'_, S>, _: usize, thread: &Thread) {
        self.paths.thread(thread, export.source.processes());
    }

    fn event(&mut self, export: &mut Export<'_, S>, event: &Event) {
        export.summary.event(event);
        self.paths.event(event);
    }

    fn end(&mut self, export: &mut Export<'_, S>) -> io::Result<()> {
        export.summary.add_paths(&self.paths);
        let mut frames = Vec::new();
        for path in self.paths.iter().filter(|path| path.own_ns > 0) {
            frames.clear();
            frames.extend(self.paths.frames(path));
            for (level, frame) in frames.iter().rev().enumerate() {
                if level > 0 {
                    self.portions.put(b";");
                }
                let name = match *frame {
                    Frame::Thread(index) => self.paths.thread_name(index),
                    frame => frame.name(&export.functions),
                };
                self.portions.put(in_a_line(name, Some(';')).as_bytes());
            }
            self.portions.put(b" ");
            put_number(&mut self.portions.bytes, path.own_ns);
            self.portions.put(b"\n");
            self.portions.spill()?;
        }
        Ok(())
    }
}
