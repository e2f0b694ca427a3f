//! Colours, as far as the terminal has them and the user wants them.

use ratatui::style::{Color, Modifier, Style};

/// The colours of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    /// No colours: NO_COLOR is set.
    None,
    /// The sixteen of every terminal.
    Basic,
    /// 256 of them.
    Many,
}

/// Light colours for slices, on which names are black.
const MANY: [u8; 12] = [73, 108, 110, 138, 139, 143, 146, 151, 174, 179, 180, 188];
const BASIC: [Color; 5] = [Color::Cyan, Color::Green, Color::Yellow, Color::Magenta, Color::Gray];

impl Palette {
    /// That of the terminal which the environment names.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Palette {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        if is_set("NO_COLOR") {
            return Palette::None;
        }
        let has_many = is_set("COLORTERM") || variable("TERM").is_some_and(|name| name.contains("256color"));
        if has_many { Palette::Many } else { Palette::Basic }
    }

    /// A slice of a function; it has the same colour in every run.
    pub fn slice(self, name: &str) -> Style {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        let place = (hash >> 32) as usize;
        match self {
            Palette::None => Style::default(),
            Palette::Basic => Style::default()
                .fg(Color::Black)
                .bg(BASIC.get(place % BASIC.len()).copied().unwrap_or(Color::Gray)),
            Palette::Many => {
                let color = MANY.get(place % MANY.len()).copied().unwrap_or(188);
                Style::default().fg(Color::Indexed(16)).bg(Color::Indexed(color))
            }
        }
    }

    fn coloured(self, color: Color) -> Style {
        if self == Palette::None { Style::default() } else { Style::default().fg(color) }
    }

    /// The selected slice, and the row at the cursor.
    pub fn cursor(self) -> Style {
        match self {
            Palette::None => Style::default().add_modifier(Modifier::REVERSED),
            Palette::Basic | Palette::Many => {
                Style::default().fg(Color::White).bg(Color::Blue).add_modifier(Modifier::BOLD)
            }
        }
    }

    /// A hit of the search.
    pub fn hit(self, style: Style) -> Style {
        let style = style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        if self == Palette::None { style } else { style.fg(Color::White).bg(Color::Red) }
    }

    /// The first line.
    pub fn bar(self) -> Style {
        Style::default().add_modifier(Modifier::REVERSED)
    }

    /// The style of the chosen item.
    pub fn chosen(self) -> Style {
        Style::default().add_modifier(Modifier::BOLD)
    }

    /// Headings, messages.
    pub fn strong(self) -> Style {
        Style::default().add_modifier(Modifier::BOLD)
    }

    /// The style of less important text.
    pub fn quiet(self) -> Style {
        self.coloured(Color::DarkGray)
    }

    /// A thread's state: 0 running, 1 runnable, 2 blocked.
    pub fn state(self, state: u8) -> Style {
        match state {
            0 => self.coloured(Color::Green),
            1 => self.coloured(Color::Yellow),
            _ => self.quiet(),
        }
    }

    /// Losses and throws.
    pub fn alarm(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }
}
