//! The published disk cache as a device: what would DMSSD have done with this request? For comparison
//! only; the program never serves it.
//!
//! ```text
//! request -> cut at block bounds -> find each block (policy::cache::dmssd)
//!   hit                        -> the SSD
//!   miss, a block can be mapped -> copy the whole block HDD -> SSD, then as a hit
//!   miss, the victim is dirty   -> write the victim back; this request goes to the HDD
//!   miss, every block is busy   -> this request goes to the HDD
//! ```
//!
//! Source: DMSSD 4.1 figure 3, 4.2 figure 7, 6.2.2 (a write miss waits for its block from the HDD).
//!
//! Choice: figure 3 is lost in print. A miss copies the block to the SSD first and is then answered from
//! there, reads as well as writes: a device-mapper target passes requests on by remapping them, and its
//! copies do not hand their data out. A write miss fetches its block even where it covers it whole: the
//! paper's file system hands down 4 KiB pieces, each smaller than a block, and its first writes waited.
//!
//! Choice: the paper is silent on flushes and discards. A flush goes to both devices; a discard does
//! nothing. The map is written by [`Dmssd::remove`] alone, so a crash loses it, and dirty data with it.
//!
//! Always true:
//! 1. A block is fetched whole before anything is read from or written to its place on the SSD.
//! 2. A place on the SSD changes hands only while no request reads or writes it.
//! 3. While a block is written back, writes to it wait.

mod requests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Map, SECTOR, Sector, Set, View};
use device::{Class, Device, DeviceError, WriteFlags};
use env::sync::{Event, join_all};
use policy::cache::dmssd::{Allocation, Dmssd as Table};

/// Bytes of the map per block: the block's number and its state (figure 4; 4.2 names these two).
const ENTRY: u64 = 10;
const DIRTY: u16 = 1;

/// What the cache did, in blocks and requests (a request that spans blocks counts once for each).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pieces served by the SSD at once.
    pub hits: u64,
    /// Blocks copied to the SSD.
    pub fills: u64,
    /// Pieces sent to the HDD because a dirty victim had to be written back first.
    pub bypassed_dirty: u64,
    /// Pieces sent to the HDD because every block was busy.
    pub bypassed_busy: u64,
    /// Blocks written back.
    pub written_back: u64,
}

/// The published cache. A [`Device`] of the slow device's size and contents.
pub struct Dmssd {
    inner: Rc<Inner>,
}

struct Inner {
    // Fixed at open.
    slow: Rc<dyn Device>,
    fast: Rc<dyn Device>,
    block: u64,
    map_at: Sector,
    // Per request.
    table: RefCell<Table>,
    /// Blocks of the slow device that are being fetched or bypassed: others wait for them.
    busy: RefCell<Set<u64>>,
    /// Requests under way on a cache block: reads and writes.
    users: RefCell<Map<u32, (u32, u32)>>,
    changed: Event,
    counts: Cell<Counters>,
    /// The first write-back that failed: flushes fail from then on.
    failed: RefCell<Option<String>>,
}

/// A request, or a piece of one that lies within a block.
enum Job {
    Read(Buf, Class),
    Write(View, WriteFlags),
}

impl Job {
    fn len(&self) -> u64 {
        match self {
            Job::Read(buf, _) => buf.len() as u64,
            Job::Write(data, _) => data.len() as u64,
        }
    }

    fn writes(&self) -> bool {
        matches!(self, Job::Write(..))
    }

    /// Sends it to `device`; a read gives its buffer back.
    async fn send(self, device: &dyn Device, at: Sector) -> Result<Option<Buf>, DeviceError> {
        match self {
            Job::Read(buf, class) => device.read(at, buf, class).await.map(Some),
            Job::Write(data, flags) => device.write(at, data, flags).await.map(|()| None),
        }
    }
}

