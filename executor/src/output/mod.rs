//! Owns what a command printed: the log on disk and the text that a reader is shown of it. Knows nothing of jobs,
//! terminals, records or the wire.

mod binary;
mod escape;
pub mod log;
pub mod text;
pub mod until;
pub mod view;

pub use log::{Caps, Log, Reader, Stream, Writer};
pub use until::Until;
pub use view::{Output, Piece, View};
