//! The way in: a request, and a function of a module.

use everycall_symbols::ModuleDwarf;

use crate::compile::{CaptureOptions, Compiled, Compiler, Judged, Moment};
use crate::error::ArgumentError;
use crate::prototypes::Prototype;
use crate::signature::{self, FunctionPlace};
use crate::syntax::{Expression, Request};
use crate::types::Types;
use crate::units::Units;

/// Makes the program that copies values of a function's calls.
///
/// `text`: what the request was read from, for errors. `dwarf`: the module's, if there is any;
/// without it, a request may only name arguments by number and type.
///
/// # Errors
///
/// A name that isn't there, with similar ones and their types, or a value that can't be computed.
pub fn compile(
    request: &Request,
    text: &str,
    moment: Moment,
    dwarf: Option<&mut ModuleDwarf>,
    function: FunctionPlace<'_>,
    options: &CaptureOptions,
) -> Result<Compiled, ArgumentError> {
    let mut units = Units::default();
    let dwarf = dwarf.map(|dwarf| (dwarf, &mut units));
    compile_with(request, &[], text, moment, dwarf, function, options)
}

/// As [`compile`], with conditions of triggers that the program judges as well, and with the units
/// that were looked through for other functions of the module.
pub(crate) fn compile_with(
    request: &Request,
    conditions: &[Judged],
    text: &str,
    moment: Moment,
    dwarf: Option<(&mut ModuleDwarf, &mut Units)>,
    function: FunctionPlace<'_>,
    options: &CaptureOptions,
) -> Result<Compiled, ArgumentError> {
    let prototype = options.is_c_library.then(|| Prototype::of(function.linkage_name)).flatten();
    let values: Option<&[Expression]> = request.values.as_deref();
    let condition = request.condition.as_ref();
    let mut compiled = None;
    if let Some((dwarf, units)) = dwarf {
        let read = dwarf.read_unit_at(function.address, &mut |dwarf, unit| {
            let mut types = Types::new(dwarf, unit.clone());
            if let Some(signature) = signature::read(&mut types, units, function) {
                let compiler = Compiler::new(Some(&mut types), Some(signature), moment, options, text)
                    .with_prototype(prototype.clone());
                compiled = Some(compiler.compile(values, condition, conditions));
            }
        });
        if let Err(reason) = read {
            return Err(ArgumentError::new(text, 0..text.len(), reason));
        }
    }
    compiled.unwrap_or_else(|| {
        let compiler = Compiler::new(None, None, moment, options, text).with_prototype(prototype);
        compiler.compile(values, condition, conditions)
    })
}
