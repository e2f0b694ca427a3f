//! Commands run in turn by `benches/programs/rounds.c`.

use std::ffi::{OsStr, OsString};

use super::lab::Lab;
use super::stats::Spread;

/// One of many commands, preceded by its `NAME=VALUE` words, if any.
pub type Words = Vec<OsString>;

/// Words of a command.
pub fn words<S: AsRef<OsStr>>(parts: impl IntoIterator<Item = S>) -> Words {
    parts.into_iter().map(|part| part.as_ref().to_owned()).collect()
}

/// Cost of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// From start to end.
    pub wall_ns: f64,
    /// Of the command and all that it waited for.
    pub cpu_ns: f64,
    /// Largest resident memory of one process.
    pub peak_kib: f64,
    /// CPU time of the part that the program measures itself.
    pub region_ns: Option<f64>,
}

impl Run {
    /// CPU time of the measured part; if it isn't known, of everything.
    pub fn region_or_cpu_ns(&self) -> f64 {
        self.region_ns.unwrap_or(self.cpu_ns)
    }
}

/// The runs of several commands: `rounds.of[command][round]`.
#[derive(Debug)]
pub struct Rounds {
    of: Vec<Vec<Run>>,
}

impl Rounds {
    /// Runs `commands` in turn, `rounds` times; all on the CPU for measuring if `is_pinned`.
    ///
    /// # Errors
    /// One of them failed; as a sentence.
    pub fn run(lab: &Lab, rounds: usize, is_pinned: bool, commands: &[Words]) -> Result<Rounds, String> {
        let rounds_program = lab.path("rounds");
        let mut command = if is_pinned { lab.pinned(rounds_program) } else { lab.command(rounds_program) };
        command.arg(rounds.to_string()).arg(lab.path("region"));
        for (number, words) in commands.iter().enumerate() {
            if number > 0 {
                command.arg(":::");
            }
            command.args(words);
        }
        Rounds::read(&lab.successful(&mut command)?, commands.len())
    }

    fn read(text: &str, commands: usize) -> Result<Rounds, String> {
        let mut of = vec![Vec::new(); commands];
        for line in text.lines() {
            let fields: Vec<f64> = line.split(' ').filter_map(|field| field.parse().ok()).collect();
            let &[which, wall_ns, cpu_ns, peak_kib, region_ns] = &fields[..] else {
                return Err(format!("`{line}` isn't what `rounds` prints"));
            };
            let region_ns = (region_ns >= 0.0).then_some(region_ns);
            if let Some(runs) = of.get_mut(which as usize) {
                runs.push(Run { wall_ns, cpu_ns, peak_kib, region_ns });
            }
        }
        Ok(Rounds { of })
    }

    /// A figure of one command.
    ///
    /// # Errors
    /// It wasn't run.
    pub fn figure(&self, command: usize, figure: impl Fn(&Run) -> f64) -> Result<Spread, String> {
        Spread::of(self.all(command).map(figure).collect())
    }

    /// A command's runs, by round; none if it wasn't run.
    pub fn all(&self, command: usize) -> impl Iterator<Item = &Run> {
        self.of.get(command).into_iter().flatten()
    }

    /// A figure of two commands' runs of the same round.
    ///
    /// # Errors
    /// They weren't run.
    pub fn pairs(
        &self,
        first: usize,
        second: usize,
        figure: impl Fn(&Run, &Run) -> f64,
    ) -> Result<Spread, String> {
        Spread::of(
            self.all(first).zip(self.all(second)).map(|(first, second)| figure(first, second)).collect(),
        )
    }

    /// A figure of the runs of each round, of all `N` commands.
    ///
    /// # Errors
    /// They weren't run.
    pub fn each<const N: usize>(&self, figure: impl Fn([&Run; N]) -> f64) -> Result<Spread, String> {
        let round = |round: usize| {
            let runs: Vec<&Run> = self.of.iter().filter_map(|runs| runs.get(round)).collect();
            <[&Run; N]>::try_from(runs).ok()
        };
        Spread::of((0..).map_while(round).map(figure).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_turn() {
        let rounds = Rounds::read("0 10 5 100 -1\n1 30 9 200 8\n1 50 9 200 8\n0 20 5 100 -1\n", 2).unwrap();
        assert_eq!(rounds.pairs(0, 1, |first, second| second.wall_ns - first.wall_ns).unwrap().median, 25.0);
        assert_eq!(rounds.figure(1, Run::region_or_cpu_ns).unwrap().median, 8.0);
        assert_eq!(rounds.figure(0, Run::region_or_cpu_ns).unwrap().median, 5.0);
        let sums = rounds.each(|[first, second]| first.wall_ns + second.wall_ns).unwrap();
        assert_eq!((sums.count, sums.median), (2, 55.0));
        assert!(rounds.each(|[only]| only.wall_ns).is_err());
        assert!(Rounds::read("0 1 2\n", 1).is_err());
        assert!(rounds.figure(2, |run| run.wall_ns).is_err());
    }
}
