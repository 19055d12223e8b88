//! stub
use remote_sandbox_core::failure::{Code, Failure};

use super::decide::Decision;
use super::progress::Progress;
use super::sides::Sides;
use super::up::Uploaded;
use crate::beneath::Tree;

pub(super) async fn download(
    _sides: &Sides,
    _decision: &Decision,
    _tree: Tree,
    _progress: &Progress,
) -> Result<Uploaded, Failure> {
    Err(Failure::new(Code::Unsupported, "not yet"))
}
