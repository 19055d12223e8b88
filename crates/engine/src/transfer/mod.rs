//! stub

/// s
#[derive(Debug, Clone)]
pub struct Started {
    /// i
    pub task_id: u64,
    /// s
    pub status: &'static str,
    /// p
    pub pid: u32,
    /// l
    pub log_file: String,
}

impl crate::engine::Engine {
    /// s
    pub async fn start_transfer(
        &self,
        _context: &crate::call::CallContext,
        _request: crate::sync::SyncRequest,
    ) -> Result<Started, remote_sandbox_core::failure::Failure> {
        Err(remote_sandbox_core::failure::Failure::new(
            remote_sandbox_core::failure::Code::Unsupported,
            "not yet",
        ))
    }
}
