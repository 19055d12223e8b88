//! Foreign output: kept within bounds, shown without doing harm.

mod clean;
mod head_tail;
mod pattern;
mod shape;

pub(crate) use clean::is_harmless;
pub use clean::{clean_line, clean_text, fitting_end, fitting_start};
pub use head_tail::HeadTail;
pub use pattern::{Pattern, PatternError};
pub use shape::{Shaped, shape};
