//! Copies of this program in our own folder, for services to point to: a package manager may empty its cache.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use remote_sandbox_core::service::CopyName;
use sha2::{Digest, Sha256};

use super::{Service, ServiceError, VERSION};
use crate::fsio;

/// As much of a program is read at a time.
const PIECE: usize = 64 * 1024;

impl Service {
    pub(super) fn copies(&self) -> PathBuf {
        self.state.join("bin")
    }

    /// The copy of the program that runs; it is made when it is missing or was changed.
    pub(super) async fn keep_copy(&self) -> Result<PathBuf, ServiceError> {
        let (source, folder) = (self.program.clone(), self.copies());
        let kept = tokio::task::spawn_blocking(move || keep_copy(source.as_deref(), &folder));
        kept.await.map_err(|_| ServiceError::Interrupted)?
    }

    /// Removes the copies that no service points to; it is no matter when that fails.
    pub(super) fn forget_copies(&self) {
        let named = self.definitions();
        let named: Vec<String> = named
            .iter()
            .filter_map(|text| CopyName::named_in(text))
            .map(|name| name.to_string())
            .collect();
        let entries = std::fs::read_dir(self.copies()).into_iter().flatten();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if CopyName::is_ours(&name) && !named.contains(&name) {
                let _ = fsio::remove_file(&entry.path());
            }
        }
        if named.is_empty() {
            let _ = fsio::remove_empty_directory(&self.copies());
        }
    }
}

/// The very program that runs, also when its file was replaced meanwhile by a newer one.
fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        Ok(PathBuf::from("/proc/self/exe"))
    } else {
        std::env::current_exe()
    }
}

fn keep_copy(source: Option<&Path>, folder: &Path) -> Result<PathBuf, ServiceError> {
    let source = match source {
        Some(source) => source.to_owned(),
        None => own_program().map_err(ServiceError::Program)?,
    };
    let mut program = File::open(source).map_err(ServiceError::Program)?;
    let wanted = digest(&mut program).map_err(ServiceError::Program)?;
    let path = folder.join(CopyName::new(VERSION, &wanted).to_string());
    fsio::sealed_directory(folder)?;
    if !is_kept(&path, &wanted) {
        program
            .seek(SeekFrom::Start(0))
            .map_err(ServiceError::Program)?;
        fsio::write_program(&path, &mut program)?;
    }
    Ok(path)
}

/// Whether a copy is there as it should be, for this user only.
fn is_kept(path: &Path, wanted: &[u8]) -> bool {
    let access = fsio::mode_and_ownership(path);
    let is_private = access.is_ok_and(|access| access.mine && access.mode == 0o700);
    is_private
        && !fsio::is_link(path)
        && File::open(path)
            .and_then(|mut copy| digest(&mut copy))
            .is_ok_and(|found| found == wanted)
}

fn digest(file: &mut File) -> io::Result<Vec<u8>> {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Ok(hasher.finalize().to_vec());
        }
        hasher.update(piece.get(..count).unwrap_or_default());
    }
}
