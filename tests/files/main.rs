//! Files and workspaces from outside.
#![expect(clippy::unwrap_used, reason = "a test that can't go on must fail")]

mod clones;
mod clones_cut_short;
mod content;
mod desk;
mod images;
mod images_refused;
mod kinds;
mod names;
mod order;
mod ownership;
mod patch;
mod paths;
mod python;
mod sizes;
mod workspaces;