impl Dmssd {
    /// An empty cache of blocks of `block` bytes on `fast` in front of `slow`, whose contents stay.
    ///
    /// # Panics
    /// If `block` is not a power of two of at least a sector, or `fast` holds not even one block.
    pub fn new(slow: Rc<dyn Device>, fast: Rc<dyn Device>, block: Bytes) -> Dmssd {
        assert!(
            block.0.is_power_of_two() && block.0 >= SECTOR,
            "{block} is not a power of two of sectors"
        );
        let size = fast.info().size.0;
        // The map lies behind the blocks.
        let blocks = (size - size.min(8192)) / (block.0 + ENTRY);
        assert!(
            blocks > 0,
            "{size} bytes are too few for one block of {block}"
        );
        Dmssd {
            inner: Rc::new(Inner {
                slow,
                fast,
                block: block.0,
                map_at: Sector((blocks * block.0).div_ceil(SECTOR)),
                table: RefCell::new(Table::new(blocks as u32)),
                busy: RefCell::default(),
                users: RefCell::default(),
                changed: Event::default(),
                counts: Cell::default(),
                failed: RefCell::default(),
            }),
        }
    }

    /// The cache that [`Dmssd::remove`] left on `fast`, with the same block size.
    ///
    /// # Errors
    /// The fast device's.
    pub async fn open(
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
        block: Bytes,
    ) -> Result<Dmssd, DeviceError> {
        let cache = Dmssd::new(slow, fast, block);
        let inner = &cache.inner;
        let size = inner.table.borrow().size();
        let len = (u64::from(size) * ENTRY).next_multiple_of(SECTOR);
        let map = inner.read_map(len).await?;
        for entry in map.chunks_exact(ENTRY as usize).take(size as usize) {
            let (number, state) = entry.split_at(8);
            // Zero: never used. Blocks are counted from one on the SSD, so that a blank one is empty.
            let number = u64::from_le_bytes(number.try_into().expect("eight bytes"));
            let state = u16::from_le_bytes(state.try_into().expect("two bytes"));
            let Some(number) = number.checked_sub(1) else {
                break;
            };
            let mut table = inner.table.borrow_mut();
            let Allocation::Mapped { cache_block, .. } = table.allocate(number) else {
                unreachable!("the table is empty, so its next block is free");
            };
            table.filled(cache_block);
            if state & DIRTY != 0 {
                table.wrote(cache_block);
            }
        }
        Ok(cache)
    }

    /// Takes the virtual device down: writes the map to the SSD. Dirty data stay there.
    ///
    /// # Errors
    /// A device's; the map is not to be trusted then.
    ///
    /// # Source
    /// DMSSD 4.2: block and state of every block, when the virtual device is deleted.
    pub async fn remove(self) -> Result<(), DeviceError> {
        let inner = &self.inner;
        let map = {
            let table = inner.table.borrow();
            let len = (u64::from(table.size()) * ENTRY).next_multiple_of(SECTOR);
            let mut map = Buf::zeroed(len as usize);
            for (n, entry) in (0..table.size()).zip(map.chunks_exact_mut(ENTRY as usize)) {
                let Some(number) = table.block(n) else { break };
                let (at, state) = entry.split_at_mut(8);
                at.copy_from_slice(&(number + 1).to_le_bytes());
                state.copy_from_slice(&u16::from(table.state(n).dirty).to_le_bytes());
            }
            map.freeze()
        };
        let chunk = inner.fast.info().max_io.usize();
        for from in (0..map.len()).step_by(chunk) {
            let piece = map.slice(from, chunk.min(map.len() - from));
            let at = inner.map_at.after(Bytes(from as u64));
            inner.fast.write(at, piece, WriteFlags::default()).await?;
        }
        inner.flush().await
    }

