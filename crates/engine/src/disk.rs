//! What kind of disk something lies on.

/// Whether other machines may use it at the same time: another one keeps what is written.
#[cfg(target_os = "linux")]
pub(crate) fn is_remote(about: &rustix::fs::StatFs) -> bool {
    // The kernel's numbers have 32 bits, whatever type carries them.
    is_remote_kind(about.f_type as u32)
}

/// Whether other machines may use it at the same time: another one keeps what is written.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_remote(about: &rustix::fs::StatFs) -> bool {
    about.f_flags & libc::MNT_LOCAL as u32 == 0
}

/// Whether a number of the kernel names a file system that other machines may use at the same time.
#[cfg(any(target_os = "linux", test))]
pub(crate) fn is_remote_kind(magic: u32) -> bool {
    /// Those of the kernel and of the usual modules; a file system in user space may be anything, sshfs included.
    const REMOTE: [u32; 17] = [
        0x6969,      // nfs
        0xff53_4d42, // cifs
        0xfe53_4d42, // smb2
        0x517b,      // smb
        0x564c,      // ncp
        0x6573_5546, // fuse
        0x0102_1997, // 9p
        0x5346_414f, // afs
        0x6b41_4653, // kafs
        0x7375_7245, // coda
        0x0bd0_0bd0, // lustre
        0x1983_0326, // beegfs
        0x00c3_6400, // ceph
        0x0116_1970, // gfs2
        0x7461_636f, // ocfs2
        0x4750_4653, // gpfs
        0xaad7_aaea, // panfs
    ];
    REMOTE.contains(&magic)
}
