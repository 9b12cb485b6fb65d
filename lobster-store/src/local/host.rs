//! What a process can know about its host.
//!
//! Invariant: whatever cannot be told is told as such; nothing here guesses. Only `system` knows which system this is; with
//! `--cfg lobster_portable` Linux is taken for one that tells nothing, which is how the other half is tested.

use std::{fs::File, sync::LazyLock};

/// This host, in this boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Name of the host.
    pub(crate) name: String,
    /// Differs for each boot; empty where the system has none.
    pub(crate) boot_id: String,
    /// Differs for each installation of a system; empty where there is none.
    pub(crate) machine_id: String,
}

impl Host {
    pub(crate) fn this() -> &'static Self {
        static THIS: LazyLock<Host> = LazyLock::new(|| Host {
            name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot_id: system::boot_id(),
            machine_id: system::machine_id(),
        });
        &THIS
    }
}

/// Do locks on this file bind every process that can reach it? Not where other hosts or a server of its own may be involved:
/// there a lock can be free although its holder lives.
pub(crate) fn locks_bind(file: &File) -> bool {
    system::locks_bind(file)
}

/// What Linux tells of itself.
#[cfg(all(target_os = "linux", not(lobster_portable)))]
mod system {
    use std::fs::File;

    pub(super) fn boot_id() -> String {
        word_in("/proc/sys/kernel/random/boot_id")
    }

    pub(super) fn machine_id() -> String {
        word_in("/etc/machine-id")
    }

    fn word_in(path: &str) -> String {
        std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
    }

    pub(super) fn locks_bind(file: &File) -> bool {
        /// NFS, SMB (three generations), FUSE (and virtiofs), 9P, AFS (two), Ceph, Lustre, GFS2, OCFS2, GPFS, Coda, vboxsf.
        const SHARED: [u32; 14] = [
            0x6969,
            0x517b,
            0xff53_4d42,
            0xfe53_4d42,
            0x6573_5546,
            0x0102_1997,
            0x5346_414f,
            0x6b41_4653,
            0x00c3_6400,
            0x0bd0_0bd0,
            0x0116_1970,
            0x7461_636f,
            0x4750_4653,
            0x7372_7245,
        ];
        // The kernel's magic numbers have 32 bits; the field is wider on some targets.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the magic number is in the low 32 bits")]
        rustix::fs::fstatfs(file).is_ok_and(|stat| !SHARED.contains(&(stat.f_type as u32)))
    }
}

/// Another system, or Linux taken for one: it tells nothing, so no death is proved and a take-over waits for the lease.
#[cfg(not(all(target_os = "linux", not(lobster_portable))))]
mod system {
    use std::fs::File;

    pub(super) fn boot_id() -> String {
        String::new()
    }

    pub(super) fn machine_id() -> String {
        String::new()
    }

    pub(super) fn locks_bind(_file: &File) -> bool {
        false
    }
}