    /// Ends the cache by writing every dirty block back, in the order of its place on the slow device. The
    /// paper leaves dirty data on the SSD; comparisons ask what it would take to write them back.
    ///
    /// # Errors
    /// A device's.
    pub async fn destage_all(self) -> Result<(), DeviceError> {
        let inner = &self.inner;
        let mut dirty: Vec<(u64, u32)> = {
            let table = inner.table.borrow();
            let numbered = |n| table.block(n).map(|block| (block, n));
            (0..table.size())
                .map_while(numbered)
                .filter(|(_, n)| table.state(*n).dirty && !table.state(*n).writeback)
                .collect()
        };
        dirty.sort_unstable();
        for (block, n) in dirty {
            inner.copy_home(n, block).await?;
            inner.count(|counts| counts.written_back += 1);
        }
        inner.flush().await
    }

    /// What it did so far.
    pub fn counts(&self) -> Counters {
        self.inner.counts.get()
    }

    /// Blocks that are newer on the SSD.
    pub fn dirty(&self) -> usize {
        let table = self.inner.table.borrow();
        (0..table.size()).filter(|n| table.state(*n).dirty).count()
    }
}

impl Inner {
    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    async fn read_map(&self, len: u64) -> Result<Vec<u8>, DeviceError> {
        let chunk = self.fast.info().max_io.0;
        let mut map = Vec::with_capacity(len as usize);
        while (map.len() as u64) < len {
            let have = map.len() as u64;
            let buf = Buf::for_read(chunk.min(len - have) as usize);
            let at = self.map_at.after(Bytes(have));
            map.extend_from_slice(&self.fast.read(at, buf, Class::Metadata).await?);
        }
        Ok(map)
    }

    fn use_block(&self, cache_block: u32, writes: bool, step: i32) {
        let mut users = self.users.borrow_mut();
        let entry = users.entry(cache_block).or_default();
        let count = if writes { &mut entry.1 } else { &mut entry.0 };
        *count = count.checked_add_signed(step).expect("who leaves has come");
        if *entry == (0, 0) {
            users.remove(&cache_block);
        }
        drop(users);
        if step < 0 {
            self.changed.notify_all();
        }
    }

    async fn unused(&self, cache_block: u32) {
        while self.users.borrow().contains_key(&cache_block) {
            self.changed.wait().await;
        }
    }

    async fn not_written(&self, cache_block: u32) {
        let writers = || {
            self.users
                .borrow()
                .get(&cache_block)
                .is_some_and(|u| u.1 > 0)
        };
        while writers() {
            self.changed.wait().await;
        }
    }

    fn place(&self, cache_block: u32) -> Sector {
        Sector::containing(u64::from(cache_block) * self.block)
    }

    /// Length of block `number`; the last one of a device may be short.
    fn len_of(&self, number: u64) -> usize {
        let size = self.slow.info().size.0;
        self.block.min(size - number * self.block) as usize
    }

    /// One piece within one block; `at` is a place on the slow device.
    async fn piece(self: Rc<Self>, at: u64, job: Job) -> Result<Option<Buf>, DeviceError> {
        let number = at / self.block;
        loop {
            if self.busy.borrow().contains(&number) {
                self.changed.wait().await;
                continue;
            }
            let found = self.table.borrow().find(number);
            let Some(cache_block) = found else { break };
            let state = self.table.borrow().state(cache_block);
            // No task fetches it any more: that failed.
            if state.reserved {
                return job.send(&*self.slow, Sector::containing(at)).await;
            }
            if job.writes() && state.writeback {
                self.check()?;
                self.changed.wait().await;
                continue;
            }
            self.count(|counts| counts.hits += 1);
            return self.hit(cache_block, at, job).await;
        }
        self.busy.borrow_mut().insert(number);
        let answer = self.miss(number, at, job).await;
        self.busy.borrow_mut().remove(&number);
        self.changed.notify_all();
        answer
    }

    async fn hit(&self, cache_block: u32, at: u64, job: Job) -> Result<Option<Buf>, DeviceError> {
        debug_assert!(at % self.block + job.len() <= self.block, "one block only");
        let writes = job.writes();
        {
            let mut table = self.table.borrow_mut();
            table.used(cache_block);
            // Before it is sent: a clean block could be given away meanwhile.
            if writes {
                table.wrote(cache_block);
            }
        }
        self.use_block(cache_block, writes, 1);
        let place = self.place(cache_block).after(Bytes(at % self.block));
        let answer = job.send(&*self.fast, place).await;
        self.use_block(cache_block, writes, -1);
        answer
    }

