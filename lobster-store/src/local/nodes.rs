//! The directory of the processes: which incarnations live here, and what proves one dead.
//!
//! Invariant: any doubt about a death is no proof. A lock is believed only on the very file that the row names, on a file
//! system where locks bind everybody.

use super::{
    beat::{BeatFile, Header, Place},
    host::{self, Host},
    of_io,
};
use crate::contract::{Beat, Boot, Failed, Incarnation, NewNode, Renewed, Result, RunId};
use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::AtomicU64, atomic::Ordering},
};
use uuid::Uuid;

/// Slots tried for a name. More processes than this on one file are a mistake.
const NAMES_MAX: usize = 4096;

/// The identity of an incarnation, as its row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Papers {
    pub(crate) boot_id: String,
    pub(crate) machine_id: String,
    pub(crate) place: Place,
}

/// An incarnation of this process.
pub(crate) struct Held {
    pub(crate) name: String,
    pub(crate) beat: BeatFile,
    slots: usize,
    /// Seq of the last beat that this process tried to write.
    last: AtomicU64,
    /// The lock of its slot or name, let go of when this is dropped.
    _name_lock: File,
}

/// Why a process is surely gone.
pub(crate) enum Proof {
    /// Its beat file could be locked, and stays so as long as this lives.
    Locked(BeatFile),
    /// The host has been booted since.
    Rebooted,
}

/// The directory of an installation, seen from this process.
pub(crate) struct Nodes {
    dir: PathBuf,
    /// The directory lies beside the database: whoever sees it is on the host of whoever uses it.
    beside: bool,
    held: RwLock<HashMap<Incarnation, Arc<Held>>>,
    known: Mutex<HashMap<Incarnation, Papers>>,
}

impl Nodes {
    /// A directory beside the database.
    #[cfg(feature = "sqlite")]
    pub(crate) fn beside(dir: PathBuf) -> Self {
        Self::new(dir, true)
    }

    /// A directory of this host, where the database may be anywhere.
    #[cfg(feature = "postgres")]
    pub(crate) fn apart(dir: PathBuf) -> Self {
        Self::new(dir, false)
    }

    fn new(dir: PathBuf, beside: bool) -> Self {
        Self { dir, beside, held: RwLock::default(), known: Mutex::default() }
    }

    pub(crate) fn beat_path(&self, incarnation: Incarnation) -> PathBuf {
        self.dir.join(incarnation.to_string())
    }

    /// Takes slot or name, and the beat file. The same again finds what it took.
    pub(crate) fn hold(&self, node: &NewNode, now: Boot) -> Result<Arc<Held>> {
        if let Some(held) = self.held(node.incarnation) {
            return Ok(held);
        }
        let (name, name_lock) = match &node.name {
            Some(name) => (name.clone(), self.lock_name(name)?),
            None => self.lock_slot()?,
        };
        let path = self.beat_path(node.incarnation);
        let beat = BeatFile::create(&path, node.incarnation, now, node.slots).map_err(|error| of_io(&path, &error))?;
        let held = Arc::new(Held { name, beat, slots: node.slots, last: AtomicU64::new(0), _name_lock: name_lock });
        self.held.write().unwrap_or_else(PoisonError::into_inner).insert(node.incarnation, held.clone());
        Ok(held)
    }

    /// Lets go of everything an incarnation of this process has.
    pub(crate) fn let_go(&self, incarnation: Incarnation) {
        let held = self.held.write().unwrap_or_else(PoisonError::into_inner).remove(&incarnation);
        if held.is_some() {
            fs::remove_file(self.beat_path(incarnation)).ok();
        }
    }

