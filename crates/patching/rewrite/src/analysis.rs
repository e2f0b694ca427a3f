//! From a file to what can be hooked in it.

use crate::bitmap::Bitmap;
use crate::check;
use crate::choose::{Choice, choose};
use crate::coverage::Coverage;
use crate::error::RewriteError;
use crate::flow::{Flow, flow};
use crate::functions::Functions;
use crate::image::{Elf, FileKind, Image};
use crate::plan::{HookLayout, Ingredients, Plan};
use crate::references::References;
use crate::scan::scan;
use crate::untouchable;
use crate::unwind::Unwind;

/// Everything that is known of a file.
pub struct Analysis<'a> {
    file: &'a [u8],
    image: Image<'a>,
    unwind: Unwind,
    flow: Flow<'a>,
    choices: Vec<Choice>,
}

impl<'a> Analysis<'a> {
    /// Analyses an executable or shared library. `debug`: the file with the symbols that were
    /// removed from it.
    ///
    /// # Errors
    /// The file isn't one for x86-64 Linux, is damaged, or has no code.
    pub fn of(file: &'a [u8], debug: Option<&'a [u8]>) -> Result<Self, RewriteError> {
        let elf = Elf::parse(file).map_err(|_| RewriteError::NotElf)?;
        let image = Image::parse(&elf, file)?;
        let debug = debug.and_then(|debug| Elf::parse(debug).ok());
        let unwind = Unwind::parse(&image);
        let functions = Functions::find(&image, &elf, debug.as_ref(), &unwind);
        let references = References::find(&image, &elf);
        let mut untouched = Bitmap::new(image.code.0, image.code.1);
        let aborts = untouchable::mark(&image, &elf, &references, &mut untouched);
        let mut scans = scan(&image, &functions.all);
        aborts.iter().for_each(|&abort| scans.enter(abort));
        let flow = flow(&image, &functions, scans, &unwind, &references, &untouched);
        let (choices, _) = choose(&image, &functions, &flow, &untouched);
        Ok(Self { file, image, unwind, flow, choices })
    }

    /// The kind of the file.
    pub fn kind(&self) -> FileKind {
        self.image.kind
    }

    /// The difference between addresses in memory and in the file, whose first page is at `mapped`.
    pub fn base(&self, mapped: u64) -> u64 {
        self.image.kind.base(mapped, self.image.range.0)
    }

    /// Empty if it has none.
    pub fn build_id(&self) -> &[u8] {
        &self.image.build_id
    }

    /// How many functions can be hooked, and why others can't.
    pub fn coverage(&self) -> Coverage {
        Coverage::of(&self.flow, &self.choices)
    }

    /// A plan for the functions that `is_wanted` accepts by their start and name. The checker has
    /// found nothing wrong in it.
    ///
    /// # Errors
    /// [`RewriteError::Wrong`] is a defect of this crate; [`RewriteError::TooLarge`] if the
    /// trampolines don't fit between a module and its neighbours.
    pub fn plan(
        &self,
        hooks: HookLayout,
        is_wanted: &dyn Fn(u64, &str) -> bool,
    ) -> Result<Plan, RewriteError> {
        let parts = Ingredients {
            image: &self.image,
            unwind: &self.unwind,
            units: &self.flow.units,
            choices: &self.choices,
        };
        let plan = parts.plan(hooks, is_wanted)?;
        check::check(self.file, &plan).map_err(|wrong| RewriteError::Wrong(wrong.to_string()))?;
        Ok(plan)
    }
}