    async fn miss(
        self: &Rc<Self>,
        number: u64,
        at: u64,
        job: Job,
    ) -> Result<Option<Buf>, DeviceError> {
        let allocation = self.table.borrow_mut().allocate(number);
        match allocation {
            Allocation::Mapped { cache_block, .. } => {
                self.unused(cache_block).await;
                self.fill(cache_block, number).await?;
                self.hit(cache_block, at, job).await
            }
            Allocation::WriteBack { cache_block, block } => {
                self.count(|counts| counts.bypassed_dirty += 1);
                let inner = Rc::clone(self);
                env::spawn(async move {
                    if let Err(error) = inner.write_back(cache_block, block).await {
                        inner.failed.borrow_mut().get_or_insert(error.to_string());
                        inner.changed.notify_all();
                    }
                });
                job.send(&*self.slow, Sector::containing(at)).await
            }
            Allocation::Busy => {
                self.count(|counts| counts.bypassed_busy += 1);
                job.send(&*self.slow, Sector::containing(at)).await
            }
        }
    }

    /// Copies a block to its place on the SSD.
    ///
    /// A block that cannot be fetched stays reserved for ever, as the published table has no way back;
    /// requests for it go to the HDD.
    async fn fill(&self, cache_block: u32, number: u64) -> Result<(), DeviceError> {
        let buf = Buf::for_read(self.len_of(number));
        let from = Sector::containing(number * self.block);
        let data = self.slow.read(from, buf, Class::Foreground).await?;
        let to = self.place(cache_block);
        let flags = WriteFlags::default();
        self.fast.write(to, data.freeze(), flags).await?;
        self.table.borrow_mut().filled(cache_block);
        self.count(|counts| counts.fills += 1);
        Ok(())
    }

    /// Writes back the victim `allocate` chose.
    async fn write_back(&self, cache_block: u32, number: u64) -> Result<(), DeviceError> {
        self.not_written(cache_block).await;
        self.copy_home(cache_block, number).await?;
        self.table.borrow_mut().written_back(cache_block);
        self.count(|counts| counts.written_back += 1);
        self.changed.notify_all();
        Ok(())
    }

    async fn copy_home(&self, cache_block: u32, number: u64) -> Result<(), DeviceError> {
        let buf = Buf::for_read(self.len_of(number));
        let from = self.place(cache_block);
        let data = self.fast.read(from, buf, Class::Background).await?;
        let to = Sector::containing(number * self.block);
        let flags = WriteFlags::BACKGROUND;
        self.slow.write(to, data.freeze(), flags).await
    }

    /// Refuses to go on where a write-back failed.
    fn check(&self) -> Result<(), DeviceError> {
        match self.failed.borrow().clone() {
            Some(why) => Err(DeviceError::FlushFailed {
                device: self.slow.info().name,
                why,
            }),
            None => Ok(()),
        }
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.check()?;
        self.fast.flush().await?;
        self.slow.flush().await
    }

