//! stub
use std::io; use std::path::Path; use crate::prefix::Kit;
/// x
/// # Errors
/// x
pub fn write_integration(_dir: &Path, _exe: &Path, _kit: Kit<'_>) -> io::Result<()> { Ok(()) }
