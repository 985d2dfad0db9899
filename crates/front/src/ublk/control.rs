//! The driver's control file: make a disk, start it, recover it, stop it, remove it. The thread waits for each command.
//!
//! `START_DEV` ends only when every tag was fetched and the partition table was read through the queue: it is called on
//! another thread than the queue's.

use std::io;
use std::path::{Path, PathBuf};

use base::{Bytes, SECTOR};
use device::Info;
use env::commands::{CommandFile, ControlFile, Shown};

use super::proto::{self, Asked, Control as Command, DESCRIPTOR, DiskInfo, NEW, Queue};
use super::queue::Port;

const CONTROL: &str = "/dev/ublk-control";
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;
/// Where the system lists the disks that there are.
const DISKS: &str = "/sys/class/ublk-char";

/// The driver of this kernel.
pub struct Control {
    file: ControlFile,
}

impl Control {
    /// Opens it.
    ///
    /// # Errors
    /// The system's: there is no driver (`modprobe ublk_drv`), or no right to use it.
    pub fn open() -> io::Result<Control> {
        Ok(Control {
            file: ControlFile::open(Path::new(CONTROL))?,
        })
    }

    fn ask(&mut self, command: Command, disk: u32, data: u64, memory: &mut [u8]) -> io::Result<()> {
        let asked = Asked { disk, data };
        self.file
            .command(command as u32, asked.encode(), memory)
            .map(drop)
    }

    /// What the driver offers: [`proto::feature`]s.
    ///
    /// # Errors
    /// The driver's: before Linux 6.5 it does not know the question.
    pub fn features(&mut self) -> io::Result<u64> {
        let mut features = [0; 8];
        self.ask(Command::GetFeatures, NEW, 0, &mut features)?;
        Ok(u64::from_le_bytes(features))
    }

    /// A disk, without its size. This waits for no other disk, whatever state that is in.
    ///
    /// # Errors
    /// The driver's; `InvalidData` if it has more than one queue.
    pub fn info(&mut self, disk: u32) -> io::Result<DiskInfo> {
        let mut info = [0; DiskInfo::BYTES];
        self.ask(Command::GetInfo, disk, 0, &mut info)?;
        DiskInfo::decode(&info).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// How large the system takes a disk to be; none if the driver does not say. It waits for commands to that disk.
    pub fn size(&mut self, disk: u32) -> Option<Bytes> {
        let mut parameters = proto::parameters_asked();
        let answer = self.ask(Command::GetParameters, disk, 0, &mut parameters);
        // One that is not started may have none.
        answer.ok().and_then(|()| proto::size_of(&parameters))
    }

    /// Tells the system that a disk in use has `size` bytes, where the driver offers [`proto::feature::UPDATE_SIZE`]. The server
    /// takes requests up to there already.
    ///
    /// # Errors
    /// The driver's.
    pub fn update_size(&mut self, disk: u32, size: Bytes) -> io::Result<()> {
        self.ask(Command::UpdateSize, disk, size.0 / SECTOR, &mut [])
    }

    /// All disks with one queue, without their sizes.
    ///
    /// # Errors
    /// The system's.
    pub fn disks(&mut self) -> io::Result<Vec<DiskInfo>> {
        let entries = match std::fs::read_dir(DISKS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut disks = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("ublkc"));
            if let Some(number) = number.and_then(|number| number.parse().ok()) {
                // One that goes away meanwhile is none.
                disks.extend(self.info(number).ok());
            }
        }
        disks.sort_by_key(|disk| disk.disk);
        Ok(disks)
    }

