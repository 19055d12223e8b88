//! What could not be told.

use remote_sandbox_core::failure::Failure;

use super::Engine;
use crate::call::CallContext;
use crate::store::DeadLetter;

impl Engine {
    /// Events of the caller's watches that could not be told by some way, the newest first, at most so many.
    pub async fn dead_letters(
        &self,
        context: &CallContext,
        most: usize,
    ) -> Result<Vec<DeadLetter>, Failure> {
        let principal = context.principal.as_str();
        let mut letters = self.store().dead_letters(Some(principal), most).await?;
        for error in letters
            .iter_mut()
            .filter_map(|letter| letter.error.as_mut())
        {
            *error = self.mask.mask_text(error).into_owned();
        }
        Ok(letters)
    }
}