    /// Cuts a request at block bounds, serves the pieces side by side, and puts them together.
    async fn whole(self: Rc<Self>, at: Sector, job: Job) -> Result<Option<Buf>, DeviceError> {
        let byte = at.byte();
        let end = byte + job.len();
        if byte / self.block == (end - 1) / self.block {
            return self.piece(byte, job).await;
        }
        let mut pieces = Vec::new();
        let mut rest = job;
        let mut from = byte;
        while from < end {
            let upto = end.min((from / self.block + 1) * self.block);
            let len = (upto - from) as usize;
            let piece = match &mut rest {
                Job::Read(buf, class) => {
                    let tail = buf.split_off(len);
                    Job::Read(std::mem::replace(buf, tail), *class)
                }
                Job::Write(data, flags) => {
                    Job::Write(data.slice((from - byte) as usize, len), *flags)
                }
            };
            pieces.push(Rc::clone(&self).piece(from, piece));
            from = upto;
        }
        drop(rest);
        let mut joined: Option<Buf> = None;
        for piece in join_all(pieces).await {
            match (&mut joined, piece?) {
                (Some(whole), Some(next)) => whole.join(next),
                (None, first) => joined = first,
                (Some(_), None) => unreachable!("all pieces of a read are reads"),
            }
        }
        Ok(joined)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use base::Span;
    use device::{DeviceExt, Memory};

    use super::*;

    const BLOCK: usize = 16 << 10;

    fn pair(slow_blocks: u64, fast_blocks: u64) -> (Rc<Memory>, Rc<Memory>) {
        let slow = Memory::new("hdd0", Bytes(slow_blocks * BLOCK as u64));
        // The map takes 10 bytes a block behind the blocks.
        let fast = Memory::new("ssd0", Bytes(fast_blocks * (BLOCK as u64 + 10) + 8704));
        (slow, fast)
    }

    fn cache(slow: &Rc<Memory>, fast: &Rc<Memory>) -> Dmssd {
        Dmssd::new(slow.clone(), fast.clone(), Bytes(BLOCK as u64))
    }

    fn run(test: impl Future<Output = ()> + 'static) {
        env::Runtime::simulated(1).block_on(test)
    }

    fn block(n: u64) -> Sector {
        Sector(n * BLOCK as u64 / SECTOR)
    }

    #[test]
    fn a_write_miss_first_fetches_its_whole_block() {
        run(async {
            let (slow, fast) = pair(8, 4);
            slow.load(block(3), &[7; BLOCK]);
            let cache = cache(&slow, &fast);
            cache
                .write_at(block(3), View::copy_of(&[1; 512]))
                .await
                .unwrap();
            assert_eq!(
                cache.counts(),
                Counters {
                    fills: 1,
                    ..Counters::default()
                }
            );
            let place = fast.contents(Span::bytes(0, BLOCK as u64));
            assert_eq!((place[511], place[512], place[BLOCK - 1]), (1, 7, 7));
            assert_eq!(
                slow.contents(Span::new(block(3), Bytes(512))),
                [7; 512],
                "written back later"
            );
            assert_eq!(cache.dirty(), 1);
            // Now it is a hit.
            cache
                .write_at(block(3), View::copy_of(&[2; 512]))
                .await
                .unwrap();
            assert_eq!(cache.counts().fills, 1);
            assert_eq!(cache.counts().hits, 1);
        });
    }

    #[test]
    fn a_read_miss_copies_its_block_and_a_reread_needs_the_fast_device_alone() {
        run(async {
            let (slow, fast) = pair(8, 4);
            slow.load(block(5), &[5; BLOCK]);
            let cache = cache(&slow, &fast);
            assert_eq!(
                cache.read_at(block(5), Bytes(512)).await.unwrap()[..],
                [5; 512]
            );
            slow.load(block(5), &[9; BLOCK]);
            let again = cache.read_at(block(5), Bytes(BLOCK as u64)).await.unwrap();
            assert_eq!(again[..], [5; BLOCK]);
            assert_eq!((cache.counts().fills, cache.counts().hits), (1, 1));
        });
    }

    #[test]
    fn a_dirty_victim_goes_home_and_its_request_bypasses() {
        run(async {
            let (slow, fast) = pair(8, 2);
            slow.load(block(2), &[2; BLOCK]);
            let cache = cache(&slow, &fast);
            for n in [0, 1] {
                cache
                    .write_at(block(n), View::copy_of(&[10 + n as u8; BLOCK]))
                    .await
                    .unwrap();
            }
            let read = cache.read_at(block(2), Bytes(BLOCK as u64)).await.unwrap();
            assert_eq!(read[..], [2; BLOCK]);
            env::sleep(base::Nanos::secs(1)).await;
            let counts = cache.counts();
            assert_eq!(
                (counts.fills, counts.bypassed_dirty, counts.written_back),
                (2, 1, 1)
            );
            assert_eq!(slow.contents(Span::new(block(0), Bytes(512))), [10; 512]);
            assert_eq!(slow.contents(Span::new(block(1), Bytes(512))), [0; 512]);
            // Its victim is clean now: the next miss is mapped.
            cache.read_at(block(2), Bytes(512)).await.unwrap();
            assert_eq!(
                (cache.counts().fills, cache.counts().bypassed_dirty),
                (3, 1)
            );
        });
    }

    #[test]
    fn the_map_is_written_at_removal_alone() {
        run(async {
            let (slow, fast) = pair(8, 4);
            let first = cache(&slow, &fast);
            first
                .write_at(block(6), View::copy_of(&[6; BLOCK]))
                .await
                .unwrap();
            first.flush().await.unwrap();
            // A crash: what the flush had confirmed is lost.
            drop(first);
            let open = || Dmssd::open(slow.clone(), fast.clone(), Bytes(BLOCK as u64));
            let second = open().await.unwrap();
            assert_eq!(
                second.read_at(block(6), Bytes(512)).await.unwrap()[..],
                [0; 512]
            );
            second
                .write_at(block(6), View::copy_of(&[8; BLOCK]))
                .await
                .unwrap();
            second.remove().await.unwrap();
            let third = open().await.unwrap();
            assert_eq!((third.dirty(), third.counts().fills), (1, 0));
            assert_eq!(
                third.read_at(block(6), Bytes(512)).await.unwrap()[..],
                [8; 512]
            );
            third.destage_all().await.unwrap();
            assert_eq!(slow.contents(Span::new(block(6), Bytes(512))), [8; 512]);
        });
    }

    #[test]
    fn every_sector_reads_as_it_was_written_last() {
        for seed in 0..20 {
            env::Runtime::simulated(seed).block_on(async move {
                let mut dice = env::rng("test");
                // The last block is short.
                let (slow, fast) = pair(24, 1 + seed % 7);
                let slow_size = slow.info().size.0 - 4096;
                let slow = Memory::new("hdd0", Bytes(slow_size));
                slow.set_latency(base::Nanos::micros(900));
                fast.set_latency(base::Nanos::micros(100));
                let cache = Rc::new(cache(&slow, &fast));
                let mut reference = vec![0_u8; slow_size as usize];
                for round in 0..60_u8 {
                    // Requests of one round lie side by side, so that their order does not matter.
                    let mut tasks = Vec::new();
                    let mut at = dice.below(8) * 512;
                    while at < slow_size {
                        let len = ((1 + dice.below(80)) * 512).min(slow_size - at);
                        let range = at as usize..(at + len) as usize;
                        let sector = Sector::containing(at);
                        let cache = Rc::clone(&cache);
                        if dice.chance(0.5) {
                            reference[range].fill(round + 1);
                            let data = View::copy_of(&vec![round + 1; len as usize]);
                            tasks.push(env::spawn(async move {
                                cache.write_at(sector, data).await.unwrap();
                            }));
                        } else {
                            let expected = reference[range].to_vec();
                            tasks.push(env::spawn(async move {
                                let read = cache.read_at(sector, Bytes(len)).await.unwrap();
                                assert!(
                                    read[..] == expected[..],
                                    "seed {seed}, round {round}, byte {at}"
                                );
                            }));
                        }
                        at += len + dice.below(200) * 512;
                    }
                    for task in tasks {
                        task.await;
                    }
                }
                let counts = cache.counts();
                assert!(counts.bypassed_dirty > 0 && counts.fills > 0, "{counts:?}");
                env::sleep(base::Nanos::secs(1)).await;
                let cache = Rc::into_inner(cache).expect("all requests have ended");
                cache.destage_all().await.unwrap();
                assert!(
                    slow.contents(Span::bytes(0, slow_size)) == reference,
                    "seed {seed}"
                );
            });
        }
    }
}