    /// Makes a disk for `server` with these features; it is not shown yet.
    ///
    /// # Errors
    /// The driver's.
    pub fn add(&mut self, flags: u64, server: u64) -> io::Result<DiskInfo> {
        let made = DiskInfo::new(NEW, flags, server, std::process::id() as i32);
        let mut info = made.encode();
        self.ask(Command::Add, NEW, 0, &mut info)?;
        DiskInfo::decode(&info).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Tells the driver what the disk is like.
    ///
    /// # Errors
    /// The driver's.
    pub fn set_parameters(&mut self, disk: u32, info: &Info, read_only: bool) -> io::Result<()> {
        let mut parameters = proto::parameters(info, read_only);
        self.ask(Command::SetParameters, disk, 0, &mut parameters)
    }

    /// Shows the disk, once every tag is fetched. This process serves it.
    ///
    /// # Errors
    /// The driver's.
    pub fn start(&mut self, disk: u32) -> io::Result<()> {
        let process = u64::from(std::process::id());
        self.ask(Command::Start, disk, process, &mut [])
    }

    /// Takes the disk back: what is under way ends, then every tag does.
    ///
    /// # Errors
    /// The driver's.
    pub fn stop(&mut self, disk: u32) -> io::Result<()> {
        self.ask(Command::Stop, disk, 0, &mut [])
    }

    /// Removes it, once its queue's file is closed and its last user is gone. An older driver waits for that.
    ///
    /// # Errors
    /// The driver's.
    pub fn delete(&mut self, disk: u32) -> io::Result<()> {
        match self.ask(Command::DeleteLater, disk, 0, &mut []) {
            Err(error) if matches!(error.raw_os_error(), Some(EOPNOTSUPP | EINVAL)) => {
                self.ask(Command::Delete, disk, 0, &mut [])
            }
            answer => answer,
        }
    }

    /// This process takes a disk over whose server died.
    ///
    /// # Errors
    /// The driver's; `ResourceBusy` while the dead one is not quite gone, `InvalidInput` if a recovery was begun before.
    pub fn start_recovery(&mut self, disk: u32) -> io::Result<()> {
        self.ask(Command::StartRecovery, disk, 0, &mut [])
    }

    /// ... and serves it, once every tag is fetched.
    ///
    /// # Errors
    /// The driver's.
    pub fn end_recovery(&mut self, disk: u32) -> io::Result<()> {
        let process = u64::from(std::process::id());
        self.ask(Command::EndRecovery, disk, process, &mut [])
    }
}

/// Where the system shows disk `disk`.
pub fn path_of(disk: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{disk}"))
}

/// The queue of one disk in the kernel.
pub struct Kernel {
    file: CommandFile,
    descriptors: Shown,
}

impl Kernel {
    /// Opens the queue of `disk`, which this process made or takes over.
    ///
    /// # Errors
    /// The system's.
    pub fn open(disk: &DiskInfo) -> io::Result<Kernel> {
        let file = CommandFile::open(&PathBuf::from(format!("/dev/ublkc{}", disk.disk)))?;
        let len = proto::descriptors(disk.depth).next_multiple_of(4096);
        let descriptors = file.map(0, len)?;
        Ok(Kernel { file, descriptors })
    }

    async fn send(&self, command: Queue, tag: u16, result: i32) -> io::Result<()> {
        let payload = proto::queue_command(tag, result);
        self.file.command(command as u32, payload).await.map(drop)
    }
}

impl Port for Kernel {
    fn fetch(&self, tag: u16) -> std::pin::Pin<Box<dyn Future<Output = io::Result<()>> + '_>> {
        Box::pin(self.send(Queue::Fetch, tag, 0))
    }

    fn commit(
        &self,
        tag: u16,
        result: i32,
    ) -> std::pin::Pin<Box<dyn Future<Output = io::Result<()>> + '_>> {
        Box::pin(self.send(Queue::CommitAndFetch, tag, result))
    }

    fn descriptor(&self, tag: u16) -> [u8; DESCRIPTOR] {
        let mut descriptor = [0; DESCRIPTOR];
        self.descriptors
            .read(usize::from(tag) * DESCRIPTOR, &mut descriptor);
        descriptor
    }

    fn copy_in(&self, tag: u16, data: &mut [u8]) -> io::Result<()> {
        self.file.copy_in(proto::data_at(tag), data)
    }

    fn copy_out(&self, tag: u16, data: &[u8]) -> io::Result<()> {
        self.file.copy_out(proto::data_at(tag), data)
    }
}
