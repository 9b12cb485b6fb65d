//! The beat file of an incarnation: its lock says that the process lives, its bytes say how it does.
//!
//! Invariant: written by its process alone, save for the mark of a revoke; nothing in it needs a sync, because it matters only
//! as long as the host is up.

use crate::contract::{Beat, Boot, Incarnation, RunId};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

/// `magic | incarnation | seq | boot nanos | crc`, padded; then the mark of a revoke; then the slots.
const MAGIC: &[u8; 8] = b"lobbeat1";
const INCARNATION: usize = 8;
const SEQ: usize = 24;
const CRC: usize = 40;
const HEADER: usize = 44;
const REVOKED: u64 = 48;
const SLOTS: u64 = 64;
const SLOT: usize = 16;

/// A process that writes while it is read leaves a torn header; it is whole a moment later.
const READS: usize = 8;

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// An open beat file.
pub(crate) struct BeatFile {
    file: File,
}

/// What its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) incarnation: Incarnation,
    pub(crate) seq: u64,
    pub(crate) at: Boot,
    pub(crate) revoked: bool,
}

impl BeatFile {
    /// Creates the file of a new incarnation and locks it.
    pub(crate) fn create(path: &Path, incarnation: Incarnation, at: Boot, slots: usize) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        // Held for a moment only by whoever tidies up; whether that one removed it shows below.
        file.lock()?;
        file.set_len(SLOTS + (slots as u64) * SLOT as u64)?;
        file.write_all_at(MAGIC, 0)?;
        file.write_all_at(&incarnation.bytes(), INCARNATION as u64)?;
        let beat = Self { file };
        beat.write(incarnation, Beat { seq: 0, at, lapsed: false })?;
        match beat.is_linked()? {
            true => Ok(beat),
            false => Err(io::Error::new(io::ErrorKind::Interrupted, "the beat file was removed while it was made")),
        }
    }

    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).open(path).map(|file| Self { file })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn place(&self) -> io::Result<Place> {
        let data = self.file.metadata()?;
        Ok(Place { device: data.dev(), inode: data.ino() })
    }

    /// Does its directory still name it? Otherwise nobody sees its beats.
    pub(crate) fn is_linked(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() > 0)
    }

    pub(crate) fn write(&self, incarnation: Incarnation, beat: Beat) -> io::Result<()> {
        let mut bytes = [0; HEADER - SEQ];
        bytes[..8].copy_from_slice(&beat.seq.to_le_bytes());
        bytes[8..16].copy_from_slice(&beat.at.nanos().to_le_bytes());
        let crc = checksum(&incarnation.bytes(), &bytes[..16]);
        bytes[16..].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all_at(&bytes, SEQ as u64)
    }

    /// `None`: it is not (yet) a whole beat file.
    pub(crate) fn header(&self) -> io::Result<Option<Header>> {
        for _ in 0..READS {
            let mut bytes = [0; REVOKED as usize + 1];
            match self.file.read_exact_at(&mut bytes, 0) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(error),
            }
            if let Some(header) = parse(&bytes) {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    pub(crate) fn mark_revoked(&self) -> io::Result<()> {
        self.file.write_all_at(&[1], REVOKED)
    }

    pub(crate) fn note(&self, slot: usize, run: Option<RunId>) -> io::Result<()> {
        let bytes = run.map_or([0; SLOT], |run| run.bytes());
        self.file.write_all_at(&bytes, SLOTS + (slot * SLOT) as u64)
    }

    /// The runs noted in its slots.
    pub(crate) fn notes(&self, slots: usize) -> Vec<RunId> {
        let mut bytes = vec![0; slots * SLOT];
        if self.file.read_exact_at(&mut bytes, SLOTS).is_err() {
            return Vec::new();
        }
        bytes.chunks_exact(SLOT).filter(|slot| slot.iter().any(|byte| *byte != 0)).filter_map(RunId::from_slice).collect()
    }
}

fn parse(bytes: &[u8; REVOKED as usize + 1]) -> Option<Header> {
    let number = |at: usize| bytes[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let stored = bytes[CRC..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
    let incarnation = Incarnation::from_slice(&bytes[INCARNATION..SEQ])?;
    if &bytes[..INCARNATION] != MAGIC || checksum(&bytes[INCARNATION..SEQ], &bytes[SEQ..CRC]) != stored {
        return None;
    }
    let revoked = bytes[REVOKED as usize] != 0;
    Some(Header { incarnation, seq: number(SEQ)?, at: Boot::from_nanos(number(SEQ + 8)?), revoked })
}

fn checksum(incarnation: &[u8], beat: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(incarnation);
    crc.update(beat);
    crc.finalize()
}
