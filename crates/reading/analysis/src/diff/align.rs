//! Matches the functions of different runs: lines, folders and program names may differ between
//! builds.

use std::hash::Hash;

use super::{Aligned, ByKey};
use everycall_profile::{Function, Key, Order, Profile, Sums};

/// Identity of a function across builds: name, module, and file name of its source.
type Exact = (String, String, Option<String>);

fn base(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

fn exact(function: &Function) -> Exact {
    let identity = &function.identity;
    (identity.name.clone(), base(&identity.module), identity.file.as_deref().map(base))
}

/// The functions of all runs with their sums by run, the old ones first.
///
/// Functions are equal if their name, module and source file name are equal. Of the others, two
/// are equal if each is the only one on its side with that name and source file name, because
/// programs get renamed; then with that name and module, because sources do, too; and at last with
/// that name, if there are several such pairs: any two programs have a `main`.
#[must_use]
pub fn align(old: &[Profile], new: &[Profile]) -> Vec<Aligned> {
    let runs = old.len() + new.len();
    let mut all: Vec<Aligned> = Vec::new();
    let mut keys: ByKey<Exact> = ByKey::default();
    for (run, profile) in old.iter().chain(new).enumerate() {
        for row in profile.rows(Order::Calls) {
            let Key::Function(number) = row.key else { continue };
            let Some(function) = profile.functions().get(*number) else { continue };
            let index = *keys.entry(exact(function)).or_insert(all.len());
            if index == all.len() {
                all.push(Aligned { function: function.clone(), by_run: vec![Sums::default(); runs] });
            }
            all[index].function = function.clone();
            all[index].by_run[run].add(row.sums);
        }
    }
    join(all, old.len())
}

/// Joins functions that only exist on one side with those that only exist on the other.
fn join(mut all: Vec<Aligned>, old_runs: usize) -> Vec<Aligned> {
    let file = |function: &Function| function.identity.file.as_deref().map(base);
    let module = |function: &Function| Some(base(&function.identity.module));
    join_by(&mut all, old_runs, 1, file);
    join_by(&mut all, old_runs, 1, module);
    join_by(&mut all, old_runs, 2, |_| None);
    all
}

/// Joins by the name and `part`, where both together are unique on each side, if that makes at
/// least `least` pairs.
fn join_by(
    all: &mut Vec<Aligned>,
    old_runs: usize,
    least: usize,
    part: impl Fn(&Function) -> Option<String>,
) {
    let is_in = |runs: &[Sums]| runs.iter().any(|sums| sums.calls > 0);
    let only = |all: &[Aligned], is_old: bool| {
        let here = |of: &Aligned| {
            let (old, new) = of.by_run.split_at(old_runs);
            if is_old { is_in(old) && !is_in(new) } else { is_in(new) && !is_in(old) }
        };
        all.iter().enumerate().filter(|(_, of)| here(of)).map(|(index, _)| index).collect::<Vec<_>>()
    };
    let key = |function: &Function| (function.identity.name.clone(), part(function));
    let (olds, news) = (unique(all, &only(all, true), key), unique(all, &only(all, false), key));
    let pairs: Vec<(usize, usize)> =
        olds.iter().filter_map(|(key, &from)| Some((from, *news.get(key)?))).collect();
    if pairs.len() < least {
        return;
    }
    let mut joined = Vec::new();
    for (from, to) in pairs {
        let sums = std::mem::take(&mut all[from].by_run);
        for (into, sums) in all[to].by_run.iter_mut().zip(&sums) {
            into.add(sums);
        }
        joined.push(from);
    }
    joined.sort_unstable();
    for index in joined.into_iter().rev() {
        all.remove(index);
    }
}

/// The functions whose key no other function has.
fn unique<K: Eq + Hash>(all: &[Aligned], which: &[usize], key: impl Fn(&Function) -> K) -> ByKey<K> {
    let mut counts: ByKey<K> = ByKey::default();
    for &index in which {
        *counts.entry(key(&all[index].function)).or_default() += 1;
    }
    let alone = which.iter().filter(|index| counts.get(&key(&all[**index].function)) == Some(&1));
    alone.map(|index| (key(&all[*index].function), *index)).collect()
}
