//! Commands and their output, from outside: real processes, trees and pipes.
#![expect(clippy::unwrap_used, reason = "a test that can't go on must fail")]

mod binary;
mod calls;
mod clock;
mod command;
mod environment;
mod flood;
mod many;
mod out_of_memory;
mod output;
mod receipts;
mod retention;
mod text;
mod tree;
