//! A disk that can be asked how its spindle is, sent to sleep and woken.
//!
//! ```text
//! INQUIRY, its pages -> ATA? its commands wrapped | SCSI: START STOP UNIT
//!    mode  -> CHECK POWER MODE | REQUEST SENSE, TEST UNIT READY       neither wakes it
//!    sleep -> STANDBY IMMEDIATE | standby, where there is that, or stop
//!    wake  -> start, where a request does not
//! ```

use std::future::Future;
use std::io;
use std::pin::Pin;

use env::scsi::{ScsiAnswer, ScsiFile};

use super::answer::{
    ATA_INFORMATION, ATA_INFORMATION_LEN, Identity, Mode, PAGES, POWER_CONDITIONS, Said, Sense,
    ata_mode, has_power_modes, has_standby, identity, mode_in_sense, pages, said,
};
use super::command::{
    Ata, Command, Wrapping, ata, inquiry, request_sense, standby, start, stop, test_unit_ready,
    vital_page,
};
use super::error::Obstacle;

/// So often a command is sent that the disk had something else to say to.
const TRIES: usize = 4;

/// Carries commands to a disk.
pub(crate) trait Transport {
    /// Sends one, and waits for its answer.
    fn send<'a>(
        &'a self,
        command: &'a Command,
    ) -> Pin<Box<dyn Future<Output = io::Result<ScsiAnswer>> + 'a>>;
}

impl Transport for ScsiFile {
    fn send<'a>(
        &'a self,
        command: &'a Command,
    ) -> Pin<Box<dyn Future<Output = io::Result<ScsiAnswer>> + 'a>> {
        Box::pin(ScsiFile::send(
            self,
            &command.bytes,
            command.reply,
            command.limit,
        ))
    }
}

/// By which commands a disk rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Those of ATA, wrapped.
    Ata(Wrapping),
    /// START STOP UNIT; the disk turns again at the next request.
    Standby,
    /// START STOP UNIT; the disk stands still until it is started.
    Stop,
}

/// See the module's head.
pub(crate) struct Drive {
    transport: Box<dyn Transport>,
    disk: String,
    dialect: Dialect,
}

impl Drive {
    /// Asks the disk what it is. One that stands still is not woken.
    pub async fn probe(transport: Box<dyn Transport>, disk: String) -> Result<Drive, Obstacle> {
        let mut drive = Drive {
            transport,
            disk,
            dialect: Dialect::Stop,
        };
        let identity = drive.identify().await?;
        let listed = drive.page(PAGES, 255).await?;
        let listed = pages(&listed);
        let is_ata = identity.is_ata || listed.contains(&ATA_INFORMATION);
        if is_ata && let Some(wrapping) = drive.wrapping(listed).await? {
            drive.dialect = Dialect::Ata(wrapping);
            return Ok(drive);
        }
        let conditions = match listed.contains(&POWER_CONDITIONS) {
            true => drive.page(POWER_CONDITIONS, 18).await?,
            false => Vec::new(),
        };
        if has_standby(&conditions) {
            drive.dialect = Dialect::Standby;
            return Ok(drive);
        }
        // Does it know the command at all? One that turns is started once more.
        if drive.mode().await? == Mode::Awake {
            drive.wake().await?;
        }
        Ok(drive)
    }

    /// Must it be started before it answers a request?
    pub fn stops(&self) -> bool {
        self.dialect == Dialect::Stop
    }

    /// The disk's name, for people.
    pub fn disk(&self) -> &str {
        &self.disk
    }

    /// By which commands it rests.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// How is the spindle? Asking does not wake it.
    pub async fn mode(&self) -> Result<Mode, Obstacle> {
        match self.dialect {
            Dialect::Ata(wrapping) => self.ata_mode(wrapping).await,
            Dialect::Standby | Dialect::Stop => self.scsi_mode().await,
        }
    }

    /// Sends it to sleep.
    pub async fn sleep(&self) -> Result<(), Obstacle> {
        match self.dialect {
            Dialect::Ata(wrapping) => {
                let command = ata(wrapping, Ata::StandbyImmediate);
                self.obeys("STANDBY IMMEDIATE", &command).await
            }
            Dialect::Standby => self.obeys("START STOP UNIT (standby)", &standby()).await,
            Dialect::Stop => self.obeys("START STOP UNIT (stop)", &stop()).await,
        }
    }

    /// Starts one that was stopped.
    pub async fn wake(&self) -> Result<(), Obstacle> {
        self.obeys("START STOP UNIT (start)", &start()).await
    }

    async fn identify(&self) -> Result<Identity, Obstacle> {
        const NAME: &str = "INQUIRY";
        let (_, data) = self.ask(NAME, &inquiry()).await?;
        let Some(identity) = identity(&data) else {
            let why = format!("{} bytes where at least 36 are due", data.len());
            return Err(self.senseless(NAME, why));
        };
        match identity.is_disk {
            true => Ok(identity),
            false => Err(Obstacle::NoDisk {
                disk: self.disk.clone(),
                kind: identity.kind,
            }),
        }
    }

