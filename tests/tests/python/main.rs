//! Programs in Python.

mod python;
mod python_attach;
mod python_chosen;
mod python_memory;
mod python_said;
mod python_suite;
mod python_tasks;
mod python_wheel;
