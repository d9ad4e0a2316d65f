//! The product from outside: both real programs, real processes, real files.

mod main_job;
mod shells;
mod waits;