    /// A page of vital product data; nothing where the disk has none such.
    async fn page(&self, page: u8, reply: u16) -> Result<Vec<u8>, Obstacle> {
        match self.tried(&vital_page(page, reply)).await? {
            (Said::Done(_), data) => Ok(data),
            _ => Ok(Vec::new()),
        }
    }

    /// How ATA commands are wrapped for this disk; `None`: what is before it takes none.
    async fn wrapping(&self, listed: &[u8]) -> Result<Option<Wrapping>, Obstacle> {
        if listed.contains(&ATA_INFORMATION) {
            let page = self.page(ATA_INFORMATION, ATA_INFORMATION_LEN).await?;
            if has_power_modes(&page) == Some(false) {
                let why = "it says that it has no power modes".to_owned();
                return Err(self.refuses("STANDBY IMMEDIATE", why));
            }
        }
        for wrapping in [Wrapping::Sixteen, Wrapping::Twelve] {
            let command = ata(wrapping, Ata::CheckPowerMode);
            if let (Said::Done(sense), _) = self.tried(&command).await?
                && mode_in_registers(sense).is_some()
            {
                return Ok(Some(wrapping));
            }
        }
        Ok(None)
    }

    async fn ata_mode(&self, wrapping: Wrapping) -> Result<Mode, Obstacle> {
        const NAME: &str = "CHECK POWER MODE";
        let command = ata(wrapping, Ata::CheckPowerMode);
        let (sense, _) = self.ask(NAME, &command).await?;
        mode_in_registers(sense).ok_or_else(|| {
            let why = format!("no power mode in {sense:x?}");
            self.senseless(NAME, why)
        })
    }

    async fn scsi_mode(&self) -> Result<Mode, Obstacle> {
        if let (Said::Done(_), data) = self.tried(&request_sense()).await?
            && let Some(mode) = mode_in_sense(&data)
        {
            return Ok(mode);
        }
        const NAME: &str = "TEST UNIT READY";
        match self.tried(&test_unit_ready()).await?.0 {
            Said::Done(_) => Ok(Mode::Awake),
            Said::NotReady(sense) => sense
                .not_ready()
                .ok_or_else(|| self.senseless(NAME, sense.words())),
            other => Err(self.wrong(NAME, other)),
        }
    }

    async fn obeys(&self, name: &'static str, command: &Command) -> Result<(), Obstacle> {
        self.ask(name, command).await.map(drop)
    }

    /// What was read, and what came along; else why the command was not done.
    async fn ask(
        &self,
        name: &'static str,
        command: &Command,
    ) -> Result<(Option<Sense>, Vec<u8>), Obstacle> {
        match self.tried(command).await? {
            (Said::Done(sense), data) => Ok((sense, data)),
            (other, _) => Err(self.wrong(name, other)),
        }
    }

    /// Sends a command until the disk has nothing else to say.
    async fn tried(&self, command: &Command) -> Result<(Said, Vec<u8>), Obstacle> {
        for _ in 0..TRIES {
            let sent = self.transport.send(command).await;
            let answer = sent.map_err(|source| not_sent(&self.disk, source))?;
            match said(&answer) {
                Said::Again => {}
                other => return Ok((other, answer.data)),
            }
        }
        Ok((Said::Again, Vec::new()))
    }

    fn wrong(&self, command: &'static str, said: Said) -> Obstacle {
        match said {
            Said::Refused(sense) => self.refuses(command, sense.words()),
            Said::NotReady(sense) => self.senseless(command, sense.words()),
            Said::Failed(why) => self.senseless(command, why),
            Said::Again => self.senseless(command, "it is busy, again and again".to_owned()),
            Said::Done(_) => unreachable!("what was done is not wrong"),
        }
    }

    fn refuses(&self, command: &'static str, why: String) -> Obstacle {
        Obstacle::Refuses {
            disk: self.disk.clone(),
            command,
            why,
        }
    }

    fn senseless(&self, command: &'static str, why: String) -> Obstacle {
        Obstacle::Senseless {
            disk: self.disk.clone(),
            command,
            why,
        }
    }
}

fn mode_in_registers(sense: Option<Sense>) -> Option<Mode> {
    sense?.ata_count.and_then(ata_mode)
}

/// Why the kernel sent no command.
fn not_sent(disk: &str, source: io::Error) -> Obstacle {
    let disk = disk.to_owned();
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Obstacle::NotAllowed { disk, source },
        Some(libc::ENOTTY | libc::EINVAL | libc::EOPNOTSUPP) => Obstacle::NotScsi { disk, source },
        _ => Obstacle::Senseless {
            disk,
            command: "SG_IO",
            why: source.to_string(),
        },
    }
}