    pub(crate) fn held(&self, incarnation: Incarnation) -> Option<Arc<Held>> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).get(&incarnation).cloned()
    }

    fn lock_slot(&self) -> Result<(String, File)> {
        let host = &Host::this().name;
        for slot in 0..NAMES_MAX {
            if let Some(file) = self.try_lock(&format!("{slot}.lock"))? {
                return Ok((format!("{host}-{slot}"), file));
            }
        }
        Err(Failed::Refused(format!("{}: all {NAMES_MAX} slots are taken", self.dir.display())))
    }

    fn lock_name(&self, name: &str) -> Result<File> {
        // A name may hold anything, the name of a file may not.
        let of_file = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes());
        match self.try_lock(&format!("name-{of_file}.lock"))? {
            Some(mut file) => {
                // For people who look at the directory.
                file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(name.as_bytes())).ok();
                Ok(file)
            }
            None => Err(Failed::Refused(format!("a living process of this host has the node name {name:?}"))),
        }
    }

    fn try_lock(&self, file_name: &str) -> Result<Option<File>> {
        let path = self.dir.join(file_name);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open.map_err(|error| of_io(&path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(of_io(&path, &error)),
        }
    }

    /// Remembers what rows say, for [`proves_dead`](Self::proves_dead).
    pub(crate) fn remember(&self, papers: HashMap<Incarnation, Papers>) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = papers;
    }

    /// A hint at a death: what `revoke` will check again, on the row as it is then.
    pub(crate) fn proves_dead(&self, incarnation: Incarnation) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&incarnation).cloned();
        match known {
            Some(papers) => self.prove(incarnation, &papers).is_some(),
            // Its row was not read yet.
            None => self.take_lock(incarnation, None).is_some(),
        }
    }

    /// Proves that the process of an incarnation is gone. `None`: cannot tell.
    pub(crate) fn prove(&self, incarnation: Incarnation, papers: &Papers) -> Option<Proof> {
        let here = Host::this();
        if papers.boot_id.is_empty() || here.boot_id.is_empty() {
            return None;
        }
        if papers.boot_id == here.boot_id {
            return self.take_lock(incarnation, Some(papers.place)).map(Proof::Locked);
        }
        // Copies of a virtual machine may share an id. They do not share a directory on a local file system beside the database; where
        // it lies apart, the very file must have outlived the boot.
        let local = match self.beside {
            true => File::open(&self.dir).is_ok_and(|dir| host::locks_bind(&dir)),
            false => self.take_lock(incarnation, Some(papers.place)).is_some(),
        };
        (local && !papers.machine_id.is_empty() && papers.machine_id == here.machine_id).then_some(Proof::Rebooted)
    }

    /// Locks the beat file of a process that does not any more.
    fn take_lock(&self, incarnation: Incarnation, place: Option<Place>) -> Option<BeatFile> {
        let beat = BeatFile::open(&self.beat_path(incarnation)).ok()?;
        // A file of that name that somebody has made anew proves nothing about who locked the old one.
        let its_own = beat.header().ok()??.incarnation == incarnation;
        let same = place.is_none_or(|place| beat.place().is_ok_and(|now| now == place));
        if !its_own || !same || !host::locks_bind(beat.file()) {
            return None;
        }
        // A lock belongs to the open file, not to the process: this one knows nothing of those that this process holds.
        beat.file().try_lock().ok()?;
        Some(beat)
    }

    /// The beat as its file says it.
    pub(crate) fn header(&self, incarnation: Incarnation, place: Place) -> Option<(BeatFile, Header)> {
        let beat = BeatFile::open(&self.beat_path(incarnation)).ok()?;
        let header = beat.header().ok()??;
        (header.incarnation == incarnation && beat.place().ok()? == place).then_some((beat, header))
    }

    /// Incarnations that have a beat file here.
    pub(crate) fn found(&self) -> Vec<Incarnation> {
        let named = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<Incarnation>().ok();
        fs::read_dir(&self.dir).map(|files| files.flatten().filter_map(named).collect()).unwrap_or_default()
    }

    /// Removes the beat files of `found` incarnations that are not active, once their process is gone too.
    pub(crate) fn tidy(&self, found: Vec<Incarnation>, active: &HashSet<Incarnation>) {
        for incarnation in found.into_iter().filter(|incarnation| !active.contains(incarnation)) {
            let path = self.beat_path(incarnation);
            // The lock of one that is about to join is held, so it is left alone.
            if let Ok(beat) = BeatFile::open(&path)
                && beat.file().try_lock().is_ok()
                && beat.is_linked().unwrap_or(false)
            {
                fs::remove_file(&path).ok();
            }
        }
    }
}

impl Held {
    /// Writes a beat that needs nobody's leave.
    pub(crate) fn renew(&self, incarnation: Incarnation, beat: Beat) -> io::Result<Renewed> {
        let Some(now) = self.beat.header()? else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the beat file was overwritten"));
        };
        if !self.beat.is_linked()? {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the beat file was removed"));
        }
        // Above what this process tried: somebody else beats in its name.
        if now.revoked || now.seq >= beat.seq || now.seq > self.last.load(Ordering::Relaxed) {
            return Ok(Renewed::Revoked);
        }
        self.last.store(beat.seq, Ordering::Relaxed);
        self.beat.write(incarnation, beat)?;
        Ok(Renewed::Good)
    }

    pub(crate) fn note(&self, slot: usize, run: Option<RunId>) {
        if slot < self.slots {
            self.beat.note(slot, run).ok();
        }
    }
}
