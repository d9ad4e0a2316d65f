//! Starts processes and ends them with everything they started. The only place that holds `unsafe` code, and the only
//! one that may start a process. It knows no job, workspace or record.
//!
//! ```text
//! executor ──▶ spawner (one thread, forked first) ──fork──▶ init, of one job at a time ──▶ program
//!     └────── control socket: requests, orders ──▶ ◀── reports ──────┘
//! ```

pub mod cgroup;
mod child;
mod init;
mod tree;
mod wire;

pub mod capture;
pub mod copy;
pub mod identity;
pub mod lifetime;
pub mod pty;
pub mod sandbox;
pub mod signal;
pub mod spawn;
pub mod spawner;
pub mod veil;
pub mod workers;
