//! Terminals as agents use them: real programs on real pseudo-terminals, typed to and looked at through the tools.

mod ends;
mod input;
mod leaks;
mod looks;
mod programs;
mod readers;
mod restarts;
